// SPDX-License-Identifier: Apache-2.0
// A session: one mutable timeline of tokens, and its text. Not thread-safe, except SetStopped.
// Sessions of one engine may run on any threads; concurrent calls are computed in one batch. No bit
// of a session depends on the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/engine/engine.h"
#include "lib/kv/kv_sequence.h"
#include "lib/step/step_request.h"
#include "lib/step/timeline.h"
#include "lib/text/stop_strings.h"
#include "lib/text/streaming_decoder.h"

namespace dsv4 {

// kToolCall: as kStop, of a turn that calls tools (Conversation alone).
enum class Finish : int32_t { kNone, kStop, kLength, kContextFull, kToolCall };

struct SyncOptions {
  // Tokens from its position on are computed even if their rows are kept or cached.
  PromptLogProbs log_probs{};
};

struct SyncResult {
  int64_t common_tokens = 0;   // the new list and the session agree on this many
  int64_t reused_tokens = 0;   // tokens of the new list whose rows are kept or cached
  int64_t cached_tokens = 0;   // of those, from the prefix cache; the others were the session's own
  int64_t pending_tokens = 0;  // tokens left to prefill
  // Why no more are reused, and from where on.
  ReuseLimit limit = ReuseLimit::kNone;
  int64_t limit_position = 0;
};

struct StepResult {
  int32_t token = -1;  // -1: none, StepAll alone
  Finish finish = Finish::kNone;
  absl::string_view text;  // complete UTF-8; lives until the next non-const call; data() is
                           // NUL-terminated
  // When asked for (SamplingParams::log_probs), until the next non-const call.
  const PositionLogProbs* log_probs = nullptr;
};

struct SessionStats {
  int64_t used_tokens = 0;
  int64_t prompt_tokens = 0, cached_tokens = 0;        // of the last sync; cached: reused
  int64_t prefix_cache_tokens = 0;                     // of those, from the prefix cache
  int64_t prefilled_tokens = 0, generated_tokens = 0;  // since the last sync
  double prefill_seconds = 0, decode_seconds = 0;      // since the last sync
  int64_t cache_bytes = 0;                             // blocks held and compressor states
  SpeculationStats speculation{};
  int32_t alarms = 0;  // bits of Alarm since the last sync
};

class Session {
 public:
  // (done, total) tokens, or bytes of a saved session; false cancels.
  using Progress = std::function<bool(int64_t, int64_t)>;

  // Shares prefixes with sessions of the same `salt` alone. OutOfBlocks when max_sessions are open;
  // otherwise as SetSampling.
  static absl::StatusOr<std::unique_ptr<Session>> Open(std::shared_ptr<Engine> engine,
                                                       const SamplingParams& sampling,
                                                       uint64_t salt = 0);

  // The model's defaults (generation_config.json).
  static SamplingParams DefaultSampling(const Engine& engine);

  // From the next token on. InvalidArgument names the field; Unsupported for stop strings without a
  // tokenizer. Nothing changes then.
  absl::Status SetSampling(const SamplingParams& sampling);
  const SamplingParams& sampling() const { return timeline_.chooser().params(); }
  // Restricts the next token to the bits of `words`; an empty list allows all tokens again. A
  // token, a Sync, a Rewind and a Load end the restriction. Drafts pause with it. InvalidArgument
  // for another number of words than the vocabulary's.
  absl::Status SetAllowed(absl::Span<const uint32_t> words);

  // InvalidArgument, ContextFull: what Sync would refuse.
  absl::Status CheckSync(absl::Span<const int32_t> tokens, const SyncOptions& options = {}) const;
  // See dsv4_session_sync, _prefill and _step in include/dsv4/session.h. Drafting begins with the
  // step that computes the prompt's last token: after a Prefill that did, with the one after it.
  absl::StatusOr<SyncResult> Sync(absl::Span<const int32_t> tokens,
                                  const SyncOptions& options = {});
  absl::StatusOr<int64_t> Prefill(int64_t max_tokens, const Progress& progress);  // pending tokens
  absl::StatusOr<StepResult> Step();

  // Steps all `sessions`, distinct ones of one engine, in one pass: for hosts with one thread.
  // results[i] is what Step() would give, or has no token: then the pass took a part of the prompt,
  // and further calls take the rest. InvalidArgument when the list is not as said; Busy as Step.
  static absl::Status StepAll(absl::Span<Session* const> sessions,
                              absl::Span<absl::StatusOr<StepResult>> results);

  // Any thread, any time, signal handlers included. While it is stopped, the Prefill or Step that
  // runs ends as Cancelled after at most one layer of the step being computed, and later ones end
  // before they compute anything; a step whose layers are done completes. What was computed before
  // is kept: the session can continue from there. A fork is not stopped.
  void SetStopped(bool stopped) { timeline_.SetStopped(stopped); }

  // Truncates to the first `position` tokens; the removed tokens no longer affect the text. Returns
  // how many tokens the next Prefill or Step computes again: those after the last restore point of
  // the KvSequence, and at least the last token unless its logits are kept. InvalidArgument outside
  // 0..tokens().size().
  absl::StatusOr<int64_t> Rewind(int64_t position);

  // A copy of this session that shares its rows. OutOfBlocks when max_sessions are open.
  absl::StatusOr<std::unique_ptr<Session>> Fork();

  // The saved form (session_image.h): tokens, rows, states and logits, so that a session of an
  // engine with the same model, numerics, cache format and draft setting resumes here with the
  // same logits, bit for bit. It includes the grammar and the output's position in it. It does not
  // include other sampling parameters, the allowed tokens, restore points, drafts and tokens ahead.
  int64_t SaveBytes() const;
  // REQUIRES: SaveBytes() long. DeviceLost.
  absl::Status SaveTo(absl::Span<uint8_t> image) const;
  // Replaces the file at `path`, or leaves it unchanged on an error. `progress`, here and below,
  // may be empty. Errors: those of ReplacedFile, Cancelled, DeviceLost.
  absl::Status SaveFile(const std::string& path, const Progress& progress = {}) const;
  // Called with the tokens to be loaded; its error fails the load.
  using BeforeLoad = std::function<absl::Status(absl::Span<const int32_t> tokens)>;
  // Replaces the session with the saved one; messages name the image `source`. A saved grammar
  // replaces sampling().grammar; if none was saved, the session's own starts over with the next
  // token. `before`, which may be empty, is called once the image is checked. Errors, which leave
  // the session unchanged: those of ParseSessionImage, of `before` and of KvSequence::ReadImage;
  // Corrupt, Cancelled.
  absl::Status Load(absl::Span<const uint8_t> image, absl::string_view source,
                    const Progress& progress = {}, const BeforeLoad& before = {});
  absl::Status LoadFile(const std::string& path, const Progress& progress = {},
                        const BeforeLoad& before = {});

  absl::Span<const int32_t> tokens() const { return timeline_.tokens(); }
  // A number that changes whenever tokens() changes.
  uint64_t generation() const { return generation_; }
  SessionStats stats() const;
  const std::shared_ptr<Engine>& engine() const { return engine_; }
  // Logits of the last token of the timeline; empty unless it has been computed.
  absl::Span<const float> logits() const { return timeline_.logits(); }
  // Log-probabilities of the prompt's tokens from SyncOptions::log_probs.begin on, as far as
  // computed; until the next Sync or Rewind.
  absl::Span<const PositionLogProbs> prompt_log_probs() const {
    return timeline_.prompt_log_probs();
  }
  // Log-probabilities of the token at `position`: the last one, when a step added it with
  // SamplingParams::log_probs, until the next non-const call; or one of the prompt_log_probs().
  // Null for others.
  const PositionLogProbs* LogProbsAt(int64_t position) const;
  // For verification: the logits of tokens chosen ahead, and the drafts that wait. Not while a call
  // of this session runs.
  Timeline& timeline() { return timeline_; }

 private:
  Session(std::shared_ptr<Engine> engine, KvSequence kv);
  absl::Status CheckNotStopped() const;
  absl::Status CheckStep() const;
  static absl::Status CheckStepAll(absl::Span<Session* const> sessions);
  static void PrepareMasks(absl::Span<Session* const> sessions);
  void PrepareMask();
  absl::Status Run(StepRequest* request);
  absl::Status ComputePrompt(int64_t tokens, const Progress& progress);
  // Steps the sessions whose requests have no error: at most one step of the engine. REQUIRES: as
  // of StepAll; masks are prepared, except of sessions with a mask_job_.
  static void StepOnce(absl::Span<Session* const> sessions,
                       absl::Span<absl::StatusOr<StepResult>> results);
  void CountStep(double seconds);
  void CountPrefilled(int64_t tokens);
  absl::StatusOr<StepResult> DeliverStep();
  absl::StatusOr<StepResult> Deliver();
  Finish PushText(int32_t token);
  // Brings decoder and stop strings to where they were after the last token.
  void ReplayText();

  std::shared_ptr<Engine> engine_;
  Timeline timeline_;
  std::optional<StreamingDecoder> decoder_;  // absent without a tokenizer
  StopStrings stop_strings_;
  std::string text_;     // of the last step
  std::string piece_;    // that the decoder gave
  std::string carried_;  // held by stop strings that are replaced
  uint64_t generation_ = 0;
  SessionStats stats_;
  int64_t log_probs_position_ = -1;  // where timeline_.log_probs() are of; -1: nowhere
  // The request of the step that runs.
  std::optional<StepRequest> request_;
  std::shared_ptr<MaskJob> mask_job_;  // the next token needs it
  bool awaits_mask_ = false;           // the step waits for it, a little
  bool stepping_ = false, step_prefills_ = false;
  int64_t step_pending_ = 0;
};

}  // namespace dsv4
