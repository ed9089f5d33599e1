// SPDX-License-Identifier: Apache-2.0
// Registers, stack and shared memory of every kernel for SM12x against the golden file
// tests/kernels/sm12x_resources.txt, and the issue slots of its loops of MMAs against
// sm12x_loops.txt, so that no change makes a kernel spill, wait for registers or issue more without
// being seen. What another nvcc makes of the same source is no change: the files name the one that
// they were written with. On a difference the test writes the file that it expected and says how to
// accept it.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_format.h"
#include "lib/io/mapped_file.h"
#include "tests/kernels/cuda_image.h"
#include "tests/kernels/sm12x_objects.h"
#include "tests/support/catch.h"
#include "tests/support/main.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

constexpr char kFolder[] = DSV4_SOURCE_DIR "/tests/kernels/";
constexpr char kResources[] = "sm12x_resources.txt", kLoops[] = "sm12x_loops.txt";
constexpr int64_t kMaxBytes = 1 << 20;

constexpr char kTitle[] = "# nvcc ";
constexpr char kResourceColumns[] =
    "# registers, stack bytes, instructions on local memory, bytes of static shared memory, "
    "block-scaled MMA, other MMA\n";
constexpr char kLoopColumns[] =
    "# in the innermost loop with the most MMAs: instructions, block-scaled MMA, other MMA, other "
    "instructions per MMA; instructions of the loop around it\n";

// A golden file as this build has it: a line per kernel for which `numbers` has any, in order.
std::string Golden(const char* columns,
                   absl::FunctionRef<std::string(const CudaKernel&)> numbers_of) {
  std::vector<std::pair<std::string, std::string>> lines;  // file and kernel, numbers
  for (const std::string object : kSm12xObjects) {
    const std::string file = object.substr(object.rfind('/') + 1);
    if (file.find(".cu.") == std::string::npos) continue;
    const absl::StatusOr<std::vector<CudaImage>> images = ReadCudaImages(object);
    REQUIRE_OK(images);
    for (const CudaImage& image : *images) {
      if (image.architecture != 120) continue;
      for (const CudaKernel& kernel : image.kernels) {
        const std::string numbers = numbers_of(kernel);
        if (numbers.empty()) continue;
        lines.emplace_back(file.substr(0, file.find('.')) + " " + kernel.name, numbers);
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text = std::string(kTitle) + kNvccVersion + "\n" + columns;
  for (const auto& [kernel, numbers] : lines) text += numbers + " " + kernel + "\n";
  return text;
}

std::string ResourcesOf(const CudaKernel& kernel) {
  return absl::StrFormat("%4d %5d %5d %6d %4d %4d", kernel.registers, kernel.stack_bytes,
                         kernel.local, kernel.shared_bytes, kernel.scaled_mma, kernel.other_mma);
}

std::string LoopOf(const CudaKernel& kernel) {
  const int64_t mmas = kernel.loop_scaled_mma + kernel.loop_other_mma;
  if (mmas == 0) return "";
  return absl::StrFormat(
      "%5d %4d %4d %6.2f %5d", kernel.loop_instructions, kernel.loop_scaled_mma,
      kernel.loop_other_mma,
      static_cast<double>(kernel.loop_instructions - mmas) / static_cast<double>(mmas),
      kernel.around_instructions);
}

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string WithoutThoseOf(const std::string& text, const std::string& other, char mark) {
  const std::vector<std::string> others = Lines(other);
  std::string rest;
  for (const std::string& line : Lines(text)) {
    if (std::find(others.begin(), others.end(), line) == others.end())
      rest += std::string(1, mark) + " " + line + "\n";
  }
  return rest;
}

void Compare(const char* name, const char* columns,
             absl::FunctionRef<std::string(const CudaKernel&)> numbers_of) {
  const std::string path = std::string(kFolder) + name;
  const absl::StatusOr<std::string> golden = ReadFile(path, kMaxBytes);
  REQUIRE_OK(golden);
  const std::string actual = Golden(columns, numbers_of);
  if (actual == *golden) return;
  std::ofstream(name) << actual;  // where the test runs
  std::printf("%s%s%sif that is meant: cp %s/%s %s\n", columns,
              WithoutThoseOf(*golden, actual, '-').c_str(),
              WithoutThoseOf(actual, *golden, '+').c_str(), kSm12xBuildFolder, name, path.c_str());
  FAIL(name << " changed, as printed above");
}

TEST_CASE("kernels for SM12x need the resources that the golden file says") {
  Compare(kResources, kResourceColumns, ResourcesOf);
}

TEST_CASE("loops of MMAs for SM12x take the issue slots that the golden file says") {
  Compare(kLoops, kLoopColumns, LoopOf);
}

}  // namespace

const char* CannotRun() {
  static const std::string reason = [] {
    for (const char* name : {kResources, kLoops}) {
      const absl::StatusOr<std::string> golden = ReadFile(std::string(kFolder) + name, kMaxBytes);
      if (!golden.ok()) continue;  // the test says so
      const std::string version = golden->substr(std::string(kTitle).size(),
                                                 golden->find('\n') - std::string(kTitle).size());
      if (golden->rfind(kTitle, 0) == 0 && version != kNvccVersion)
        return "tests/kernels/" + std::string(name) + " is written for nvcc " + version + ", not " +
               kNvccVersion;
    }
    return std::string();
  }();
  return reason.empty() ? nullptr : reason.c_str();
}

}  // namespace dsv4::test
