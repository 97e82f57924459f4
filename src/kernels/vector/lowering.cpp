// Region to plan: lays out rows and blocks, orders the steps on demand, joins operations, and assigns registers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/vector/plan.h"

namespace neuron::kernels::vector {
namespace {

constexpr std::int64_t kChunk = 1024;        // elements: a float32 register of 4 KiB, ten of them fit the first-level cache
constexpr std::int64_t kTile = 16 * kChunk;  // of a long row, where no step needs the row as a whole
constexpr std::int64_t kAlignment = 64;
constexpr int kCheapCost = 4;  // operations that are repeated rather than kept for another phase

bool needs_rows(const Region& region) {
  return std::any_of(region.nodes.begin(), region.nodes.end(),
                     [](const Node& node) { return is_reduction(node.op) || is_rotation(node.op); });
}

bool keeps_value(Element from, Element to) {
  if (lane_of(from) != lane_of(to)) {
    return false;
  }
  if (from == to || from == Element::kBool || to == Element::kF32 || to == Element::kF64 || to == Element::kI64) {
    return to != Element::kBool || from == Element::kBool;
  }
  return lane_of(from) == Lane::kInteger && from != Element::kI64 && size_of(from) < size_of(to);
}

bool needs_rounding(Element type) {
  return type != Element::kF32 && type != Element::kF64 && type != Element::kI64 && type != Element::kBool;
}

}  // namespace

class Lowering {
 public:
  Lowering(const Region& region, Plan& plan) : region_(region), plan_(plan), table_(*plan.table_) {}

  void run() {
    lay_out();
    classify();
    plan_.phases_.resize(static_cast<std::size_t>(phase_count_));
    for (int phase = 0; phase < phase_count_; ++phase) {
      phase_ = phase;
      for (std::size_t i = 0; i < region_.nodes.size(); ++i) {
        const bool reduces = is_reduction(region_.nodes[i].op);
        if (facts_[i].phase == phase && facts_[i].used && (reduces || facts_[i].kept)) {
          emit(static_cast<int>(i));
        }
      }
      for (std::size_t i = 0; i < region_.stores.size(); ++i) {
        const Facts& facts = facts_[static_cast<std::size_t>(region_.stores[i].node)];
        if ((facts.row ? facts.available : facts.phase) == phase) {
          store(static_cast<int>(i));
        }
      }
      for (std::size_t i = 0; i < steps().size(); ++i) {
        bind_store(i);
      }
      std::erase_if(steps(), [](const Step& step) { return step.kind == Step::Kind::kStore && step.store == nullptr; });
      in_phase_.clear();
    }
    assign_registers();
  }

 private:
  struct Facts {
    bool row = false;  // one value per row
    bool used = false;
    bool kept = false;  // in a buffer, for a later phase
    int phase = 0;      // the sweep in which it can be computed
    int available = 0;  // the sweep in which others can read it
    int uses = 0;
  };

  std::vector<Step>& steps() { return plan_.phases_[static_cast<std::size_t>(phase_)].body; }
  std::vector<Step>& row_steps() {
    auto& phase = plan_.phases_[static_cast<std::size_t>(phase_)];
    return whole_rows_ ? phase.body : phase.before;
  }
  const Node& node(int index) const { return region_.nodes[static_cast<std::size_t>(index)]; }
  Facts& facts(int index) { return facts_[static_cast<std::size_t>(index)]; }

  // --- geometry ---

  std::int64_t stride_of(const Access& access, std::size_t dim) const { return access.strides[dim]; }

  template <typename Visitor>
  void for_each_access(Visitor&& visit) const {
    for (const Node& node : region_.nodes) {
      if (is_source(node.op)) {
        visit(node.access);
      }
    }
    for (const Store& store : region_.stores) {
      visit(store.access);
    }
  }

  // Which of the region's dimensions the plan's dimensions are made of: in the order of the first result's memory, neighbours joined where
  // every tensor allows it.
  void lay_out() {
    const bool fixed_last = needs_rows(region_);
    const std::size_t rank = region_.sizes.size();
    std::vector<std::size_t> order;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      if (region_.sizes[dim] != 1 && !(fixed_last && dim + 1 == rank)) {
        order.push_back(dim);
      }
    }
    const Access& leading = region_.stores.front().access;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return leading.strides[a] > leading.strides[b]; });
    if (fixed_last) {
      order.push_back(rank - 1);
    }
    std::vector<std::int64_t> sizes;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool last_fixed = fixed_last && i + 1 == order.size();
      if (!groups_.empty() && !last_fixed && may_join(order[i - 1], order[i])) {
        groups_.back() = order[i];
        sizes.back() *= region_.sizes[order[i]];
      } else {
        groups_.push_back(order[i]);
        sizes.push_back(region_.sizes[order[i]]);
      }
    }
    plan_.row_size_ = sizes.empty() ? 1 : sizes.back();
    if (!sizes.empty()) {
      sizes.pop_back();
    }
    plan_.outer_sizes_ = sizes;
    plan_.row_count_ = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
    choose_blocks(fixed_last);
  }

  bool may_join(std::size_t outer, std::size_t inner) const {
    bool joins = true;
    for_each_access([&](const Access& access) { joins = joins && access.strides[outer] == access.strides[inner] * region_.sizes[inner]; });
    return joins;
  }

  void choose_blocks(bool rows_matter) {
    const bool rotates = std::any_of(region_.nodes.begin(), region_.nodes.end(), [](const Node& node) { return is_rotation(node.op); });
    const std::int64_t row = plan_.row_size_;
    whole_rows_ = row <= kChunk || rotates;
    if (whole_rows_) {
      plan_.rows_per_block_ = std::max<std::int64_t>(1, kChunk / std::max<std::int64_t>(row, 1));
      plan_.chunk_ = plan_.tile_ = std::max<std::int64_t>(row, 1);
    } else {
      plan_.chunk_ = kChunk;
      plan_.tile_ = rows_matter ? row : kTile;
      plan_.tiles_per_row_ = (row + plan_.tile_ - 1) / plan_.tile_;
    }
    plan_.rows_per_block_ = std::min(plan_.rows_per_block_, std::max<std::int64_t>(plan_.row_count_, 1));
    plan_.units_ = (plan_.row_count_ + plan_.rows_per_block_ - 1) / plan_.rows_per_block_ * plan_.tiles_per_row_;
    plan_.unit_elements_ = plan_.rows_per_block_ * std::min(plan_.tile_, std::max<std::int64_t>(row, 1));
    plan_.units_ = plan_.row_count_ == 0 || row == 0 ? 0 : plan_.units_;
    phased_ = rows_matter && !whole_rows_;
  }

  int add_access(const Access& access, int tensor, int element_size) {
    RowAccess result;
    for (std::size_t i = 0; i + 1 < groups_.size(); ++i) {
      result.outer.push_back(access.strides[groups_[i]]);
    }
    result.inner = groups_.empty() ? 0 : access.strides[groups_.back()];
    result.offset = access.offset;
    result.tensor = tensor;
    result.element_size = element_size;
    result.dense = plan_.rows_per_block_ == 1 ||
                   (result.inner == 1 && plan_.outer_sizes_.size() <= 1 && (result.outer.empty() || result.outer[0] == plan_.row_size_));
    plan_.accesses_.push_back(std::move(result));
    return static_cast<int>(plan_.accesses_.size()) - 1;
  }

  bool is_constant_along_row(const Access& access) const { return groups_.empty() || access.strides[groups_.back()] == 0; }

  // --- what nodes are ---

  void classify() {
    facts_.resize(region_.nodes.size());
    for (std::size_t i = 0; i < region_.nodes.size(); ++i) {
      const Node& node = region_.nodes[i];
      Facts& facts = facts_[i];
      facts.row = is_source(node.op) ? is_constant_along_row(node.access) : !is_rotation(node.op);
      for (const Argument& argument : node.arguments) {
        if (!argument.is_number()) {
          const Facts& read = facts_[static_cast<std::size_t>(argument.node)];
          facts.row = facts.row && (read.row || is_reduction(node.op));
          facts.phase = std::max(facts.phase, read.available);
        }
      }
      facts.available = facts.phase + (phased_ && is_reduction(node.op) ? 1 : 0);
      phase_count_ = std::max(phase_count_, facts.available + 1);
    }
    for (const Store& store : region_.stores) {
      facts(store.node).used = true;
      ++facts(store.node).uses;
    }
    for (std::size_t i = region_.nodes.size(); i-- > 0;) {
      if (facts_[i].used) {
        for (const Argument& argument : region_.nodes[i].arguments) {
          if (!argument.is_number()) {
            Facts& read = facts(argument.node);
            read.used = true;
            ++read.uses;
            if (!facts_[i].row && !read.row && read.phase < facts_[i].phase && cost_of(argument.node) > kCheapCost) {
              read.kept = true;
            }
            if (is_reduction(region_.nodes[i].op) && !read.row && read.phase < facts_[i].phase && cost_of(argument.node) > kCheapCost) {
              read.kept = true;
            }
          }
        }
      }
    }
  }

  // Of computing the node again from memory.
  int cost_of(int index) const {
    const Node& n = node(index);
    if (facts_[static_cast<std::size_t>(index)].row) return 0;
    switch (n.op) {
      case Op::kLoad:
        return 1;
      case Op::kIota:
      case Op::kCopy:
      case Op::kAdd:
      case Op::kSubtract:
      case Op::kMultiply:
      case Op::kNegate: {
        int cost = 1;
        for (const Argument& argument : n.arguments) {
          cost += argument.is_number() ? 0 : cost_of(argument.node);
        }
        return cost;
      }
      default:
        return kCheapCost + 1;
    }
  }

  // --- steps ---

  Ref new_vector(Lane lane) {
    Plan::Vector vector;
    vector.size = static_cast<std::uint8_t>(size_of(lane));
    plan_.vectors_.push_back(vector);
    return {Ref::Kind::kVector, vector.size, static_cast<int>(plan_.vectors_.size()) - 1};
  }

  Ref new_row(Lane lane) {
    plan_.row_offsets_.push_back(0);
    return {Ref::Kind::kRow, static_cast<std::uint8_t>(size_of(lane)), static_cast<int>(plan_.row_offsets_.size()) - 1};
  }

  Ref number(const Argument& argument, Lane lane) {
    std::int64_t bits = argument.integer;
    if (lane == Lane::kDouble) {
      bits = std::bit_cast<std::int64_t>(argument.number);
    } else if (lane == Lane::kFloat) {
      bits = std::bit_cast<std::int32_t>(static_cast<float>(argument.number));
    }
    plan_.numbers_.push_back(bits);
    return {Ref::Kind::kNumber, static_cast<std::uint8_t>(size_of(lane)), static_cast<int>(plan_.numbers_.size()) - 1};
  }

  Ref emit(int index) {
    const Facts& known = facts(index);
    auto& memo = known.row || known.kept ? global_ : in_phase_;
    if (const auto found = memo.find(index); found != memo.end()) {
      return found->second;
    }
    const Ref result = emit_new(index);
    if (known.kept && result.kind == Ref::Kind::kVector) {
      plan_.vectors_[static_cast<std::size_t>(result.index)].whole_row = true;
    }
    (known.row || known.kept ? global_ : in_phase_)[index] = result;
    return result;
  }

  Ref emit_new(int index) {
    const Node& n = node(index);
    if (is_source(n.op)) return emit_source(index);
    if (is_reduction(n.op)) return emit_reduction(n);
    if (is_rotation(n.op)) return emit_rotation(n);
    if (n.op == Op::kCopy) return emit_copy(index);
    if (n.op == Op::kAdd) {
      if (const auto joined = emit_multiply_add(index)) {
        return *joined;
      }
    }
    return emit_elements(index, n.type);
  }

  Ref emit_source(int index) {
    const Node& n = node(index);
    const Lane lane = lane_of(n.type);
    Step step;
    const bool row = facts(index).row;
    step.access = add_access(n.access, n.op == Op::kLoad ? n.tensor : -1, size_of(n.type));
    step.out = row ? new_row(lane) : new_vector(lane);
    step.load = table_.load[static_cast<int>(n.type)];
    const RowAccess& access = plan_.accesses_.back();
    if (n.op == Op::kIota) {
      step.kind = row ? Step::Kind::kIotaRows : Step::Kind::kIota;
    } else if (row) {
      step.kind = Step::Kind::kLoadRows;
    } else if (access.dense && access.inner == 1 && size_of(n.type) == size_of(lane)) {
      step.kind = Step::Kind::kBind;
      plan_.vectors_.back().bound = true;
    } else {
      step.kind = Step::Kind::kLoad;
    }
    (row ? row_steps() : steps()).push_back(step);
    return step.out;
  }

  Ref as_vector(Ref ref, Lane lane) {
    if (ref.kind == Ref::Kind::kVector) {
      return ref;
    }
    Step step;
    step.kind = Step::Kind::kSpread;
    step.element = table_.fill[static_cast<int>(lane)];
    step.arguments[0] = ref;
    step.out = new_vector(lane);
    steps().push_back(step);
    return step.out;
  }

  Ref emit_reduction(const Node& n) {
    const Lane lane = lane_of(n.type);
    const Ref in = as_vector(emit(n.arguments[0].node), lane);
    const Ref out = new_row(lane);
    Step start;
    start.kind = Step::Kind::kElementRows;
    start.element = table_.fill[static_cast<int>(lane)];
    start.out = out;
    const double infinity = std::numeric_limits<double>::infinity();
    const Argument identity = n.op == Op::kSum    ? Argument::of_integer(0)
                              : n.op == Op::kAmax ? Argument{-1, -infinity, INT64_MIN}
                                                  : Argument{-1, infinity, INT64_MAX};
    start.arguments[0] = number(identity, lane);
    row_steps().push_back(start);
    Step step;
    step.kind = Step::Kind::kReduce;
    const auto& kernels = n.op == Op::kSum ? table_.sum : n.op == Op::kAmax ? table_.amax : table_.amin;
    step.reduce = kernels[static_cast<int>(lane)];
    step.arguments[0] = in;
    step.out = out;
    steps().push_back(step);
    if (!needs_rounding(n.type) || n.op != Op::kSum) {
      return out;
    }
    if (phased_) {
      throw_if_last_phase();
      ++phase_;
    }
    const Ref result = round(out, lane, n.type);
    phase_ -= phased_ ? 1 : 0;
    return result;
  }

  void throw_if_last_phase() const {
    if (phase_ + 1 >= phase_count_) {
      throw std::logic_error("a reduction without a phase after it");
    }
  }

  Ref emit_rotation(const Node& n) {
    Step step;
    step.kind = Step::Kind::kRotate;
    step.element = n.op == Op::kRotateHalf ? table_.rotate_half : table_.rotate_half_back;
    step.arguments[0] = as_vector(emit(n.arguments[0].node), Lane::kFloat);
    step.out = new_vector(Lane::kFloat);
    steps().push_back(step);
    return step.out;
  }

  // To the lane and precision of an element type.
  Ref round(Ref in, Lane from, Element to) {
    Step step;
    const bool row = in.kind == Ref::Kind::kRow;
    step.kind = row ? Step::Kind::kElementRows : Step::Kind::kElements;
    step.element = table_.convert[static_cast<int>(from)][static_cast<int>(to)];
    step.arguments[0] = in;
    step.out = row ? new_row(lane_of(to)) : new_vector(lane_of(to));
    (row ? row_steps() : steps()).push_back(step);
    return step.out;
  }

  Ref emit_copy(int index) {
    const Node& n = node(index);
    const Argument& argument = n.arguments[0];
    if (argument.is_number()) {
      return emit_number(argument, n.type);
    }
    const Node& source = node(argument.node);
    const Facts& read = facts(argument.node);
    // A rounding joins the operation before it if nothing else reads that.
    if (n.type == Element::kBF16 && source.type == Element::kF32 && read.uses == 1 && !read.kept && read.row == facts(index).row &&
        read.phase == facts(index).phase && !is_source(source.op) && !is_reduction(source.op) && !is_rotation(source.op) &&
        source.op != Op::kCopy && source.op != Op::kWhere && source.op != Op::kAdd) {
      return emit_elements(argument.node, n.type);
    }
    const Ref in = emit(argument.node);
    return keeps_value(source.type, n.type) ? in : round(in, lane_of(source.type), n.type);
  }

  Ref emit_number(const Argument& argument, Element type) {
    Step step;
    step.kind = Step::Kind::kElementRows;
    step.element = table_.fill[static_cast<int>(lane_of(type))];
    step.arguments[0] = number(argument, lane_of(type));
    step.out = new_row(lane_of(type));
    row_steps().push_back(step);
    return needs_rounding(type) ? round(step.out, lane_of(type), type) : step.out;
  }

  std::optional<Ref> emit_multiply_add(int index) {
    const Node& n = node(index);
    if (n.type != Element::kF32 && n.type != Element::kBF16) {
      return std::nullopt;
    }
    for (int side = 0; side < 2; ++side) {
      const Argument& factor = n.arguments[static_cast<std::size_t>(side)];
      if (factor.is_number() || node(factor.node).op != Op::kMultiply || node(factor.node).type != n.type) {
        continue;
      }
      const Facts& read = facts(factor.node);
      if (read.uses != 1 || read.kept || read.row || read.phase != facts(index).phase) {
        continue;
      }
      const Node& product = node(factor.node);
      Node joined{
          Op::kMultiplyAdd, n.type, {product.arguments[0], product.arguments[1], n.arguments[static_cast<std::size_t>(1 - side)]}, -1, {}};
      return emit_node(joined, facts(index).row, n.type);
    }
    return std::nullopt;
  }

  // Rounds to `type`, which is the node's own or one that a cast after it asks for.
  Ref emit_elements(int index, Element type) { return emit_node(node(index), facts(index).row, type); }

  Ref emit_node(const Node& n, bool row, Element type) {
    Step step;
    Lane lane = lane_of(n.type);
    if (is_comparison(n.op) || n.op == Op::kIsNan || n.op == Op::kNot) {
      for (const Argument& argument : n.arguments) {
        lane = argument.is_number() ? lane : lane_of(node(argument.node).type);
      }
    }
    int mask = 0;
    bool any_vector = false;
    for (std::size_t i = 0; i < n.arguments.size(); ++i) {
      const Argument& argument = n.arguments[i];
      const Lane own = n.op == Op::kWhere && i == 0 ? Lane::kFloat : lane;
      step.arguments[i] = argument.is_number() ? number(argument, own) : emit(argument.node);
      any_vector = any_vector || step.arguments[i].kind == Ref::Kind::kVector;
    }
    const Ref::Kind wide = row ? Ref::Kind::kRow : Ref::Kind::kVector;
    bool any_wide = false;
    for (std::size_t i = 0; i < n.arguments.size(); ++i) {
      any_wide = any_wide || step.arguments[i].kind == wide;
    }
    for (std::size_t i = 0; i < n.arguments.size(); ++i) {
      Ref& ref = step.arguments[i];
      // Kernels want one operand at least that is no number.
      if (!any_wide || (arity_of(n.op) == 1 && ref.kind != wide)) {
        const Lane own = n.op == Op::kWhere && i == 0 ? Lane::kFloat : lane;
        ref = row ? spread_row(ref, own) : as_vector(ref, own);
        any_wide = true;
      }
      if (ref.kind != wide) {
        mask |= 1 << i;
        step.by_rows = step.by_rows || ref.kind == Ref::Kind::kRow;
      }
    }
    const bool rounds_here = type == Element::kBF16 && lane == Lane::kFloat;
    const auto& kernels = table_.elements[static_cast<int>(n.op)][static_cast<int>(lane)];
    step.element = rounds_here && kernels[1][mask] != nullptr ? kernels[1][mask] : kernels[0][mask];
    if (step.element == nullptr) {
      throw std::invalid_argument("fused region: no " + std::string(name_of(n.op)) + " on " + std::string(name_of(n.type)));
    }
    const bool rounded = rounds_here && step.element == kernels[1][mask];
    step.kind = row ? Step::Kind::kElementRows : Step::Kind::kElements;
    const bool truth = is_comparison(n.op) || n.op == Op::kIsNan;
    const Lane result = truth ? Lane::kFloat : lane;
    step.out = row ? new_row(result) : new_vector(result);
    (row ? row_steps() : steps()).push_back(step);
    if (truth || rounded || !needs_rounding(type) || n.op == Op::kWhere) {
      return n.op == Op::kNot && lane != Lane::kFloat ? round(step.out, lane, Element::kBool) : step.out;
    }
    return round(step.out, lane, type);
  }

  Ref spread_row(Ref ref, Lane lane) {
    if (ref.kind == Ref::Kind::kRow) {
      return ref;
    }
    Step step;
    step.kind = Step::Kind::kElementRows;
    step.element = table_.fill[static_cast<int>(lane)];
    step.arguments[0] = ref;
    step.out = new_row(lane);
    row_steps().push_back(step);
    return step.out;
  }

  void store(int index) {
    const Store& store = region_.stores[static_cast<std::size_t>(index)];
    Step step;
    step.store = table_.store[static_cast<int>(store.type)];
    const Ref value = emit(store.node);
    step.access = add_access(store.access, region_.inputs + index, size_of(store.type));
    if (value.kind == Ref::Kind::kRow && is_constant_along_row(store.access)) {
      step.kind = Step::Kind::kStoreRows;
      step.arguments[0] = value;
      row_steps().push_back(step);
      return;
    }
    step.kind = Step::Kind::kStore;
    step.arguments[0] = as_vector(value, lane_of(store.type));
    steps().push_back(step);
  }

  // Lets the step that computes a result write it where it belongs.
  void bind_store(std::size_t position) {
    Step& step = steps()[position];
    if (step.kind != Step::Kind::kStore || step.store == nullptr) {
      return;
    }
    const RowAccess& access = plan_.accesses_[static_cast<std::size_t>(step.access)];
    Plan::Vector& vector = plan_.vectors_[static_cast<std::size_t>(step.arguments[0].index)];
    if (!access.dense || access.inner != 1 || access.element_size != vector.size || vector.bound || vector.whole_row) {
      return;
    }
    const auto definition = std::find_if(steps().begin(), steps().end(), [&](const Step& candidate) {
      return candidate.out.kind == Ref::Kind::kVector && candidate.out.index == step.arguments[0].index;
    });
    if (definition == steps().end() || definition->kind == Step::Kind::kLoad) {
      return;
    }
    vector.bound = true;
    Step bind;
    bind.kind = Step::Kind::kBind;
    bind.access = step.access;
    bind.out = step.arguments[0];
    step.store = nullptr;
    steps().insert(definition, bind);
  }

  // --- registers ---

  static bool defines_vector(const Step& step) { return step.out.kind == Ref::Kind::kVector; }

  void assign_registers() {
    const auto align = [](std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
    std::size_t bytes = 0;
    for (std::size_t& offset : plan_.row_offsets_) {
      offset = bytes;
      bytes = align(bytes + static_cast<std::size_t>(plan_.rows_per_block_) * 8);
    }
    std::size_t widest = 4;
    for (Plan::Vector& vector : plan_.vectors_) {
      widest = std::max<std::size_t>(widest, vector.size);
      if (vector.whole_row) {
        vector.offset = bytes;
        bytes = align(bytes + static_cast<std::size_t>(plan_.row_size_) * vector.size);
      }
    }
    const std::size_t register_bytes = align(static_cast<std::size_t>(plan_.chunk_ * plan_.rows_per_block_) * widest);
    int count = 0;
    for (Plan::Phase& phase : plan_.phases_) {
      count = std::max(count, assign_phase(phase.body, bytes, register_bytes));
    }
    plan_.scratch_bytes_ = bytes + static_cast<std::size_t>(count) * register_bytes;
  }

  // Linear scan; an operand that dies gives its register to the result if their elements are equally large. Returns how many are used.
  int assign_phase(const std::vector<Step>& body, std::size_t base, std::size_t register_bytes) {
    std::map<int, std::size_t> last_use;
    for (std::size_t i = 0; i < body.size(); ++i) {
      for (const Ref& ref : body[i].arguments) {
        if (ref.kind == Ref::Kind::kVector) {
          last_use[ref.index] = i;
        }
      }
    }
    std::vector<int> free;
    std::map<int, int> assigned;
    int count = 0;
    const auto release = [&](const Ref& ref, std::size_t step) {
      const auto found = ref.kind == Ref::Kind::kVector ? assigned.find(ref.index) : assigned.end();
      if (found != assigned.end() && last_use[ref.index] == step) {
        free.push_back(found->second);
        assigned.erase(found);
      }
    };
    for (std::size_t i = 0; i < body.size(); ++i) {
      const Step& step = body[i];
      const bool in_place = step.kind == Step::Kind::kElements;
      for (const Ref& ref : step.arguments) {
        if (in_place && ref.size == step.out.size) {
          release(ref, i);
        }
      }
      if (defines_vector(step)) {
        Plan::Vector& vector = plan_.vectors_[static_cast<std::size_t>(step.out.index)];
        if (!vector.whole_row && !vector.bound) {
          if (free.empty()) {
            free.push_back(count++);
          }
          const int taken = free.back();
          free.pop_back();
          vector.offset = base + static_cast<std::size_t>(taken) * register_bytes;
          if (last_use.contains(step.out.index)) {
            assigned[step.out.index] = taken;
          } else {
            free.push_back(taken);
          }
        }
      }
      for (const Ref& ref : step.arguments) {
        release(ref, i);
      }
    }
    return count;
  }

  const Region& region_;
  Plan& plan_;
  const KernelTable& table_;
  std::vector<std::size_t> groups_;  // the innermost of the region's dimensions that each of the plan's is made of
  std::vector<Facts> facts_;
  bool whole_rows_ = true;
  bool phased_ = false;
  int phase_count_ = 1;
  int phase_ = 0;
  std::map<int, Ref> global_;
  std::map<int, Ref> in_phase_;
};

Plan::Plan(const Region& region, const KernelTable& table) : table_(&table) {
  check(region);
  Lowering(region, *this).run();
}

}  // namespace neuron::kernels::vector
