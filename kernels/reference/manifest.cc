// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/manifest.h"

#include "kernels/reference/launch.h"

namespace dsv4 {
namespace {

constexpr uint32_t kAllNumerics = NumericsBit(Numerics::kPublished) | NumericsBit(Numerics::kFp32) |
                                  NumericsBit(Numerics::kExact);

template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>,
          absl::Status (*Supports)(const Params&) = &SupportsAll<Params>>
constexpr KernelEntry Entry(const char* name) {
  return MakeEntry<Params, Launch, Supports, Workspace>(name, Backend::kReference, kAllNumerics, 1);
}

constexpr RowFormat kRowFormats[] = {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kF32,
                                     RowFormat::kFp8PerTensor};
constexpr RowFormat kIndexKeyFormats[] = {RowFormat::kIndexFp4, RowFormat::kF32};

template <class Params>
absl::Status SupportsRows(const Params& params) {
  return ExpectRowFormats({kRowFormats, kIndexKeyFormats}, params);
}

// An operator that reads or writes rows of the cache.
template <class Params, void (*Launch)(const LaunchContext&, const Params&),
          int64_t (*Workspace)(const Params&, int) = &NoWorkspace<Params>>
constexpr KernelEntry RowEntry(const char* name) {
  return Entry<Params, Launch, Workspace, &SupportsRows<Params>>(name);
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
    RowEntry<QkvPrepareParams, &LaunchQkvPrepare>("reference.qkv_prepare"),
    RowEntry<CompressKvParams, &LaunchCompressKv, &CompressKvWorkspace>("reference.compress_kv"),
    RowEntry<IndexScoreTopkParams, &LaunchIndexScoreTopk, &IndexScoreTopkWorkspace>(
        "reference.index_score_topk"),
    RowEntry<SparseAttentionParams, &LaunchSparseAttention, &SparseAttentionWorkspace>(
        "reference.sparse_attention"),
    Entry<OutputGroupsParams, &LaunchOutputGroups, &OutputGroupsWorkspace>(
        "reference.output_groups"),
    Entry<MoeGateParams, &LaunchMoeGate, &MoeGateWorkspace>("reference.moe_gate"),
    Entry<ExpertFfnParams, &LaunchExpertFfn, &ExpertFfnWorkspace, &SupportsExpertFfn>(
        "reference.expert_ffn"),
    Entry<MtpCombineParams, &LaunchMtpCombine>("reference.mtp_combine"),
    Entry<CopyRowsParams, &LaunchCopyRows>("reference.copy_rows"),
    Entry<TokenCandidatesParams, &LaunchTokenCandidates>("reference.token_candidates"),
    Entry<DraftLogitsParams, &LaunchDraftLogits>("reference.draft_logits"),
};
// All but pack_weight and gather_columns: it reads weights as they are stored, and its ranks'
// memory is one.
static_assert(sizeof(kEntries) / sizeof(kEntries[0]) == static_cast<size_t>(Op::kCount) - 2);

}  // namespace

Manifest ReferenceManifest() { return {kEntries, {.activations = DType::kF32}}; }

}  // namespace dsv4
