// SPDX-License-Identifier: Apache-2.0
#include "lib/device/device_traits.h"

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"

namespace dsv4 {
namespace {

struct Feature {
  DeviceFeature bit;
  const char* name;
  int32_t first, last;  // compute capabilities that have it
};
constexpr int32_t kNoLast = std::numeric_limits<int32_t>::max();
constexpr Feature kFeatures[] = {
    {kAsyncCopy, "async_copy", 80, kNoLast},
    {kFp8Conversion, "fp8_conversion", 89, kNoLast},
    {kDependentLaunch, "dependent_launch", 90, kNoLast},
    // By mma.sync. The family of 10.0 has only tcgen05.
    {kBlockScaledMma, "block_scaled_mma", 120, 129},
};

}  // namespace

uint32_t FeaturesOf(int32_t compute_capability) {
  uint32_t features = 0;
  for (const Feature& feature : kFeatures) {
    if (compute_capability >= feature.first && compute_capability <= feature.last) {
      features |= feature.bit;
    }
  }
  return features;
}

std::string ComputeCapabilityName(int32_t compute_capability) {
  return absl::StrCat(compute_capability / 10, ".", compute_capability % 10);
}

absl::Status ExpectTraits(const DeviceNeeds& needs, const DeviceTraits& traits) {
  const int32_t capability = traits.compute_capability;
  if (capability < needs.compute_capability_min || capability > needs.compute_capability_max) {
    return Unsupported("is for compute capability ",
                       ComputeCapabilityName(needs.compute_capability_min), " to ",
                       ComputeCapabilityName(needs.compute_capability_max), ", not ",
                       ComputeCapabilityName(capability));
  }
  for (const Feature& feature : kFeatures) {
    if ((needs.features & ~traits.features & feature.bit) != 0) {
      return Unsupported("needs ", feature.name);
    }
  }
  if (traits.shared_bytes < needs.shared_bytes) {
    return Unsupported("needs ", needs.shared_bytes,
                       " bytes of shared memory a block; the device has ", traits.shared_bytes);
  }
  return absl::OkStatus();
}

}  // namespace dsv4
