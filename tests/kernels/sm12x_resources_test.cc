// SPDX-License-Identifier: Apache-2.0
// Registers, stack and shared memory of every kernel for SM12x against the golden file
// tests/kernels/sm12x_resources.txt, so that no change makes a kernel spill or wait for registers
// without being seen. What another nvcc makes of the same source is no change: the file names the
// one that it was written with. On a difference the test writes the file that it expected and says
// how to accept it.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lib/io/mapped_file.h"
#include "tests/kernels/cuda_image.h"
#include "tests/kernels/sm12x_objects.h"
#include "tests/support/catch.h"
#include "tests/support/main.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

constexpr char kGolden[] = DSV4_SOURCE_DIR "/tests/kernels/sm12x_resources.txt";
constexpr char kActual[] = "sm12x_resources.txt";  // where the test runs
constexpr int64_t kMaxBytes = 1 << 20;

constexpr char kTitle[] = "# nvcc ";
constexpr char kColumns[] =
    "# registers, stack bytes, instructions on local memory, bytes of static shared memory, "
    "block-scaled MMA, other MMA\n";

// The golden file as this build has it: a line per kernel, in order.
std::string Resources() {
  std::vector<std::pair<std::string, std::string>> lines;  // file and kernel, numbers
  for (const std::string object : kSm12xObjects) {
    const std::string file = object.substr(object.rfind('/') + 1);
    if (file.find(".cu.") == std::string::npos) continue;
    const absl::StatusOr<std::vector<CudaImage>> images = ReadCudaImages(object);
    REQUIRE_OK(images);
    for (const CudaImage& image : *images) {
      if (image.architecture != 120) continue;
      for (const CudaKernel& kernel : image.kernels) {
        char numbers[96];
        std::snprintf(
            numbers, sizeof numbers, "%4lld %5lld %5lld %6lld %4lld %4lld",
            static_cast<long long>(kernel.registers), static_cast<long long>(kernel.stack_bytes),
            static_cast<long long>(kernel.local), static_cast<long long>(kernel.shared_bytes),
            static_cast<long long>(kernel.scaled_mma), static_cast<long long>(kernel.other_mma));
        lines.emplace_back(file.substr(0, file.find('.')) + " " + kernel.name, numbers);
      }
    }
  }
  std::sort(lines.begin(), lines.end());
  std::string text = std::string(kTitle) + kNvccVersion + "\n" + kColumns;
  for (const auto& [kernel, numbers] : lines) text += numbers + " " + kernel + "\n";
  return text;
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

TEST_CASE("kernels for SM12x need what the golden file says") {
  const absl::StatusOr<std::string> golden = ReadFile(kGolden, kMaxBytes);
  REQUIRE_OK(golden);
  const std::string actual = Resources();
  if (actual == *golden) return;
  std::ofstream(kActual) << actual;
  std::printf("%s%s%sif that is meant: cp %s/%s %s\n", kColumns,
              WithoutThoseOf(*golden, actual, '-').c_str(),
              WithoutThoseOf(actual, *golden, '+').c_str(), kSm12xBuildFolder, kActual, kGolden);
  FAIL("resources changed, as printed above");
}

}  // namespace

const char* CannotRun() {
  static const std::string reason = [] {
    const absl::StatusOr<std::string> golden = ReadFile(kGolden, kMaxBytes);
    if (!golden.ok()) return std::string();  // the test says so
    const std::string version =
        golden->substr(std::string(kTitle).size(), golden->find('\n') - std::string(kTitle).size());
    if (golden->rfind(kTitle, 0) == 0 && version != kNvccVersion)
      return "tests/kernels/sm12x_resources.txt is written for nvcc " + version + ", not " +
             kNvccVersion;
    return std::string();
  }();
  return reason.empty() ? nullptr : reason.c_str();
}

}  // namespace dsv4::test
