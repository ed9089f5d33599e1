// SPDX-License-Identifier: Apache-2.0
// What the next token of a session is chosen from: the sampler with all that it looks at besides
// the logits (history, forced tokens, the thinking budget, the caller's mask), kept in step with
// the tokens chosen so far. It draws nothing and knows no rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/model/logit_rows.h"
#include "lib/runtime/engine.h"
#include "lib/sampling/distribution.h"
#include "lib/sampling/sampler.h"
#include "lib/sampling/token_history.h"

namespace dsv4 {

// Asked before each token is chosen, drafts included, in the thread of the call that steps the
// session; it must not use the session. `timeline` is the prompt of `prompt_tokens` and the output
// so far, drafts included: the answer must depend on it alone. Clears in `allowed`
// [TokenMaskWords(vocab)], where all bits are set, those of tokens that must not come. False makes
// the step fail as Cancelled.
struct TokenMask {
  bool (*fn)(void* user, absl::Span<const int32_t> timeline, int64_t prompt_tokens,
             absl::Span<uint32_t> allowed) = nullptr;
  void* user = nullptr;
};

class TokenChooser {
 public:
  explicit TokenChooser(const Engine& engine);

  absl::Status SetParams(const SamplingParams& params) { return sampler_.SetParams(params); }
  const SamplingParams& params() const { return sampler_.params(); }
  void set_mask(const TokenMask& mask) { mask_ = mask; }
  const TokenMask& mask() const { return mask_; }

  // A new prompt, without output.
  void Reset(absl::Span<const int32_t> prompt);
  // The output grew by `token`; took back its last one. REQUIRES for Pop: it is `token`.
  void Push(int32_t token);
  void Pop(int32_t token);
  int64_t outputs() const { return outputs_; }

  // What of the next row's logits is enough for Shape; see Sampler.
  std::optional<CandidateRule> Rule(double uniform) const;
  absl::Span<const uint32_t> choosable() const { return sampler_.choosable(); }
  uint64_t choosable_id() const { return sampler_.choosable_id(); }

  // What may follow `timeline`, which is the prompt and the output pushed. Errors:
  // Sampler::Shape's, Cancelled by the mask, DeviceLost.
  absl::Status Shape(const TokenLogits& logits, absl::Span<const int32_t> timeline,
                     Distribution* out);

 private:
  // The token that must come, or -1.
  int32_t Forced() const;

  Sampler sampler_;
  TokenHistory history_;
  TokenMask mask_;
  std::vector<uint32_t> allowed_;  // scratch of the mask
  int32_t think_ = -1, think_end_ = -1;
  int64_t outputs_ = 0;
  // Outputs up to the one that ended the reasoning; kOpen while it goes on, 0 where there is none.
  static constexpr int64_t kOpen = -1;
  int64_t reasoning_ = 0;
};

}  // namespace dsv4
