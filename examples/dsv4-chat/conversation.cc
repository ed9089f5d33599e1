// SPDX-License-Identifier: Apache-2.0
// Every turn renders the whole conversation and syncs the session to it: the library keeps the
// key/value rows of the common prefix, so nothing here has to.
#include "examples/dsv4-chat/conversation.h"

#include <chrono>
#include <cstdio>
#include <random>
#include <string_view>
#include <utility>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kReasoningEnd[] = "</think>";

int32_t ShowProgress(void* bar, dsv4_progress_phase, uint64_t done, uint64_t total) {
  static_cast<ProgressBar*>(bar)->Update(done, total);
  return Interrupted();
}

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

double PerSecond(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string StatisticsOf(const dsv4_session* session, double first_token_seconds) {
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_error* error = nullptr;
  Check(dsv4_session_get_stats(session, &stats, &error), error);
  char line[320];
  std::snprintf(
      line, sizeof line,
      "prompt %lld tokens (%lld cached + %lld new), prefill %.1f tok/s; generated %lld, "
      "decode %.1f tok/s; first token %.3f s; context %lld/%lld",
      static_cast<long long>(stats.prompt_tokens), static_cast<long long>(stats.cached_tokens),
      static_cast<long long>(stats.prompt_tokens - stats.cached_tokens),
      PerSecond(stats.prefilled_tokens, stats.prefill_seconds),
      static_cast<long long>(stats.generated_tokens),
      PerSecond(stats.generated_tokens, stats.decode_seconds), first_token_seconds,
      static_cast<long long>(stats.used_tokens), static_cast<long long>(stats.context_tokens));
  return line;
}

}  // namespace

Conversation::Conversation(const Options& options, Screen* screen)
    : screen_(screen), thinking_(options.thinking), system_(options.system) {
  OpenEngine(options);
  OpenSession(options);
}

void Conversation::OpenEngine(const Options& options) {
  ProgressBar bar("loading", ProgressBar::Unit::kBytes, screen_->shows_progress());
  dsv4_engine_options open = DSV4_ENGINE_OPTIONS_INIT;
  open.backend = options.backend;
  open.context_tokens = options.context;
  open.max_sessions = 1;
  open.threads = options.threads;
  open.progress = &ShowProgress;
  open.progress_user = &bar;
  dsv4_engine* engine = nullptr;
  dsv4_error* error = nullptr;
  Check(dsv4_engine_open(options.model.c_str(), &open, &engine, &error), error);
  engine_.reset(engine);
  try {
    Check(dsv4_engine_tokenizer(engine, &tokenizer_, &error), error);
  } catch (Failure& failure) {
    failure.message = options.model + ": " + failure.message;
    throw;
  }
  reasoning_end_ = dsv4_tokenizer_added_token(tokenizer_, kReasoningEnd);
}

void Conversation::OpenSession(const Options& options) {
  dsv4_error* error = nullptr;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  Check(dsv4_sampling_init(engine_.get(), &sampling, &error), error);
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_k = options.top_k.value_or(sampling.top_k);
  sampling.top_p = options.top_p.value_or(sampling.top_p);
  sampling.min_p = options.min_p.value_or(sampling.min_p);
  sampling.seed = options.seed ? *options.seed : RandomSeed();
  sampling.max_tokens = options.max_tokens;
  dsv4_session* session = nullptr;
  Check(dsv4_session_open(engine_.get(), &sampling, &session, &error), error);
  session_.reset(session);
}

std::vector<int32_t> Conversation::Render() const {
  std::vector<dsv4_message> messages;
  const auto add = [&](dsv4_role role, const std::string& content, const std::string& reasoning) {
    dsv4_message message = DSV4_MESSAGE_INIT;
    message.role = role;
    message.content = content.data();
    message.content_length = content.size();
    message.reasoning = reasoning.data();
    message.reasoning_length = reasoning.size();
    messages.push_back(message);
  };
  if (!system_.empty()) add(DSV4_ROLE_SYSTEM, system_, {});
  for (const Turn& turn : turns_) add(turn.role, turn.content, turn.reasoning);
  std::vector<const dsv4_message*> pointers;
  for (const dsv4_message& message : messages) pointers.push_back(&message);

  std::vector<int32_t> tokens;
  for (size_t needed = 0;;) {
    dsv4_error* error = nullptr;
    Check(dsv4_chat_render(tokenizer_, pointers.data(), pointers.size(), thinking_, tokens.data(),
                           tokens.size(), &needed, &error),
          error);
    const bool complete = needed <= tokens.size();
    tokens.resize(needed);
    if (complete) return tokens;
  }
}

Conversation::End Conversation::Reply(const std::string& text) {
  const size_t before = turns_.size();
  try {
    turns_.push_back({DSV4_ROLE_USER, text, {}});
    Turn answer{DSV4_ROLE_ASSISTANT, {}, {}};
    const End end = Generate(&answer);
    turns_.push_back(std::move(answer));
    return end;
  } catch (const Failure&) {
    turns_.resize(before);
    throw;
  }
}

Conversation::End Conversation::Generate(Turn* answer) {
  const Clock::time_point start = Clock::now();
  dsv4_error* error = nullptr;
  const std::vector<int32_t> prompt = Render();
  Check(dsv4_session_sync(session_.get(), prompt.data(), prompt.size(), nullptr, &error), error);
  {
    ProgressBar bar("reading", ProgressBar::Unit::kTokens, screen_->shows_progress());
    Check(dsv4_session_prefill(session_.get(), 0, &ShowProgress, &bar, nullptr, &error), error);
  }
  // With thinking on, everything before </think> is reasoning.
  bool reasoning = thinking_ != DSV4_THINKING_OFF;
  double first_token_seconds = 0;
  End end = End::kDone;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (step.finish == DSV4_FINISH_NONE) {
    if (Interrupted()) {
      end = End::kInterrupted;
      break;
    }
    Check(dsv4_session_step(session_.get(), &step, &error), error);
    if (first_token_seconds == 0)
      first_token_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::string_view text(step.text, step.text_length);
    const bool ends_reasoning = reasoning && step.token == reasoning_end_;
    if (ends_reasoning && text.ends_with(kReasoningEnd))
      text.remove_suffix(std::string_view(kReasoningEnd).size());
    (reasoning ? answer->reasoning : answer->content) += text;
    reasoning ? screen_->Reasoning(text) : screen_->Answer(text);
    if (ends_reasoning) reasoning = false;
  }
  screen_->EndAnswer();
  if (step.finish == DSV4_FINISH_CONTEXT_FULL)
    screen_->Notice("the context is full: the answer may be cut short");
  statistics_ = StatisticsOf(session_.get(), first_token_seconds);
  return end;
}

}  // namespace chat
