// SPDX-License-Identifier: Apache-2.0
// Turns are sampled here in the most unusual way there is: byte by byte, as no tokenizer would.
// What their tokens must spell is the published encoder's prompt.
#include "lib/session/chat_tokens.h"

#include <algorithm>
#include <map>
#include <string>

#include "lib/text/chat_encoder.h"
#include "lib/text/chat_prompt.h"
#include "tests/lib/text/encode_cases.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using test::TinyTokenizer;
using Ids = std::vector<int32_t>;
using Messages = std::vector<ChatMessage>;
using Turns = std::vector<std::optional<SampledTurn>>;

int32_t IdOf(ControlToken token) {
  return TinyTokenizer().FindAddedToken(ControlTokenText(token)).value();
}

const ChatTokens& Timeline() {
  static const ChatTokens timeline = ChatTokens::Create(TinyTokenizer()).value();
  return timeline;
}

bool IsControl(int32_t id) {
  for (size_t i = 0; i < kControlTokenCount; ++i) {
    if (IdOf(static_cast<ControlToken>(i)) == id) return true;
  }
  return false;
}

// The same text and control tokens in one token per byte.
Ids ByBytes(absl::Span<const int32_t> ids) {
  static const std::map<std::string, int32_t> byte_tokens = [] {
    std::map<std::string, int32_t> made;
    for (int32_t id = 0; id <= TinyTokenizer().max_id(); ++id) {
      const auto bytes = TinyTokenizer().TokenBytes(id);
      if (bytes.ok() && bytes->size() == 1) made.emplace(std::string(*bytes), id);
    }
    return made;
  }();
  Ids spelled;
  for (const int32_t id : ids) {
    if (IsControl(id)) {
      spelled.push_back(id);
      continue;
    }
    const std::string bytes(TinyTokenizer().TokenBytes(id).value());
    for (const char byte : bytes) {
      spelled.push_back(byte_tokens.at(std::string(1, byte)));
    }
  }
  return spelled;
}

Ids Rendered(absl::Span<const ChatMessage> messages, const ChatOptions& options) {
  const absl::StatusOr<Ids> ids = RenderChat(TinyTokenizer(), messages, options);
  REQUIRE_OK(ids);
  return *ids;
}

// The turn `messages[at]` as if it had been sampled, byte by byte, when it was the last one;
// nullopt when nothing opens it then.
std::optional<SampledTurn> SampledByBytes(const Messages& messages, size_t at,
                                          const ChatOptions& options) {
  const absl::Span<const ChatMessage> all = messages;
  const absl::StatusOr<Ids> prompt = RenderChat(TinyTokenizer(), all.first(at), options);
  const absl::StatusOr<Ids> whole = RenderChat(TinyTokenizer(), all.first(at + 1), options);
  if (!prompt.ok() || !whole.ok() || prompt->empty()) return std::nullopt;
  if (!Timeline().OpensTurn(prompt->back())) return std::nullopt;
  REQUIRE(whole->size() > prompt->size());
  REQUIRE(std::equal(prompt->begin(), prompt->end(), whole->begin()));
  const auto turn = absl::MakeConstSpan(*whole).subspan(prompt->size());
  REQUIRE(turn.back() == IdOf(ControlToken::kEndOfSentence));
  return Timeline().TurnOf(ByBytes(turn.first(turn.size() - 1)),
                           Timeline().OpensReasoning(prompt->back()));
}

bool Contains(const Ids& ids, absl::Span<const int32_t> part) {
  return std::search(ids.begin(), ids.end(), part.begin(), part.end()) != ids.end();
}

std::string Decoded(const Ids& ids) { return TinyTokenizer().Decode(ids).value(); }

TEST_CASE("sampled turns spell the prompts of the published encoder") {
  int cases = 0, kept = 0, without_reasoning = 0, opened = 0;
  for (const test::EncodeCase& c : test::EncodeCases()) {
    if (c.prompt == nullptr || c.context != nullptr) continue;
    const Messages messages = test::ConversationOf(c)->messages;
    Turns turns(messages.size());
    for (size_t i = 0; i < messages.size(); ++i) {
      if (messages[i].role == "assistant" && !messages[i].wo_eos) {
        turns[i] = SampledByBytes(messages, i, c.options);
      }
    }
    CAPTURE(c.number);
    const absl::StatusOr<Ids> ids = Timeline().Render(messages, turns, c.options);
    REQUIRE_OK(ids);
    const Ids rendered = Rendered(messages, c.options);
    REQUIRE(Decoded(*ids) == Decoded(rendered));
    const absl::StatusOr<Turns> found = Timeline().SampledIn(*ids, messages, c.options);
    REQUIRE_OK(found);
    REQUIRE(Timeline().Render(messages, *found, c.options).value() == *ids);
    // Surrogates of the published text have no tokens.
    if (Decoded(rendered) == *c.prompt) {
      ++cases;
      REQUIRE(Decoded(*ids) == *c.prompt);
    }
    for (const auto& turn : turns) {
      if (!turn || turn->ids.size() < 8) continue;
      ++opened;
      if (Contains(*ids, turn->ids)) {
        ++kept;
      } else if (turn->content_begin &&
                 Contains(*ids, absl::MakeConstSpan(turn->ids).subspan(*turn->content_begin))) {
        ++without_reasoning;
      }
    }
  }
  REQUIRE(cases > 200);
  REQUIRE(kept > 100);
  REQUIRE(without_reasoning > 20);
  // Rendered: reasoning that spells its own end, and turns whose opening was dropped.
  REQUIRE(opened - kept - without_reasoning < opened / 10);
}

const Messages& Chat() {
  static const Messages messages = {
      {.role = "user", .content = "Hello there"},
      {.role = "assistant", .content = "Hi, friend.", .reasoning_content = "A greeting."},
      {.role = "user", .content = "And now?"}};
  return messages;
}

TEST_CASE("sampled turns are found in the timelines of their own conversation alone") {
  const ChatOptions options = {.mode = ThinkingMode::kChat};
  Messages messages = {{.role = "user", .content = "Hello there"},
                       {.role = "assistant", .content = "Hi, friend."},
                       {.role = "user", .content = "And now?"},
                       {.role = "assistant", .content = "Good bye."}};
  Turns turns(4);
  for (const size_t i : {1, 3}) turns[i] = SampledByBytes(messages, i, options);
  const Ids whole = Timeline().Render(messages, turns, options).value();
  const auto found = [&](const Ids& timeline) {
    std::string kept;
    const Turns made = Timeline().SampledIn(timeline, messages, options).value();
    for (const auto& turn : made) kept += turn ? '1' : '0';
    return kept;
  };
  REQUIRE(found(whole) == "0101");
  REQUIRE(found({whole.begin(), whole.end() - 1}) == "0101");  // the last turn is still open
  REQUIRE(found({whole.begin(), whole.end() - 3}) == "0100");  // and not whole
  REQUIRE(found({}) == "0000");
  messages[1].content = "Hi, fiend.";
  REQUIRE(found(whole) == "0001");
}

TEST_CASE("a turn keeps its tokens when it moves between the thinking modes") {
  const ChatOptions thinking = {.mode = ThinkingMode::kThinking};
  const ChatOptions keeping = {.mode = ThinkingMode::kThinking, .drop_thinking = false};
  const ChatOptions chat = {.mode = ThinkingMode::kChat};
  const Ids content = ByBytes(TinyTokenizer().Encode("Hi, friend.").value());
  const Ids reasoning = ByBytes(TinyTokenizer().Encode("A greeting.").value());
  for (const bool reasons : {true, false}) {
    Messages messages = Chat();
    if (!reasons) messages[1].reasoning_content.clear();
    const std::optional<SampledTurn> turn = SampledByBytes(messages, 1, reasons ? thinking : chat);
    REQUIRE(turn.has_value());
    REQUIRE(turn->reasons == reasons);
    for (const ChatOptions& options : {thinking, keeping, chat}) {
      const Ids ids = Timeline().Render(messages, Turns{{}, turn, {}}, options).value();
      REQUIRE(Decoded(ids) == RenderChatText(messages, options).value());
      REQUIRE(Contains(ids, content));
      REQUIRE(Contains(ids, reasoning) == (reasons && !options.drop_thinking));
      REQUIRE(ids != Rendered(messages, options));
    }
  }
}

TEST_CASE("reasoning that the turn did not end is closed") {
  Messages messages = Chat();
  messages[1].content.clear();
  const Ids reasoning = ByBytes(TinyTokenizer().Encode("A greeting.").value());
  const SampledTurn turn = Timeline().TurnOf(reasoning, /*reasons=*/true);
  for (const bool drop : {true, false}) {
    const ChatOptions options = {.mode = ThinkingMode::kThinking, .drop_thinking = drop};
    const Ids ids = Timeline().Render(messages, Turns{{}, turn, {}}, options).value();
    REQUIRE(Decoded(ids) == RenderChatText(messages, options).value());
    REQUIRE(Contains(ids, reasoning) == !drop);
  }
}

// Where the place between reasoning and content is no token boundary, the tokens are kept while the
// reasoning is, and the content is rendered anew when it is dropped.
TEST_CASE("reasoning that ends without its token") {
  const std::string call_text =
      "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke "
      "name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
  const auto encode = [](absl::string_view text) {
    return ByBytes(TinyTokenizer().Encode(text, {.added_tokens = true}).value());
  };
  struct Case {
    Ids ids;
    ChatMessage message;
    bool same_text;  // as the published encoder writes the message
  };
  const ChatMessage spelled = Chat()[1];
  ChatMessage called = Chat()[1];
  called.content.clear();
  called.tool_calls = {{.id = "", .name = "f", .arguments = "{}"}};
  for (const Case& c :
       {Case{ByBytes(TinyTokenizer().Encode("A greeting.</think>Hi, friend.").value()), spelled,
             true},
        Case{encode("A greeting." + call_text), called, false},
        // The token comes after the reasoning has ended otherwise.
        Case{encode("A greeting." + call_text + "</think>"), called, false}}) {
    const SampledTurn turn = Timeline().TurnOf(c.ids, /*reasons=*/true);
    REQUIRE_FALSE(turn.content_begin.has_value());
    REQUIRE(turn.ids == c.ids);
    Messages messages = Chat();
    messages[1] = c.message;
    const ChatOptions keep = {.mode = ThinkingMode::kThinking, .drop_thinking = false};
    const Ids kept = Timeline().Render(messages, Turns{{}, turn, {}}, keep).value();
    REQUIRE(Contains(kept, c.ids));
    REQUIRE((Decoded(kept) == RenderChatText(messages, keep).value()) == c.same_text);
    const ChatOptions drop = {.mode = ThinkingMode::kThinking};
    REQUIRE(Timeline().Render(messages, Turns{{}, turn, {}}, drop).value() ==
            Rendered(messages, drop));
  }
}

TEST_CASE("an answer whose question was dropped is rendered from its message") {
  // Developer messages before the last user message are dropped when thinking.
  const Messages messages = {{.role = "system", .content = "Be brief."},
                             {.role = "developer", .content = "Say hi."},
                             {.role = "assistant", .content = "Hi, friend."},
                             {.role = "user", .content = "And now?"}};
  const ChatOptions options = {.mode = ThinkingMode::kThinking};
  const std::optional<SampledTurn> turn = SampledByBytes(messages, 2, options);
  REQUIRE(turn.has_value());
  REQUIRE(Timeline().Render(messages, Turns{{}, {}, turn, {}}, options).value() ==
          Rendered(messages, options));
}

TEST_CASE("a tokenizer without the control tokens is refused") {
  std::string json = test::FileText(test::kTinyTokenizerPath);
  for (size_t at; (at = json.find("</think>")) != std::string::npos;) json[at + 2] = 'd';
  const auto tokenizer = Tokenizer::FromJson(json, "tokenizer without an end of thinking");
  REQUIRE_OK(tokenizer);
  REQUIRE_FAILS(ChatTokens::Create(**tokenizer), absl::StatusCode::kNotFound, "\"</think>\"");
}

}  // namespace
}  // namespace dsv4
