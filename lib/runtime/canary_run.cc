// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/canary_run.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// Computes the prompt; `see(i, logits)` gets those behind positions[i].
absl::Status ComputeRows(Engine& engine, absl::Span<const int32_t> tokens,
                         absl::Span<const int64_t> positions,
                         absl::FunctionRef<void(size_t, absl::Span<const float>)> see) {
  DSV4_ASSIGN_OR_RETURN(KvSequence sequence, KvSequence::Open(&engine.cache()));
  StepBatch& batch = engine.batch();
  ModelRanks& model = engine.model();
  constexpr int32_t kFirst = 0;
  int64_t done = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    while (done <= positions[i]) {
      const int64_t rows =
          std::min<int64_t>(positions[i] + 1 - done, engine.info().prefill_chunk_tokens);
      const bool last = done + rows == positions[i] + 1;
      batch.Clear();
      DSV4_RETURN_IF_ERROR(batch.Add(
          &sequence, tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows))));
      const auto head_row = static_cast<int32_t>(rows) - 1;
      DSV4_RETURN_IF_ERROR(model.Forward(
          batch.rows(), batch.tokens(), nullptr,
          {.rows = last ? absl::MakeConstSpan(&head_row, 1) : absl::Span<const int32_t>()}));
      DSV4_RETURN_IF_ERROR(model.Synchronize());
      batch.Commit();
      done += rows;
    }
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> logits, model.logits().Row(kFirst));
    see(i, logits);
  }
  batch.Clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CanaryResult> RunCanary(Engine& engine, const Canary& canary) {
  std::vector<int64_t> positions;
  for (const CanaryRow& row : canary.rows) positions.push_back(row.position);
  CanaryResult worst;
  DSV4_RETURN_IF_ERROR(ComputeRows(
      engine, canary.tokens, positions,
      [&](size_t i, absl::Span<const float> logits) { Compare(canary.rows[i], logits, &worst); }));
  return worst;
}

absl::Status RecordCanary(Engine& engine, absl::Span<const int64_t> positions, int32_t count,
                          Canary* canary) {
  canary->rows.clear();
  return ComputeRows(
      engine, canary->tokens, positions, [&](size_t i, absl::Span<const float> logits) {
        std::vector<int32_t> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        const auto end = order.begin() + std::min<ptrdiff_t>(count, order.end() - order.begin());
        std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        CanaryRow& row = canary->rows.emplace_back();
        row.position = positions[i];
        for (auto token = order.begin(); token != end; ++token) {
          row.logits.push_back({*token, logits[static_cast<size_t>(*token)]});
        }
      });
}

}  // namespace dsv4
