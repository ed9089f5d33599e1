// SPDX-License-Identifier: Apache-2.0
// The reader of device code, on kernels whose code is known; and what the SM12x images of the
// kernels must hold whatever compiler made them.
#include "tests/kernels/cuda_image.h"

#include <algorithm>

#include "tests/kernels/sm12x_images.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

CudaImage ImageFor(const std::string& path, int32_t architecture) {
  absl::StatusOr<std::vector<CudaImage>> images = ReadCudaImages(path);
  REQUIRE_OK(images);
  const auto found = std::find_if(images->begin(), images->end(), [&](const CudaImage& image) {
    return image.architecture == architecture;
  });
  INFO(path << " for " << architecture);
  REQUIRE(found != images->end());
  return *found;
}

CudaKernel KernelNamed(const CudaImage& image, const std::string& name) {
  for (const CudaKernel& kernel : image.kernels) {
    if (kernel.name == name) return kernel;
  }
  FAIL("no kernel " << name);
  return {};
}

std::string Sm12xImage(const std::string& name) {
  for (const std::string path : kSm12xImages) {
    if (path.substr(path.rfind('/') + 1) == name) return path;
  }
  FAIL("no image " << name);
  return {};
}

// Whether the image multiplies matrices, and by block-scaled MMA alone.
bool MultipliesBlockScaled(const CudaImage& image) {
  int64_t scaled = 0, other = 0;
  for (const CudaKernel& kernel : image.kernels) {
    scaled += kernel.scaled_mma;
    other += kernel.other_mma;
  }
  return scaled > 0 && other == 0;
}

TEST_CASE("device code tells registers, stack, shared memory and instructions") {
  const CudaImage image = ImageFor(kSampleImage, 120);
  REQUIRE(image.kernels.size() == 6);
  const CudaKernel scaled = KernelNamed(image, "sample_mma<true>");
  CHECK(scaled.scaled_mma == 1);
  CHECK(scaled.other_mma == 0);
  CHECK(scaled.local == 0);
  CHECK(scaled.stack_bytes == 0);
  CHECK(scaled.shared_bytes == 0);
  const CudaKernel unscaled = KernelNamed(image, "sample_mma<false>");
  CHECK(unscaled.scaled_mma == 0);
  CHECK(unscaled.other_mma == 1);
  const CudaKernel shared = KernelNamed(image, "sample_shared");
  CHECK(shared.shared_bytes == 400);
  CHECK(shared.registers < 32);
  CHECK(shared.scaled_mma + shared.other_mma + shared.local + shared.stack_bytes == 0);
  const CudaKernel many = KernelNamed(image, "sample_values<false>");
  CHECK(many.registers > 160);
  CHECK(many.registers <= 255);
  CHECK(many.stack_bytes == 0);
  CHECK(many.local == 0);
  // 96 values or more must lie elsewhere.
  const CudaKernel few = KernelNamed(image, "sample_values<true>");
  CHECK(few.registers <= 64);
  CHECK(few.stack_bytes >= 96 * 4);
  CHECK(few.local >= 2 * 96 / 4);
  CHECK_FALSE(MultipliesBlockScaled(image));
}

TEST_CASE("a loop's instructions and products are told") {
  for (const int32_t architecture : {90, 120}) {
    INFO(architecture);
    const CudaImage image = ImageFor(kSampleImage, architecture);
    const CudaKernel loops = KernelNamed(image, "sample_loops");
    CHECK(loops.other_mma == 4);
    CHECK(loops.loop_other_mma == 3);
    CHECK(loops.loop_scaled_mma == 0);
    // Three products, a load, two additions, the count, its comparison, the branch; ptxas may add
    // copies of registers, but no round more.
    CHECK(loops.loop_instructions >= 9);
    CHECK(loops.loop_instructions <= 40);
    CHECK(loops.around_instructions > loops.loop_instructions + 5);
    CHECK(loops.around_instructions < 3 * loops.loop_instructions);
    const CudaKernel one = KernelNamed(image, "sample_mma<false>");
    CHECK(one.loop_instructions + one.loop_scaled_mma + one.loop_other_mma == 0);
  }
}

// With a warp on each of a multiprocessor's four schedulers, a block-scaled m16n8k32 takes 16
// clocks (docs/kernels.md): up to 15 other instructions cost no time. At most 12 are allowed here.
TEST_CASE("tiled kernels for many rows take at most 12 other issue slots per block-scaled MMA") {
  int64_t tiled = 0;
  for (const char* name : {"expert_ffn.fatbin", "linear_fp8.fatbin"}) {
    for (const CudaKernel& kernel : ImageFor(Sm12xImage(name), 120).kernels) {
      if (kernel.loop_scaled_mma < 64) continue;
      INFO(name << " " << kernel.name << ": " << kernel.loop_instructions << " instructions");
      CHECK(kernel.loop_instructions - kernel.loop_scaled_mma <= 12 * kernel.loop_scaled_mma);
      ++tiled;
    }
  }
  CHECK(tiled >= 6);  // experts: routed and shared, up and down; linears: two formats of scales
}

TEST_CASE("images are told apart by their architecture") {
  const CudaImage image = ImageFor(kSampleImage, 90);
  for (const char* name : {"sample_mma<true>", "sample_mma<false>"}) {
    CHECK(KernelNamed(image, name).scaled_mma == 0);
    CHECK(KernelNamed(image, name).other_mma == 1);
  }
  CHECK_FALSE(MultipliesBlockScaled(image));
}

TEST_CASE("what is no image is refused") {
  const absl::StatusOr<std::vector<CudaImage>> none = ReadCudaImages("/proc/self/exe");
  REQUIRE_FAILS(none, absl::StatusCode::kDataLoss, "not a fat binary");
  const TempFolder folder;
  const absl::StatusOr<std::vector<CudaImage>> empty =
      ReadCudaImages(folder.Write("empty.fatbin", std::string("\x50\xed\x55\xba", 4)));
  REQUIRE_FAILS(empty, absl::StatusCode::kDataLoss, "no device code");
}

TEST_CASE("experts and FP8 linears run on block-scaled MMA alone on SM12x") {
  for (const char* name : {"expert_ffn.fatbin", "linear_fp8.fatbin"}) {
    INFO(name);
    CHECK(MultipliesBlockScaled(ImageFor(Sm12xImage(name), 120)));
  }
}

}  // namespace
}  // namespace dsv4::test
