// SPDX-License-Identifier: Apache-2.0
// The library's session keeps the messages, their tokens and their key/value rows. What is kept
// here are the same messages as JSON, for the day when the system message changes and all is
// rendered anew.
#include "examples/dsv4-chat/conversation.h"

#include <chrono>
#include <cstdio>
#include <random>
#include <utility>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/json_text.h"
#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

using Clock = std::chrono::steady_clock;

int32_t ShowProgress(void* bar, dsv4_progress_phase, uint64_t done, uint64_t total,
                     dsv4_progress_unit) {
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

// "" without drafts.
std::string DraftStatisticsOf(const dsv4_session_stats& stats) {
  if (stats.draft_steps == 0) return {};
  char text[160];
  std::snprintf(text, sizeof text,
                "; drafts %lld of %lld accepted (first ones %.0f %%), %.2f tokens a forward%s",
                static_cast<long long>(stats.accepted_tokens),
                static_cast<long long>(stats.drafted_tokens), 100 * stats.first_acceptance,
                stats.acceptance_length,
                stats.draft_stop == DSV4_DRAFT_STOP_NONE ? "" : ", given up: too few accepted");
  return text;
}

std::string StatisticsOf(const TurnEnd& end) {
  const dsv4_session_stats& stats = end.stats;
  char line[320];
  std::snprintf(
      line, sizeof line,
      "prompt %lld tokens (%lld cached + %lld new), prefill %.1f tok/s; generated %lld, "
      "decode %.1f tok/s; first token %.3f s; context %lld/%lld",
      static_cast<long long>(stats.prompt_tokens), static_cast<long long>(stats.cached_tokens),
      static_cast<long long>(stats.prompt_tokens - stats.cached_tokens),
      PerSecond(stats.prefilled_tokens, stats.prefill_seconds),
      static_cast<long long>(stats.generated_tokens),
      PerSecond(stats.generated_tokens, stats.decode_seconds), end.first_token_seconds,
      static_cast<long long>(stats.used_tokens), static_cast<long long>(stats.context_tokens));
  return line + DraftStatisticsOf(stats);
}

std::string JsonArray(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? ", " : "") + item;
  return text + "]";
}

}  // namespace

Conversation::Conversation(const Options& options, Screen* screen, TurnOutput* output)
    : screen_(screen), output_(output) {
  set_system(options.system);
  chat_options_.thinking = options.thinking;
  if (!options.tools.empty()) ReadTools(options.tools);
  OpenEngine(options);
  SetUpSampling(options);
  OpenSession();
}

void Conversation::OpenEngine(const Options& options) {
  ProgressBar bar("loading", ProgressBar::Unit::kBytes, screen_->shows_progress());
  dsv4_engine_options open = DSV4_ENGINE_OPTIONS_INIT;
  open.backend = options.backend;
  open.context_tokens = options.context;
  open.max_sessions = 1;
  open.max_draft_tokens = options.drafts;
  open.threads = options.threads;
  open.progress = &ShowProgress;
  open.progress_user = &bar;
  dsv4_engine* engine = nullptr;
  dsv4_error* error = nullptr;
  Check(dsv4_engine_open(options.model.c_str(), &open, &engine, &error), error);
  engine_.reset(engine);
  const dsv4_tokenizer* tokenizer = nullptr;
  try {
    Check(dsv4_engine_tokenizer(engine, &tokenizer, &error), error);
  } catch (Failure& failure) {
    failure.message = options.model + ": " + failure.message;
    throw;
  }
}

void Conversation::SetUpSampling(const Options& options) {
  dsv4_error* error = nullptr;
  Check(dsv4_sampling_init(engine_.get(), &sampling_, &error), error);
  sampling_.temperature = options.temperature.value_or(sampling_.temperature);
  sampling_.top_k = options.top_k.value_or(sampling_.top_k);
  sampling_.top_p = options.top_p.value_or(sampling_.top_p);
  sampling_.min_p = options.min_p.value_or(sampling_.min_p);
  sampling_.seed = options.seed ? *options.seed : RandomSeed();
  sampling_.max_tokens = options.max_tokens;
  sampling_.max_thinking_tokens = options.think_budget;
  sampling_.draft_tokens = options.drafts;
}

// The library says what is wrong with them.
void Conversation::ReadTools(const std::string& path) {
  tools_ = ReadWholeFile(path);
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_SYSTEM;
  message.tools = tools_.data();
  message.tools_length = tools_.size();
  const dsv4_message* list[] = {&message};
  size_t needed = 0;
  dsv4_error* error = nullptr;
  try {
    if (tools_.empty()) throw Failure{kUsageError, "the file is empty"};
    Check(dsv4_chat_render_text(list, 1, nullptr, nullptr, 0, &needed, &error), error);
  } catch (Failure& failure) {
    const std::string_view field = "messages[0].tools";
    const bool names_field = failure.message.starts_with(field);
    failure.message = "--tools " + path + (names_field ? "" : ": ") +
                      failure.message.substr(names_field ? field.size() : 0);
    failure.exit_code = kUsageError;
    throw;
  }
}

std::string Conversation::SystemMessage() const {
  if (system_.empty() && tools_.empty()) return {};
  JsonObject message;
  message.String("role", "system").String("content", system_);
  if (!tools_.empty()) message.Json("tools", tools_);
  return message.text();
}

void Conversation::OpenSession() {
  if (session_) return;
  std::vector<std::string> all = messages_;
  if (const std::string system = SystemMessage(); !system.empty()) all.insert(all.begin(), system);
  const std::string json = JsonArray(all);
  dsv4_session* session = nullptr;
  dsv4_error* error = nullptr;
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  options.sampling = &sampling_;
  Check(dsv4_session_open_json(engine_.get(), &options, json.data(), json.size(), &chat_options_,
                               &session, &error),
        error);
  session_.reset(session);
}

// To the first of messages_.
void Conversation::Truncate(size_t messages) {
  messages_.resize(messages);
  while (!turns_.empty() && turns_.back().begin >= messages) turns_.pop_back();
  open_calls_.clear();
  if (!session_) return;
  const size_t system = SystemMessage().empty() ? 0 : 1;
  // Opened anew when that fails.
  if (dsv4_session_truncate_messages(session_.get(), system + messages, nullptr) != DSV4_OK)
    session_.reset();
}

Conversation::End Conversation::Reply(const std::string& text) {
  return Send({{DSV4_ROLE_USER, text}});
}

Conversation::End Conversation::ReplyToResults(const std::vector<std::string>& results) {
  std::vector<Message> messages;
  for (size_t i = 0; i < results.size(); ++i)
    messages.push_back({DSV4_ROLE_TOOL, results[i], open_calls_.at(i).id});
  return Send(messages);
}

Conversation::End Conversation::Send(const std::vector<Message>& messages) {
  OpenSession();
  std::vector<dsv4_message> views;
  for (const Message& message : messages) {
    dsv4_message& view = views.emplace_back(dsv4_message DSV4_MESSAGE_INIT);
    view.role = message.role;
    view.content = message.content.data();
    view.content_length = message.content.size();
    view.tool_call_id = message.call.data();
    view.tool_call_id_length = message.call.size();
  }
  std::vector<const dsv4_message*> list;
  for (const dsv4_message& view : views) list.push_back(&view);
  dsv4_error* error = nullptr;
  Check(dsv4_session_append_messages(session_.get(), list.data(), list.size(), &error), error);
  const size_t before = messages_.size();
  const std::vector<ToolCall> calls = open_calls_;
  for (const Message& message : messages) {
    const bool is_user = message.role == DSV4_ROLE_USER;
    JsonObject object;
    object.String("role", is_user ? "user" : "tool").String("content", message.content);
    if (!is_user) object.String("tool_call_id", message.call);
    messages_.push_back(object.text());
  }
  turns_.push_back({before, messages_.size()});
  try {
    return Generate();
  } catch (const Failure&) {
    Truncate(before);
    open_calls_ = calls;
    throw;
  }
}

Conversation::End Conversation::Regenerate() {
  if (turns_.empty()) throw Failure{kUsageError, "there is no answer yet"};
  const std::vector<std::string> messages = messages_;
  const std::vector<Turn> turns = turns_;
  Truncate(turns_.back().answer);
  ++sampling_.seed;
  dsv4_error* error = nullptr;
  OpenSession();
  Check(dsv4_session_set_sampling(session_.get(), &sampling_, &error), error);
  try {
    return Generate();
  } catch (const Failure&) {
    // The first answer is back, in other tokens perhaps.
    session_.reset();
    messages_ = messages;
    turns_ = turns;
    throw;
  }
}

bool Conversation::Undo() {
  if (turns_.empty()) return false;
  Truncate(turns_.back().begin);
  return true;
}

void Conversation::Restart() { Truncate(0); }

void Conversation::set_system(const std::string& text) {
  if (!IsUtf8(text)) throw Failure{kUsageError, "the system message is not UTF-8"};
  system_ = text;
  session_.reset();
}

void Conversation::set_thinking(dsv4_thinking_mode mode) {
  chat_options_.thinking = mode;
  if (session_ && dsv4_session_set_chat_options(session_.get(), &chat_options_, nullptr) != DSV4_OK)
    session_.reset();
}

// Exceptions must not pass through the library.
void Conversation::OnEvent(void* self, const dsv4_parser_event* event) {
  auto* conversation = static_cast<Conversation*>(self);
  if (conversation->callback_failure_) return;
  try {
    conversation->Record(*event);
    conversation->output_->Event(*event);
  } catch (...) {
    conversation->callback_failure_ = std::current_exception();
  }
}

void Conversation::RethrowFromCallback() {
  if (callback_failure_) std::rethrow_exception(std::exchange(callback_failure_, nullptr));
}

void Conversation::Record(const dsv4_parser_event& event) {
  const std::string text(event.text, event.text_length);
  if (event.type == DSV4_PARSER_TOOL_CALL_START) {
    open_calls_.push_back({std::string(event.id, event.id_length), text, ""});
  } else if (event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS) {
    open_calls_.back().arguments += text;
  } else if (event.type == DSV4_PARSER_MALFORMED || event.type == DSV4_PARSER_END) {
    if (event.call >= 0) open_calls_.pop_back();
  }
}

Conversation::End Conversation::Generate() {
  const Clock::time_point start = Clock::now();
  dsv4_error* error = nullptr;
  open_calls_.clear();
  const CancelOnInterrupt cancel(session_.get());
  {
    ProgressBar bar("reading", ProgressBar::Unit::kTokens, screen_->shows_progress());
    Check(dsv4_session_prefill(session_.get(), 0, &ShowProgress, &bar, nullptr, &error), error);
  }
  TurnEnd end;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (step.finish == DSV4_FINISH_NONE && !Interrupted()) {
    const dsv4_status status =
        dsv4_session_step_events(session_.get(), &OnEvent, this, &step, &error);
    RethrowFromCallback();
    if (status == DSV4_ERR_CANCELLED) {
      dsv4_error_free(std::exchange(error, nullptr));
      step.finish = DSV4_FINISH_NONE;
      continue;
    }
    Check(status, error);
    if (end.first_token_seconds == 0)
      end.first_token_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  if (step.finish == DSV4_FINISH_NONE) {
    Check(dsv4_session_end_turn(session_.get(), &OnEvent, this, &error), error);
    RethrowFromCallback();
  }
  end.finish = step.finish;
  Check(dsv4_session_get_stats(session_.get(), &end.stats, &error), error);
  output_->End(end);
  statistics_ = StatisticsOf(end);
  KeepReply();
  return end.finish == DSV4_FINISH_NONE ? End::kInterrupted : End::kDone;
}

void Conversation::KeepReply() {
  const size_t system = SystemMessage().empty() ? 0 : 1;
  size_t count = 0;
  dsv4_error* error = nullptr;
  Check(dsv4_session_message_count(session_.get(), &count, &error), error);
  // Ctrl-C came before the first token.
  if (count == system + messages_.size()) return;
  size_t needed = 0;
  Check(dsv4_session_reply_json(session_.get(), nullptr, 0, &needed, &error), error);
  std::string reply(needed, '\0');
  Check(dsv4_session_reply_json(session_.get(), reply.data(), needed, &needed, &error), error);
  messages_.push_back(std::move(reply));
}

}  // namespace chat
