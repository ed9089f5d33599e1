// SPDX-License-Identifier: Apache-2.0
// Any sequence of calls of the C interface, with right and wrong arguments, on an engine with the
// bundled model that is opened once. The input is a sequence of calls: a byte that chooses the
// function, then the bytes of its arguments, 0 behind the end of the input. Checked: each error is
// owned and has a code and a message, none is INTERNAL, timelines stay in their limits, and at the
// end no resource of the engine is in use.
#include <dsv4/dsv4.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/call_arguments.h"

namespace {

constexpr char kModel[] = DSV4_SOURCE_DIR "/models/dsv4-tiny";
constexpr int64_t kContext = 64;
constexpr size_t kSessions = 3;  // also the engine's max_sessions
constexpr int kCalls = 48;       // more of an input are not looked at

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

struct Target {
  dsv4_engine* engine = nullptr;
  const dsv4_tokenizer* tokenizer = nullptr;
  int32_t vocab = 0;
  Target() {
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.context_tokens = kContext;
    options.cache_tokens = 2 * kContext;
    options.max_sessions = kSessions;
    options.prefill_chunk_tokens = 16;
    options.threads = 1;
    options.max_draft_tokens = 2;
    Require(dsv4_engine_open(kModel, &options, &engine, nullptr) == DSV4_OK);
    Require(dsv4_engine_get_tokenizer(engine, &tokenizer, nullptr) == DSV4_OK);
    Require(dsv4_engine_get_info(engine, &info, nullptr) == DSV4_OK);
    vocab = info.vocab_size;
  }
};

const Target& TheTarget() {
  static const Target target;  // lives as long as the process
  return target;
}

bool IsOneOf(dsv4_finish finish) {
  return finish >= DSV4_FINISH_NONE && finish <= DSV4_FINISH_ERROR;
}

void CheckText(const char* text, uint64_t length) {
  Require(text != nullptr && (length == 0 || std::memchr(text, '\0', length) == nullptr));
}

// The calls of one input.
class Run {
 public:
  // Begins with a session on tokens and one on messages.
  Run(const uint8_t* data, size_t size) : in_(data, size, TheTarget().vocab) {
    static constexpr char kMessages[] = "[{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]";
    static constexpr int32_t kPrompt[] = {10, 17, 24, 31, 38, 45, 52, 59, 66, 73};
    dsv4_engine* engine = TheTarget().engine;
    Require(dsv4_session_open(engine, nullptr, &sessions_[0], nullptr) == DSV4_OK);
    Require(dsv4_session_sync(sessions_[0], kPrompt, std::size(kPrompt), nullptr, nullptr,
                              nullptr) == DSV4_OK);
    Require(dsv4_session_open(engine, nullptr, &sessions_[1], nullptr) == DSV4_OK);
    Require(dsv4_session_sync_json(sessions_[1], kMessages, std::size(kMessages) - 1, nullptr,
                                   nullptr, nullptr) == DSV4_OK);
  }
  ~Run() {
    for (dsv4_session* session : sessions_) dsv4_session_close(session);
    dsv4_parser_close(parser_);
    dsv4_grammar_close(grammar_);
    CheckNothingInUse();
  }

  void CallAll() {
    using Call = void (Run::*)();
    static constexpr Call kAll[] = {
        &Run::Open,        &Run::SyncMessages, &Run::Close,      &Run::Fork,
        &Run::Sync,        &Run::Prefill,      &Run::Step,       &Run::Step,
        &Run::StepAll,     &Run::StepEvents,   &Run::StepEvents, &Run::EndTurn,
        &Run::ReadReply,   &Run::Rewind,       &Run::Stop,       &Run::SetAllowed,
        &Run::SetSampling, &Run::ReadSession,  &Run::Save,       &Run::Load,
        &Run::LoadFile,    &Run::Tokenize,     &Run::Render,     &Run::ParseOpen,
        &Run::ParseFeed,   &Run::ParseEnd,     &Run::Plan,       &Run::ReadEngine,
        &Run::OpenGrammar, &Run::BindGrammar};
    for (int i = 0; i < kCalls && !in_.empty(); ++i) {
      (this->*kAll[in_.Below(std::size(kAll))])();
      CheckTimelines();
    }
  }

 private:
  // A session that may be none.
  dsv4_session*& Session() { return sessions_[in_.Below(kSessions)]; }

  // What holds of any call's result.
  dsv4_status Check(dsv4_status status) {
    Require(std::strcmp(dsv4_status_get_name(status), "UNKNOWN") != 0);
    Require(status != DSV4_ERR_INTERNAL && status != DSV4_ERR_DEVICE_LOST);
    Require((error_ == nullptr) == (status == DSV4_OK));
    const std::string message = dsv4_error_get_message(error_);
    Require(message.empty() == (status == DSV4_OK));
    Require(message.find('\n') == std::string::npos);
    Require(dsv4_error_get_argument(error_) != nullptr);
    dsv4_error_free(error_);
    error_ = nullptr;
    return status;
  }
  // That of a call which gives a handle.
  void CheckOpened(dsv4_status status, dsv4_session* opened, dsv4_session** slot) {
    Require((opened != nullptr) == (Check(status) == DSV4_OK));
    if (opened == nullptr) return;
    dsv4_session_close(*slot);
    *slot = opened;
  }
  void CheckStep(dsv4_status status, const dsv4_step_result& step) {
    if (Check(status) == DSV4_OK) {
      Require(step.token >= -1 && step.token < TheTarget().vocab && IsOneOf(step.finish));
      CheckText(step.text, step.text_length);
    }
  }
  void CheckTimelines() {
    for (const dsv4_session* session : sessions_) {
      if (session == nullptr) continue;
      const int32_t* tokens = nullptr;
      size_t count = 0;
      Require(dsv4_session_get_tokens(session, &tokens, &count, nullptr) == DSV4_OK);
      Require(count <= kContext);
      Require(std::all_of(tokens, tokens + count,
                          [](int32_t token) { return token >= 0 && token < TheTarget().vocab; }));
    }
  }
  static void CheckNothingInUse() {
    std::array<dsv4_session*, kSessions> sessions{};
    for (dsv4_session*& session : sessions) {
      Require(dsv4_session_open(TheTarget().engine, nullptr, &session, nullptr) == DSV4_OK);
    }
    for (dsv4_session* session : sessions) dsv4_session_close(session);
  }

  // Callbacks. They may try to enter their session again, which is refused.
  static int32_t OnProgress(void* user, dsv4_progress_phase, uint64_t done, uint64_t total,
                            dsv4_progress_unit) {
    Run* run = static_cast<Run*>(user);
    Require(done <= total);
    run->TryToEnter();
    return run->cancels_ ? 1 : 0;
  }
  static void OnEvent(void* user, const dsv4_parser_event* event) {
    Require(event->type >= DSV4_PARSER_REASONING && event->type <= DSV4_PARSER_END);
    Require(event->text != nullptr && event->id != nullptr && event->reason != nullptr);
    static_cast<Run*>(user)->TryToEnter();
  }
  void TryToEnter() {
    if (inside_ == nullptr) return;
    const dsv4_status status = dsv4_session_rewind(inside_, 0, nullptr, nullptr);
    Require(status == DSV4_ERR_BUSY);
    if (cancels_) dsv4_session_set_stopped(inside_, 1);
  }

  dsv4_sampling Sampling() {
    dsv4_sampling out = DSV4_SAMPLING_INIT;
    out.struct_size = in_.StructSize(sizeof out);
    const uint8_t fields = in_.Byte();
    if (fields & 1) out.temperature = in_.Fraction();
    if (fields & 1) out.top_p = in_.Fraction();
    if (fields & 1) out.top_k = in_.Number32();
    if (fields & 2) out.min_p = in_.Fraction();
    if (fields & 2) out.repetition_penalty = in_.Fraction();
    if (fields & 2) out.presence_penalty = in_.Fraction();
    if (fields & 2) out.frequency_penalty = in_.Fraction();
    if (fields & 4) out.seed = static_cast<uint64_t>(in_.Number());
    if (fields & 4) out.max_tokens = in_.Number();
    if (fields & 4) out.max_thinking_tokens = in_.Number();
    if (fields & 8) out.log_probs = in_.Number32();
    if (fields & 8) out.draft_tokens = in_.Number32();
    if (fields & 16) {
      tokens_ = in_.Tokens(4);
      biases_.assign(tokens_.size(), in_.Fraction());
      out.bias_tokens = out.banned_tokens = out.stop_tokens = tokens_.data();
      out.biases = biases_.data();
      out.bias_count = tokens_.size();
      if (fields & 32) out.banned_count = tokens_.size();
      if (fields & 64) out.stop_token_count = tokens_.size();
    }
    if (fields & 128) {
      text_ = in_.Text();
      string_ = text_.data();
      length_ = text_.size();
      out.stop_strings = &string_;
      out.stop_string_lengths = &length_;
      out.stop_string_count = 1;
      if (in_.Rarely()) out.forced_count = 1;  // of no array
    }
    return out;
  }
  dsv4_session_options SessionOptions(const dsv4_sampling* sampling) {
    dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
    options.struct_size = in_.StructSize(sizeof options);
    options.sampling = in_.Byte() & 1 ? sampling : nullptr;
    options.cache_salt = in_.Byte() & 1;
    options.reserved = in_.Rarely();
    return options;
  }
  dsv4_chat_options ChatOptions() {
    dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
    options.struct_size = in_.StructSize(sizeof options);
    options.thinking = in_.Rarely() ? in_.Number32() : static_cast<int32_t>(in_.Below(4));
    options.keep_reasoning = in_.Rarely() ? in_.Number32() : in_.Byte() & 1;
    options.omit_begin = in_.Byte() & 1;
    options.encoder = in_.Rarely() ? in_.Number32() : static_cast<int32_t>(in_.Below(3));
    return options;
  }
  dsv4_message Message(std::string* content, std::string* other) {
    dsv4_message message = DSV4_MESSAGE_INIT;
    message.struct_size = in_.StructSize(sizeof message);
    message.role = in_.Rarely() ? in_.Number32() : static_cast<dsv4_role>(1 + in_.Below(6));
    *content = in_.Text();
    message.content = content->data();
    message.content_length = content->size();
    const uint8_t fields = in_.Byte();
    *other = fields == 0 ? "" : in_.Text();
    if (fields & 1) message.reasoning = other->data(), message.reasoning_length = other->size();
    if (fields & 2) message.tools = other->data(), message.tools_length = other->size();
    if (fields & 4) message.task = other->data(), message.task_length = other->size();
    if (fields & 8) message.tool_call_id = other->data();
    if (fields & 8) message.tool_call_id_length = other->size();
    if (fields & 16) message.wo_eos = in_.Byte() & 1;
    if (fields & 32) message.tool_call_count = 1;  // of no array
    return message;
  }

  void Open() {
    const dsv4_sampling sampling = Sampling();
    const dsv4_session_options options = SessionOptions(&sampling);
    dsv4_session* opened = nullptr;
    dsv4_engine* engine = in_.Rarely() ? nullptr : TheTarget().engine;
    dsv4_session*& slot = Session();
    const dsv4_status status = dsv4_session_open(engine, &options, &opened, &error_);
    CheckOpened(status, opened, &slot);
  }
  void SyncMessages() {
    dsv4_session* session = Session();
    const dsv4_chat_options chat = ChatOptions();
    dsv4_sync_result result = DSV4_SYNC_RESULT_INIT;
    if (in_.Byte() & 1) {
      const std::string json = in_.Text();
      Check(dsv4_session_sync_json(session, json.data(), json.size(), &chat, &result, &error_));
      return;
    }
    std::string content, other;
    const dsv4_message message = Message(&content, &other);
    const dsv4_message* const messages[] = {&message, nullptr};
    Check(dsv4_session_sync_messages(session, messages, in_.Below(3), &chat,
                                     in_.Rarely() ? nullptr : &result, &error_));
  }
  void Close() {
    dsv4_session*& session = Session();
    dsv4_session_close(session);
    session = nullptr;
  }
  void Fork() {
    dsv4_session* fork = nullptr;
    dsv4_session* from = Session();
    dsv4_session*& slot = Session();
    const dsv4_status status = dsv4_session_fork(from, &fork, &error_);
    CheckOpened(status, fork, &slot);
  }
  void Sync() {
    dsv4_session* session = Session();
    const std::vector<int32_t> tokens = in_.Tokens(70);
    dsv4_sync_options options = DSV4_SYNC_OPTIONS_INIT;
    dsv4_sync_result result = DSV4_SYNC_RESULT_INIT;
    options.struct_size = in_.StructSize(sizeof options);
    if (in_.Byte() & 1) {
      options.log_probs_begin = in_.Number();
      options.log_probs_count = in_.Number32();
    }
    result.struct_size = std::min<uint32_t>(in_.StructSize(sizeof result), sizeof result);
    Check(dsv4_session_sync(session, in_.Rarely() ? nullptr : tokens.data(), tokens.size(),
                            &options, &result, &error_));
  }
  void Prefill() {
    inside_ = Session();
    cancels_ = in_.Rarely();
    int64_t pending = 0;
    const int64_t most = in_.Number();
    const dsv4_progress_fn progress = in_.Byte() & 1 ? OnProgress : nullptr;
    Check(dsv4_session_prefill(inside_, most, progress, this, &pending, &error_));
    Require(pending >= 0 && pending <= kContext);
    inside_ = nullptr;
  }
  void Step() {
    dsv4_session* session = Session();
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    step.text = "";
    CheckStep(dsv4_session_step(session, nullptr, nullptr, in_.Rarely() ? nullptr : &step, &error_),
              step);
  }
  void StepAll() {
    std::array<dsv4_step_result, kSessions> steps;
    std::array<dsv4_step_result*, kSessions> results{};
    std::array<dsv4_session*, kSessions> sessions{};
    std::array<dsv4_status, kSessions> statuses{};
    std::array<dsv4_error*, kSessions> errors{};
    std::array<void*, kSessions> users;
    users.fill(this);
    const size_t count = in_.Below(kSessions + 1);
    for (size_t i = 0; i < count; ++i) {
      steps[i] = DSV4_STEP_RESULT_INIT;
      results[i] = in_.Rarely() ? nullptr : &steps[i];
      sessions[i] = in_.Rarely() ? Session() : sessions_[i];
    }
    const dsv4_status status = Check(dsv4_engine_step(
        TheTarget().engine, sessions.data(), count, in_.Rarely() ? nullptr : OnEvent, users.data(),
        results.data(), statuses.data(), errors.data(), &error_));
    for (size_t i = 0; i < count; ++i) {
      if (status != DSV4_OK) {
        Require(statuses[i] == status && errors[i] == nullptr);
        continue;
      }
      error_ = errors[i];
      CheckStep(statuses[i], steps[i]);
    }
  }
  void StepEvents() {
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    step.text = "";
    inside_ = Session();
    const uint8_t how = in_.Byte();
    cancels_ = how % 8 == 7;
    CheckStep(dsv4_session_step(inside_, how % 32 == 30 ? nullptr : OnEvent, this,
                                how % 16 == 14 ? nullptr : &step, &error_),
              step);
    inside_ = nullptr;
  }
  void EndTurn() {
    inside_ = Session();
    Check(dsv4_session_end_turn(inside_, in_.Byte() & 1 ? OnEvent : nullptr, this, &error_));
    inside_ = nullptr;
  }
  void ReadReply() {
    size_t needed = 0;
    char json[64];
    const dsv4_session* session = Session();
    Check(dsv4_session_get_reply_json(session, json, in_.Below(sizeof json), &needed, &error_));
  }
  void Rewind() {
    dsv4_session* session = Session();
    int64_t pending = 0;
    Check(dsv4_session_rewind(session, in_.Number(), &pending, &error_));
    Require(pending >= 0 && pending <= kContext);
  }
  void Stop() { dsv4_session_set_stopped(Session(), in_.Below(2) == 1); }
  void SetAllowed() {
    dsv4_session* session = Session();
    std::vector<uint32_t> words(in_.Below(16) == 0 ? in_.Below(100) : 2048 / 32, ~uint32_t{0});
    const size_t kind = in_.Below(8);
    if (kind == 0) std::fill(words.begin(), words.end(), 0u);
    if (kind == 1 && !words.empty()) words[in_.Below(words.size())] = 0;
    if (kind == 2 && !words.empty()) std::fill(words.begin(), words.end() - 1, 0u);
    if (kind == 7) words.clear();
    Check(dsv4_session_set_allowed(session, words.data(), words.size(), &error_));
  }
  void SetSampling() {
    dsv4_session* session = Session();
    const dsv4_sampling sampling = Sampling();
    Check(dsv4_session_set_sampling(session, in_.Rarely() ? nullptr : &sampling, &error_));
  }
  void OpenGrammar() {
    static const char* const kTexts[] = {
        "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}}",
        "{\"enum\": [1, \"b\", null]}", "[a-f]{2,9}|x*", "root ::= \"yes\" | \"no\" root",
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"};
    const std::string text = in_.Rarely() ? in_.Text() : kTexts[in_.Below(std::size(kTexts))];
    const auto kind = static_cast<dsv4_grammar_kind>(in_.Below(5));
    const dsv4_engine* engine = in_.Rarely() ? nullptr : TheTarget().engine;
    dsv4_grammar* opened = nullptr;
    dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
    options.choice = in_.Number32();
    const dsv4_status status =
        kind < 4 ? dsv4_grammar_open(engine, kind, text.data(), text.size(), &opened, &error_)
                 : dsv4_grammar_open_answer(engine, text.data(), text.size(), nullptr, 0,
                                            in_.Rarely() ? &options : nullptr, &opened, &error_);
    Require((opened != nullptr) == (Check(status) == DSV4_OK));
    if (opened == nullptr) return;
    dsv4_grammar_close(grammar_);
    grammar_ = opened;
  }
  // Sessions keep a grammar whose handle is closed.
  void BindGrammar() {
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    sampling.grammar = grammar_;
    Check(dsv4_session_set_sampling(Session(), &sampling, &error_));
  }
  void ReadSession() {
    dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
    float log_prob = 0, top_log_probs[4];
    int32_t top_tokens[4];
    size_t top_count = 0;
    const dsv4_session* session = Session();
    if (Check(dsv4_session_get_stats(session, &stats, &error_)) == DSV4_OK) {
      Require(stats.used_tokens <= stats.context_tokens && stats.context_tokens == kContext);
      Require(stats.cached_tokens <= stats.prompt_tokens);
    }
    const size_t capacity = in_.Below(5);
    const int64_t position = in_.Number();
    if (Check(dsv4_session_get_log_probs(session, position, &log_prob, top_tokens, top_log_probs,
                                         capacity, &top_count, &error_)) == DSV4_OK) {
      Require(log_prob <= 0 && top_count <= 20);
    }
  }
  void Save() {
    size_t needed = 0;
    const dsv4_session* session = Session();
    if (Check(dsv4_session_save_memory(session, nullptr, 0, &needed, &error_)) != DSV4_OK) return;
    image_.resize(needed - (in_.Rarely() ? 1 : 0));
    Check(dsv4_session_save_memory(session, image_.data(), image_.size(), &needed, &error_));
    if (in_.Rarely() && !image_.empty())
      image_[static_cast<size_t>(in_.Byte()) % image_.size()] ^= 1;
  }
  void Load() { Check(dsv4_session_load_memory(Session(), image_.data(), image_.size(), &error_)); }
  void LoadFile() {
    static const char* const kPaths[] = {"/nonexistent/file", "/", "", DSV4_SOURCE_DIR "/LICENSE"};
    dsv4_session* session = Session();
    const size_t which = in_.Below(5);
    const bool loads = in_.Byte() & 1;
    cancels_ = in_.Rarely();
    if (loads) {
      const char* path = which < std::size(kPaths) ? kPaths[which] : nullptr;
      Check(dsv4_session_load(session, path, OnProgress, this, &error_));
    } else {
      const char* path = which < 3 ? kPaths[which] : nullptr;  // none that could be written
      Check(dsv4_session_save(session, path, OnProgress, this, &error_));
    }
  }

  void Tokenize() {
    const std::string text = in_.Text();
    const std::vector<int32_t> some = in_.Tokens(8);
    int32_t ids[16];
    char bytes[16];
    size_t count = 0;
    const dsv4_tokenizer* tokenizer = in_.Rarely() ? nullptr : TheTarget().tokenizer;
    const uint32_t flags = in_.Byte() % 16 < 12 ? 0 : static_cast<uint32_t>(in_.Number());
    const size_t capacity = in_.Below(17);
    Check(dsv4_tokenizer_encode(tokenizer, text.data(), text.size(), flags, ids, capacity, &count,
                                &error_));
    Check(dsv4_tokenizer_decode(tokenizer, some.data(), some.size(), bytes, capacity, &count,
                                &error_));
    dsv4_tokenizer_get_added_token(tokenizer, text.c_str());
  }
  void Render() {
    const dsv4_chat_options options = ChatOptions();
    const std::string json = in_.Text();
    int32_t ids[16];
    char text[16];
    size_t needed = 0;
    const size_t capacity = in_.Below(17);
    Check(dsv4_chat_render(TheTarget().tokenizer, json.data(), json.size(), &options, ids, capacity,
                           &needed, &error_));
    Check(dsv4_chat_render_text(json.data(), json.size(), &options, text, capacity, &needed,
                                &error_));
  }
  void ParseOpen() {
    dsv4_parser_options options = DSV4_PARSER_OPTIONS_INIT;
    options.struct_size = in_.StructSize(sizeof options);
    options.thinking = in_.Rarely() ? in_.Number32() : static_cast<int32_t>(in_.Below(4));
    const std::string prefix = in_.Text();
    if (in_.Byte() & 1) options.id_prefix = prefix.c_str();
    dsv4_parser* opened = nullptr;
    const dsv4_status status = dsv4_parser_open(&options, &opened, &error_);
    Require((opened != nullptr) == (Check(status) == DSV4_OK));
    if (opened == nullptr) return;
    dsv4_parser_close(parser_);
    parser_ = opened;
  }
  void ParseFeed() {
    const std::string text = in_.Text();
    Check(dsv4_parser_feed(parser_, text.data(), text.size(), OnEvent, this, &error_));
  }
  void ParseEnd() {
    Check(dsv4_parser_end(parser_, in_.Rarely() ? nullptr : OnEvent, this, &error_));
  }

  void Plan() {
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.struct_size = in_.StructSize(sizeof options);
    const uint8_t fields = in_.Byte();
    if (fields & 1) options.backend = in_.Number32();
    static constexpr const char* kSettings[] = {"numerics=fp32", "cache_format=bf16",
                                                "canary=off",    "step_limit_seconds=1",
                                                "tuning_dir=/",  "a=b"};
    const char* const settings[] = {kSettings[in_.Below(std::size(kSettings))],
                                    in_.Rarely() ? nullptr : "numerics=published"};
    if (fields & 2) {
      options.settings = settings;
      options.setting_count = 1 + in_.Below(2);
    }
    if (fields & 4) options.context_tokens = in_.Number();
    if (fields & 8) options.cache_tokens = in_.Number();
    if (fields & 16) options.max_sessions = in_.Number32();
    if (fields & 32) options.prefill_chunk_tokens = in_.Number32();
    if (fields & 64) options.threads = in_.Number32();
    if (fields & 128) options.max_draft_tokens = in_.Number32();
    if (fields & 128) options.device_count = static_cast<uint32_t>(in_.Number());
    std::array<dsv4_device_info, 2> devices;
    for (dsv4_device_info& device : devices) {
      device = DSV4_DEVICE_INFO_INIT;
      device.struct_size = std::min<uint32_t>(in_.StructSize(sizeof device), sizeof device);
    }
    Check(dsv4_plan(in_.Rarely() ? "/nonexistent" : kModel, &options, &info, devices.data(),
                    in_.Below(3), &error_));
  }
  void ReadEngine() {
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    dsv4_engine_identity identity = DSV4_ENGINE_IDENTITY_INIT;
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    const dsv4_engine* engine = in_.Rarely() ? nullptr : TheTarget().engine;
    info.struct_size = std::min<uint32_t>(in_.StructSize(sizeof info), sizeof info);
    Check(dsv4_engine_get_info(engine, &info, &error_));
    Check(dsv4_engine_get_identity(engine, &identity, &error_));
    Check(dsv4_sampling_init(engine, &sampling, &error_));
    dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
    Check(dsv4_engine_get_metrics(engine, &metrics, &error_));
  }

  fuzz::CallArguments in_;
  std::array<dsv4_session*, kSessions> sessions_{};
  dsv4_parser* parser_ = nullptr;
  dsv4_grammar* grammar_ = nullptr;
  dsv4_error* error_ = nullptr;
  dsv4_session* inside_ = nullptr;  // that a callback may try to enter
  bool cancels_ = false;            // that callback cancels
  std::vector<uint8_t> image_;
  // What parameters point to, during a call.
  std::vector<int32_t> tokens_;
  std::vector<float> biases_;
  std::string text_;
  const char* string_ = nullptr;
  uint64_t length_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Run(data, size).CallAll();
  return 0;
}
