// A program made ready to run: operators looked up, literals turned into the dispatcher's values, one slot per value.
//
// `run` knows nothing of Python (but for steps that call into it) and never looks at the graph again. Each step pushes its arguments on a
// stack, calls the operator below autograd, and moves the results into their slots. An argument that dies there is moved, not copied, so
// its memory is free for the next allocation as soon as the operator is done with it. Fused regions, matrix
// products, plain views and rows written by index need no dispatcher: they take tensors from the slots and put tensors there (fused_call.h,
// matmul_call.h, view_call.h, index_copy_call.h). Safe to run from several threads at once.
//
// Views whose memory the caller reaches in two ways (a result that is a view of an input or of another result) are made with autograd's
// view tracking on: they must share a version counter, or autograd would not notice that a write to one changes what it saved of the other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/program.h"
#include "torch/compile/external_call.h"
#include "torch/compile/fused_call.h"
#include "torch/compile/index_copy_call.h"
#include "torch/compile/matmul_call.h"
#include "torch/compile/memory_demand.h"
#include "torch/compile/step_times.h"
#include "torch/compile/view_call.h"

namespace neuron::compile {

// The things that a program mentions but that have no text.
struct ProgramObjects {
  std::vector<at::Tensor> constants;                       // in the order of Program::constants()
  std::vector<std::shared_ptr<const ExternalCall>> calls;  // `object:N`, operand 0 of opcodes "python::..."
};

class Executable {
 public:
  // Verifies the program. Throws c10::NotImplementedError for unknown operators, c10::ValueError for literals that do not fit.
  Executable(compiler::Program program, ProgramObjects objects);

  // Takes one value per input, in order, and gives one per output. Inputs that the program writes are written in place. Throws
  // c10::OutOfMemoryError before anything has run if the program cannot fit (memory_demand.h).
  std::vector<c10::IValue> run(std::vector<c10::IValue> inputs) const;

  const compiler::Program& program() const { return program_; }
  const ProgramObjects& objects() const { return objects_; }
  std::size_t input_count() const { return program_.inputs().size(); }
  // Bytes kept alive by this executable: constants, and an estimate for the steps.
  std::uint64_t size_bytes() const;
  const StepTimes& times() const { return *times_; }

 private:
  struct Fill {
    std::uint32_t argument;  // index on the stack
    std::uint32_t element;   // index in the list there, kWhole if the value is the argument itself
    compiler::ValueId value;
    bool last;  // the value dies here
  };
  static constexpr std::uint32_t kWhole = UINT32_MAX;

  struct Step {
    std::optional<c10::OperatorHandle> op;
    std::shared_ptr<const ExternalCall> external;
    std::shared_ptr<const FusedCall> fused;
    std::shared_ptr<const MatmulCall> matmul;
    std::optional<ViewCall> view;
    std::shared_ptr<const IndexCopyCall> index_copy;
    std::vector<c10::IValue> arguments;  // literals and constants; values are filled in
    std::vector<Fill> fills;
    std::vector<std::uint32_t> lists;  // arguments that are lists with values inside: never shared between runs
    std::vector<compiler::ValueId> results;
    bool results_are_list = false;
    bool tracks_views = false;                     // autograd gets to know what the results are views of
    std::vector<compiler::ValueId> late_releases;  // values that die here but could not be moved
  };

  using Slots = std::vector<c10::IValue>;

  Step make_step(const compiler::Instruction& instruction);
  void bind_argument(Step& step, const compiler::Operand& operand, const c10::Argument* parameter);
  // A step that needs no dispatcher.
  template <class Call>
  Step make_call_step(const compiler::Instruction& instruction, std::shared_ptr<const Call> Step::* call) const;
  void mark_last_uses(Step& step, const compiler::Instruction& instruction) const;
  void find_written_inputs();
  void find_tracked_views();

  void execute(const Step& step, Slots& slots, torch::jit::Stack& stack) const;
  void execute_fused(const Step& step, Slots& slots) const;
  void execute_matmul(const Step& step, Slots& slots) const;
  bool execute_view(const Step& step, Slots& slots) const;
  bool execute_index_copy(const Step& step, Slots& slots) const;
  const at::Tensor& tensor_of(compiler::ValueId id, const Slots& slots) const;
  static void release(const Step& step, Slots& slots);
  // Of a step that has an operator, which did not run.
  static void release_arguments(const Step& step, Slots& slots);
  void push_arguments(const Step& step, Slots& slots, torch::jit::Stack& stack) const;

  compiler::Program program_;
  ProgramObjects objects_;
  MemoryDemand memory_;
  std::vector<Step> steps_;
  std::vector<const at::Tensor*> constant_of_;  // by value id; null for other values
  std::vector<std::size_t> written_inputs_;     // positions among the inputs
  std::size_t largest_stack_ = 0;
  std::unique_ptr<StepTimes> times_;
};

}  // namespace neuron::compile
