// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/manifest.h"

#include "kernels/reference/launch.h"

namespace dsv4 {
namespace {

constexpr uint32_t kAllNumerics = NumericsBit(Numerics::kPublished) | NumericsBit(Numerics::kFp32) |
                                  NumericsBit(Numerics::kExact);

template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>>
constexpr KernelEntry Entry(const char* name) {
  return MakeEntry<Params, Launch, &SupportsAll<Params>, Workspace>(name, Backend::kReference,
                                                                    kAllNumerics, 1);
}

using namespace reference;

constexpr KernelEntry kEntries[] = {
    Entry<RopeTableParams, &LaunchRopeTable>("reference.rope_table"),
    Entry<EmbedRowsParams, &LaunchEmbedRows>("reference.embed_rows"),
    Entry<HcPreParams, &LaunchHcPre>("reference.hc_pre"),
    Entry<HcPostParams, &LaunchHcPost>("reference.hc_post"),
    Entry<HcHeadParams, &LaunchHcHead>("reference.hc_head"),
    Entry<RmsNormParams, &LaunchRmsNorm>("reference.rms_norm"),
    Entry<LinearFp8Params, &LaunchLinearFp8, &LinearFp8Workspace>("reference.linear_fp8"),
    Entry<LinearBf16Params, &LaunchLinearBf16, &LinearBf16Workspace>("reference.linear_bf16"),
    Entry<QkvPrepareParams, &LaunchQkvPrepare>("reference.qkv_prepare"),
    Entry<CompressKvParams, &LaunchCompressKv>("reference.compress_kv"),
    Entry<IndexQueryParams, &LaunchIndexQuery>("reference.index_query"),
    Entry<IndexScoreTopkParams, &LaunchIndexScoreTopk, &IndexScoreTopkWorkspace>(
        "reference.index_score_topk"),
    Entry<SparseAttentionParams, &LaunchSparseAttention, &SparseAttentionWorkspace>(
        "reference.sparse_attention"),
    Entry<OutputGroupsParams, &LaunchOutputGroups, &OutputGroupsWorkspace>(
        "reference.output_groups"),
    Entry<MoeGateParams, &LaunchMoeGate, &MoeGateWorkspace>("reference.moe_gate"),
    Entry<ExpertFfnParams, &LaunchExpertFfn, &ExpertFfnWorkspace>("reference.expert_ffn"),
    Entry<MtpCombineParams, &LaunchMtpCombine>("reference.mtp_combine"),
    Entry<CopyRowsParams, &LaunchCopyRows>("reference.copy_rows"),
};
static_assert(sizeof(kEntries) / sizeof(kEntries[0]) == static_cast<size_t>(Op::kCount));

}  // namespace

Manifest ReferenceManifest() { return kEntries; }

}  // namespace dsv4
