// SPDX-License-Identifier: Apache-2.0
// A session: one mutable timeline of tokens, its key/value rows and compressor states, and the
// sampler. Not thread-safe; sessions of one engine may run on several threads (steps take turns).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/kv/kv_sequence.h"
#include "lib/runtime/engine.h"
#include "lib/sampling/sampler.h"
#include "lib/text/streaming_decoder.h"

namespace dsv4 {

enum class Finish : int32_t { kNone, kStop, kLength, kContextFull };

struct SyncResult {
  int64_t common_tokens = 0;   // the new list and the session agree on this many
  int64_t reused_tokens = 0;   // of those, tokens whose rows are kept
  int64_t pending_tokens = 0;  // tokens left to prefill
};

struct StepResult {
  int32_t token = -1;
  Finish finish = Finish::kNone;
  absl::string_view text;  // complete UTF-8; lives until the next non-const call; data() is
                           // NUL-terminated
};

struct SessionStats {
  int64_t used_tokens = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0;        // of the last sync
  int64_t prefilled_tokens = 0, generated_tokens = 0;  // since the last sync
  double prefill_seconds = 0, decode_seconds = 0;      // since the last sync
  int64_t cache_bytes = 0;                             // blocks held and compressor states
};

class Session {
 public:
  // (done, total) tokens; false cancels.
  using Progress = std::function<bool(int64_t, int64_t)>;

  // OutOfBlocks when max_sessions are open.
  static absl::StatusOr<std::unique_ptr<Session>> Open(std::shared_ptr<Engine> engine,
                                                       const SamplingParams& sampling);

  // The model's defaults (generation_config.json).
  static SamplingParams DefaultSampling(const Engine& engine);

  absl::Status SetSampling(const SamplingParams& sampling);

  // See dsv4_session_sync, _prefill and _step in include/dsv4/session.h.
  absl::StatusOr<SyncResult> Sync(absl::Span<const int32_t> tokens);
  absl::StatusOr<int64_t> Prefill(int64_t max_tokens, const Progress& progress);  // pending tokens
  absl::StatusOr<StepResult> Step();

  absl::Span<const int32_t> tokens() const { return tokens_; }
  SessionStats stats() const;
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  // Logits of the last token of the timeline; empty unless it has been computed.
  absl::Span<const float> logits() const;

 private:
  Session(std::shared_ptr<Engine> engine, Sampler sampler, KvSequence kv);
  int64_t pending() const { return static_cast<int64_t>(tokens_.size()) - kv_.length(); }
  // Computes the next `rows` pending tokens.
  absl::Status Forward(int64_t rows);
  absl::Status ComputePending(int64_t tokens, const Progress& progress);
  bool EndsTurn(int32_t token) const;

  std::shared_ptr<Engine> engine_;
  std::vector<int32_t> tokens_;  // reserved to the context at open
  KvSequence kv_;                // rows of tokens_[0, kv_.length())
  std::vector<float> logits_;    // [vocab] of token kv_.length() - 1, when has_logits_
  bool has_logits_ = false;
  Sampler sampler_;
  TokenHistory history_;
  Distribution distribution_;
  std::optional<StreamingDecoder> decoder_;  // absent without a tokenizer
  std::string text_;
  SessionStats stats_;
};

}  // namespace dsv4
