// The choice of the instruction set, and the file that keeps how bfloat16 is multiplied.
#include "kernels/isa/isa.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "kernels/isa/bf16_products.h"

namespace neuron::kernels {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "softneuron-isa-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string path() const { return path_.string(); }
  // The one file that holds the choice.
  [[nodiscard]] fs::path file() const {
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().extension() != ".lock") return entry.path();
    }
    return {};
  }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(Isa, LevelsAscendFromTheGenericOne) {
  const auto available = available_isas();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), Isa::kGeneric);
  EXPECT_TRUE(std::is_sorted(available.begin(), available.end()));
  EXPECT_LE(current_isa(), available.back());
}

class RecordedBf16Products : public ::testing::Test {
 protected:
  void SetUp() override {
    if (current_isa() < Isa::kAvx512Bf16) GTEST_SKIP() << "this machine has no bfloat16 dot products";
  }
  Folder folder_;
};

TEST_F(RecordedBf16Products, AreMeasuredOnce) {
  const auto first = recorded_bf16_products(folder_.path());
  const auto text = text_of(folder_.file());
  EXPECT_NE(text.find(products_name(first)), std::string::npos);
  // What is recorded is believed, whatever a measurement would say.
  const auto other = first == Bf16Products::kDot ? Bf16Products::kWiden : Bf16Products::kDot;
  std::ofstream(folder_.file()) << text.substr(0, text.rfind(' ')) << ' ' << products_name(other) << '\n';
  EXPECT_EQ(recorded_bf16_products(folder_.path()), other);
}

TEST_F(RecordedBf16Products, CorruptFilesAreReplaced) {
  recorded_bf16_products(folder_.path());
  const auto file = folder_.file();
  const auto good = text_of(file);
  for (const std::string& bad : {std::string(), std::string("dot"), good.substr(0, good.size() - 1), good + "x", std::string(5000, 'z')}) {
    std::ofstream(file, std::ios::trunc) << bad;
    const auto choice = recorded_bf16_products(folder_.path());
    EXPECT_EQ(text_of(file), good.substr(0, good.rfind(' ') + 1) + std::string(products_name(choice)) + "\n");
  }
}

TEST_F(RecordedBf16Products, ConcurrentProcessesAgree) {
  for (int round = 0; round < 5; ++round) {
    const auto place = folder_.path() + "/" + std::to_string(round) + "/deeper";
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i) {
      const auto child = fork();
      if (child == 0) _exit(1 + static_cast<int>(recorded_bf16_products(place)));
      children.push_back(child);
    }
    int first = 0;
    for (const auto child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      ASSERT_TRUE(WIFEXITED(status));
      first = first == 0 ? WEXITSTATUS(status) : first;
      EXPECT_EQ(WEXITSTATUS(status), first);
    }
  }
}

TEST_F(RecordedBf16Products, AFolderThatCannotBeWrittenIsNoError) { EXPECT_NO_THROW(recorded_bf16_products("/proc/nowhere")); }

}  // namespace
}  // namespace neuron::kernels
