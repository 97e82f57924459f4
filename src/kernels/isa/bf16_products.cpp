// See bf16_products.h.
#include "kernels/isa/bf16_products.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "kernels/isa/isa.h"
#include "kernels/isa/rates.h"

namespace neuron::kernels {
namespace {

// The format's version stands in the text: another version is another choice, measured anew.
constexpr const char* kDotText = "softneuron bf16 products 1: dot\n";
constexpr const char* kWidenText = "softneuron bf16 products 1: widen\n";

double multiply_adds_per_second(const Rate& rate) {
  constexpr std::int64_t kRounds = 20000;
  const auto start = std::chrono::steady_clock::now();
  rate.run(kRounds);
  return kRounds * rate.multiply_adds / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Folders may be shared by machines with different processors.
std::string processor_name() {
  std::string name = "other";
#if defined(__x86_64__)
  unsigned signature = 0, vendor[3] = {}, unused = 0;
  if (__get_cpuid(0, &unused, &vendor[0], &vendor[2], &vendor[1]) != 0 && __get_cpuid(1, &signature, &unused, &unused, &unused) != 0) {
    name.assign(reinterpret_cast<const char*>(vendor), sizeof vendor);
    name += '-';
    name += std::to_string(signature);
  }
#endif
  return name;
}

std::optional<Bf16Products> read_choice(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (text == kDotText) return Bf16Products::kDot;
  if (text == kWidenText) return Bf16Products::kWiden;
  return std::nullopt;
}

// Readers see the old file or the new one, never a part.
void write_choice(const std::string& file, Bf16Products choice) {
  const auto temporary = file + "." + std::to_string(getpid());
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    stream << (choice == Bf16Products::kDot ? kDotText : kWidenText);
    if (!stream.flush()) {
      std::remove(temporary.c_str());
      return;
    }
  }
  if (std::rename(temporary.c_str(), file.c_str()) != 0) {
    std::remove(temporary.c_str());
  }
}

// Held by one process at a time; released when the process ends in any way.
class FileLock {
 public:
  explicit FileLock(const std::string& file) : descriptor_(open(file.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (descriptor_ >= 0) {
      flock(descriptor_, LOCK_EX);
    }
  }
  ~FileLock() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int descriptor_;
};

std::string cache_folder() {
  if (const char* folder = std::getenv("TORCH_NEURONX_KERNEL_CACHE_DIR")) return folder;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && *caches != '\0') return std::string(caches) + "/softneuron";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return std::string(home) + "/.cache/softneuron";
  return {};
}

Bf16Products choose() {
  const bool has_dot = current_isa() == Isa::kAvx512Bf16;
  if (const char* forced = std::getenv("TORCH_NEURONX_BF16_PRODUCTS")) {
    const std::string value = forced;
    if (value == "widen") return Bf16Products::kWiden;
    if (value == "dot" && has_dot) return Bf16Products::kDot;
    throw std::invalid_argument("TORCH_NEURONX_BF16_PRODUCTS='" + value + "': expected " + (has_dot ? "'dot' or " : "") + "'widen'" +
                                (has_dot ? "" : " on this instruction set, " + std::string(isa_name(current_isa()))));
  }
  if (!has_dot) return Bf16Products::kWiden;
  const auto folder = cache_folder();
  return folder.empty() ? measure_bf16_products() : recorded_bf16_products(folder);
}

}  // namespace

Bf16Products measure_bf16_products() {
  double dots = 0;
  double multiply_adds = 0;
  for (int run = 0; run < 20; ++run) {
    dots = std::max(dots, multiply_adds_per_second(bf16_dot_rate()));
    multiply_adds = std::max(multiply_adds, multiply_adds_per_second(float_rate(Isa::kAvx512)));
  }
  // At about equal rates widening has the better range: it keeps subnormal numbers.
  return dots > 1.1 * multiply_adds ? Bf16Products::kDot : Bf16Products::kWiden;
}

Bf16Products recorded_bf16_products(const std::string& folder) {
  const auto file = folder + "/bf16-products-" + processor_name();
  if (const auto choice = read_choice(file)) {
    return *choice;
  }
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const FileLock lock(file + ".lock");
  if (const auto choice = read_choice(file)) {
    return *choice;
  }
  const auto choice = measure_bf16_products();
  write_choice(file, choice);
  return choice;
}

Bf16Products bf16_products() {
  static const Bf16Products chosen = choose();
  return chosen;
}

}  // namespace neuron::kernels
