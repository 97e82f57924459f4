// Orders the steps of a region on demand, and joins operations.
#include "kernels/vector/lowering.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

#include "kernels/vector/node_facts.h"

namespace neuron::kernels::vector {
namespace {

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

class Lowering {
 public:
  Lowering(const Region& region, const RowLayout& layout, const KernelTable& table)
      : region_(region), layout_(layout), table_(table), facts_(facts_of(region, layout)) {
    for (const NodeFacts& facts : facts_) {
      phase_count_ = std::max(phase_count_, facts.available + 1);
    }
  }

  Steps run() {
    result_.phases.resize(static_cast<std::size_t>(phase_count_));
    for (phase_ = 0; phase_ < phase_count_; ++phase_) {
      for (std::size_t i = 0; i < region_.nodes.size(); ++i) {
        const bool reduces = is_reduction(region_.nodes[i].op);
        if (facts_[i].phase == phase_ && facts_[i].used && (reduces || facts_[i].kept)) {
          emit(static_cast<int>(i));
        }
      }
      for (std::size_t i = 0; i < region_.stores.size(); ++i) {
        const NodeFacts& known = facts(region_.stores[i].node);
        if ((known.row ? known.available : known.phase) == phase_) {
          store(static_cast<int>(i));
        }
      }
      for (std::size_t i = 0; i < steps().size(); ++i) {
        bind_store(i);
      }
      std::erase_if(steps(), [](const Step& step) { return step.kind == Step::Kind::kStore && step.store == nullptr; });
      in_phase_.clear();
    }
    return std::move(result_);
  }

 private:
  std::vector<Step>& steps() { return result_.phases[static_cast<std::size_t>(phase_)].body; }
  std::vector<Step>& row_steps() {
    Phase& phase = result_.phases[static_cast<std::size_t>(phase_)];
    return layout_.whole_rows ? phase.body : phase.before;
  }
  const Node& node(int index) const { return region_.nodes[static_cast<std::size_t>(index)]; }
  const NodeFacts& facts(int index) const { return facts_[static_cast<std::size_t>(index)]; }

  int add_access(const Access& access, int tensor, int element_size) {
    result_.accesses.push_back(layout_.access(access, tensor, element_size));
    return static_cast<int>(result_.accesses.size()) - 1;
  }

  Ref new_vector(Lane lane) {
    VectorRegister vector;
    vector.size = static_cast<std::uint8_t>(size_of(lane));
    result_.vectors.push_back(vector);
    return {Ref::Kind::kVector, vector.size, static_cast<int>(result_.vectors.size()) - 1};
  }

  Ref new_row(Lane lane) {
    result_.row_offsets.push_back(0);
    return {Ref::Kind::kRow, static_cast<std::uint8_t>(size_of(lane)), static_cast<int>(result_.row_offsets.size()) - 1};
  }

  Ref number(const Argument& argument, Lane lane) {
    std::int64_t bits = argument.integer;
    if (lane == Lane::kDouble) {
      bits = std::bit_cast<std::int64_t>(argument.number);
    } else if (lane == Lane::kFloat) {
      bits = std::bit_cast<std::int32_t>(static_cast<float>(argument.number));
    }
    result_.numbers.push_back(bits);
    return {Ref::Kind::kNumber, static_cast<std::uint8_t>(size_of(lane)), static_cast<int>(result_.numbers.size()) - 1};
  }

  Ref emit(int index) {
    const NodeFacts& known = facts(index);
    auto& memo = known.row || known.kept ? global_ : in_phase_;
    if (const auto found = memo.find(index); found != memo.end()) {
      return found->second;
    }
    const Ref result = emit_new(index);
    if (known.kept && result.kind == Ref::Kind::kVector) {
      result_.vectors[static_cast<std::size_t>(result.index)].whole_row = true;
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
    const RowAccess& access = result_.accesses.back();
    if (n.op == Op::kIota) {
      step.kind = row ? Step::Kind::kIotaRows : Step::Kind::kIota;
    } else if (row) {
      step.kind = Step::Kind::kLoadRows;
    } else if (access.dense && access.inner == 1 && size_of(n.type) == size_of(lane)) {
      step.kind = Step::Kind::kBind;
      result_.vectors.back().bound = true;
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
    if (layout_.phased) {
      throw_if_last_phase();
      ++phase_;
    }
    const Ref result = round(out, lane, n.type);
    phase_ -= layout_.phased ? 1 : 0;
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
    const NodeFacts& read = facts(argument.node);
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
      const NodeFacts& read = facts(factor.node);
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
    if (value.kind == Ref::Kind::kRow && layout_.is_constant_along_row(store.access)) {
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
    const RowAccess& access = result_.accesses[static_cast<std::size_t>(step.access)];
    VectorRegister& vector = result_.vectors[static_cast<std::size_t>(step.arguments[0].index)];
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

  const Region& region_;
  const RowLayout& layout_;
  const KernelTable& table_;
  const std::vector<NodeFacts> facts_;
  Steps result_;
  int phase_count_ = 1;
  int phase_ = 0;
  std::map<int, Ref> global_;
  std::map<int, Ref> in_phase_;
};

}  // namespace

Steps lower(const Region& region, const RowLayout& layout, const KernelTable& table) { return Lowering(region, layout, table).run(); }

}  // namespace neuron::kernels::vector
