// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/draft_logits.h"

namespace dsv4 {

absl::Status Validate(const DraftLogitsParams& p) {
  return Expect(p.rows >= 1 && p.vocab >= 1 && p.hidden >= 1 && p.rank >= 1 &&
                    p.row_of != nullptr && p.tokens != nullptr && p.embed != nullptr &&
                    p.weight != nullptr && p.confidence != nullptr && p.states != nullptr &&
                    p.logits != nullptr && p.confidences != nullptr,
                "draft_logits: rows ", p.rows, ", vocab ", p.vocab, ", hidden ", p.hidden,
                ", rank ", p.rank, " or a null pointer");
}

Cost CostOf(const DraftLogitsParams& p) {
  return {.bytes = (p.vocab * p.rank + p.hidden + p.rank) * 2 +
                   int64_t{p.rows} * ((p.hidden + p.rank) * kActBytes + p.vocab * 8),
          .flops = int64_t{p.rows} * 2 * (p.vocab * p.rank + p.hidden + p.rank)};
}

LaunchTensors TensorsOf(const DraftLogitsParams& p, Device& device) {
  const int64_t rows = RowsReached(p.row_of, p.rows, device);
  const LaunchTensor logits = LaunchTensor::F32(p.logits, rows, p.vocab);
  return {{LaunchTensor::Act(p.states, rows, p.hidden), logits},
          {{"logits", OutputFormat::kF32, logits},
           {"confidences", OutputFormat::kF32, LaunchTensor::F32(p.confidences, rows, 1)}}};
}

}  // namespace dsv4
