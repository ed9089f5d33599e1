// SPDX-License-Identifier: Apache-2.0
#include "lib/session/conversation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/chat_json.h"
#include "lib/text/completion_markup.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kAssistantRole = "assistant";

bool IsAssistant(const ChatMessage& message) { return message.role == kAssistantRole; }

// Whether the last message is the beginning of an assistant's turn.
bool IsBegun(absl::Span<const ChatMessage> messages) {
  return !messages.empty() && IsAssistant(messages.back()) && messages.back().wo_eos;
}

constexpr absl::string_view kCallId = "call_";

// The M of the next calls' ids. Clients pair results with calls by these ids, also with calls of
// messages that they no longer send.
size_t NextCallNumber(absl::Span<const ChatMessage> messages, bool begun) {
  constexpr size_t kMost = 1'000'000'000;
  size_t next = messages.size() - (begun ? 1 : 0);
  for (const ChatMessage& message : messages) {
    for (const ToolCall& call : message.tool_calls) {
      absl::string_view rest = call.id;
      size_t number = 0;
      if (absl::ConsumePrefix(&rest, kCallId) &&
          absl::SimpleAtoi(rest.substr(0, rest.find('_')), &number) && number < kMost) {
        next = std::max(next, number + 1);
      }
    }
  }
  return next;
}

void Ignore(const ParserEvent&) {}

// So that the next push_back finds its memory.
template <class T>
void ReserveOneMore(std::vector<T>* list) {
  if (list->size() == list->capacity()) list->reserve(2 * list->size() + 4);
}

// Whether both have the same prompt. Tool results refer to ids of calls, but a prompt has none.
bool SamePrompt(const ChatMessage& a, const ChatMessage& b) {
  const auto text = [](ChatMessage message) {
    for (ToolCall& call : message.tool_calls) call.id.clear();
    std::string json;
    AppendPythonJson(MessageToJson(message), &json);
    return json;
  };
  return a.role == b.role && a.content == b.content && text(a) == text(b);
}

// The model's arguments may be nested deeper than the encoder can read. They are kept as a string.
void MakeReadable(std::string* arguments) {
  if (!IsUnsupported(ParsePythonJson(*arguments, "arguments").status())) return;
  std::string wrapped = "{\"arguments\": \"";
  AppendJsonEscaped(*arguments, &wrapped);
  *arguments = wrapped + "\"}";
}

// Whether the markup that the end of a completion cut off begins a call, or may.
bool MayBeginCall(absl::string_view markup) {
  const absl::string_view rest = absl::StripAsciiWhitespace(markup);
  return rest == "<" || !absl::StartsWith(markup::kCallsEnd, rest);
}

}  // namespace

Conversation::Conversation(Session* session, const Tokenizer* tokenizer, ChatTokens chat_tokens)
    : session_(session), tokenizer_(tokenizer), chat_tokens_(std::move(chat_tokens)) {}

absl::StatusOr<std::unique_ptr<Conversation>> Conversation::Create(Session* session) {
  DSV4_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, session->engine()->tokenizer());
  DSV4_ASSIGN_OR_RETURN(ChatTokens chat_tokens, ChatTokens::Create(*tokenizer));
  return std::unique_ptr<Conversation>(
      new Conversation(session, tokenizer, std::move(chat_tokens)));
}

std::unique_ptr<Conversation> Conversation::Fork(Session* session) const {
  std::unique_ptr<Conversation> fork(new Conversation(*this));
  fork->session_ = session;
  return fork;
}

absl::StatusOr<SyncResult> Conversation::Sync(std::vector<ChatMessage> messages,
                                              const ChatOptions& options) {
  EndTurn(Ignore);
  std::vector<std::optional<SampledTurn>> sampled(messages.size());
  for (size_t i = 0; i < std::min(messages.size(), messages_.size()); ++i) {
    if (!SamePrompt(messages[i], messages_[i])) break;
    sampled[i] = sampled_[i];
  }
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                        chat_tokens_.Render(messages, sampled, options));
  DSV4_ASSIGN_OR_RETURN(SyncResult synced, SyncTo(tokens));
  options_ = options;
  messages_ = std::move(messages);
  sampled_ = std::move(sampled);
  synced_ = messages_.size();
  return synced;
}

absl::Status Conversation::Load(
    absl::FunctionRef<absl::Status(const Session::BeforeLoad& before)> load) {
  Conversation loaded(*this);
  loaded.EndTurn(Ignore);
  std::vector<int32_t> prompt;
  const auto before = [&](absl::Span<const int32_t> tokens) -> absl::Status {
    DSV4_ASSIGN_OR_RETURN(std::vector<std::optional<SampledTurn>> found,
                          chat_tokens_.SampledIn(tokens, loaded.messages_, options_));
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i]) loaded.sampled_[i] = std::move(found[i]);
    }
    DSV4_ASSIGN_OR_RETURN(prompt, chat_tokens_.Render(loaded.messages_, loaded.sampled_, options_));
    return session_->CheckSync(prompt);
  };
  DSV4_RETURN_IF_ERROR(load(before));
  // From here on nothing allocates.
  turn_.reset();
  messages_.swap(loaded.messages_);
  sampled_.swap(loaded.sampled_);
  synced_ = messages_.size();
  return SyncTo(prompt).status();
}

absl::StatusOr<SyncResult> Conversation::SyncTo(absl::Span<const int32_t> tokens) {
  DSV4_ASSIGN_OR_RETURN(const SyncResult synced, session_->Sync(tokens));
  generation_ = session_->generation();
  return synced;
}

absl::StatusOr<StepResult> Conversation::Step(Sink sink) {
  DSV4_RETURN_IF_ERROR(CheckTurn());
  return TakeStep(session_->Step(), sink);
}

absl::Status Conversation::CheckTurn() const {
  const absl::Span<const int32_t> tokens = session_->tokens();
  if (session_->generation() != generation_) {
    return InvalidArgument(
        "the session's ", tokens.size(),
        " tokens do not match its messages: a call other than those of conversations "
        "changed it, or a step ran out of memory");
  }
  if (turn_) return absl::OkStatus();
  if (messages_.empty()) return InvalidArgument("the conversation has no message yet");
  if (IsBegun(messages_)) return absl::OkStatus();
  if (IsAssistant(messages_.back()) || !chat_tokens_.OpensTurn(tokens.back())) {
    return InvalidArgument("messages[", messages_.size() - 1, "] (role ",
                           Quoted(messages_.back().role),
                           ") is last and leaves the assistant nothing to answer");
  }
  return absl::OkStatus();
}

absl::StatusOr<StepResult> Conversation::TakeStep(absl::StatusOr<StepResult> given, Sink sink) {
  DSV4_ASSIGN_OR_RETURN(StepResult step, std::move(given));
  if (step.token < 0) return step;
  const absl::Status taken = Contained([&] {
    Take(&step, sink);
    return absl::OkStatus();
  });
  if (!taken.ok()) {
    turn_.reset();
    return taken;
  }
  generation_ = session_->generation();
  return step;
}

void Conversation::Take(StepResult* step, Sink sink) {
  // A turn begins with the token after the prompt's last one.
  const absl::Span<const int32_t> tokens = session_->tokens();
  if (!turn_) BeginTurn(chat_tokens_.OpensReasoning(tokens[tokens.size() - 2]));
  const std::vector<int32_t>& ends = session_->engine()->eos_tokens();
  const bool begins_other = chat_tokens_.BeginsOtherTurn(step->token);
  std::optional<int32_t> end;
  if (begins_other || std::find(ends.begin(), ends.end(), step->token) != ends.end()) {
    end = step->token;
  }
  if (!end) turn_->ids.push_back(step->token);
  if (!begins_other) {
    Feed(step->text, sink);
  } else {
    FeedHeld(sink);
    if (step->finish == Finish::kNone) step->finish = Finish::kStop;
  }
  if (step->finish == Finish::kNone) return;
  const bool calls = CloseTurn(end, sink);
  if (calls && step->finish == Finish::kStop) step->finish = Finish::kToolCall;
}

void Conversation::BeginTurn(bool reasons) {
  const bool begun = IsBegun(messages_);
  StreamingParser::Options options = {
      .mode = reasons ? ThinkingMode::kThinking : ThinkingMode::kChat,
      .id_prefix = absl::StrCat(kCallId, NextCallNumber(messages_, begun), "_"),
      .turn_markers = false};
  ChatMessage reply = {.role = std::string(kAssistantRole), .content = ""};
  if (begun) reply = messages_.back();
  reply.wo_eos = false;
  turn_.emplace(OpenTurn{.parser = StreamingParser(std::move(options)),
                         .reply = std::move(reply),
                         .reasons = reasons});
}

void Conversation::Feed(absl::string_view text, Sink sink) {
  turn_->text.append(text.data(), text.size());
  turn_->parser.Feed(text, [&](const ParserEvent& event) {
    Record(event);
    sink(event);
  });
}

void Conversation::Record(const ParserEvent& event) {
  ChatMessage& reply = turn_->reply;
  const auto append = [&](std::string* text) { absl::StrAppend(text, event.text); };
  switch (event.kind) {
    case ParserEvent::Kind::kReasoning:
      return append(&reply.reasoning_content);
    case ParserEvent::Kind::kText:
      return append(&reply.content);
    case ParserEvent::Kind::kToolCallStart:
      turn_->call = {.id = std::string(event.id), .name = std::string(event.text), .arguments = ""};
      return;
    case ParserEvent::Kind::kToolCallArguments:
      return append(&turn_->call.arguments);
    case ParserEvent::Kind::kToolCallEnd:
      reply.tool_calls.push_back(std::move(turn_->call));
      MakeReadable(&reply.tool_calls.back().arguments);
      return;
    case ParserEvent::Kind::kEnd:
      turn_->incomplete = event.incomplete;
      turn_->cut_call |= event.call >= 0 || MayBeginCall(event.text);
      return;
    case ParserEvent::Kind::kMalformed:
      turn_->cut_call |= event.call >= 0 || event.lost_call;
      return;
  }
}

void Conversation::EndTurn(Sink sink) {
  if (!turn_) return;
  // Over it is in any case: also where its message finds no memory.
  struct Over {
    std::optional<OpenTurn>& turn;
    ~Over() { turn.reset(); }
  } over{turn_};
  FeedHeld(sink);
  CloseTurn(std::nullopt, sink);
}

// The session may hold text: a character that is not whole yet, or what may begin a stop string.
void Conversation::FeedHeld(Sink sink) {
  const absl::StatusOr<std::string> text = tokenizer_->Decode(turn_->ids);
  if (text.ok() && absl::StartsWith(*text, turn_->text)) {
    Feed(absl::string_view(*text).substr(turn_->text.size()), sink);
  }
}

bool Conversation::CloseTurn(std::optional<int32_t> end, Sink sink) {
  const auto deliver = [&](const ParserEvent& event) {
    Record(event);
    sink(event);
  };
  if (end && chat_tokens_.BeginsOtherTurn(*end)) {
    turn_->parser.End(deliver, tokenizer_->Decode({&*end, 1}).value_or(""));
  } else {
    if (end) turn_->parser.Feed(markup::kEndOfSentence, deliver);
    turn_->parser.End(deliver);
  }
  const bool calls = !turn_->reply.tool_calls.empty() && !turn_->cut_call;
  if (IsBegun(messages_)) {
    messages_.back() = std::move(turn_->reply);
    sampled_.back().reset();  // its beginning was not sampled
    synced_ = messages_.size() - 1;
    turn_.reset();
    return calls;
  }
  std::optional<SampledTurn> sampled = AsSampled();
  ReserveOneMore(&sampled_);
  ReserveOneMore(&messages_);
  sampled_.push_back(std::move(sampled));
  messages_.push_back(std::move(turn_->reply));
  turn_.reset();
  return calls;
}

// A turn cut within tool markup is rendered from its message, which has no call that is cut.
std::optional<SampledTurn> Conversation::AsSampled() const {
  if (turn_->incomplete) return std::nullopt;
  std::vector<int32_t> ids = turn_->ids;
  if (!CutTo(turn_->text, &ids)) return std::nullopt;
  return chat_tokens_.TurnOf(std::move(ids), turn_->reasons);
}

// A stop string or token is sampled but not delivered. It can cut only plain text off the last
// token that is kept.
bool Conversation::CutTo(absl::string_view text, std::vector<int32_t>* ids) const {
  absl::StatusOr<std::string> spelled = tokenizer_->Decode(*ids);
  while (spelled.ok() && spelled->size() > text.size()) {
    ids->pop_back();
    spelled = tokenizer_->Decode(*ids);
  }
  if (!spelled.ok() || !absl::StartsWith(text, *spelled)) return false;
  return tokenizer_->EncodeTo(text.substr(spelled->size()), {.added_tokens = false}, ids).ok();
}

const ChatMessage* Conversation::reply() const {
  if (turn_) return &turn_->reply;
  return messages_.size() > synced_ ? &messages_.back() : nullptr;
}

}  // namespace dsv4
