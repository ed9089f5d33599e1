// SPDX-License-Identifier: Apache-2.0
#include "lib/runtime/conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/completion_markup.h"
#include "lib/text/json_text.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kAssistantRole = "assistant";

bool IsAssistant(const ChatMessage& message) { return message.role == kAssistantRole; }

void Ignore(const ParserEvent&) {}

// So that the next push_back finds its memory.
template <class T>
void ReserveOneMore(std::vector<T>* list) {
  if (list->size() == list->capacity()) list->reserve(2 * list->size() + 4);
}

// Exchanges the `count` elements of *list from `first` on and all of *other. Allocates nothing
// where both have the room.
template <class T>
void Exchange(std::vector<T>* list, size_t first, size_t count, std::vector<T>* other) {
  const size_t both = std::min(count, other->size());
  const auto begin = list->begin() + static_cast<ptrdiff_t>(first);
  const auto rest = begin + static_cast<ptrdiff_t>(both);
  const auto end = begin + static_cast<ptrdiff_t>(count);
  const auto other_rest = other->begin() + static_cast<ptrdiff_t>(both);
  std::swap_ranges(begin, rest, other->begin());
  if (both < count) {
    other->insert(other->end(), std::make_move_iterator(rest), std::make_move_iterator(end));
    list->erase(rest, end);
  } else {
    list->insert(end, std::make_move_iterator(other_rest), std::make_move_iterator(other->end()));
    other->erase(other_rest, other->end());
  }
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

absl::StatusOr<std::unique_ptr<Conversation>> Conversation::Open(Session* session,
                                                                 std::vector<ChatMessage> messages,
                                                                 const ChatOptions& options) {
  DSV4_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, session->engine()->tokenizer());
  DSV4_ASSIGN_OR_RETURN(ChatTokens chat_tokens, ChatTokens::Create(*tokenizer));
  std::unique_ptr<Conversation> made(new Conversation(session, tokenizer, std::move(chat_tokens)));
  made->options_ = options;
  made->messages_ = std::move(messages);
  made->sampled_.resize(made->messages_.size());
  DSV4_RETURN_IF_ERROR(made->Sync());
  return made;
}

std::unique_ptr<Conversation> Conversation::Fork(Session* session) const {
  std::unique_ptr<Conversation> fork(new Conversation(*this));
  fork->session_ = session;
  return fork;
}

absl::Status Conversation::Append(std::vector<ChatMessage> messages) {
  if (messages.empty()) return InvalidArgument("the list of messages to append is empty");
  EndTurn(Ignore);
  return Replace(messages_.size(), 0, std::move(messages));
}

absl::Status Conversation::Truncate(size_t count) {
  EndTurn(Ignore);
  if (count > messages_.size()) {
    return InvalidArgument("the conversation has ", messages_.size(), " messages, fewer than ",
                           count);
  }
  return Replace(count, messages_.size() - count, {});
}

absl::Status Conversation::Replace(size_t first, size_t count, std::vector<ChatMessage> messages) {
  EndTurn(Ignore);
  if (first > messages_.size() || count > messages_.size() - first) {
    return InvalidArgument("the conversation has ", messages_.size(), " messages, fewer than ",
                           first, " and ", count, " to replace");
  }
  const size_t given = messages.size();
  std::vector<std::optional<SampledTurn>> sampled(given);
  messages.reserve(count);
  sampled.reserve(count);
  messages_.reserve(messages_.size() + given);
  sampled_.reserve(sampled_.size() + given);
  Exchange(&messages_, first, count, &messages);
  Exchange(&sampled_, first, count, &sampled);
  const absl::Status status = Contained([&] { return Sync(); });
  if (!status.ok()) {
    Exchange(&messages_, first, given, &messages);
    Exchange(&sampled_, first, given, &sampled);
  }
  return status;
}

absl::Status Conversation::SetOptions(const ChatOptions& options) {
  EndTurn(Ignore);
  const ChatOptions before = std::exchange(options_, options);
  const absl::Status status = Contained([&] { return Sync(); });
  if (!status.ok()) options_ = before;
  return status;
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
  return SyncTo(prompt);
}

absl::Status Conversation::Sync() {
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                        chat_tokens_.Render(messages_, sampled_, options_));
  return SyncTo(tokens);
}

absl::Status Conversation::SyncTo(absl::Span<const int32_t> tokens) {
  DSV4_RETURN_IF_ERROR(session_->Sync(tokens).status());
  generation_ = session_->generation();
  return absl::OkStatus();
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
  StreamingParser::Options options = {
      .mode = reasons ? ThinkingMode::kThinking : ThinkingMode::kChat,
      .id_prefix = absl::StrCat("call_", messages_.size(), "_"),
      .turn_markers = false};
  turn_.emplace(OpenTurn{.parser = StreamingParser(std::move(options)),
                         .reply = {.role = std::string(kAssistantRole), .content = ""},
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
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), IsAssistant);
  return last == messages_.rend() ? nullptr : &*last;
}

}  // namespace dsv4
