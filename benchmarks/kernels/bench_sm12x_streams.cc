// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's operators on residual streams and rows at the model's shapes:
// hyper-connections with weights that are not in L2, and the small ones beside them, on activations
// that are (sm12x_bench.h).
#include <vector>

#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"

namespace dsv4 {
namespace {

constexpr int64_t kHidden = 4096, kStreamCount = 4, kMixes = 24;
constexpr int32_t kMostRows = 4096;
constexpr int32_t kRowCounts[] = {1, 2, 4, 8, 16, 32, 64, 128, 1024, kMostRows};
constexpr size_t kCalls = 64;  // 100 MB of hc_fn

void* Rows(int64_t elements) { return Filled<std::byte>(kMostRows * elements * 2, 0x3a); }
uint16_t* NormWeight() { return Filled<uint16_t>(kHidden * 2, 0x3f); }

template <class Params>
void RunAll(Bench& bench, const char* name, std::vector<Params>& calls) {
  for (const int32_t rows : kRowCounts) {
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
  p.base = Filled<float>(kMixes * 4, 0);
  p.scale = Filled<float>(3 * 4, 0x3c);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.sinkhorn_iters = 20;
  p.norm = NormWeight();
  p.normed = Rows(kHidden);
  p.quantized = Rows(kHidden);
  p.post = Filled<float>(kMostRows * kStreamCount * 4, 0);
  p.comb = Filled<float>(kMostRows * kStreamCount * kStreamCount * 4, 0);
  std::vector<HcPreParams> calls(kCalls, p);
  for (HcPreParams& call : calls)
    call.fn = Filled<float>(kMixes * kStreamCount * kHidden * 4, 0x3c);
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
  p.base = Filled<float>(kStreamCount * 4, 0);
  p.scale = Filled<float>(4, 0x3c);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.norm = NormWeight();
  p.normed = Rows(kHidden);
  std::vector<HcHeadParams> calls(kCalls, p);
  for (HcHeadParams& call : calls)
    call.fn = Filled<float>(kStreamCount * kStreamCount * kHidden * 4, 0x3c);
  RunAll(bench, "hc_head", calls);
}

void BenchHcPost(Bench& bench) {
  if (!bench.Wants("hc_post")) return;
  HcPostParams p;
  p.hidden = kHidden;
  p.y = Rows(kHidden);
  p.post = Filled<float>(kMostRows * kStreamCount * 4, 0x3c);
  p.comb = Filled<float>(kMostRows * kStreamCount * kStreamCount * 4, 0x3c);
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
  constexpr int64_t kVocab = 129280;
  EmbedRowsParams p;
  p.copies = static_cast<int32_t>(kStreamCount);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < kMostRows; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % kVocab));
  p.tokens = Uploaded(tokens);
  p.embed = {Filled<uint16_t>(kVocab * kHidden * 2, 0x3c), kVocab, kHidden};
  p.out = Rows(kStreamCount * kHidden);
  std::vector<EmbedRowsParams> calls(kCalls, p);
  RunAll(bench, "embed_rows", calls);
}

}  // namespace

void BenchStreamsOperators(Bench& bench) {
  BenchHcPre(bench);
  BenchHcPost(bench);
  BenchHcHead(bench);
  BenchMtpCombine(bench);
  BenchRmsNorm(bench);
  BenchEmbedRows(bench);
}

}  // namespace dsv4
