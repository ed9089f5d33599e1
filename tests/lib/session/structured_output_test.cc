// SPDX-License-Identifier: Apache-2.0
// Outputs of sessions with grammars: they match whatever is sampled, drafted, thought, saved or
// forked. What matches is judged by parsers that know nothing of grammars.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <regex>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/grammar/grammar.h"
#include "lib/io/json.h"
#include "lib/text/completion_markup.h"
#include "lib/text/completion_parser.h"
#include "tests/lib/session/recorded_run.h"

namespace dsv4 {
namespace {

using grammar::Grammar;
using test::ChatPrompt;
using test::OpenBundled;
using test::OpenColdSession;

using SharedGrammar = std::shared_ptr<const Grammar>;

std::shared_ptr<Engine> OpenEngine(int32_t drafts = 7, std::optional<DrafterKind> drafter = {},
                                   const std::string& folder = test::kBundledModel) {
  return OpenBundled({.context_tokens = 2048,
                      .cache_tokens = 8192,
                      .max_sessions = 4,
                      .prefill_chunk_tokens = 64,
                      .threads = 2,
                      .max_draft_tokens = drafts,
                      .drafter = drafter},
                     folder);
}

const char* const kQuestion = "Do you know the capital of Russia?";
const char* const kAnswer = "The capital of Russia is Moscow.";

// In which object members come is free, and one is recursive.
constexpr char kPerson[] =
    R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":8},
    "age":{"type":"integer","minimum":0,"maximum":150},"tags":{"type":"array","maxItems":2,
    "items":{"enum":["a","bc","\u00e9"]}},"next":{"anyOf":[{"type":"null"},{"type":"object",
    "properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false}]}},
    "required":["name","age","next"],"additionalProperties":false})";

void CheckPerson(const std::string& text) {
  INFO(text);
  const auto person = ParseJson(text, "output", 1 << 20);
  REQUIRE_OK(person);
  for (const JsonMember& member : *person->AsObject()) {
    const JsonValue& value = member.value;
    if (member.key == "name") {
      REQUIRE(value.AsString() != nullptr);
      REQUIRE_FALSE(value.AsString()->empty());
    } else if (member.key == "age") {
      const double age = std::stod(*value.AsNumberText());
      REQUIRE((age >= 0 && age <= 150 && age == std::floor(age)));
    } else if (member.key == "tags") {
      REQUIRE(value.AsArray()->size() <= 2);
      for (const JsonValue& tag : *value.AsArray()) {
        const std::string& word = *tag.AsString();
        REQUIRE((word == "a" || word == "bc" || word == "\xC3\xA9"));
      }
    } else {
      REQUIRE(member.key == "next");
      if (value.IsNull()) continue;
      REQUIRE(value.AsObject()->size() == 1);
      REQUIRE(value.Find("ok")->AsBool());
    }
  }
  REQUIRE(person->Find("name") != nullptr);
  REQUIRE(person->Find("age") != nullptr);
  REQUIRE(person->Find("next") != nullptr);
}

constexpr char kRegex[] = "(yes|no), [a-z]{2,6} \\d{1,3}!";
constexpr char kEbnf[] =
    "root ::= term (\" + \" term){0,4}\nterm ::= [0-9]{1,4} | \"(\" root \")\" | \"x\"\n";
constexpr char kTools[] =
    R"([{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":
    {"city":{"type":"string","maxLength":8},"days":{"type":"integer","minimum":1,"maximum":9}},
    "required":["city"],"additionalProperties":false}}},
    {"type":"function","function":{"name":"stop","parameters":{"type":"object","properties":{}}}}])";

// Sums with brackets: the rest after one.
absl::string_view AfterSum(absl::string_view text) {
  for (int terms = 1;; ++terms) {
    REQUIRE_FALSE(text.empty());
    if (text[0] == '(') {
      text = AfterSum(text.substr(1));
      REQUIRE((!text.empty() && text[0] == ')'));
      text.remove_prefix(1);
    } else if (text[0] == 'x') {
      text.remove_prefix(1);
    } else {
      size_t digits = 0;
      while (digits < text.size() && absl::ascii_isdigit(text[digits])) ++digits;
      REQUIRE((digits >= 1 && digits <= 4));
      text.remove_prefix(digits);
    }
    if (text.substr(0, 3) != " + ") return text;
    REQUIRE(terms < 5);
    text.remove_prefix(3);
  }
}

void CheckCalls(const std::string& text, ThinkingMode mode) {
  INFO(text);
  const auto message = ParseCompletion(text, mode);
  REQUIRE_OK(message);
  REQUIRE(message->content.empty());
  REQUIRE_FALSE(message->tool_calls.empty());
  for (const ToolCall& call : message->tool_calls) {
    const auto arguments = ParseJson(call.arguments, "arguments", 1 << 20);
    REQUIRE_OK(arguments);
    if (call.name == "stop") {
      REQUIRE(arguments->AsObject()->empty());
      continue;
    }
    REQUIRE(call.name == "weather");
    REQUIRE(arguments->Find("city")->AsString() != nullptr);
    for (const JsonMember& member : *arguments->AsObject()) {
      if (member.key == "city") continue;
      REQUIRE(member.key == "days");
      const std::string& days = *member.value.AsNumberText();
      REQUIRE((std::stod(days) >= 1 && std::stod(days) <= 9));
    }
  }
}

struct Output {
  std::vector<int32_t> tokens;
  std::string text;  // </think> and what ends a turn with it
};

// Drafts that are mostly wrong, and mostly against the grammar.
size_t DraftAnything(absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts) {
  uint32_t state = static_cast<uint32_t>(timeline.size());
  for (int32_t& draft : drafts) {
    state = state * 1664525u + 1013904223u;
    draft = (state & 0x10000) != 0 ? timeline.back() : static_cast<int32_t>((state >> 18) % 2000);
  }
  return drafts.size();
}

// To the end of the turn; with `planted` drafts of DraftAnything in place of a drafter's.
Output Speak(Session& session, int32_t planted = 0) {
  Output output;
  const Tokenizer& tokenizer = **session.engine()->tokenizer();
  for (Finish finish = Finish::kNone; finish == Finish::kNone;) {
    const auto step = session.Step();
    REQUIRE_OK(step);
    output.tokens.push_back(step->token);
    finish = step->finish;
    REQUIRE(finish != Finish::kLength);
    REQUIRE(finish != Finish::kContextFull);
    if (planted > 0) test::PlantDrafts(session, planted, DraftAnything);
  }
  output.text = tokenizer.Decode(output.tokens).value();
  return output;
}

// What follows the reasoning, without the marker of the end.
std::string ContentOf(const Output& output, ThinkingMode mode) {
  std::string text = output.text.substr(0, output.text.size() - markup::kEndOfSentence.size());
  return mode == ThinkingMode::kThinking
             ? text.substr(text.find(markup::kThinkEnd.data()) + markup::kThinkEnd.size())
             : text;
}

constexpr size_t kGrammars = 4;

// One after the other: kPerson, kRegex, kEbnf and required calls of kTools.
SharedGrammar GrammarOf(size_t which, std::shared_ptr<const grammar::Vocabulary> tokens) {
  if (which == 0) return Grammar::OfSchema(kPerson, tokens).value();
  if (which == 1) return Grammar::OfRegex(kRegex, tokens).value();
  if (which == 2) return Grammar::OfEbnf(kEbnf, tokens).value();
  return Grammar::OfTools(kTools, {.choice = grammar::ToolChoice::kRequired}, tokens).value();
}

void CheckOutput(size_t which, const Output& output, ThinkingMode mode) {
  static const std::regex expected(kRegex, std::regex::ECMAScript);
  const std::string content = ContentOf(output, mode);
  INFO(output.text);
  if (which == 0) CheckPerson(content);
  if (which == 1) REQUIRE(std::regex_match(content, expected));
  if (which == 2) REQUIRE(AfterSum(content).empty());
  if (which == 3) CheckCalls(output.text, mode);
}

// How many tokens the drafter drafts, or the test plants, in an engine with grammars of its own.
struct Drafting {
  std::shared_ptr<Engine> engine;
  int32_t drafts, planted;
  std::vector<SharedGrammar> grammars;
};

Drafting DraftBy(std::optional<DrafterKind> drafter, int32_t drafts, int32_t planted = 0,
                 const std::string& folder = test::kBundledModel) {
  Drafting drafting{OpenEngine(drafts + planted, drafter, folder), drafts, planted, {}};
  for (size_t i = 0; i < kGrammars; ++i) {
    drafting.grammars.push_back(GrammarOf(i, *drafting.engine->text().grammar_tokens()));
  }
  return drafting;
}

// Every grammar, with seeds from `first_seed` on, thinking and not, by each drafter: all of them
// valid, and the same whoever drafts.
void CheckSeeds(uint64_t first_seed, uint64_t seeds) {
  const Drafting draftings[] = {DraftBy({}, 0), DraftBy(DrafterKind::kMtp, 3),
                                DraftBy(DrafterKind::kMtp, 0, 7), DraftBy(DrafterKind::kNgram, 7),
                                DraftBy(DrafterKind::kDspark, 5, 0, test::kBundledDspark)};
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    for (size_t which = 0; which < kGrammars; ++which) {
      for (const ThinkingMode mode : {ThinkingMode::kChat, ThinkingMode::kThinking}) {
        std::vector<int32_t> undrafted;
        for (const Drafting& drafting : draftings) {
          CAPTURE(seed, which, static_cast<int>(mode), &drafting - draftings);
          const std::unique_ptr<Session> session =
              OpenColdSession(drafting.engine, {.temperature = 1.5f,
                                                .seed = seed,
                                                .max_thinking_tokens = 20,
                                                .grammar = drafting.grammars[which],
                                                .draft_tokens = drafting.drafts});
          REQUIRE_OK(session->Sync(ChatPrompt(*drafting.engine, kQuestion, mode)));
          const Output output = Speak(*session, drafting.planted);
          if (undrafted.empty()) undrafted = output.tokens;
          REQUIRE(output.tokens == undrafted);
          if (&drafting == draftings) CheckOutput(which, output, mode);
        }
      }
    }
  }
}

TEST_CASE("every output matches its grammar, and drafts change none") { CheckSeeds(1, 4); }

TEST_CASE("every output of many seeds matches its grammar", "[.long]") { CheckSeeds(5, 96); }

TEST_CASE("a greedy output that matched anyway is unchanged") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const auto tokens = *engine->text().grammar_tokens();
  const std::vector<int32_t> prompt = ChatPrompt(*engine, kQuestion);
  const std::unique_ptr<Session> plain = OpenColdSession(engine);
  REQUIRE_OK(plain->Sync(prompt));
  const Output expected = Speak(*plain);
  REQUIRE(ContentOf(expected, ThinkingMode::kChat) == kAnswer);
  for (const SharedGrammar& grammar :
       {Grammar::OfRegex("The capital of \\w+ is [A-Z]\\w+\\.", tokens).value(),
        Grammar::OfTools(kTools, {}, tokens).value(),
        Grammar::OfTools(kTools, {.choice = grammar::ToolChoice::kNone}, tokens).value()}) {
    for (const int32_t drafts : {0, 7}) {
      const std::unique_ptr<Session> session =
          OpenColdSession(engine, {.grammar = grammar, .draft_tokens = drafts});
      REQUIRE_OK(session->Sync(prompt));
      REQUIRE(Speak(*session).tokens == expected.tokens);
    }
  }
}

TEST_CASE("a saved, forked or rewound output continues in its grammar") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const auto tokens = *engine->text().grammar_tokens();
  const std::vector<int32_t> prompt = ChatPrompt(*engine, kQuestion, ThinkingMode::kThinking);
  for (const int32_t drafts : {0, 3}) {
    const SamplingParams sampling{.temperature = 1.5f,
                                  .seed = 3,
                                  .max_thinking_tokens = 6,
                                  .grammar = Grammar::OfRegex(kRegex, tokens).value(),
                                  .draft_tokens = drafts};
    SamplingParams without = sampling;
    without.grammar = nullptr;
    const std::unique_ptr<Session> straight = OpenColdSession(engine, sampling);
    REQUIRE_OK(straight->Sync(prompt));
    const Output expected = Speak(*straight);
    for (const size_t kept : {size_t{2}, size_t{7}, expected.tokens.size() / 2}) {
      CAPTURE(drafts, kept);
      const std::vector<int32_t> rest(expected.tokens.begin() + static_cast<ptrdiff_t>(kept),
                                      expected.tokens.end());
      const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
      REQUIRE_OK(session->Sync(prompt));
      for (size_t i = 0; i < kept; ++i) REQUIRE_OK(session->Step());
      std::vector<uint8_t> image(static_cast<size_t>(session->SaveBytes()));
      REQUIRE_OK(session->SaveTo(absl::MakeSpan(image)));
      const std::unique_ptr<Session> fork = session->Fork().value();
      REQUIRE(Speak(*fork).tokens == rest);
      REQUIRE(Speak(*session).tokens == rest);
      REQUIRE_OK(session->Rewind(static_cast<int64_t>(prompt.size() + kept)));
      REQUIRE(Speak(*session).tokens == rest);
      const std::unique_ptr<Session> loaded = OpenColdSession(engine, without);
      REQUIRE_OK(loaded->Load(image, "image"));
      REQUIRE(loaded->sampling().grammar->source() == sampling.grammar->source());
      REQUIRE(Speak(*loaded).tokens == rest);
    }
  }
}

TEST_CASE("a grammar that is set later begins with the next token") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const auto tokens = *engine->text().grammar_tokens();
  const SharedGrammar digits = Grammar::OfRegex("[0-9]{3}", tokens).value();
  for (const int32_t drafts : {0, 3}) {
    const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = drafts});
    const std::vector<int32_t> prompt = ChatPrompt(*engine, kQuestion);
    REQUIRE_OK(session->Sync(prompt));
    for (int i = 0; i < 4; ++i) REQUIRE_OK(session->Step());
    REQUIRE_OK(session->SetSampling({.grammar = digits, .draft_tokens = drafts}));
    const std::string text = Speak(*session).text;
    CHECK(std::regex_match(text.substr(0, text.size() - markup::kEndOfSentence.size()),
                           std::regex("[0-9]{3}")));
    // Before where it began there is nothing to be matched.
    REQUIRE_OK(session->Rewind(static_cast<int64_t>(prompt.size()) + 2));
    const std::string again = Speak(*session).text;
    CHECK(std::regex_match(again.substr(0, again.size() - markup::kEndOfSentence.size()),
                           std::regex("[0-9]{3}")));
  }
}

TEST_CASE("a device is asked for the tokens that the grammar allows") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const auto tokens = *engine->text().grammar_tokens();
  const std::vector<int32_t> eos = engine->eos_tokens();
  const std::unique_ptr<Session> session =
      OpenColdSession(engine, {.grammar = Grammar::OfRegex("yes", tokens).value()});
  REQUIRE_OK(session->Sync(ChatPrompt(*engine, kQuestion)));
  std::string output;
  for (bool ended = false; !ended;) {
    TokenChooser& chooser = session->timeline().chooser();
    const auto allowed = chooser.Allowed();
    REQUIRE_OK(allowed);
    for (int32_t token = 0; token < static_cast<int32_t>(tokens->bytes.size()); ++token) {
      const std::string& bytes = tokens->bytes[static_cast<size_t>(token)];
      const bool ends = std::find(eos.begin(), eos.end(), token) != eos.end();
      const bool expected =
          ends ? output == "yes"
               : !bytes.empty() && token != tokens->markup_token &&
                     std::string("yes").substr(output.size(), bytes.size()) == bytes;
      CHECK((*allowed)->Holds(token) == expected);
    }
    const auto question = chooser.Question(0, allowed->get());
    REQUIRE(question.has_value());
    CHECK(question->allowed == absl::MakeConstSpan((*allowed)->bits));
    CHECK(question->allowed_id == (*allowed)->id);
    CHECK_FALSE(chooser.Question(0, nullptr).has_value());
    const StepResult step = session->Step().value();
    ended = step.finish == Finish::kStop;
    output += std::string(step.text);
  }
  CHECK(output == "yes");
}

TEST_CASE("what contradicts a grammar is an error that says so") {
  const std::shared_ptr<Engine> engine = OpenEngine(), other = OpenEngine();
  const auto tokens = *engine->text().grammar_tokens();
  const SharedGrammar yes = Grammar::OfRegex("yes", tokens).value();
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_FAILS(session->SetSampling(
                    {.grammar = Grammar::OfRegex("a", *other->text().grammar_tokens()).value()}),
                absl::StatusCode::kInvalidArgument, "another engine");
  const int32_t no = (*engine->tokenizer())->Encode("no").value()[0];
  REQUIRE_OK(session->SetSampling({.forced_tokens = {no}, .grammar = yes}));
  REQUIRE_OK(session->Sync(ChatPrompt(*engine, kQuestion)));
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kInvalidArgument, "forbids it");
  std::vector<int32_t> starts;
  for (int32_t token = 0; token < static_cast<int32_t>(tokens->bytes.size()); ++token) {
    if (tokens->bytes[static_cast<size_t>(token)].substr(0, 1) == "y") starts.push_back(token);
  }
  REQUIRE_OK(session->SetSampling({.banned_tokens = starts, .grammar = yes}));
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kInvalidArgument, "not banned");
  REQUIRE_OK(session->SetSampling({.grammar = yes}));
  REQUIRE(ContentOf(Speak(*session), ThinkingMode::kChat) == "yes");
}

// Compiles at once. The tokens lead to more states than can be searched in time.
constexpr char kHard[] = "(?=.*a.{200})(?=.*e.{201})(?=.*t.{202})(?=.*n.{203}).*";

double SecondsSince(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Allows the tokens that spell `text`, and no others.
void AllowOnly(const Engine& engine, absl::string_view text, Session* session) {
  std::vector<uint32_t> words(static_cast<size_t>(TokenMaskWords(engine.config().vocab_size)));
  const auto tokens = *engine.text().grammar_tokens();
  for (size_t token = 0; token < tokens->bytes.size(); ++token) {
    if (tokens->bytes[token] == text) words[token / 32] |= uint32_t{1} << (token % 32);
  }
  REQUIRE_OK(session->SetAllowed(words));
}

TEST_CASE("a session whose masks take long holds up no other, not even one of its grammar") {
  const std::shared_ptr<Engine> engine = OpenEngine(0);
  const auto tokens = *engine->text().grammar_tokens();
  // After "b" no mask is found in time.
  const SharedGrammar hard = Grammar::OfRegex(absl::StrCat("a*|b", kHard), tokens).value();
  const std::unique_ptr<Session> free = OpenColdSession(engine), same = OpenColdSession(engine),
                                 slow = OpenColdSession(engine);
  const std::vector<int32_t> prompt = ChatPrompt(*engine, kQuestion);
  REQUIRE_OK(free->SetSampling({.banned_tokens = engine->eos_tokens()}));
  REQUIRE_OK(same->SetSampling({.banned_tokens = engine->eos_tokens(), .grammar = hard}));
  REQUIRE_OK(slow->SetSampling({.grammar = hard}));
  for (Session* session : {free.get(), same.get(), slow.get()}) {
    REQUIRE_OK(session->Sync(prompt));
    REQUIRE_OK(session->Prefill(0, nullptr));
  }
  AllowOnly(*engine, "b", slow.get());
  REQUIRE_OK(slow->Step());
  AllowOnly(*engine, "a", same.get());
  for (int i = 0; i < 4; ++i) REQUIRE_OK(same->Step());

  Session* const sessions[] = {free.get(), same.get(), slow.get()};
  std::vector<absl::StatusOr<StepResult>> results(3, StepResult{});
  const auto begin = std::chrono::steady_clock::now();
  double longest = 0;
  int calls = 0;
  do {
    const auto call = std::chrono::steady_clock::now();
    REQUIRE_OK(Session::StepAll(sessions, absl::MakeSpan(results)));
    longest = std::max(longest, SecondsSince(call));
    REQUIRE_OK(results[0]);
    REQUIRE(results[0]->token >= 0);
    REQUIRE_OK(results[1]);
    ++calls;
    // The masks' threads make way for others: on a busy machine they need long.
    std::this_thread::sleep_for(std::chrono::milliseconds(calls < 400 ? 2 : 100));
  } while (results[2].ok() && calls < 1900);
  const double whole = SecondsSince(begin);
  INFO(calls << " calls in " << whole << " s, the longest took " << longest << " s");
  REQUIRE(calls > 10);
  REQUIRE(longest < whole / 4);
  REQUIRE_FAILS(results[2], absl::StatusCode::kUnimplemented, "to find what may follow");
  // Those that go on are not harmed.
  REQUIRE_OK(same->Step());
}

TEST_CASE("a sync computes no mask, and the first one fails its session alone") {
  const std::shared_ptr<Engine> engine = OpenEngine(0);
  const SharedGrammar hard = Grammar::OfRegex(kHard, *engine->text().grammar_tokens()).value();
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->SetSampling({.grammar = hard}));
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE_OK(session->Sync(ChatPrompt(*engine, kQuestion)));
  const double sync = SecondsSince(begin);
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kUnimplemented, "to find what may follow");
  INFO("the sync took " << sync << " s, the step " << SecondsSince(begin) << " s with it");
  REQUIRE(sync < SecondsSince(begin) / 4);
  REQUIRE_OK(session->SetSampling({}));
  REQUIRE_OK(session->Step());
}

}  // namespace
}  // namespace dsv4
