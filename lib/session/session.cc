// SPDX-License-Identifier: Apache-2.0
#include "lib/session/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// Adds the time from its construction on.
class Stopwatch {
 public:
  explicit Stopwatch(double* seconds) : seconds_(seconds) {}
  ~Stopwatch() { *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double* seconds_;
  Clock::time_point start_ = Clock::now();
};

void Add(std::atomic<int64_t>* counter, int64_t count) {
  counter->fetch_add(count, std::memory_order_relaxed);
}

// The cache's refusal in the engine's terms.
absl::StatusOr<KvSequence> SessionRows(const Engine& engine, absl::StatusOr<KvSequence> kv) {
  if (kv.ok()) return kv;
  return OutOfBlocks("all ", engine.info().max_sessions,
                     " sessions of the engine are open (option max_sessions)");
}

// Bytes for the text that one token can complete, except with absurdly long tokens: a token whose
// bytes all become U+FFFD, behind text that stop strings held back twice.
size_t TextBytes(const Tokenizer& tokenizer) {
  constexpr size_t kMostBytes = size_t{1} << 16;
  const size_t repaired = 3 * (tokenizer.max_token_bytes() + 4);
  return std::min(repaired + 2 * StopStrings::kMaxBytes, kMostBytes);
}

}  // namespace

Session::Session(std::shared_ptr<Engine> engine, KvSequence kv)
    : engine_(std::move(engine)), timeline_(engine_->facts(), &engine_->counters(), std::move(kv)) {
  const absl::StatusOr<const Tokenizer*> tokenizer = engine_->tokenizer();
  if (!tokenizer.ok()) return;
  text_.reserve(TextBytes(**tokenizer));
  piece_.reserve(TextBytes(**tokenizer));
  carried_.reserve(2 * StopStrings::kMaxBytes);
  decoder_.emplace(**tokenizer);
}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(std::shared_ptr<Engine> engine,
                                                       const SamplingParams& sampling,
                                                       uint64_t salt) {
  DSV4_RETURN_IF_ERROR(engine->gate().refusal());
  DSV4_ASSIGN_OR_RETURN(KvSequence kv,
                        SessionRows(*engine, KvSequence::Open(&engine->cache(), salt)));
  std::unique_ptr<Session> session(new Session(std::move(engine), std::move(kv)));
  DSV4_RETURN_IF_ERROR(session->SetSampling(sampling));
  return session;
}

SamplingParams Session::DefaultSampling(const Engine& engine) {
  const GenerationConfig& generation = engine.generation();
  SamplingParams sampling;
  sampling.max_tokens = generation.max_new_tokens;
  if (generation.repetition_penalty != 1) {
    sampling.repetition_penalty = static_cast<float>(generation.repetition_penalty);
  }
  if (!generation.do_sample) return sampling;
  sampling.temperature = static_cast<float>(generation.temperature);
  sampling.top_k = static_cast<int32_t>(generation.top_k);
  sampling.top_p = static_cast<float>(generation.top_p);
  sampling.min_p = static_cast<float>(generation.min_p);
  return sampling;
}

absl::Status Session::SetSampling(const SamplingParams& sampling) {
  const int32_t max_drafts = engine_->info().max_draft_tokens;
  if (sampling.draft_tokens > max_drafts) {
    return InvalidValue("draft_tokens", " is ", sampling.draft_tokens,
                        "; the engine was opened with max_draft_tokens = ", max_drafts);
  }
  if (sampling.grammar != nullptr) {
    DSV4_ASSIGN_OR_RETURN(const auto tokens, engine_->text().grammar_tokens());
    if (&sampling.grammar->vocabulary() != tokens.get()) {
      return WithArgument(InvalidArgument("grammar was opened with another engine"), "grammar");
    }
  }
  if (!sampling.stop_strings.empty() && !decoder_.has_value()) {
    return WithArgument(
        Unsupported("stop_strings need a tokenizer; the model folder has no tokenizer.json"),
        "stop_strings");
  }
  DSV4_ASSIGN_OR_RETURN(StopStrings stop_strings, StopStrings::Create(sampling.stop_strings));
  carried_.reserve(carried_.size() + StopStrings::kMaxBytes);
  DSV4_RETURN_IF_ERROR(timeline_.chooser().SetParams(sampling));
  timeline_.DropAhead();
  stop_strings_.Flush(&carried_);
  stop_strings_ = std::move(stop_strings);
  return absl::OkStatus();
}

absl::Status Session::SetAllowed(absl::Span<const uint32_t> words) {
  const int64_t expected = TokenMaskWords(engine_->config().vocab_size);
  if (!words.empty() && static_cast<int64_t>(words.size()) != expected) {
    return InvalidValue("count", " is ", words.size(), "; expected ", expected,
                        ", a bit for each token, or 0");
  }
  timeline_.DropAhead();
  timeline_.chooser().SetAllowedNext(words);
  return absl::OkStatus();
}

absl::Status Session::CheckSync(absl::Span<const int32_t> tokens,
                                const SyncOptions& options) const {
  const int64_t count = static_cast<int64_t>(tokens.size());
  const int64_t limit = engine_->info().context_tokens, vocab = engine_->config().vocab_size;
  if (count == 0) return WithArgument(InvalidArgument("the token list is empty"), "tokens");
  if (count > limit) {
    return ContextFull("the prompt has ", count, " tokens; the context holds ", limit);
  }
  for (int64_t i = 0; i < count; ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab) {
      return WithArgument(
          InvalidArgument("token ", i, " is ", tokens[i], ", not in 0..", vocab - 1), "tokens");
    }
  }
  const PromptLogProbs& log_probs = options.log_probs;
  if (log_probs.begin < 0 || log_probs.begin > count) {
    return InvalidValue("log_probs_begin", " is ", log_probs.begin, "; expected 0 (none) to ",
                        count);
  }
  if (log_probs.count < 0 || log_probs.count > kMaxLogProbs) {
    return InvalidValue("log_probs_count", " is ", log_probs.count, "; expected 0 to ",
                        kMaxLogProbs);
  }
  return absl::OkStatus();
}

absl::StatusOr<SyncResult> Session::Sync(absl::Span<const int32_t> tokens,
                                         const SyncOptions& options) {
  DSV4_RETURN_IF_ERROR(CheckSync(tokens, options));
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  const absl::Span<const int32_t> own = timeline_.tokens();
  const int64_t common =
      std::mismatch(tokens.begin(), tokens.end(), own.begin(), own.end()).first - tokens.begin();
  const PrefixReuse reuse = timeline_.Replace(tokens, options.log_probs);
  ++generation_;
  log_probs_position_ = -1;
  ReplayText();
  stats_ = {};
  stats_.prompt_tokens = timeline_.prompt_tokens();
  stats_.cached_tokens = reuse.tokens();
  stats_.prefix_cache_tokens = reuse.cached_tokens;
  SessionCounters& counters = engine_->counters();
  Add(&counters.prompt_tokens, stats_.prompt_tokens);
  Add(&counters.reused_tokens, stats_.cached_tokens);
  Add(&counters.prefix_cache_tokens, stats_.prefix_cache_tokens);
  return SyncResult{.common_tokens = common,
                    .reused_tokens = reuse.tokens(),
                    .cached_tokens = reuse.cached_tokens,
                    .pending_tokens = timeline_.pending(),
                    .limit = reuse.limit,
                    .limit_position = reuse.limit_position};
}

absl::Status Session::Run(StepRequest* request) {
  request->timeline = &timeline_;
  Scheduler& scheduler = engine_->scheduler();
  DSV4_RETURN_IF_ERROR(scheduler.CheckThread());
  StepCall call(&scheduler);
  scheduler.Add(request, &call);
  scheduler.Wait(&call);
  return request->status;
}

absl::Status Session::ComputePrompt(int64_t tokens, const Progress& progress) {
  const Stopwatch stopwatch(&stats_.prefill_seconds);
  const int64_t before = timeline_.pending(), end = before - tokens;
  absl::Status status;
  while (status.ok() && timeline_.pending() > end) {
    StepRequest request{.tokens = timeline_.pending() - end, .one_step = progress != nullptr};
    status = Run(&request);
    const int64_t left = timeline_.pending();
    if (status.ok() && progress && !progress(before - left, tokens) && left > end) {
      status = Cancelled("prefill was cancelled with ", left, " tokens left");
    }
  }
  CountPrefilled(before - timeline_.pending());
  return status;
}

absl::StatusOr<int64_t> Session::Prefill(int64_t max_tokens, const Progress& progress) {
  if (max_tokens < 0) return InvalidValue("max_tokens", " ", max_tokens, " is negative");
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  DSV4_RETURN_IF_ERROR(CheckNotStopped());
  const int64_t pending = timeline_.pending();
  DSV4_RETURN_IF_ERROR(
      ComputePrompt(max_tokens == 0 ? pending : std::min(max_tokens, pending), progress));
  return timeline_.pending();
}

absl::Status Session::CheckNotStopped() const {
  if (!timeline_.stopped()) return absl::OkStatus();
  return Cancelled("the session is stopped with ", timeline_.pending(), " tokens pending");
}

absl::Status Session::CheckStep() const {
  DSV4_RETURN_IF_ERROR(CheckNotStopped());
  if (timeline_.delivered() == 0) {
    return InvalidArgument("the session is empty: sync it to a prompt first");
  }
  if (timeline_.delivered() >= engine_->info().context_tokens) {
    return ContextFull("the session holds ", timeline_.delivered(),
                       " tokens, all that its context holds");
  }
  return absl::OkStatus();
}

// On the session's own thread, so that the common step does not wait for the grammar.
void Session::PrepareMask() {
  MaskWorker& masks = engine_->scheduler().masks();
  TokenChooser& chooser = timeline_.chooser();
  const std::shared_ptr<MaskJob> job = chooser.Prepare(masks);
  if (job == nullptr) return;
  masks.Finish(job);
  (void)chooser.Prepare(masks);  // takes the result
}

absl::StatusOr<StepResult> Session::Step() {
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  DSV4_RETURN_IF_ERROR(CheckStep());
  log_probs_position_ = -1;
  mask_job_ = nullptr;
  if (timeline_.ahead() == 0) {
    // The prompt but its last token, which is a step that chooses, like any later one.
    if (timeline_.pending() > 1) {
      DSV4_RETURN_IF_ERROR(ComputePrompt(timeline_.pending() - 1, nullptr));
    }
    PrepareMask();
    if (timeline_.pending() > 0) DSV4_RETURN_IF_ERROR(engine_->scheduler().CheckThread());
  }
  request_.emplace().timeline = &timeline_;
  Session* const self = this;
  absl::StatusOr<StepResult> result;
  StepOnce(absl::MakeConstSpan(&self, 1), absl::MakeSpan(&result, 1));
  return result;
}

absl::Status Session::StepAll(absl::Span<Session* const> sessions,
                              absl::Span<absl::StatusOr<StepResult>> results) {
  if (sessions.size() != results.size()) {
    return InvalidArgument(sessions.size(), " sessions, but ", results.size(), " results");
  }
  DSV4_RETURN_IF_ERROR(CheckStepAll(sessions));
  if (sessions.empty()) return absl::OkStatus();
  Engine& engine = *sessions[0]->engine_;
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine.gate().Enter());
  Scheduler& scheduler = engine.scheduler();
  DSV4_RETURN_IF_ERROR(scheduler.CheckThread());
  for (Session* session : sessions) {
    StepRequest& request = session->request_.emplace();
    request.timeline = &session->timeline_;
    request.status = session->CheckStep();
  }

  PrepareMasks(sessions);
  StepOnce(sessions, results);
  return absl::OkStatus();
}

void Session::StepOnce(absl::Span<Session* const> sessions,
                       absl::Span<absl::StatusOr<StepResult>> results) {
  Scheduler& scheduler = sessions[0]->engine_->scheduler();
  const auto start = std::chrono::steady_clock::now();
  StepCall call(&scheduler);
  for (const Session* session : sessions) {
    const bool decodes = session->mask_job_ != nullptr || session->timeline_.ahead() > 0;
    if (session->request_->status.ok() && decodes) call.SetDecoding();
  }
  for (Session* session : sessions) {
    Timeline& timeline = session->timeline_;
    StepRequest& request = *session->request_;
    session->log_probs_position_ = -1;
    if (!request.status.ok() || session->mask_job_ != nullptr) continue;
    if (timeline.ahead() > 0 || timeline.pending() == 0) continue;
    request.tokens = timeline.pending();
    request.choose = request.tokens == 1;
    request.one_step = true;
    session->step_pending_ = request.tokens;
    session->step_prefills_ =
        request.tokens > 1 || timeline.delivered() == timeline.prompt_tokens();
    scheduler.Add(&request, &call);
  }
  scheduler.Wait(&call);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  for (size_t i = 0; i < sessions.size(); ++i) {
    Session& session = *sessions[i];
    if (session.request_->call != nullptr) session.CountStep(seconds);
    // One that finds no memory is not to cost the others their tokens.
    const absl::Status delivered = Contained([&] {
      results[i] = session.DeliverStep();
      return results[i].status();
    });
    if (!delivered.ok()) results[i] = delivered;
  }
}

// Marks each session, to see one that is named twice; the marks go before a status is made.
absl::Status Session::CheckStepAll(absl::Span<Session* const> sessions) {
  size_t checked = 0;
  bool twice = false;
  for (; checked < sessions.size(); ++checked) {
    Session* session = sessions[checked];
    if (session == nullptr || session->engine_ != sessions[0]->engine_) break;
    twice = std::exchange(session->stepping_, true);
    if (twice) break;
  }
  for (size_t i = 0; i < checked; ++i) sessions[i]->stepping_ = false;
  if (checked == sessions.size()) return absl::OkStatus();
  if (sessions[checked] == nullptr) return InvalidArgument("sessions[", checked, "] is null");
  if (twice) return InvalidArgument("sessions[", checked, "] is named twice");
  return InvalidArgument("sessions[", checked, "] is of another engine than sessions[0]");
}

// Sessions whose masks take long keep their mask_job_ and get no token in this step. The first mask
// of an output is found while its prompt is computed.
void Session::PrepareMasks(absl::Span<Session* const> sessions) {
  MaskWorker& masks = sessions[0]->engine_->scheduler().masks();
  bool wait = false, others = false, any = false;
  for (Session* session : sessions) {
    Timeline& timeline = session->timeline_;
    const std::shared_ptr<MaskJob> before = std::exchange(session->mask_job_, nullptr);
    session->awaits_mask_ = false;
    if (!session->request_->status.ok()) continue;
    std::shared_ptr<MaskJob> job;
    if (timeline.ahead() == 0) job = timeline.chooser().Prepare(masks);
    if (job != nullptr) masks.Start(job);
    if (job == nullptr || timeline.pending() > 1) {
      others = true;
      continue;
    }
    any = true;
    // A job has the others wait for it once.
    session->awaits_mask_ = job != before && !timeline.chooser().slow();
    wait = wait || session->awaits_mask_;
    session->mask_job_ = job;
  }
  if (!any) return;
  if (wait) {
    masks.Await(
        [&](MaskWorker::Done done) {
          return std::none_of(sessions.begin(), sessions.end(), [&](const Session* session) {
            return session->awaits_mask_ && !done(*session->mask_job_);
          });
        },
        MaskWorker::kPatience);
  }
  // Where no other session wants a step, the caller would only call again.
  if (!others) {
    masks.Await(
        [&](MaskWorker::Done done) {
          return std::any_of(sessions.begin(), sessions.end(), [&](const Session* session) {
            return session->mask_job_ != nullptr && done(*session->mask_job_);
          });
        },
        20 * MaskWorker::kPatience);
  }
  for (Session* session : sessions) {
    if (session->mask_job_ == nullptr || !masks.IsDone(*session->mask_job_)) continue;
    session->mask_job_ = session->timeline_.chooser().Prepare(masks);
  }
}

void Session::CountStep(double seconds) {
  (step_prefills_ ? stats_.prefill_seconds : stats_.decode_seconds) += seconds;
  if (step_prefills_) CountPrefilled(step_pending_ - timeline_.pending());
}

void Session::CountPrefilled(int64_t tokens) {
  stats_.prefilled_tokens += tokens;
  Add(&engine_->counters().prefilled_tokens, tokens);
}

absl::StatusOr<StepResult> Session::DeliverStep() {
  DSV4_RETURN_IF_ERROR(request_->status);
  if (mask_job_ != nullptr) return StepResult{};
  if (timeline_.ahead() == 0) {
    if (timeline_.pending() > 0) return StepResult{};
    DSV4_RETURN_IF_ERROR(timeline_.ChooseFromLogits());
  }
  return Deliver();
}

absl::StatusOr<StepResult> Session::Deliver() {
  StepResult result;
  result.token = timeline_.Deliver();
  ++generation_;
  ++stats_.generated_tokens;
  Add(&engine_->counters().generated_tokens, 1);
  result.finish = PushText(result.token);
  result.text = text_;
  if (timeline_.chooser().params().log_probs > 0) {
    log_probs_position_ = timeline_.delivered() - 1;
    result.log_probs = &timeline_.log_probs();
  }
  if (result.finish != Finish::kNone) timeline_.EndTurn();
  return result;
}

Finish Session::PushText(int32_t token) {
  text_.assign(carried_);
  carried_.clear();
  piece_.clear();
  const SamplingParams& sampling = timeline_.chooser().params();
  Finish finish = Finish::kNone;
  if (timeline_.Ends(token)) {
    finish = Finish::kStop;
  } else {
    // Tokens without text are never chosen.
    if (decoder_.has_value()) (void)decoder_->Push(token, &piece_);
    if (sampling.max_tokens > 0 && stats_.generated_tokens >= sampling.max_tokens) {
      finish = Finish::kLength;
    } else if (timeline_.delivered() == engine_->info().context_tokens) {
      finish = Finish::kContextFull;
    }
  }
  if (finish != Finish::kNone && decoder_.has_value()) decoder_->Flush(&piece_);
  if (stop_strings_.Push(piece_, &text_)) {
    piece_.clear();
    if (decoder_.has_value()) decoder_->Flush(&piece_);
    return Finish::kStop;
  }
  if (finish != Finish::kNone) stop_strings_.Flush(&text_);
  return finish;
}

void Session::ReplayText() {
  stop_strings_.Reset();
  carried_.clear();
  if (!decoder_.has_value()) return;
  piece_.clear();
  decoder_->Flush(&piece_);
  const absl::Span<const int32_t> tokens = timeline_.tokens();
  for (size_t i = static_cast<size_t>(timeline_.prompt_tokens()); i < tokens.size(); ++i) {
    piece_.clear();
    text_.clear();
    if (timeline_.Ends(tokens[i])) {
      decoder_->Flush(&piece_);
      stop_strings_.Reset();
      continue;
    }
    (void)decoder_->Push(tokens[i], &piece_);
    stop_strings_.Push(piece_, &text_);
  }
  text_.clear();
}

absl::StatusOr<int64_t> Session::Rewind(int64_t position) {
  if (position < 0 || position > timeline_.delivered()) {
    return InvalidValue("position", " ", position, " is not in 0..", timeline_.delivered());
  }
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  if (position < timeline_.delivered()) ++generation_;
  timeline_.Truncate(position);
  timeline_.chooser().SetAllowedNext({});
  log_probs_position_ = -1;
  ReplayText();
  stats_.prompt_tokens = timeline_.prompt_tokens();
  // Those of the prefix cache come last.
  const int64_t lost = std::max<int64_t>(stats_.cached_tokens - position, 0);
  stats_.cached_tokens -= lost;
  stats_.prefix_cache_tokens = std::max<int64_t>(stats_.prefix_cache_tokens - lost, 0);
  stats_.generated_tokens = position - timeline_.prompt_tokens();
  return timeline_.pending();
}

absl::StatusOr<std::unique_ptr<Session>> Session::Fork() {
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  DSV4_ASSIGN_OR_RETURN(KvSequence kv, SessionRows(*engine_, timeline_.ForkRows()));
  std::unique_ptr<Session> fork(new Session(engine_, std::move(kv)));
  DSV4_RETURN_IF_ERROR(fork->SetSampling(timeline_.chooser().params()));
  fork->timeline_.CopyFrom(timeline_);
  fork->decoder_ = decoder_;
  fork->stop_strings_ = stop_strings_;
  fork->carried_ = carried_;
  fork->generation_ = generation_;
  fork->stats_ = stats_;
  fork->log_probs_position_ = log_probs_position_;
  return fork;
}

const PositionLogProbs* Session::LogProbsAt(int64_t position) const {
  if (position >= 0 && position == log_probs_position_) return &timeline_.log_probs();
  const absl::Span<const PositionLogProbs> prompt = timeline_.prompt_log_probs();
  const int64_t index = position - timeline_.prompt_log_probs_begin();
  const bool held = index >= 0 && index < static_cast<int64_t>(prompt.size());
  return held ? &prompt[static_cast<size_t>(index)] : nullptr;
}

SessionStats Session::stats() const {
  SessionStats stats = stats_;
  stats.used_tokens = timeline_.delivered();
  stats.cache_bytes = timeline_.kv().held_bytes();
  stats.speculation = timeline_.speculation().stats();
  stats.alarms = timeline_.watch().alarms();
  if (engine_->info().canary == CanaryState::kFailed) {
    stats.alarms |= static_cast<int32_t>(Alarm::kCanary);
  }
  return stats;
}

}  // namespace dsv4
