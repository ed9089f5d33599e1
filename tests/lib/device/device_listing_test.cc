// SPDX-License-Identifier: Apache-2.0
// What is listed of GPUs, on the fake CUDA runtime.
#include <string>
#include <vector>

#include "lib/device/device.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

std::vector<DeviceListing> ListOn(const FakeCuda& gpu) {
  SetFakeCuda(gpu);
  return Device::ListGpus();
}

TEST_CASE("each GPU is listed with its memory") {
  const std::vector<DeviceListing> gpus =
      ListOn({.name = "fake 12", .compute_capability = 121, .count = 3, .bytes = 1 << 30});
  REQUIRE(gpus.size() == 3);
  for (size_t i = 0; i < gpus.size(); ++i) {
    CHECK(gpus[i].kind == DeviceKind::kCuda);
    CHECK(gpus[i].index == static_cast<int32_t>(i));
    CHECK(gpus[i].name == "fake 12");
    CHECK(gpus[i].compute_capability == 121);
    CHECK_FALSE(gpus[i].integrated);
    CHECK(gpus[i].total_bytes == 1 << 30);
    CHECK(gpus[i].free_bytes == 1 << 30);
    CHECK(gpus[i].reason.empty());
  }
  CHECK(GetFakeCudaUse().left == 0);
}

TEST_CASE("a GPU without kernels in this build is not usable") {
  const std::vector<DeviceListing> gpus = ListOn({.name = "old", .compute_capability = 75});
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].name == "old");
  CHECK(gpus[0].compute_capability == 75);
  CHECK(gpus[0].total_bytes == FakeCuda{}.bytes);
  CHECK(gpus[0].reason.find(
            "cuda:0 (old) has compute capability 7.5; this build has kernels for") == 0);
}

TEST_CASE("a GPU that its compute mode closes is not usable") {
  const std::vector<DeviceListing> gpus = ListOn({.prohibited = true});
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].reason == "cuda:0 (fake) has the compute mode \"prohibited\" (nvidia-smi -c)");
}

TEST_CASE("without a GPU there is a reason") {
  const std::vector<DeviceListing> gpus = ListOn({.count = 0});
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].index == -1);
  CHECK(gpus[0].name.empty());
  CHECK(gpus[0].reason.find("no usable CUDA device: ") == 0);
  SetFakeCuda({});
}

TEST_CASE("an integrated GPU is known as one") {
  const std::vector<DeviceListing> gpus = ListOn({.integrated = true});
  REQUIRE(gpus.size() == 1);
  CHECK(gpus[0].integrated);
  CHECK(gpus[0].reason.empty());
}

}  // namespace
}  // namespace dsv4::test
