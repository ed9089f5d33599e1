// SPDX-License-Identifier: Apache-2.0
// How turns of a conversation end, and what stays of a turn that ends early.
#include <string>
#include <vector>

#include "tests/lib/session/bundled_chat.h"

namespace dsv4 {
namespace {

using test::Chat;
using test::kChat;
using test::Kind;
using test::kKeeping;
using test::kPolite;
using test::kThinking;
using test::kWeather;
using test::Turn;
using test::User;

// The model made to say `text`, markers as their tokens, and then no more.
SamplingParams Saying(const std::string& text) {
  const auto tokenizer = Tokenizer::Load(test::kBundledModel + "/tokenizer.json").value();
  std::vector<int32_t> ids =
      tokenizer->Encode(text + "<｜end▁of▁sentence｜>", {.added_tokens = true}).value();
  return {.forced_tokens = std::move(ids)};
}

std::string CallOf(const std::string& value) {
  return "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
         "string=\"false\">" +
         value + "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>";
}

TEST_CASE("a turn that is cut keeps what was delivered, and the next one closes it") {
  // By max_tokens, or by EndTurn.
  for (const bool by_limit : {true, false}) {
    for (const ChatOptions& options : {kChat, kThinking, kKeeping}) {
      for (const int steps : {1, 5, 16}) {
        CAPTURE(by_limit, steps, options.drop_thinking, static_cast<int>(options.mode));
        Chat chat({kPolite, User("Calculate 91 + 49.")}, options,
                  {.max_tokens = by_limit ? steps : 0});
        Turn turn = chat.Generate(steps);
        if (turn.finish == Finish::kNone) {
          REQUIRE_FALSE(by_limit);
          REQUIRE(chat->messages().size() == 2);
          chat->EndTurn([&](const ParserEvent& event) { turn.log.Add(event); });
        }
        chat->EndTurn([&](const ParserEvent&) { REQUIRE(false); });
        REQUIRE(turn.log.Count(Kind::kEnd) == 1);
        REQUIRE(chat->messages().size() == 3);
        REQUIRE(chat->messages()[2].reasoning_content == turn.log.Joined(Kind::kReasoning));
        REQUIRE(chat->messages()[2].content == turn.log.Joined(Kind::kText));
        REQUIRE_OK(chat.Append({User("And 12 + 30?")}));
        REQUIRE(chat.Spelled() == chat.Published(options));
        const bool dropped = options.mode == ThinkingMode::kThinking && options.drop_thinking;
        if (!dropped || steps > 1) REQUIRE(chat.Contains(turn.tokens) == !dropped);
        // The next turn is not disturbed.
        REQUIRE_FALSE(chat.Generate(3).tokens.empty());
      }
    }
  }
}

TEST_CASE("a turn that a stop string or token ends keeps what was delivered") {
  const std::vector<int32_t> whole =
      Chat({User("What is the capital of France?")}).Generate().tokens;
  struct Case {
    SamplingParams sampling;
    std::string text;
    size_t kept;  // of the tokens The, capital, of, F, ran, ce, is, P, aris
  };
  for (const Case& c : {Case{{.stop_strings = {"France"}}, "The capital of ", 3},
                        Case{{.stop_strings = {"apital"}}, "The c", 1},
                        Case{{.stop_strings = {"aris"}}, "The capital of France is P", 8},
                        Case{{.stop_strings = {"The"}}, "", 0},
                        Case{{.stop_tokens = {whole[3]}}, "The capital of", 3}}) {
    CAPTURE(c.text);
    Chat chat({User("What is the capital of France?")}, kChat, c.sampling);
    const Turn turn = chat.Generate();
    REQUIRE(turn.finish == Finish::kStop);
    REQUIRE_FALSE(turn.log.events().back().stopped);
    REQUIRE(turn.log.Joined(Kind::kText) == c.text);
    REQUIRE_OK(chat.Append({User("And of Italy?")}));
    REQUIRE(chat.Spelled() == chat.Published(kChat));
    REQUIRE(chat.Contains(absl::MakeConstSpan(whole).first(c.kept)));
    REQUIRE_FALSE(chat.Contains(absl::MakeConstSpan(whole).first(c.kept + 1)));
  }
}

// Text that a stop string may begin with is held back, until the turn is ended.
TEST_CASE("ending a turn delivers what was held back") {
  Chat chat({User("What is the capital of France?")}, kChat, {.stop_strings = {"capital city"}});
  Turn turn = chat.Generate(2);
  chat->EndTurn([&](const ParserEvent& event) { turn.log.Add(event); });
  REQUIRE(turn.log.Joined(Kind::kText) == "The capital");
  REQUIRE_OK(chat.Append({User("And of Italy?")}));
  REQUIRE(chat.Contains(turn.tokens));
  REQUIRE(chat.Spelled() == chat.Published(kChat));
}

// No token parts the reasoning from the call that ends it. While the reasoning is kept, so is all
// that was sampled; when it is dropped, the call is rendered.
TEST_CASE("a call that ends the reasoning without its token") {
  for (const ChatOptions& options : {kKeeping, kThinking}) {
    Chat chat({User("Hi")}, options, Saying("A call." + CallOf("1")));
    const Turn turn = chat.Generate();
    REQUIRE(turn.finish == Finish::kToolCall);
    REQUIRE(chat->reply()->reasoning_content == "A call.");
    REQUIRE(chat->reply()->tool_calls.at(0).arguments == R"({"a": 1})");
    REQUIRE_OK(chat.Append({User("And now?")}));
    REQUIRE(chat.Contains(turn.tokens) == !options.drop_thinking);
    REQUIRE((chat.Spelled() == chat.Published(options)) == options.drop_thinking);
  }
}

// The parser passes on what the encoder would not read.
TEST_CASE("arguments that are nested too deeply do not end the conversation") {
  const std::string deep = std::string(1000, '[') + std::string(1000, ']');
  Chat chat({User("Hi")}, kChat, Saying(CallOf(deep)), /*context_tokens=*/4096);
  const Turn turn = chat.Generate(3000);
  REQUIRE(turn.finish == Finish::kToolCall);
  REQUIRE(turn.log.Joined(Kind::kToolCallArguments, 0) == R"({"a": )" + deep + "}");
  REQUIRE(chat->reply()->tool_calls.at(0).arguments ==
          R"({"arguments": "{\"a\": )" + deep + R"(}"})");
  REQUIRE_OK(chat.Append({User("And now?")}));
  REQUIRE(chat.Contains(turn.tokens));
}

TEST_CASE("markers that the model wrote out of place stay in the timeline") {
  struct Case {
    std::string said, content;
    int malformed;
  };
  for (const Case& c :
       {Case{"Ho<think>ho", "Hoho", 1}, Case{"Ho<｜action｜>ho", "Ho<｜action｜>ho", 0}}) {
    Chat chat({User("Hi")}, kChat, Saying(c.said));
    const Turn turn = chat.Generate();
    REQUIRE(turn.log.Count(Kind::kMalformed) == c.malformed);
    REQUIRE(chat->reply()->content == c.content);
    REQUIRE_OK(chat.Append({User("And now?")}));
    REQUIRE(chat.Contains(turn.tokens));
  }
}

TEST_CASE("a control token of another turn ends the turn, and is no part of it") {
  const std::string call = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n";
  struct Case {
    std::string said, marker, content;
    bool incomplete;
  };
  for (const int64_t drafts : {0, 3}) {
    for (const Case& c :
         {Case{"Ho ", "<｜User｜>", "Ho ", false}, Case{"Ho", "<｜Assistant｜>", "Ho", false},
          Case{"", "<｜latest_reminder｜>", "", false}, Case{"Ho" + call, "<｜User｜>", "Ho", true},
          Case{"Ho <", "<｜User｜>", "Ho <", false}}) {
      SamplingParams sampling = Saying(c.said + c.marker + "ho");
      sampling.stop_strings = {" <never"};
      sampling.draft_tokens = drafts;
      Chat chat({User("Hi")}, kChat, sampling);
      const Turn turn = chat.Generate();
      REQUIRE(turn.finish == Finish::kStop);
      REQUIRE(turn.log.Count(Kind::kMalformed) == 1);
      REQUIRE(turn.log.events()[turn.log.events().size() - 2].text == c.marker);
      REQUIRE(turn.log.events().back().incomplete == c.incomplete);
      REQUIRE_FALSE(turn.log.events().back().stopped);
      REQUIRE(turn.log.Joined(Kind::kText) == c.content);
      REQUIRE(chat->reply()->content == c.content);
      REQUIRE(chat->reply()->tool_calls.empty());
      REQUIRE(chat->messages().size() == 2);
      REQUIRE_OK(chat.Append({User("And now?")}));
      REQUIRE(chat.Spelled() == chat.Published(kChat));
    }
  }
  // What only spells one is text.
  SamplingParams spelled = Saying("");
  const auto tokenizer = Tokenizer::Load(test::kBundledModel + "/tokenizer.json").value();
  std::vector<int32_t> ids = tokenizer->Encode("a<｜User｜>b", {.added_tokens = false}).value();
  ids.push_back(spelled.forced_tokens.back());
  spelled.forced_tokens = ids;
  Chat chat({User("Hi")}, kChat, spelled);
  const Turn turn = chat.Generate();
  REQUIRE(turn.tokens == ids);
  REQUIRE(turn.log.Joined(Kind::kText) == "a<｜User｜>b");
  REQUIRE(turn.log.Count(Kind::kMalformed) == 0);
}

TEST_CASE("a turn calls tools only when all its calls are whole") {
  const std::string start = "\n\n<｜DSML｜tool_calls>\n";
  const std::string whole = "<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n";
  const std::string parameter = "<｜DSML｜parameter name=\"p\" string=\"true\">";
  const std::string value = "<｜DSML｜invoke name=\"rm\">\n" + parameter + "/srv/fo";
  struct Case {
    std::string said;
    size_t calls;
    Finish finish;
  };
  for (const Case& c : {
           Case{start + whole + value, 1, Finish::kStop},
           Case{start + whole + value + "</", 1, Finish::kStop},
           Case{start + value, 0, Finish::kStop},
           Case{start + whole + "<｜DSML｜invoke na", 1, Finish::kStop},
           Case{start + whole + "<｜DSML｜invoke name=\"rm\">\n" + parameter +
                    "a/｜DSML｜parameter>",
                1, Finish::kStop},
           Case{start + whole + "</｜DSML｜tool_calls>", 1, Finish::kToolCall},
           Case{start + whole + "</｜DSML｜tool_c", 1, Finish::kToolCall},
           Case{whole + whole, 2, Finish::kToolCall},
       }) {
    Chat chat({User("Hi")}, kChat, Saying(c.said));
    const Turn turn = chat.Generate();
    REQUIRE(turn.finish == c.finish);
    REQUIRE(chat->reply()->tool_calls.size() == c.calls);
    REQUIRE(static_cast<size_t>(turn.log.Count(Kind::kToolCallEnd)) == c.calls);
    const bool incomplete = turn.log.events().back().incomplete;
    REQUIRE_OK(chat.Append({User("And now?")}));
    if (incomplete) REQUIRE(chat.Spelled() == chat.Published(kChat));
  }
  // While a call is being made, it is none yet.
  Chat chat({User("Hi")}, kChat, Saying(start + whole + value));
  Turn turn = chat.Generate(1);
  while (turn.log.Count(Kind::kToolCallStart) < 2) chat.Step(&turn);
  REQUIRE(chat->reply()->tool_calls.size() == 1);
}

TEST_CASE("a turn cut within a character") {
  SamplingParams sampling = Saying("\xF0\x9F\x90\x88");
  REQUIRE(sampling.forced_tokens.size() > 2);
  for (const int64_t limit : {0, 1}) {
    sampling.max_tokens = limit;
    Chat chat({User("Hi")}, kChat, sampling);
    Turn turn = chat.Generate(1);
    REQUIRE((turn.finish == Finish::kLength) == (limit == 1));
    chat->EndTurn([&](const ParserEvent& event) { turn.log.Add(event); });
    REQUIRE(turn.log.Joined(Kind::kText) == "\xEF\xBF\xBD");
    REQUIRE_OK(chat.Append({User("And now?")}));
    REQUIRE(chat.Contains(turn.tokens));
    REQUIRE(chat.Spelled() == chat.Published(kChat));
  }
}

TEST_CASE("calls that are cut are closed") {
  for (const ChatOptions& options : {kChat, kThinking}) {
    int inside = 0;
    for (const int steps : {3, 8, 14, 20, 26, 30, 36, 45, 60}) {
      Chat chat(ParseMessages(kWeather).value(), options);
      Turn turn = chat.Generate(steps);
      if (turn.finish == Finish::kStop || turn.finish == Finish::kToolCall) continue;
      chat->EndTurn([&](const ParserEvent& event) { turn.log.Add(event); });
      inside += turn.log.events().back().incomplete;
      REQUIRE_OK(chat.Append({User("Thanks.")}));
      REQUIRE(chat.Spelled() == chat.Published(options));
    }
    REQUIRE(inside >= 4);
  }
}

TEST_CASE("appending ends the turn being generated") {
  Chat chat({User("What is the capital of France?")});
  const Turn turn = chat.Generate(3);
  REQUIRE(chat->reply()->content == turn.log.Joined(Kind::kText));
  REQUIRE_OK(chat.Append({User("And of Italy?")}));
  REQUIRE(chat->messages().size() == 3);
  REQUIRE(chat.Contains(turn.tokens));
  REQUIRE(chat.Spelled() == chat.Published(kChat));
  // Without a token there is no turn, and user messages become one.
  REQUIRE_OK(chat.Append({User("Quick.")}));
  REQUIRE(chat->messages().size() == 4);
  REQUIRE(chat.Spelled() == chat.Published(kChat));
}

}  // namespace
}  // namespace dsv4
