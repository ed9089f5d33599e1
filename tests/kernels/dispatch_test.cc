// SPDX-License-Identifier: Apache-2.0
// Which kernel a device gets, with which config, and what is said where it gets none.
#include "kernels/registry/dispatch.h"

#include <string>

#include "lib/base/error.h"
#include "tests/kernels/fake_kernels.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

LinearFp8Params Linear(int32_t rows, int64_t k = 4096) {
  static uint8_t weight;
  static uint16_t x, y;
  LinearFp8Params params;
  params.rows = rows;
  params.k = k;
  params.x = &x;
  params.part_count = 2;
  params.parts[0] = {{&weight, &weight, 1024, k}, &y};
  params.parts[1] = {{&weight, &weight, 512, k}, &y};
  return params;
}

Launched Run(const Dispatch& dispatch, int32_t rows) {
  CpuStream stream(1);
  LaunchContext context;
  context.stream = &stream;
  REQUIRE_OK(dispatch.Run(context, Linear(rows)));
  return last_launch;
}

// Rows 1..8 run the third config, 9..64 at n up to 2048 the second, all else the first.
TuningTable Table() {
  TuningTable table{.entry = &kFakeEntries[0], .fallback = kFakeConfigs[0]};
  table.buckets.push_back({{{{1, 8}}}, kFakeConfigs[2]});
  table.buckets.push_back({{{{9, 64}, {1, 2048}}}, kFakeConfigs[1]});
  return table;
}

TEST_CASE("the first entry that fits the device is chosen, and knows its multiprocessors") {
  for (const auto& [capability, multiprocessors] :
       {std::pair{120, 188}, {120, 170}, {121, 48}, {90, 132}}) {
    Dispatch dispatch(kFakeManifests, Backend::kCuda, Numerics::kPublished,
                      FakeDevice(capability, multiprocessors));
    REQUIRE_OK(dispatch.Prepare(Linear(64)));
    const Launched launched = Run(dispatch, 3);
    REQUIRE(std::string(launched.entry) == (capability == 90 ? "sm12x.any" : "sm12x.wide"));
    REQUIRE(launched.multiprocessors == multiprocessors);
    REQUIRE(*launched.config == kFakeConfigs[0]);
    // 4 blocks of 64 bytes for each multiprocessor: what the largest config needs.
    const int64_t bytes = capability == 90 ? 0 : multiprocessors * 256;
    REQUIRE(dispatch.workspace_bytes() == bytes);
    REQUIRE(dispatch.workspace_bytes(StreamRole::kSide) == 0);
    REQUIRE_OK(dispatch.Prepare(Linear(64), StreamRole::kSide));
    REQUIRE(dispatch.workspace_bytes(StreamRole::kSide) == bytes);
  }
}

TEST_CASE("the table's config runs, by the call's dimensions") {
  Dispatch dispatch(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(120, 170),
                    {Table()});
  REQUIRE_OK(dispatch.Prepare(Linear(64)));
  for (const auto& [rows, config] : {std::pair{1, 2}, {8, 2}, {9, 1}, {64, 1}, {65, 0}}) {
    INFO(rows << " rows");
    REQUIRE(*Run(dispatch, rows).config == kFakeConfigs[config]);
  }
  // n of all parts is 1536: beyond the second bucket when that ends before it.
  TuningTable narrow = Table();
  narrow.buckets[1].when[1] = {1, 1535};
  Dispatch other(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(120, 170),
                 {narrow});
  REQUIRE_OK(other.Prepare(Linear(64)));
  REQUIRE(*Run(other, 9).config == kFakeConfigs[0]);
  // The table of an entry that is not chosen is not asked.
  Dispatch smaller(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(90, 132),
                   {Table()});
  REQUIRE_OK(smaller.Prepare(Linear(64)));
  REQUIRE(*Run(smaller, 1).config == kFakeConfigs[0]);
}

// What is said of the first entry when the second is out of reach, too.
std::string Refusal(DeviceTraits device, const LinearFp8Params& params) {
  const Manifest first[] = {Manifest{{kFakeEntries, 1}}};
  Dispatch dispatch(first, Backend::kCuda, Numerics::kPublished, std::move(device));
  const absl::Status status = dispatch.Prepare(params);
  REQUIRE(IsUnsupported(status));
  return std::string(status.message());
}

TEST_CASE("a refusal names the operator, every candidate and its reason") {
  const std::string begin = "no cuda kernel for operator linear_fp8; sm12x.wide: ";
  REQUIRE(Refusal(FakeDevice(100, 148), Linear(1)) ==
          begin + "is for compute capability 12.0 to 12.1, not 10.0");
  REQUIRE(Refusal(FakeDevice(130, 148), Linear(1)) ==
          begin + "is for compute capability 12.0 to 12.1, not 13.0");
  DeviceTraits device = FakeDevice(120, 188);
  device.features &= ~kBlockScaledMma;
  REQUIRE(Refusal(device, Linear(1)) == begin + "needs block_scaled_mma");
  device = FakeDevice(120, 188);
  device.shared_bytes = 65536;
  REQUIRE(Refusal(device, Linear(1)) ==
          begin + "needs 101376 bytes of shared memory a block; the device has 65536");
  REQUIRE(Refusal(FakeDevice(120, 188), Linear(1, 8192)) == begin + "k 8192 is more than 4096");

  Dispatch both(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(80, 108));
  REQUIRE_FAILS(both.Prepare(Linear(1)), absl::StatusCode::kUnimplemented,
                "sm12x.wide: is for compute capability 12.0 to 12.1, not 8.0; sm12x.any: ");
  Dispatch exact(kFakeManifests, Backend::kCuda, Numerics::kExact, FakeDevice(120, 188));
  REQUIRE_FAILS(exact.Prepare(Linear(1)), absl::StatusCode::kUnimplemented,
                "sm12x.wide: does not run these numerics");
  REQUIRE_FAILS(exact.Prepare(CopyRowsParams{}), absl::StatusCode::kUnimplemented,
                "no cuda kernel for operator copy_rows; none is registered");
}

TEST_CASE("a later shape that the chosen entry refuses does not change the choice") {
  Dispatch dispatch(kFakeManifests, Backend::kCuda, Numerics::kPublished, FakeDevice(120, 188));
  REQUIRE_OK(dispatch.Prepare(Linear(1)));
  REQUIRE_FAILS(dispatch.Prepare(Linear(1, 8192)), absl::StatusCode::kUnimplemented, "k 8192");
  REQUIRE(std::string(Run(dispatch, 1).entry) == "sm12x.wide");
}

TEST_CASE("a device's features follow its compute capability") {
  REQUIRE(FeaturesOf(0) == 0);
  REQUIRE(FeaturesOf(80) == kAsyncCopy);
  REQUIRE(FeaturesOf(90) == (kAsyncCopy | kFp8Conversion | kDependentLaunch));
  REQUIRE(FeaturesOf(100) == (kAsyncCopy | kFp8Conversion | kDependentLaunch));
  REQUIRE(FeaturesOf(121) == (kAsyncCopy | kFp8Conversion | kDependentLaunch | kBlockScaledMma));
}

}  // namespace
}  // namespace dsv4::test
