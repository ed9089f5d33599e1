// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/sampling/rng.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Longest text that one token completes; the buffer grows for longer ones.
constexpr size_t kTextBytes = 1024;

}  // namespace

Session::Session(std::shared_ptr<Engine> engine, Sampler sampler, KvSequence kv)
    : engine_(std::move(engine)),
      kv_(std::move(kv)),
      logits_(static_cast<size_t>(engine_->config().vocab_size)),
      sampler_(std::move(sampler)),
      history_(engine_->config().vocab_size),
      distribution_(engine_->config().vocab_size) {
  tokens_.reserve(static_cast<size_t>(engine_->info().context_tokens));
  text_.reserve(kTextBytes);
  absl::StatusOr<const Tokenizer*> tokenizer = engine_->tokenizer();
  if (tokenizer.ok()) decoder_.emplace(**tokenizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(std::shared_ptr<Engine> engine,
                                                       const SamplingParams& sampling) {
  Sampler sampler(engine->config().vocab_size, engine->token_limit(), engine->token_gaps());
  DSV4_RETURN_IF_ERROR(sampler.SetParams(sampling));
  absl::StatusOr<KvSequence> kv = KvSequence::Open(&engine->cache());
  if (!kv.ok()) {
    return OutOfBlocks("all ", engine->info().max_sessions,
                       " sessions of the engine are open (option max_sessions)");
  }
  return std::unique_ptr<Session>(
      new Session(std::move(engine), std::move(sampler), *std::move(kv)));
}

SamplingParams Session::DefaultSampling(const Engine& engine) {
  const GenerationConfig& generation = engine.generation();
  if (!generation.do_sample) return {};
  return {.temperature = static_cast<float>(generation.temperature),
          .top_k = static_cast<int32_t>(generation.top_k),
          .top_p = static_cast<float>(generation.top_p),
          .min_p = static_cast<float>(generation.min_p)};
}

absl::Status Session::SetSampling(const SamplingParams& sampling) {
  return sampler_.SetParams(sampling);
}

absl::StatusOr<SyncResult> Session::Sync(absl::Span<const int32_t> tokens) {
  const int64_t count = static_cast<int64_t>(tokens.size());
  const int64_t limit = engine_->info().context_tokens, vocab = engine_->config().vocab_size;
  if (count == 0) return InvalidArgument("the token list is empty");
  if (count > limit) {
    return ContextFull("the prompt has ", count, " tokens; the context holds ", limit);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return InvalidArgument("token ", i, " is ", tokens[i], ", not in 0..", vocab - 1);
    }
  }
  const auto differ = std::mismatch(tokens.begin(), tokens.end(), tokens_.begin(), tokens_.end());
  const int64_t common = differ.first - tokens.begin();
  const int64_t before = kv_.length();
  int64_t reused = kv_.Rewind(common);
  if (reused < before) has_logits_ = false;
  // The next token needs the last one's logits: without them (a chunk of a longer prompt ended
  // here) there must be something left to compute.
  if (reused == count && !has_logits_) reused = kv_.Rewind(count - 1);
  tokens_.assign(tokens.begin(), tokens.end());
  history_.Reset(tokens);
  if (decoder_.has_value()) decoder_->Finish(&text_);
  stats_ = {};
  stats_.prompt_tokens = count;
  stats_.cached_tokens = reused;
  return SyncResult{.common_tokens = common, .reused_tokens = reused, .pending_tokens = pending()};
}

absl::StatusOr<int64_t> Session::Prefill(int64_t max_tokens, const Progress& progress) {
  if (max_tokens < 0) return InvalidArgument("max_tokens ", max_tokens, " is negative");
  const Clock::time_point start = Clock::now();
  const int64_t before = pending();
  const absl::Status status =
      ComputePending(max_tokens == 0 ? before : std::min(max_tokens, before), progress);
  stats_.prefilled_tokens += before - pending();
  stats_.prefill_seconds += SecondsSince(start);
  if (!status.ok()) return status;
  return pending();
}

absl::Status Session::ComputePending(int64_t tokens, const Progress& progress) {
  // The last token of a prompt is a step of its own: just before it is where the next turn branches
  // off, also where a turn's `<think>` becomes `</think>` once its reasoning is dropped.
  const int64_t restore = stats_.generated_tokens == 0 ? stats_.prompt_tokens - 1 : 0;
  for (int64_t done = 0; done < tokens;) {
    if (restore > 0 && kv_.length() == restore) kv_.MarkTurnEnd();
    int64_t rows = std::min<int64_t>(tokens - done, engine_->info().prefill_chunk_tokens);
    if (kv_.length() < restore) rows = std::min(rows, restore - kv_.length());
    DSV4_RETURN_IF_ERROR(Forward(rows));
    done += rows;
    if (progress && !progress(done, tokens) && done < tokens) {
      return Cancelled("prefill was cancelled with ", pending(), " tokens left");
    }
  }
  return absl::OkStatus();
}

absl::Status Session::Forward(int64_t rows) {
  const int64_t begin = kv_.length();
  std::lock_guard lock(engine_->step_mutex());
  Model& model = engine_->model();
  StepBatch& batch = engine_->batch();
  batch.Clear();
  DSV4_RETURN_IF_ERROR(batch.Add(&kv_, absl::MakeConstSpan(tokens_).subspan(
                                           static_cast<size_t>(begin), static_cast<size_t>(rows))));
  DSV4_RETURN_IF_ERROR(model.Forward(batch.rows(), batch.tokens()));
  has_logits_ = begin + rows == static_cast<int64_t>(tokens_.size());
  if (has_logits_) {
    const int32_t last = batch.last_row(0);
    DSV4_ASSIGN_OR_RETURN(const float* logits, model.Logits(absl::MakeConstSpan(&last, 1)));
    std::copy_n(logits, logits_.size(), logits_.begin());
  }
  batch.Commit();
  return absl::OkStatus();
}

bool Session::EndsTurn(int32_t token) const {
  const std::vector<int32_t>& eos = engine_->eos_tokens();
  return std::find(eos.begin(), eos.end(), token) != eos.end();
}

absl::StatusOr<StepResult> Session::Step() {
  const int64_t context = engine_->info().context_tokens;
  if (tokens_.empty()) return InvalidArgument("the session is empty: sync it to a prompt first");
  if (static_cast<int64_t>(tokens_.size()) >= context) {
    return ContextFull("the session holds ", tokens_.size(), " tokens, all that its context holds");
  }
  // The prompt counts as prefill; the token that the last step sampled, as this step's decode.
  if (stats_.generated_tokens == 0 && pending() > 0) {
    DSV4_RETURN_IF_ERROR(Prefill(0, nullptr).status());
  }
  const Clock::time_point start = Clock::now();
  DSV4_RETURN_IF_ERROR(ComputePending(pending(), nullptr));
  StepResult result;
  const SamplingParams& sampling = sampler_.params();
  DSV4_RETURN_IF_ERROR(sampler_.Shape(logits_, history_,
                                      {.forced = sampler_.ForcedToken(stats_.generated_tokens)},
                                      &distribution_));
  result.token = Draw(distribution_, Uniform(sampling.seed, tokens_.size()));
  history_.Push(result.token);
  tokens_.push_back(result.token);
  ++stats_.generated_tokens;
  text_.clear();
  if (EndsTurn(result.token)) {
    result.finish = Finish::kStop;
  } else {
    if (decoder_.has_value()) DSV4_RETURN_IF_ERROR(decoder_->Push(result.token, &text_));
    if (sampling.max_tokens > 0 && stats_.generated_tokens >= sampling.max_tokens) {
      result.finish = Finish::kLength;
    } else if (static_cast<int64_t>(tokens_.size()) == context) {
      result.finish = Finish::kContextFull;
    }
  }
  if (result.finish != Finish::kNone && decoder_.has_value()) decoder_->Finish(&text_);
  result.text = text_;
  stats_.decode_seconds += SecondsSince(start);
  return result;
}

SessionStats Session::stats() const {
  SessionStats stats = stats_;
  stats.used_tokens = static_cast<int64_t>(tokens_.size());
  stats.cache_bytes = kv_.held_bytes();
  return stats;
}

absl::Span<const float> Session::logits() const {
  if (!has_logits_ || pending() > 0) return {};
  return logits_;
}

}  // namespace dsv4
