// SPDX-License-Identifier: Apache-2.0
// The entries of the CUDA backend, each defined in the file of its operator, and the formats of
// cache rows that they have.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

inline constexpr RowFormat kSm12xRowFormats[] = {RowFormat::kPacked, RowFormat::kBf16,
                                                 RowFormat::kFp8PerTensor};
inline constexpr RowFormat kSm12xIndexKeyFormats[] = {RowFormat::kIndexFp4};

// The devices on which the kernels run. Their blocks fit the limits of SM12x. On devices without
// the block-scaled MMA, the portable fallback in arch/ runs.
inline constexpr DeviceNeeds kSm12xNeeds = {
    .compute_capability_min = 90,
    .compute_capability_max = 129,
    .features = kAsyncCopy | kFp8Conversion | kDependentLaunch,
    .shared_bytes = 99 * 1024,
};

// The set of kernels that an entry is of, which its name begins with.
#ifndef DSV4_SM12X_SET
#define DSV4_SM12X_SET "sm12x"
#endif

// MakeEntry for this backend.
template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          absl::Status (*Supports)(const Params&) = &SupportsAll<Params>,
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>>
constexpr KernelEntry MakeSm12xEntry(const char* name, int32_t rev, const KernelKnobs& knobs = {}) {
  return MakeEntry<Params, Launch, Supports, Workspace>(
      name, Backend::kCuda, NumericsBit(Numerics::kPublished), rev, kSm12xNeeds, knobs);
}

template <class Params>
absl::Status SupportsSm12xRows(const Params& params) {
  return ExpectRowFormats({kSm12xRowFormats, kSm12xIndexKeyFormats}, params);
}

extern const KernelEntry kSm12xPackWeight;
extern const KernelEntry kSm12xLinearFp8;
extern const KernelEntry kSm12xLinearBf16;
extern const KernelEntry kSm12xOutputGroups;
extern const KernelEntry kSm12xMoeGate;
extern const KernelEntry kSm12xExpertFfn;

// Entries of the second set (second/second_set.cuh).
extern const KernelEntry kSm12xSecondPackWeight;
extern const KernelEntry kSm12xSecondLinearFp8;
extern const KernelEntry kSm12xSecondExpertFfn;

extern const KernelEntry kSm12xTokenCandidates;
extern const KernelEntry kSm12xRopeTable;
extern const KernelEntry kSm12xEmbedRows;
extern const KernelEntry kSm12xCopyRows;
extern const KernelEntry kSm12xGatherColumns;
extern const KernelEntry kSm12xDraftLogits;
extern const KernelEntry kSm12xHcPre;
extern const KernelEntry kSm12xHcPost;
extern const KernelEntry kSm12xHcHead;
extern const KernelEntry kSm12xMtpCombine;
extern const KernelEntry kSm12xRmsNorm;
extern const KernelEntry kSm12xQkvPrepare;
extern const KernelEntry kSm12xCompressKv;
extern const KernelEntry kSm12xIndexScoreTopk;
extern const KernelEntry kSm12xSparseAttention;

}  // namespace dsv4
