// SPDX-License-Identifier: Apache-2.0
// Kernel entries that compute nothing but note with what they were launched, and devices that do
// not exist, for tests of how kernels are chosen.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/registry/kernel_entry.h"

namespace dsv4::test {

// Of the last launch.
struct Launched {
  const char* entry = "";
  const KernelConfig* config = nullptr;
  int32_t multiprocessors = 0;
};
inline Launched last_launch;

inline constexpr const char* kFakeKnobs[] = {"blocks_per_multiprocessor", "split_rows"};
inline constexpr KernelConfig kFakeConfigs[] = {{{2, 32}}, {{4, 32}}, {{4, 16}}};
inline constexpr DeviceNeeds kFakeNeeds = {.compute_capability_min = 120,
                                           .compute_capability_max = 121,
                                           .features = kAsyncCopy | kBlockScaledMma,
                                           .shared_bytes = 99 * 1024};

inline absl::Status FewColumns(const LinearFp8Params& p) {
  return p.k <= 4096 ? absl::OkStatus() : Unsupported("k ", p.k, " is more than 4096");
}
// Of the blocks of any config, on all multiprocessors.
inline int64_t BlockBytes(const LinearFp8Params&, int workers) { return int64_t{4} * workers * 64; }

template <int kIndex>
void Note(const LaunchContext& context, const LinearFp8Params&) {
  static constexpr const char* kNames[] = {"sm12x.wide", "sm12x.any", "cpu.any"};
  last_launch = {kNames[kIndex], &ConfigOf(context, kFakeConfigs), context.multiprocessors};
}
inline void NoteRows(const LaunchContext&, const RmsNormParams&) {}
inline void NoteAttention(const LaunchContext&, const SparseAttentionParams&) {}

inline constexpr uint32_t kPublishedBit = NumericsBit(Numerics::kPublished);
inline constexpr KernelEntry kFakeEntries[] = {
    MakeEntry<LinearFp8Params, &Note<0>, &FewColumns, &BlockBytes>(
        "sm12x.wide", Backend::kCuda, kPublishedBit, 3, kFakeNeeds, {kFakeKnobs, kFakeConfigs}),
    MakeEntry<LinearFp8Params, &Note<1>>("sm12x.any", Backend::kCuda, kPublishedBit, 1,
                                         {.compute_capability_min = 90}),
    MakeEntry<LinearFp8Params, &Note<2>>("cpu.any", Backend::kCpu, kPublishedBit, 1),
    MakeEntry<RmsNormParams, &NoteRows>("sm12x.rms_norm", Backend::kCuda, kPublishedBit, 1),
    MakeEntry<SparseAttentionParams, &NoteAttention>("sm12x.attention", Backend::kCuda,
                                                     kPublishedBit, 7, kFakeNeeds,
                                                     {kFakeKnobs, kFakeConfigs}),
};
inline constexpr Manifest kFakeManifests[] = {Manifest{kFakeEntries}};

inline DeviceTraits FakeDevice(int32_t capability, int32_t multiprocessors) {
  return {.name = "made up",
          .compute_capability = capability,
          .multiprocessors = multiprocessors,
          .features = FeaturesOf(capability),
          .shared_bytes = 101376};
}

}  // namespace dsv4::test
