// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/gpu_kinds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/engine/expectation.h"

namespace dsv4 {

std::vector<GpuKind> GpuKindsOf(absl::Span<const DeviceListing> devices) {
  std::vector<DeviceListing> gpus;
  for (const DeviceListing& device : devices) {
    if (device.kind == DeviceKind::kCuda && device.reason.empty()) gpus.push_back(device);
  }
  std::stable_sort(gpus.begin(), gpus.end(), [](const DeviceListing& a, const DeviceListing& b) {
    return a.free_bytes > b.free_bytes;
  });
  std::vector<GpuKind> kinds;
  for (const DeviceListing& gpu : gpus) {
    const auto same = [&](const GpuKind& kind) {
      return kind.name == gpu.name && kind.compute_capability == gpu.compute_capability;
    };
    auto kind = std::find_if(kinds.begin(), kinds.end(), same);
    if (kind == kinds.end()) {
      const DeviceTraits traits{.name = gpu.name, .compute_capability = gpu.compute_capability};
      kinds.push_back({.name = gpu.name,
                       .compute_capability = gpu.compute_capability,
                       .integrated = gpu.integrated,
                       .bandwidth = RatesOf(Backend::kCuda, traits, gpu.integrated, 1).memory,
                       .indices = {},
                       .free_bytes = {},
                       .total_bytes = {}});
      kind = kinds.end() - 1;
    }
    kind->indices.push_back(gpu.index);
    kind->free_bytes.push_back(gpu.free_bytes);
    kind->total_bytes.push_back(gpu.total_bytes);
  }
  return kinds;
}

size_t GpuKind::FreeCount() const {
  size_t count = 0;
  while (count < indices.size() && free_bytes[count] > total_bytes[count] / 2) ++count;
  return std::max<size_t>(count, 1);
}

std::vector<int32_t> BestGpus(absl::Span<const GpuKind> kinds, size_t count) {
  const GpuKind* best = nullptr;
  const auto rank = [&](const GpuKind& kind) {
    return std::pair(kind.free_bytes[count - 1] >> 30, kind.bandwidth);
  };
  for (const GpuKind& kind : kinds) {
    if (count == 0 || kind.indices.size() < count) continue;
    if (best == nullptr || rank(kind) > rank(*best)) best = &kind;
  }
  return best == nullptr ? std::vector<int32_t>() : best->Best(count);
}

std::string GpusText(const std::string& name, absl::Span<const int32_t> indices) {
  return absl::StrCat("cuda:", absl::StrJoin(indices, ","), " (",
                      indices.size() > 1 ? absl::StrCat(indices.size(), " x ") : "", name, ")");
}

}  // namespace dsv4
