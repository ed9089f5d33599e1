// SPDX-License-Identifier: Apache-2.0
// The launch functions of the reference backend and their workspaces, for its manifest. Contracts
// are those of kernels/op; each operator lies in the .cc of its name or family.
#pragma once

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/draft_logits.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/op/rope.h"
#include "kernels/op/token_candidates.h"

namespace dsv4::reference {

void LaunchRopeTable(const LaunchContext& context, const RopeTableParams& params);
void LaunchEmbedRows(const LaunchContext& context, const EmbedRowsParams& params);
void LaunchCopyRows(const LaunchContext& context, const CopyRowsParams& params);
void LaunchRmsNorm(const LaunchContext& context, const RmsNormParams& params);
void LaunchLinearFp8(const LaunchContext& context, const LinearFp8Params& params);
void LaunchLinearBf16(const LaunchContext& context, const LinearBf16Params& params);
void LaunchOutputGroups(const LaunchContext& context, const OutputGroupsParams& params);
void LaunchHcPre(const LaunchContext& context, const HcPreParams& params);
void LaunchHcPost(const LaunchContext& context, const HcPostParams& params);
void LaunchHcHead(const LaunchContext& context, const HcHeadParams& params);
void LaunchMtpCombine(const LaunchContext& context, const MtpCombineParams& params);
void LaunchQkvPrepare(const LaunchContext& context, const QkvPrepareParams& params);
void LaunchCompressKv(const LaunchContext& context, const CompressKvParams& params);
void LaunchIndexScoreTopk(const LaunchContext& context, const IndexScoreTopkParams& params);
void LaunchSparseAttention(const LaunchContext& context, const SparseAttentionParams& params);
void LaunchMoeGate(const LaunchContext& context, const MoeGateParams& params);
void LaunchExpertFfn(const LaunchContext& context, const ExpertFfnParams& params);
void LaunchTokenCandidates(const LaunchContext& context, const TokenCandidatesParams& params);
void LaunchDraftLogits(const LaunchContext& context, const DraftLogitsParams& params);

int64_t LinearFp8Workspace(const LinearFp8Params& params, int threads);
int64_t LinearBf16Workspace(const LinearBf16Params& params, int threads);
int64_t OutputGroupsWorkspace(const OutputGroupsParams& params, int threads);
int64_t CompressKvWorkspace(const CompressKvParams& params, int threads);
int64_t IndexScoreTopkWorkspace(const IndexScoreTopkParams& params, int threads);
int64_t SparseAttentionWorkspace(const SparseAttentionParams& params, int threads);
int64_t MoeGateWorkspace(const MoeGateParams& params, int threads);
absl::Status SupportsExpertFfn(const ExpertFfnParams& params);
int64_t ExpertFfnWorkspace(const ExpertFfnParams& params, int threads);

}  // namespace dsv4::reference
