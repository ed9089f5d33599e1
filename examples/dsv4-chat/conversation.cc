// SPDX-License-Identifier: Apache-2.0
// The library's conversation keeps the messages, their tokens and their key/value rows. What is
// kept here are the same messages as JSON, for when the system message changes and all is rendered
// anew, and for files.
#include "examples/dsv4-chat/conversation.h"

#include <utility>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/files.h"
#include "examples/dsv4-chat/json_text.h"
#include "examples/dsv4-chat/model.h"
#include "examples/dsv4-chat/progress_bar.h"
#include "examples/dsv4-chat/saved_conversation.h"
#include "examples/dsv4-chat/turn.h"

namespace chat {
namespace {

// "" without either of them.
std::string SystemMessage(const std::string& system, const std::string& tools) {
  if (system.empty() && tools.empty()) return {};
  JsonObject message;
  message.String("role", "system").String("content", system);
  if (!tools.empty()) message.Json("tools", tools);
  return message.text();
}

std::string JsonOf(const dsv4::Message& message) {
  const bool is_user = message.role == DSV4_ROLE_USER;
  JsonObject object;
  object.String("role", is_user ? "user" : "tool").String("content", message.content);
  if (!is_user) object.String("tool_call_id", message.tool_call_id);
  return object.text();
}

std::string MessagesFile(const std::string& path) { return path + ".messages.json"; }

}  // namespace

Conversation::Conversation(const Options& options, Screen* screen, TurnOutput* output)
    : options_(options),
      screen_(screen),
      output_(output),
      engine_(OpenEngine(options, *screen)),
      sampling_options_(options.sampling),
      sampling_(SamplingOf(*engine_, options.sampling)),
      thinking_(options.thinking),
      chat_encoder_(options.chat_encoder) {
  try {
    engine_->tokenizer();
  } catch (...) {
    Failure failure = CurrentFailure();
    failure.message = options.model + ": " + failure.message;
    throw failure;
  }
  set_system(options.system);
  if (!options.tools.empty()) ReadTools(options.tools);
  session();
}

// The library says what is wrong with them.
void Conversation::ReadTools(const std::string& path) {
  tools_ = ReadWholeFile(path);
  if (tools_.empty()) throw Failure{kUsageError, "--tools " + path + ": the file is empty"};
  dsv4::Message message;
  message.role = DSV4_ROLE_SYSTEM;
  message.tools = tools_;
  try {
    dsv4::RenderChatText({message});
  } catch (...) {
    Failure failure = CurrentFailure();
    const std::string_view field = "messages[0].tools";
    const bool names_field = failure.message.starts_with(field);
    failure.message = "--tools " + path + (names_field ? "" : ": ") +
                      failure.message.substr(names_field ? field.size() : 0);
    failure.exit_code = kUsageError;
    throw failure;
  }
}

size_t Conversation::system_messages() const {
  return SystemMessage(system_, tools_).empty() ? 0 : 1;
}

dsv4::Conversation Conversation::Open(const std::string& system_message,
                                      const std::vector<std::string>& messages,
                                      dsv4_thinking_mode thinking) const {
  std::vector<std::string> all = messages;
  if (!system_message.empty()) all.insert(all.begin(), system_message);
  dsv4::ChatOptions options;
  options.thinking = thinking;
  options.encoder = chat_encoder_;
  dsv4::SessionOptions session;
  session.sampling = sampling_;
  return dsv4::Conversation::FromJson(*engine_, JsonArray(all), options, session);
}

void Conversation::Wake() {
  if (engine_->metrics().suspended == 0) return;
  ProgressBar bar("loading", screen_->shows_progress());
  engine_->Resume(bar.Callback());
}

dsv4::Conversation& Conversation::session() {
  Wake();
  if (!session_) session_ = Open(SystemMessage(system_, tools_), messages_, thinking_);
  return *session_;
}

// To the first of messages_.
void Conversation::Truncate(size_t messages) {
  if (session_) Wake();
  messages_.resize(messages);
  open_calls_.clear();
  if (!session_) return;
  try {
    session_->Truncate(system_messages() + messages);
  } catch (const dsv4::Error&) {
    session_.reset();  // opened anew
  }
}

Conversation::End Conversation::Reply(const std::string& text) {
  dsv4::Message message;
  message.content = text;
  return Send({message});
}

Conversation::End Conversation::ReplyToResults(const std::vector<std::string>& results) {
  std::vector<dsv4::Message> messages(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    messages[i].role = DSV4_ROLE_TOOL;
    messages[i].content = results[i];
    messages[i].tool_call_id = open_calls_.at(i).id;
  }
  return Send(messages);
}

Conversation::End Conversation::Send(const std::vector<dsv4::Message>& messages) {
  session().Append(messages);
  const size_t before = messages_.size();
  const std::vector<dsv4::ToolCall> calls = open_calls_;
  for (const dsv4::Message& message : messages) messages_.push_back(JsonOf(message));
  try {
    return Generate();
  } catch (...) {
    Truncate(before);
    open_calls_ = calls;
    throw;
  }
}

Conversation::End Conversation::Regenerate() {
  const std::vector<Turn> turns = TurnsOf(messages_);
  if (turns.empty()) throw Failure{kUsageError, "there is no answer yet"};
  const std::vector<std::string> messages = messages_;
  Truncate(turns.back().answer);
  ++sampling_.seed;
  session().session().SetSampling(sampling_);
  try {
    return Generate();
  } catch (...) {
    // The first answer is back, in other tokens perhaps.
    session_.reset();
    messages_ = messages;
    throw;
  }
}

bool Conversation::Undo() {
  const std::vector<Turn> turns = TurnsOf(messages_);
  if (turns.empty()) return false;
  Truncate(turns.back().begin);
  return true;
}

void Conversation::Restart() { Truncate(0); }

void Conversation::set_system(const std::string& text) {
  if (!IsUtf8(text)) throw Failure{kUsageError, "the system message is not UTF-8"};
  system_ = text;
  session_.reset();
}

void Conversation::set_thinking(dsv4_thinking_mode mode) {
  if (session_) Wake();
  thinking_ = mode;
  if (!session_) return;
  dsv4::ChatOptions options;
  options.thinking = mode;
  options.encoder = chat_encoder_;
  try {
    session_->SetChatOptions(options);
  } catch (const dsv4::Error&) {
    session_.reset();
  }
}

void Conversation::Set(const std::string& assignment) {
  SamplingOptions options = sampling_options_;
  SetSampling(&options, assignment);
  dsv4::Sampling sampling = SamplingOf(*engine_, options);
  if (!options.seed) sampling.seed = sampling_.seed;
  session().session().SetSampling(sampling);
  sampling_options_ = options;
  sampling_ = sampling;
}

void Conversation::Save(const std::string& path) {
  if (FileExists(path) != FileExists(MessagesFile(path)))
    throw Failure{kUsageError, path + ": exists and is not a saved conversation"};
  ProgressBar bar("saving", screen_->shows_progress());
  // The next question drops the reasoning: the rows from there on would not serve it.
  std::optional<dsv4::Conversation> shorter;
  const bool answered = session().message_count() > system_messages() && !messages_.empty() &&
                        TurnsOf(messages_).back().answer < messages_.size();
  if (answered && thinking_ != DSV4_THINKING_OFF && tools_.empty()) {
    try {
      shorter = session().Fork();
      shorter->Truncate(shorter->message_count() - 1);
    } catch (const dsv4::Error&) {
      shorter.reset();  // no room for a second session
    }
  }
  (shorter ? *shorter : session()).session().Save(path, bar.Callback());
  WriteConversation(MessagesFile(path), {system_, tools_, thinking_, messages_, open_calls_});
}

void Conversation::Load(const std::string& path) {
  SavedConversation saved = ReadConversation(MessagesFile(path));
  Wake();
  const auto open = [&] {
    ProgressBar bar("restoring", screen_->shows_progress());
    dsv4::Conversation session =
        Open(SystemMessage(saved.system, saved.tools), saved.messages, saved.thinking);
    session.session().Load(path, bar.Callback());
    return session;
  };
  std::optional<dsv4::Conversation> loaded;
  try {
    loaded = open();
  } catch (const dsv4::Error& error) {
    if (error.code() != DSV4_ERR_OUT_OF_BLOCKS || !session_) throw;
    // No room for both: this session is closed first, and opened anew if the file is refused.
    session_.reset();
    loaded = open();
  }
  session_ = std::move(loaded);
  system_ = std::move(saved.system);
  tools_ = std::move(saved.tools);
  thinking_ = saved.thinking;
  messages_ = std::move(saved.messages);
  open_calls_ = std::move(saved.open_calls);
  statistics_.clear();
}

void Conversation::Record(const dsv4::Event& event) {
  if (event.type == DSV4_PARSER_TOOL_CALL_START) {
    open_calls_.push_back({event.id, event.text, ""});
  } else if (event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS) {
    open_calls_.back().arguments += event.text;
  } else if (event.type == DSV4_PARSER_MALFORMED || event.type == DSV4_PARSER_END) {
    if (event.call >= 0) open_calls_.pop_back();
  }
}

void Conversation::Deliver(bool shown) {
  while (const std::optional<dsv4::Event> event = session_->Poll()) {
    Record(*event);
    if (!shown) output_->Event(*event);
  }
}

void Conversation::Reopen(const dsv4::Error& loss) {
  reopened_ = true;
  const uint64_t seed = sampling_.seed;
  session_.reset();
  sampling_ = {};  // its grammar is the engine's
  engine_.reset();
  engine_ = ReopenEngine(options_, loss, screen_);
  sampling_ = SamplingOf(*engine_, sampling_options_);
  sampling_.seed = seed;
}

Conversation::End Conversation::Generate() {
  Replay replay;
  for (;;) {
    try {
      return GenerateOnce(&replay);
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_DEVICE_LOST || reopened_) throw;
      Reopen(error);
    }
    replay.Rewind();
  }
}

Conversation::End Conversation::GenerateOnce(Replay* replay) {
  open_calls_.clear();
  const TurnEnd end = RunTurn(&session().session(), *screen_, [&] {
    const dsv4::StepResult step = session_->Step();
    Deliver(!replay->IsNew(step.token));
    return step.finish;
  });
  if (end.finish == DSV4_FINISH_NONE) {
    session_->EndTurn();
    Deliver(false);
  }
  output_->End(end);
  statistics_ = StatisticsOf(*engine_, end);
  KeepReply();
  return end.finish == DSV4_FINISH_NONE ? End::kInterrupted : End::kDone;
}

void Conversation::KeepReply() {
  // Unless Ctrl-C came before the first token.
  if (session_->message_count() > system_messages() + messages_.size())
    messages_.push_back(session_->reply_json());
}

}  // namespace chat
