// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's operators on residual streams, rows and logits at the model's shapes:
// hyper-connections with weights that are not in L2, and the small operators with activations that
// are in L2 (sm12x_bench.h). A few rows of the embedding are in L2 as well.
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/token_candidates.h"

namespace dsv4 {
namespace {

constexpr int64_t kHidden = 4096, kStreamCount = 4, kMixes = 24, kVocab = 129280;
constexpr int32_t kMostRows = 4096;
constexpr int32_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, kMostRows};
constexpr int32_t kFewRowCounts[] = {1, 8, 64};
constexpr size_t kCalls = 64;

void* Rows(int64_t elements) { return Random<std::byte>(kMostRows * elements * 2, kBf16Numbers); }
uint16_t* NormWeight() { return Random<uint16_t>(kHidden * 2, kBf16Numbers); }

template <class Params>
void RunAll(Bench& bench, const char* name, std::vector<Params>& calls,
            absl::Span<const int32_t> row_counts = kRowCounts) {
  for (const int32_t rows : row_counts) {
    for (Params& call : calls) call.rows = rows;
    bench.Run(name, calls, CostOf(calls[0]));
  }
}

void BenchHcPre(Bench& bench) {
  if (!bench.Wants("hc_pre")) return;
  HcPreParams p;
  p.hidden = kHidden;
  void* const streams = Rows(kStreamCount * kHidden);
  p.streams = streams;
  p.base = Random<float>(kMixes * 4, kF32Numbers);
  p.scale = Random<float>(3 * 4, kPositiveF32);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.sinkhorn_iters = 20;
  p.norm = NormWeight();
  p.normed = Rows(kHidden);
  p.quantized = Rows(kHidden);
  p.post = Filled<float>(kMostRows * kStreamCount * 4, 0);
  p.comb = Filled<float>(kMostRows * kStreamCount * kStreamCount * 4, 0);
  constexpr int64_t kFnBytes = kMixes * kStreamCount * kHidden * 4;
  std::vector<HcPreParams> calls(CopiesBeyondL2(kFnBytes), p);
  for (HcPreParams& call : calls) call.fn = Random<float>(kFnBytes, kF32Numbers);
  RunAll(bench, "hc_pre", calls);
  const void* y = Rows(kHidden);
  for (HcPreParams& call : calls) call.update = {y, p.post, p.comb, streams};
  RunAll(bench, "hc_pre_with_update", calls);
}

void BenchHcHead(Bench& bench) {
  if (!bench.Wants("hc_head")) return;
  HcHeadParams p;
  p.hidden = kHidden;
  p.streams = Rows(kStreamCount * kHidden);
  p.base = Random<float>(kStreamCount * 4, kF32Numbers);
  p.scale = Random<float>(4, kPositiveF32);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.norm = NormWeight();
  p.normed = Rows(kHidden);
  constexpr int64_t kFnBytes = kStreamCount * kStreamCount * kHidden * 4;
  std::vector<HcHeadParams> calls(CopiesBeyondL2(kFnBytes), p);
  for (HcHeadParams& call : calls) call.fn = Random<float>(kFnBytes, kF32Numbers);
  RunAll(bench, "hc_head", calls);
}

void BenchHcPost(Bench& bench) {
  if (!bench.Wants("hc_post")) return;
  HcPostParams p;
  p.hidden = kHidden;
  p.y = Rows(kHidden);
  p.post = Random<float>(kMostRows * kStreamCount * 4, kF32Numbers);
  p.comb = Random<float>(kMostRows * kStreamCount * kStreamCount * 4, kF32Numbers);
  p.streams = Rows(kStreamCount * kHidden);
  p.out = Rows(kStreamCount * kHidden);
  std::vector<HcPostParams> calls(kCalls, p);
  RunAll(bench, "hc_post", calls);
}

void BenchMtpCombine(Bench& bench) {
  if (!bench.Wants("mtp_combine")) return;
  MtpCombineParams p;
  p.hidden = kHidden;
  p.e = Rows(kHidden);
  p.h = Rows(kStreamCount * kHidden);
  p.streams = Rows(kStreamCount * kHidden);
  std::vector<MtpCombineParams> calls(kCalls, p);
  RunAll(bench, "mtp_combine", calls);
}

// The norm of the query's low-rank row.
void BenchRmsNorm(Bench& bench) {
  if (!bench.Wants("rms_norm")) return;
  RmsNormParams p;
  p.dim = 1024;
  p.x = Rows(p.dim);
  p.weight = NormWeight();
  p.eps = 1e-6f;
  p.normed = Rows(p.dim);
  p.quantized = Rows(p.dim);
  std::vector<RmsNormParams> calls(kCalls, p);
  RunAll(bench, "rms_norm", calls);
}

void BenchEmbedRows(Bench& bench) {
  if (!bench.Wants("embed_rows")) return;
  EmbedRowsParams p;
  p.copies = static_cast<int32_t>(kStreamCount);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kMostRows; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % kVocab));
  p.tokens = Uploaded(tokens);
  p.embed = {Random<uint16_t>(kVocab * kHidden * 2, kBf16Numbers), kVocab, kHidden};
  p.out = Rows(kStreamCount * kHidden);
  std::vector<EmbedRowsParams> calls(kCalls, p);
  RunAll(bench, "embed_rows", calls);
}

// Streams from which the MTP block continues.
void BenchCopyRows(Bench& bench) {
  if (!bench.Wants("copy_rows")) return;
  CopyRowsParams p;
  p.row_bytes = kStreamCount * kHidden * 2;
  auto* from = static_cast<std::byte*>(Rows(kStreamCount * kHidden));
  auto* to = static_cast<std::byte*>(Rows(kStreamCount * kHidden));
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> targets;
  for (int64_t i = 0; i < kMostRows; ++i) {
    sources.push_back(from + i * p.row_bytes);
    targets.push_back(to + i * p.row_bytes);
  }
  p.from = Uploaded(sources);
  p.to = Uploaded(targets);
  std::vector<CopyRowsParams> calls(kCalls, p);
  RunAll(bench, "copy_rows", calls, kFewRowCounts);
}

// The largest logit, and those of 0.95 of the mass, some 220 of logits that fall off as in texts.
void BenchTokenCandidates(Bench& bench) {
  constexpr int32_t kMostQueries = 64;
  for (const auto& [name, rule] : {
           std::pair{"token_candidates largest", CandidateRule{}},
           {"token_candidates top_p",
            CandidateRule{.kind = CandidateRule::kMostMass, .top_p = 0.95f}},
       }) {
    if (!bench.Wants(name)) continue;
    std::vector<float> logits(static_cast<size_t>(kMostQueries * kVocab));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = -1.5f * std::log(static_cast<float>(1 + i * 7919 % kVocab));
    }
    const uint32_t* allowed = Filled<uint32_t>((kVocab + 31) / 32 * 4, 0xff);
    std::vector<CandidateQuery> queries;
    for (int32_t i = 0; i < kMostQueries; ++i) queries.push_back({rule, i, i, allowed});
    TokenCandidatesParams p;
    p.vocab = kVocab;
    p.queries = Uploaded(queries);
    p.logits = Uploaded(logits);
    // The host's memory, as in the engine.
    void* lists = nullptr;
    Check(cudaHostAlloc(&lists, kMostQueries * sizeof(CandidateList), cudaHostAllocDefault),
          "cudaHostAlloc");
    p.lists = static_cast<CandidateList*>(lists);
    std::vector<TokenCandidatesParams> calls(kCalls, p);
    RunAll(bench, name, calls, kFewRowCounts);
  }
}

}  // namespace

void BenchStreamsOperators(Bench& bench) {
  BenchHcPre(bench);
  BenchHcPost(bench);
  BenchHcHead(bench);
  BenchMtpCombine(bench);
  BenchRmsNorm(bench);
  BenchEmbedRows(bench);
  BenchCopyRows(bench);
  BenchTokenCandidates(bench);
}

}  // namespace dsv4
