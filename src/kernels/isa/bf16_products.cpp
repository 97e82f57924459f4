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
#include <array>
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

constexpr std::array<std::string_view, 3> kNames{"widen", "dot", "tiles"};

// The format's version stands in the text: another version is another choice, measured anew.
std::string text_of(Bf16Products products) { return "softneuron bf16 products 2: " + std::string(products_name(products)) + "\n"; }

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
  for (const auto products : products_of(current_isa())) {
    if (text == text_of(products)) return products;
  }
  return std::nullopt;
}

// Readers see the old file or the new one, never a part.
void write_choice(const std::string& file, Bf16Products choice) {
  const auto temporary = file + "." + std::to_string(getpid());
  {
    std::ofstream stream(temporary, std::ios::binary | std::ios::trunc);
    stream << text_of(choice);
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
  const auto available = products_of(current_isa());
  if (const char* forced = std::getenv("TORCH_NEURONX_BF16_PRODUCTS")) {
    std::string known;
    for (const auto products : available) {
      if (products_name(products) == forced) return products;
      known += (known.empty() ? "'" : ", '") + std::string(products_name(products)) + "'";
    }
    throw std::invalid_argument("TORCH_NEURONX_BF16_PRODUCTS='" + std::string(forced) +
                                "': expected one of those that the instruction set " + std::string(isa_name(current_isa())) +
                                " has: " + known);
  }
  if (available.size() == 1) return available.front();
  const auto folder = cache_folder();
  return folder.empty() ? measure_bf16_products() : recorded_bf16_products(folder);
}

}  // namespace

std::string_view products_name(Bf16Products products) noexcept { return kNames[static_cast<std::size_t>(products)]; }

std::vector<Bf16Products> products_of(Isa isa) {
  std::vector<Bf16Products> available{Bf16Products::kWiden};
  if (isa >= Isa::kAvx512Bf16) available.push_back(Bf16Products::kDot);
  if (isa >= Isa::kAmx) available.push_back(Bf16Products::kTiles);
  return available;
}

Bf16Products measure_bf16_products() {
  const auto available = products_of(current_isa());
  std::array<double, kNames.size()> rates{};
  for (int run = 0; run < 20; ++run) {
    for (const auto products : available) {
      auto& rate = rates[static_cast<std::size_t>(products)];
      rate = std::max(rate, multiply_adds_per_second(products_rate(products)));
    }
  }
  // At about equal rates the earlier one: widening keeps subnormal numbers.
  auto best = available.front();
  for (const auto products : available) {
    if (rates[static_cast<std::size_t>(products)] > 1.1 * rates[static_cast<std::size_t>(best)]) best = products;
  }
  return best;
}

Bf16Products recorded_bf16_products(const std::string& folder) {
  const auto file = folder + "/bf16-products-" + processor_name() + "-" + std::string(isa_name(current_isa()));
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
