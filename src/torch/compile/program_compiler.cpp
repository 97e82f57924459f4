// Passes, the in-memory cache, and the executable.
#include "torch/compile/program_compiler.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "compiler/fingerprint.h"
#include "compiler/liveness.h"
#include "compiler/passes/common_subexpressions.h"
#include "compiler/passes/fold_views.h"
#include "compiler/passes/fuse_regions.h"
#include "compiler/passes/placement.h"
#include "compiler/passes/recover_grouped_heads.h"
#include "compiler/passes/recover_rope.h"
#include "compiler/passes/reinplace.h"
#include "runtime/environment.h"
#include "runtime/telemetry.h"
#include "torch/compile/stage_dump.h"
#include "torch/compile/torch_types.h"

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

std::string fingerprint_of(const compiler::Program& program, const ProgramObjects& objects) {
  compiler::Digest digest;
  compiler::update(digest, program);
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

}  // namespace

CompiledProgram compile_program(ProgramBuilder builder, const std::optional<c10::Device>& device) {
  Stopwatch watch;
  compiler::Program& program = builder.program();
  StageDump dump(program);
  dump.write("imported");
  // Higher-order operators carry graphs of their own whose devices cannot be changed from here.
  if (device && builder.objects().calls.empty() && compiler::is_host_program(program)) {
    compiler::move_to_device(program, to_place(*device));
  } else {
    compiler::copy_host_operands(program);
  }
  dump.write("placement");
  compiler::merge_common_subexpressions(program);
  dump.write("common_subexpressions");
  compiler::reinplace_input_updates(program);
  dump.write("reinplace");
  if (runtime::Environment::process().boolean("SOFTNEURON_FUSE").value_or(true)) {
    compiler::recover_grouped_heads(program);
    dump.write("recover_grouped_heads");
    compiler::recover_rope(program);
    dump.write("recover_rope");
    compiler::fuse_regions(program);
    dump.write("fuse_regions");
    compiler::fold_views(program);
    dump.write("fold_views");
  }
  CompiledProgram compiled;
  compiled.instruction_count = static_cast<int>(program.instructions.size());
  const bool cacheable = has_fingerprint(builder.objects());
  compiled.fingerprint = cacheable ? fingerprint_of(program, builder.objects()) : unique_key();
  compiled.lower_us = watch.lap_us();

  compiled.was_cached = true;
  const auto prepare = [&] {
    compiled.was_cached = false;
    compiler::plan_releases(program);
    dump.write("releases");
    place_constants(program, builder.objects());
    return std::make_shared<const Executable>(std::move(program), std::move(builder.objects()));
  };
  if (cacheable) {
    compiled.executable =
        cache().get_or_compile(compiled.fingerprint, prepare, [](const Executable& executable) { return executable.size_bytes(); });
  } else {
    compiled.executable = prepare();
    cache().count_uncached();
  }
  compiled.compile_us = watch.lap_us();
  runtime::add(runtime::Counter::kCompiledGraphs);
  runtime::add(compiled.was_cached ? runtime::Counter::kCompileCacheHits : runtime::Counter::kCompileCacheMisses);
  return compiled;
}

compiler::CacheCounters cache_counters() { return cache().counters(); }

void clear_cache() { cache().clear(); }

}  // namespace neuron::compile
