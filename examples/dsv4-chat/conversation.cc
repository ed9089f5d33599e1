// SPDX-License-Identifier: Apache-2.0
// The messages are kept as JSON. Before each answer the library's session is synced to all of them
// and reuses the key/value rows of everything before the first change.
#include "examples/dsv4-chat/conversation.h"

#include <cstddef>
#include <utility>

#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/json_text.h"
#include "examples/console/progress_bar.h"
#include "examples/dsv4-chat/model.h"
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
    : screen_(screen),
      output_(output),
      engine_(OpenEngine(options, *screen)),
      sampling_options_(options.sampling),
      sampling_(SamplingOf(engine_, options.sampling)),
      thinking_(options.thinking),
      chat_encoder_(options.chat_encoder) {
  try {
    engine_.tokenizer();
  } catch (...) {
    Failure failure = CurrentFailure();
    failure.message = options.model + ": " + failure.message;
    throw failure;
  }
  set_system(options.system);
  if (!options.tools.empty()) ReadTools(options.tools);
  Sync(&session(), messages_);
}

// The library says what is wrong with them.
void Conversation::ReadTools(const std::string& path) {
  tools_ = ReadWholeFile(path);
  if (tools_.empty()) throw Failure{kUsageError, "--tools " + path + ": the file is empty"};
  dsv4::Message message;
  message.role = DSV4_ROLE_SYSTEM;
  message.tools = tools_;
  try {
    session().Sync({message});
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

void Conversation::Sync(dsv4::Conversation* session,
                        const std::vector<std::string>& messages) const {
  std::vector<std::string> all = messages;
  const std::string system = SystemMessage(system_, tools_);
  if (!system.empty()) all.insert(all.begin(), system);
  dsv4::ChatOptions options;
  options.thinking = thinking_;
  options.encoder = chat_encoder_;
  session->SyncJson(JsonArray(all), options);
}

void Conversation::Wake() {
  const dsv4::EngineMetrics metrics = engine_.metrics();
  if (metrics.suspended == 0 && metrics.device_lost == 0) return;
  ProgressBar bar("loading", screen_->shows_progress());
  engine_.Resume(bar.Callback());
}

dsv4::Conversation& Conversation::session() {
  Wake();
  if (!session_) session_.emplace(engine_, dsv4::SessionOptions{sampling_});
  return *session_;
}

void Conversation::Truncate(size_t messages) {
  messages_.resize(messages);
  open_calls_.clear();
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
  const size_t before = messages_.size();
  const std::vector<dsv4::ToolCall> calls = open_calls_;
  for (const dsv4::Message& message : messages) {
    if (!IsUtf8(message.content)) throw Failure{kUsageError, "the message is not UTF-8"};
  }
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
}

void Conversation::set_thinking(dsv4_thinking_mode mode) { thinking_ = mode; }

void Conversation::Set(const std::string& assignment) {
  SamplingOptions options = sampling_options_;
  SetSampling(&options, assignment);
  dsv4::Sampling sampling = SamplingOf(engine_, options);
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
  Sync(&session(), messages_);
  std::optional<dsv4::Conversation> shorter;
  const std::vector<Turn> turns = TurnsOf(messages_);
  const bool answered = !turns.empty() && turns.back().answer < messages_.size();
  if (answered && thinking_ != DSV4_THINKING_OFF && tools_.empty()) {
    try {
      shorter = session().Fork();
      Sync(&*shorter, {messages_.begin(),
                       messages_.begin() + static_cast<std::ptrdiff_t>(turns.back().answer)});
    } catch (const dsv4::Error&) {
      shorter.reset();  // no room for a second session
    }
  }
  try {
    (shorter ? *shorter : session()).session().Save(path, bar.Callback());
  } catch (const dsv4::Error& error) {
    // The file at fault is the user's, not the model's.
    if (error.code() == DSV4_ERR_IO) throw Failure{kRunTimeError, error.what(), error.code()};
    if (error.code() == DSV4_ERR_NOT_FOUND) throw Failure{kUsageError, error.what(), error.code()};
    throw;
  }
  WriteConversation(MessagesFile(path), {system_, tools_, thinking_, messages_, open_calls_});
}

void Conversation::Load(const std::string& path) {
  SavedConversation saved = ReadConversation(MessagesFile(path));
  Wake();
  // As this conversation continues if the file is accepted.
  const SavedConversation before = {system_, tools_, thinking_, {}, {}};
  const auto take = [this](const SavedConversation& from) {
    system_ = from.system;
    tools_ = from.tools;
    thinking_ = from.thinking;
  };
  const auto open = [&] {
    ProgressBar bar("restoring", screen_->shows_progress());
    dsv4::Conversation session(engine_, dsv4::SessionOptions{sampling_});
    Sync(&session, saved.messages);
    session.session().Load(path, bar.Callback());
    return session;
  };
  std::optional<dsv4::Conversation> loaded;
  take(saved);
  try {
    try {
      loaded = open();
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_OUT_OF_BLOCKS || !session_) throw;
      // No room for both: this session is closed first, and opened anew if the file is refused.
      session_.reset();
      loaded = open();
    }
  } catch (...) {
    take(before);
    throw;
  }
  session_ = std::move(loaded);
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

void Conversation::Deliver() {
  while (const std::optional<dsv4::Event> event = session_->Poll()) {
    Record(*event);
    output_->Event(*event);
  }
}

Conversation::End Conversation::Generate() {
  open_calls_.clear();
  Sync(&session(), messages_);
  const TurnEnd end = RunTurn(engine_, &session_->session(), screen_, [&] {
    const dsv4::StepResult step = session_->Step();
    Deliver();
    return step.finish;
  });
  if (end.finish == DSV4_FINISH_NONE) {
    session_->EndTurn();
    Deliver();
  }
  output_->End(end);
  statistics_ = StatisticsOf(engine_, end);
  // Unless Ctrl-C came before the first token.
  if (end.stats.generated_tokens > 0) messages_.push_back(session_->reply_json());
  return end.finish == DSV4_FINISH_NONE ? End::kInterrupted : End::kDone;
}

}  // namespace chat
