// Passes, the caches, and the executable.
#include "torch/compile/program_compiler.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "compiler/fingerprint.h"
#include "compiler/liveness.h"
#include "compiler/parser.h"
#include "compiler/passes/common_subexpressions.h"
#include "compiler/passes/fold_views.h"
#include "compiler/passes/fuse_matmul.h"
#include "compiler/passes/fuse_regions.h"
#include "compiler/passes/placement.h"
#include "compiler/passes/recover_grouped_heads.h"
#include "compiler/passes/recover_rope.h"
#include "compiler/passes/reinplace.h"
#include "runtime/environment.h"
#include "runtime/telemetry.h"
#include "torch/compile/stored_programs.h"
#include "torch/compile/torch_types.h"
#include "torch/ops/kernel_choice.h"

namespace neuron::compile {
namespace {

using Cache = compiler::ProgramCache<Executable>;

compiler::CacheLimits limits_from(const runtime::Environment& environment) {
  compiler::CacheLimits limits;
  if (const auto entries = environment.integer("NEURON_COMPILATION_CACHE_MAX_ENTRIES", 0, INT64_MAX)) {
    limits.entries = static_cast<std::uint64_t>(*entries);
  }
  if (const auto megabytes = environment.integer("NEURON_COMPILATION_CACHE_MAX_SIZE_MB", 0, INT64_MAX >> 20)) {
    limits.bytes = static_cast<std::uint64_t>(*megabytes) << 20;
  }
  return limits;
}

// Leaked: a thread may still run a program while the process ends.
Cache& cache() {
  static Cache& instance = *new Cache(limits_from(runtime::Environment::process()));
  return instance;
}

class Stopwatch {
 public:
  std::int64_t lap_us() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration_cast<std::chrono::microseconds>(now - std::exchange(start_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Constants follow the types that the passes gave them.
void place_constants(const compiler::Program& program, ProgramObjects& objects) {
  for (std::size_t i = 0; i < objects.constants.size(); ++i) {
    const compiler::Type& type = program.type_of(program.constants()[i]);
    at::Tensor& constant = objects.constants[i];
    if (type.is_tensor() && type.tensor.place != to_place(constant.device())) {
      constant = constant.to(to_device(type.tensor.place));
    }
  }
}

// SOFTNEURON_FUSE=0 leaves every operator an ATen call, for comparisons.
bool fuses() { return runtime::Environment::process().boolean("SOFTNEURON_FUSE").value_or(true); }

std::string fingerprint_of(const compiler::Program& program, const ProgramObjects& objects, const std::optional<c10::Device>& device) {
  compiler::Digest digest;
  compiler::update(digest, program);
  digest.update(device ? device->str() : std::string());
  digest.update(fuses() ? "fused" : "");
  for (const at::Tensor& constant : objects.constants) {
    const at::Tensor bytes = constant.to(at::kCPU).contiguous();
    digest.update(bytes.const_data_ptr(), bytes.nbytes());
  }
  return digest.hex();
}

// Calls into Python and constants without plain bytes cannot be compared with another program's.
bool has_fingerprint(const ProgramObjects& objects) {
  return objects.calls.empty() && std::all_of(objects.constants.begin(), objects.constants.end(), [](const at::Tensor& constant) {
           return constant.layout() == at::kStrided && !constant.is_quantized() && !constant.is_meta();
         });
}

std::string unique_key() {
  static std::atomic<std::uint64_t> counter{0};
  compiler::Digest digest;
  digest.update("unique " + std::to_string(++counter));
  return digest.hex();
}

void run_passes(compiler::Program& program, const ProgramObjects& objects, const std::optional<c10::Device>& device,
                const StageObserver& observer) {
  const auto show = [&](const char* stage) {
    if (observer) {
      observer(stage, program);
    }
  };
  show("imported");
  // Higher-order operators carry graphs of their own whose devices cannot be changed from here.
  if (device && objects.calls.empty() && compiler::is_host_program(program)) {
    compiler::move_to_device(program, to_place(*device));
    show("move_to_device");
  } else {
    compiler::copy_host_operands(program);
    show("copy_host_operands");
  }
  compiler::merge_common_subexpressions(program);
  show("merge_common_subexpressions");
  compiler::reinplace_input_updates(program);
  show("reinplace_input_updates");
  if (fuses()) {
    compiler::recover_grouped_heads(program);
    show("recover_grouped_heads");
    compiler::recover_rope(program);
    show("recover_rope");
    // Not below the instruction sets for which the table has our products win.
    if (ops::choice::kMatmul.wins(kernels::DataType::kFloat32, 1)) {
      compiler::fuse_matmul(program);
      show("fuse_matmul");
    }
    compiler::fuse_regions(program);
    show("fuse_regions");
    compiler::fold_views(program);
    show("fold_views");
  }
}

std::shared_ptr<const Executable> make_executable(compiler::Program program, ProgramObjects objects) {
  place_constants(program, objects);
  return std::make_shared<const Executable>(std::move(program), std::move(objects));
}

std::shared_ptr<const Executable> executable_from_folder(const std::string& fingerprint, const compiler::Program& imported,
                                                         const ProgramObjects& objects) {
  auto program = load_stored(fingerprint, imported);
  if (!program) {
    return nullptr;
  }
  try {
    return make_executable(std::move(*program), objects);
  } catch (const c10::Error& error) {
    reject_stored(fingerprint, error.what_without_backtrace());
  } catch (const std::exception& error) {
    reject_stored(fingerprint, error.what());
  }
  return nullptr;
}

std::uint64_t size_of(const Executable& executable) { return executable.size_bytes(); }

void count(const CompiledProgram& compiled) {
  runtime::add(runtime::Counter::kCompiledGraphs);
  runtime::add(compiled.was_cached ? runtime::Counter::kCompileCacheHits : runtime::Counter::kCompileCacheMisses);
}

}  // namespace

CompiledProgram compile_program(ProgramBuilder builder, const std::optional<c10::Device>& device, const StageObserver& observer) {
  Stopwatch watch;
  compiler::Program& program = builder.program();
  ProgramObjects& objects = builder.objects();
  CompiledProgram compiled;
  const bool cacheable = has_fingerprint(objects);
  compiled.fingerprint = cacheable ? fingerprint_of(program, objects, device) : unique_key();
  if (observer) {
    compiler::Program shown = program;
    run_passes(shown, objects, device, observer);
    compiler::plan_releases(shown);
    observer("final", shown);
    watch.lap_us();
  }
  compiled.was_cached = true;
  const auto prepare = [&] {
    compiled.was_cached = false;
    if (cacheable) {
      if (auto stored = executable_from_folder(compiled.fingerprint, program, objects)) {
        compiled.was_stored = true;
        return stored;
      }
    }
    const std::int64_t before = watch.lap_us();
    run_passes(program, objects, device, {});
    compiled.lower_us = before + watch.lap_us();
    compiler::plan_releases(program);
    auto executable = make_executable(std::move(program), std::move(objects));
    if (cacheable) {
      if (const auto text = storable_text(*executable)) {
        store(compiled.fingerprint, *text);
      }
    }
    return executable;
  };
  if (cacheable) {
    compiled.executable = cache().get_or_compile(compiled.fingerprint, prepare, size_of);
  } else {
    compiled.executable = prepare();
    cache().count_uncached();
  }
  compiled.compile_us = watch.lap_us();
  compiled.instruction_count = static_cast<int>(compiled.executable->program().instructions.size());
  count(compiled);
  return compiled;
}

CompiledProgram load_program(const std::string& name, const std::string& fingerprint, const std::string& text,
                             std::vector<at::Tensor> constants) {
  Stopwatch watch;
  CompiledProgram compiled;
  compiled.fingerprint = fingerprint;
  compiled.was_cached = true;
  compiled.executable = cache().get_or_compile(
      fingerprint,
      [&] {
        compiled.was_cached = false;
        compiled.was_stored = true;
        compiler::Program program = compiler::parse_program(text);
        program.set_name(name);
        TORCH_CHECK_VALUE(program.constants().size() == constants.size(), "the stored program ", name, " has ", program.constants().size(),
                          " constants, got ", constants.size());
        return make_executable(std::move(program), ProgramObjects{std::move(constants), {}});
      },
      size_of);
  compiled.compile_us = watch.lap_us();
  compiled.instruction_count = static_cast<int>(compiled.executable->program().instructions.size());
  count(compiled);
  return compiled;
}

compiler::CacheCounters cache_counters() { return cache().counters(); }

void clear_cache() { cache().clear(); }

}  // namespace neuron::compile
