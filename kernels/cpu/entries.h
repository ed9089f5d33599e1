// SPDX-License-Identifier: Apache-2.0
// The entries of the SIMD backend, each defined in the file of its operator, and the formats of
// cache rows that they have.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

inline constexpr RowFormat kCpuRowFormats[] = {RowFormat::kPacked, RowFormat::kBf16,
                                               RowFormat::kFp8PerTensor};
inline constexpr RowFormat kCpuIndexKeyFormats[] = {RowFormat::kIndexFp4};

template <class Params>
absl::Status SupportsRows(const Params& params) {
  return ExpectRowFormats({kCpuRowFormats, kCpuIndexKeyFormats}, params);
}

extern const KernelEntry kCpuLinearFp8;
extern const KernelEntry kCpuLinearBf16;
extern const KernelEntry kCpuOutputGroups;
extern const KernelEntry kCpuMoeGate;
extern const KernelEntry kCpuExpertFfn;

extern const KernelEntry kCpuRopeTable;
extern const KernelEntry kCpuEmbedRows;
extern const KernelEntry kCpuCopyRows;
extern const KernelEntry kCpuDraftLogits;
extern const KernelEntry kCpuHcPre;
extern const KernelEntry kCpuHcPost;
extern const KernelEntry kCpuHcHead;
extern const KernelEntry kCpuMtpCombine;
extern const KernelEntry kCpuRmsNorm;
extern const KernelEntry kCpuQkvPrepare;
extern const KernelEntry kCpuCompressKv;
extern const KernelEntry kCpuIndexScoreTopk;
extern const KernelEntry kCpuSparseAttention;

}  // namespace dsv4
