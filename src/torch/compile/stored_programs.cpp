// The process's cache folder.
#include "torch/compile/stored_programs.h"

#include <link.h>
#include <torch/version.h>

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "compiler/disk_cache.h"
#include "compiler/fingerprint.h"
#include "compiler/parser.h"
#include "compiler/printer.h"
#include "runtime/environment.h"

namespace neuron::compile {
namespace {

constexpr std::uint64_t kDefaultLimit = 1ULL << 30;
constexpr const char* kDefaultFolder = "/tmp/neff_cache";

// Any address of this library, to find it among the loaded ones.
const int kHere = 0;

// The linker's digest of this library, as hexadecimal digits: any change of the sources changes it.
int find_build_id(dl_phdr_info* info, std::size_t /*size*/, void* result) {
  const auto here = reinterpret_cast<ElfW(Addr)>(&kHere);
  bool ours = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    ours = ours || (segment.p_type == PT_LOAD && here - (info->dlpi_addr + segment.p_vaddr) < segment.p_memsz);
  }
  for (int i = 0; ours && i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) {
      continue;
    }
    const auto* note = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    const char* end = note + segment.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof(header));
      const char* name = note + sizeof(header);
      const char* content = name + (header.n_namesz + 3U) / 4U * 4U;
      if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        compiler::Digest digest;
        digest.update(content, header.n_descsz);
        *static_cast<std::string*>(result) = digest.hex();
        return 1;
      }
      note = content + (header.n_descsz + 3U) / 4U * 4U;
    }
  }
  return ours ? 1 : 0;
}

std::string instruction_set() {
  std::string names;
#if defined(__x86_64__)
  const auto add = [&names](const char* name, bool has) { names += has ? std::string(names.empty() ? "" : "+") + name : ""; };
  add("avx2", __builtin_cpu_supports("avx2") != 0);
  add("fma", __builtin_cpu_supports("fma") != 0);
  add("avx512f", __builtin_cpu_supports("avx512f") != 0);
  add("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
  add("avx512bf16", __builtin_cpu_supports("avx512bf16") != 0);
#endif
  return names.empty() ? "generic" : names;
}

std::mutex& reports_mutex() {
  static std::mutex& instance = *new std::mutex;
  return instance;
}

std::vector<std::string>& reports() {
  static std::vector<std::string>& instance = *new std::vector<std::string>;
  return instance;
}

void report(const std::string& message) {
  const std::lock_guard lock(reports_mutex());
  reports().push_back(message);
}

std::unique_ptr<compiler::DiskCache> open_cache() {
  const auto environment = runtime::Environment::process();
  for (const char* name : {"TORCH_NEURONX_NEFF_DISABLE_CACHE", "TORCH_NEURONX_DISABLE_NEFF_CACHE"}) {
    if (environment.boolean(name).value_or(false)) {
      return nullptr;
    }
  }
  compiler::DiskCacheOptions options;
  const auto folder = environment.raw("TORCH_NEURONX_NEFF_CACHE_DIR");
  options.folder = folder.value_or(kDefaultFolder);
  options.only_own = !folder.has_value();
  options.lock_folder = environment.raw("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR").value_or("");
  options.limit_bytes = environment.byte_size("SOFTNEURON_NEFF_CACHE_BYTES").value_or(kDefaultLimit);
  options.build = build_identity();
  return std::make_unique<compiler::DiskCache>(std::move(options), &report);
}

// Null if switched off. Leaked: a thread may still compile while the process ends.
compiler::DiskCache* cache() {
  static compiler::DiskCache* instance = open_cache().release();
  return instance;
}

// File names tell builds apart, so that two of them do not replace each other's entries.
std::string key_of(const std::string& fingerprint) {
  compiler::Digest digest;
  digest.update(fingerprint);
  digest.update(build_identity());
  return digest.hex();
}

bool fits(const compiler::Program& stored, const compiler::Program& imported) {
  return stored.inputs().size() == imported.inputs().size() && stored.constants().size() == imported.constants().size() &&
         stored.outputs.size() == imported.outputs.size();
}

}  // namespace

const std::string& build_identity() {
  static const std::string& identity = *new std::string([] {
    std::string build_id;
    dl_iterate_phdr(&find_build_id, &build_id);
    return "softneuron " + (build_id.empty() ? std::string(__DATE__ " " __TIME__) : build_id) + ", torch " TORCH_VERSION ", " +
           instruction_set();
  }());
  return identity;
}

std::optional<compiler::Program> load_stored(const std::string& fingerprint, const compiler::Program& imported) {
  if (cache() == nullptr) {
    return std::nullopt;
  }
  const auto text = cache()->load(key_of(fingerprint));
  if (!text) {
    return std::nullopt;
  }
  try {
    compiler::Program program = compiler::parse_program(*text);
    if (fits(program, imported)) {
      program.set_name(imported.name());
      return program;
    }
    reject_stored(fingerprint, "its inputs and outputs are those of another program");
  } catch (const std::exception& error) {
    reject_stored(fingerprint, error.what());
  }
  return std::nullopt;
}

void reject_stored(const std::string& fingerprint, const std::string& why) {
  if (cache() != nullptr) {
    cache()->reject(key_of(fingerprint), why);
  }
}

void store(const std::string& fingerprint, const std::string& text) {
  if (cache() != nullptr) {
    cache()->store(key_of(fingerprint), text);
  }
}

std::optional<std::string> storable_text(const Executable& executable) {
  if (!executable.objects().calls.empty()) {
    return std::nullopt;
  }
  return compiler::to_string(executable.program());
}

StoredCounters stored_counters() { return cache() == nullptr ? StoredCounters{} : StoredCounters{cache()->hits(), cache()->misses()}; }

std::vector<std::string> take_reports() {
  const std::lock_guard lock(reports_mutex());
  return std::exchange(reports(), {});
}

}  // namespace neuron::compile
