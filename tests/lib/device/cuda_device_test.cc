// SPDX-License-Identifier: Apache-2.0
// Transfers to and from a GPU, on a fake CUDA runtime that does nothing before it is waited for
// (tests/support/fake_cuda_runtime.h).
#include "lib/device/cuda_runtime.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "lib/base/error.h"
#include "lib/device/device.h"
#include "lib/device/driver_version.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Around the 4 MiB that are staged at once, and many small ones; 50 MiB in all, three times the
// staging memory.
std::vector<int64_t> AnySizes() {
  std::vector<int64_t> sizes = {1, 63, 64, 65, 0, 4 * kMiB - 193, 4 * kMiB, 4 * kMiB + 1, 9 * kMiB};
  std::mt19937 random(7);
  for (int i = 0; i < 1500; ++i) sizes.push_back(1 + random() % (i % 50 == 0 ? 2 * kMiB : 20'000));
  return sizes;
}

// Memory of a GPU, and what it is to hold.
class Memory {
 public:
  explicit Memory(int64_t bytes) {
    SetFakeCuda({.works = true});
    auto device = Device::Open({.kind = DeviceKind::kCuda});
    REQUIRE_OK(device);
    device_ = *std::move(device);
    auto memory = device_->Allocate(bytes, "a test");
    REQUIRE_OK(memory);
    memory_ = *std::move(memory);
    std::minstd_rand random;
    wanted_.resize(static_cast<size_t>(bytes));
    for (std::byte& byte : wanted_) byte = static_cast<std::byte>(random() >> 8);
  }
  Device* device() { return device_.get(); }
  std::byte* data() { return memory_.data(); }
  const std::vector<std::byte>& wanted() const { return wanted_; }

 private:
  std::unique_ptr<Device> device_;
  Buffer memory_;
  std::vector<std::byte> wanted_;
};

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

TEST_CASE("a driver that is too old is named with the least one") {
  SetFakeCuda({.driver_cuda = 12080});
  REQUIRE_FAILS(
      Device::Open({.kind = DeviceKind::kCuda}), Unsupported().code(),
      "found, " + std::to_string(LeastDriver(CUDART_VERSION)) + " or newer needed (CUDA ");
  SetFakeCuda({});
  REQUIRE_OK(Device::Open({.kind = DeviceKind::kCuda}));
}

TEST_CASE("a GPU that drives a display says that its kernels have a limit") {
  for (const bool display : {false, true}) {
    SetFakeCuda({.display = display});
    const auto device = Device::Open({.kind = DeviceKind::kCuda});
    REQUIRE_OK(device);
    CHECK((*device)->limits_kernels() == display);
  }
}

TEST_CASE("one open device of a GPU may have blocks that wait for each other") {
  SetFakeCuda({.count = 2});
  auto first = Device::Open({.kind = DeviceKind::kCuda});
  auto second = Device::Open({.kind = DeviceKind::kCuda});
  auto other = Device::Open({.kind = DeviceKind::kCuda, .index = 1});
  REQUIRE_OK(first);
  REQUIRE_OK(second);
  REQUIRE_OK(other);
  CHECK((*first)->TakeWaitingBlocks());
  CHECK_FALSE((*second)->TakeWaitingBlocks());
  CHECK((*other)->TakeWaitingBlocks());
  CHECK((*first)->TakeWaitingBlocks());
  first->reset();
  CHECK((*second)->TakeWaitingBlocks());
  second->reset();
  SetFakeCuda({.side_by_side = true});
  second = Device::Open({.kind = DeviceKind::kCuda});
  REQUIRE_OK(second);
  CHECK_FALSE((*second)->TakeWaitingBlocks());
}

TEST_CASE("memory that the other GPUs cannot map is refused, and the GPU works on") {
  SetFakeCuda({});
  REQUIRE_OK(Device::Open({.kind = DeviceKind::kCuda}));
  const int64_t of_open = GetFakeCudaUse().allocations;
  SetFakeCuda({.failing_allocation = of_open, .refuses_map = true});
  const auto device = Device::Open({.kind = DeviceKind::kCuda});
  REQUIRE_OK(device);
  REQUIRE_FAILS((*device)->Allocate(4096, "a test"), OutOfDeviceMemory().code(),
                "cuda:0: cannot make 4096 bytes for the a test accessible to the other GPUs");
  REQUIRE_OK((*device)->Synchronize());
}

TEST_CASE("what is sent to a GPU may be overwritten at once") {
  const std::vector<int64_t> sizes = AnySizes();
  const int64_t bytes = Sum(sizes);
  REQUIRE(bytes > 3 * 16 * kMiB);
  Memory memory(bytes);
  int64_t sent = 0;
  for (const int64_t size : sizes) {
    const auto* const from = memory.wanted().data() + sent;
    std::vector<std::byte> copy(from, from + size);
    REQUIRE_OK(memory.device()->Upload(memory.data() + sent, copy.data(), size));
    std::fill(copy.begin(), copy.end(), std::byte{0});
    sent += size;
  }
  // Else a part of the staging memory that is written again too early would not show.
  REQUIRE(memory.wanted().back() != std::byte{0});
  REQUIRE(memory.data()[bytes - 1] == std::byte{0});
  std::vector<std::byte> read(memory.wanted().size());
  REQUIRE_OK(memory.device()->Download(read.data(), memory.data(), bytes));
  REQUIRE((read == memory.wanted()));
}

// Small transfers in between share the staging memory.
TEST_CASE("pieces of a GPU's memory are filled and read one after another") {
  const std::vector<int64_t> sizes = AnySizes();
  const int64_t bytes = Sum(sizes);
  Memory memory(bytes + 100);
  std::vector<MemoryPiece> pieces;
  std::byte* end = memory.data() + bytes;
  for (const int64_t size : sizes) pieces.push_back({.data = end -= size, .bytes = size});
  const std::byte* const small = memory.wanted().data() + bytes;
  REQUIRE_OK(memory.device()->Upload(memory.data() + bytes, small, 50));
  REQUIRE_OK(memory.device()->Scatter(pieces, memory.wanted().data()));
  REQUIRE_OK(memory.device()->Upload(memory.data() + bytes + 50, small + 50, 50));
  std::vector<std::byte> read(memory.wanted().size());
  REQUIRE_OK(memory.device()->Gather(read.data(), pieces));
  REQUIRE_OK(memory.device()->Download(read.data() + bytes, memory.data() + bytes, 100));
  REQUIRE((read == memory.wanted()));
}

TEST_CASE("an error that the host left is none of the device's, a launch that fails is") {
  Memory memory(64);
  LeaveFakeCudaError();
  REQUIRE_OK(memory.device()->Synchronize());
  {
    const DeviceScope scope(memory.device());
    const DeviceScope inner(memory.device());
    LeaveFakeCudaError();
  }
  LeaveFakeCudaError();  // the host's again
  for (int i = 0; i < 2; ++i) {
    REQUIRE_FAILS(memory.device()->Synchronize(), DeviceLost().code(), "launching a kernel failed");
  }
}

}  // namespace
}  // namespace dsv4::test
