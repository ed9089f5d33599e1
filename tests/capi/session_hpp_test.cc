// SPDX-License-Identifier: Apache-2.0
// <dsv4/session.hpp> and <dsv4/sampling.hpp>.
#include <unistd.h>

#include <cfenv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/capi/hpp_expect.h"

namespace {

static_assert(!std::is_copy_constructible_v<dsv4::Session>);
static_assert(std::is_nothrow_move_constructible_v<dsv4::Session>);

// A session of its own on the question: it shares nothing with others.
dsv4::Session Ask(const dsv4::Engine& engine, dsv4::Sampling sampling = {}) {
  static uint64_t salt = 0;
  dsv4::Session session(engine, {std::move(sampling), ++salt});
  session.Sync(PromptOf(engine, kQuestion));
  return session;
}

TEST_CASE("hpp: a session answers, and outlives its engine") {
  std::optional<dsv4::Engine> engine(OpenBundled());
  dsv4::Session session = Ask(*engine);
  engine.reset();
  CHECK(Generate(session) == kAnswer);
  dsv4::Session moved = std::move(session);
  CHECK(moved.stats().generated_tokens == 11);
  REQUIRE_ERROR(session.Step(), DSV4_ERR_INVALID_ARGUMENT, "session is NULL");
}

TEST_CASE("hpp: answers match their grammar, which copies share") {
  const dsv4::Engine engine = OpenBundled();
  const auto answer = [&](const dsv4::Grammar& grammar) {
    dsv4::Sampling sampling;
    sampling.temperature = 1.5f;
    sampling.seed = 1;
    sampling.grammar = grammar;
    dsv4::Session session = Ask(engine, sampling);
    session.SetSampling(sampling);
    std::string text;
    for (;;) {
      const dsv4::StepResult step = session.Step();
      text += step.text;
      if (step.finish != DSV4_FINISH_NONE) return text;
    }
  };
  const auto is_digits = [](const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
  };
  const std::string regex = answer(engine.OpenGrammar(DSV4_GRAMMAR_REGEX, "[0-9]{3}"));
  REQUIRE((regex.size() == 3 && is_digits(regex)));
  const std::string ebnf = answer(engine.OpenGrammar(DSV4_GRAMMAR_EBNF, "root ::= [0-9]{2}"));
  REQUIRE((ebnf.size() == 2 && is_digits(ebnf)));
  REQUIRE(answer(engine.OpenGrammar(DSV4_GRAMMAR_SCHEMA, "{\"const\":\"a\"}")).find('a') !=
          std::string::npos);
  dsv4::ToolOptions options;
  options.choice = DSV4_TOOL_CHOICE_REQUIRED;
  options.name = "b";
  options.lenient = true;
  const char tools[] = "[{\"name\":\"a\"},{\"name\":\"b\"}]";
  dsv4::Sampling sampling;
  sampling.max_tokens = 60;
  sampling.grammar = engine.ToolGrammar(tools, options);
  dsv4::Session session = Ask(engine, sampling);
  std::string text;
  for (dsv4_finish finish = DSV4_FINISH_NONE; finish == DSV4_FINISH_NONE;) {
    const dsv4::StepResult step = session.Step();
    text += step.text;
    finish = step.finish;
  }
  REQUIRE(text.find("invoke name=\"b\">") != std::string::npos);
  options.choice = DSV4_TOOL_CHOICE_NONE;
  options.name = "";
  const dsv4::Grammar both = engine.AnswerGrammar(tools, "{\"const\":\"c\"}", options);
  REQUIRE(both.unenforced_json() == "[]");
  REQUIRE(answer(both).find('c') != std::string::npos);
  REQUIRE(engine.AnswerGrammar("", "{\"format\":\"mine\"}")
              .unenforced_json()
              .find("{\"place\":\"schema#/format\"") == 1);
  REQUIRE_ERROR(engine.OpenGrammar(DSV4_GRAMMAR_SCHEMA, "{\"maxItems\":-1}"),
                DSV4_ERR_INVALID_ARGUMENT, "schema#/maxItems");
}

TEST_CASE("hpp: sync, rewind and prefill") {
  const dsv4::Engine engine = OpenBundled();
  const std::vector<int32_t> prompt = PromptOf(engine, kQuestion);
  dsv4::Session session(engine);
  CHECK(session.Sync(prompt).pending_tokens == static_cast<int64_t>(prompt.size()));
  CHECK(session.Prefill(4) == static_cast<int64_t>(prompt.size()) - 4);
  CHECK(session.Prefill() == 0);
  CHECK(Generate(session) == kAnswer);
  REQUIRE(session.tokens().size() == prompt.size() + 11);
  CHECK(session.tokens()[2] == prompt[2]);
  CHECK(session.Rewind(static_cast<int64_t>(prompt.size())) > 0);
  CHECK(session.tokens().size() == prompt.size());
  CHECK(Generate(session) == kAnswer);
  REQUIRE_ERROR(session.Rewind(1000), DSV4_ERR_INVALID_ARGUMENT, "1000");
  REQUIRE_ERROR(session.Sync({}), DSV4_ERR_INVALID_ARGUMENT, "");
  REQUIRE_ERROR(session.Sync({3, 1 << 20}), DSV4_ERR_INVALID_ARGUMENT, "");
}

TEST_CASE("hpp: progress of a prefill is reported, cancels and throws") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Session session = Ask(engine);
  REQUIRE_ERROR(session.Prefill(0, [](const dsv4::ProgressReport&) { return false; }),
                DSV4_ERR_CANCELLED, "");
  session = Ask(engine);
  CHECK_THROWS_AS(
      session.Prefill(0, [](const dsv4::ProgressReport&) -> bool { throw Surprise{1}; }), Surprise);
  session = Ask(engine);
  int reports = 0;
  session.Prefill(0, [&](const dsv4::ProgressReport& report) {
    CHECK(report.phase == DSV4_PROGRESS_PREFILL);
    CHECK(report.unit == DSV4_UNIT_TOKENS);
    ++reports;
    return true;
  });
  CHECK(reports > 0);
  CHECK(Generate(session) == kAnswer);
}

// Each field changes the text as <dsv4/sampling.h> says.
TEST_CASE("hpp: sampling parameters reach the session") {
  const dsv4::Engine engine = OpenBundled();
  const dsv4::TokenizerView tokenizer = engine.tokenizer();
  const std::vector<int32_t> answer = tokenizer.Encode(kAnswer);
  const auto text = [&](const dsv4::Sampling& sampling) {
    dsv4::Session session = Ask(engine, sampling);
    return Generate(session);
  };
  dsv4::Sampling sampling;
  CHECK(text(sampling) == kAnswer);
  sampling.max_tokens = 3;
  CHECK(text(sampling) == tokenizer.Decode({answer[0], answer[1], answer[2]}));
  sampling = {};
  sampling.stop_strings = {"is Paris", "never"};
  CHECK(text(sampling) == "The capital of France ");
  sampling = {};
  sampling.stop_tokens = {answer[3]};
  CHECK(text(sampling) == tokenizer.Decode({answer[0], answer[1], answer[2]}));
  sampling = {};
  sampling.max_tokens = 1;
  sampling.banned_tokens = {answer[0]};
  CHECK(text(sampling) != tokenizer.Decode({answer[0]}));
  sampling = {};
  sampling.max_tokens = 2;
  sampling.forced_tokens = {answer[4], answer[2]};
  CHECK(text(sampling) == tokenizer.Decode({answer[4], answer[2]}));
  sampling = {};
  sampling.max_tokens = 1;
  sampling.biases = {{answer[0], -100}, {answer[3], 100}};
  CHECK(text(sampling) == tokenizer.Decode({answer[3]}));

  dsv4::Session session = Ask(engine, sampling);
  sampling = {0.5f, 7, 0.25f, 0.125f, 1.5f, 9, 11, 0.5f, -0.5f};
  sampling.biases = {{answer[0], -100}, {answer[3], 100}};
  sampling.banned_tokens = {answer[1], answer[4]};
  sampling.forced_tokens = {answer[2]};
  sampling.max_thinking_tokens = 12;
  sampling.stop_tokens = {answer[5]};
  sampling.stop_strings = {"is Paris", std::string("n\0ver", 5)};
  sampling.log_probs = 3;
  session.SetSampling(sampling);
  CHECK(session.stats().seed == 9);
  CHECK(session.Step().token == answer[2]);
  CHECK(session.log_probs(static_cast<int64_t>(session.tokens().size()) - 1).top.size() == 3);
  session.Rewind(static_cast<int64_t>(session.tokens().size()) - 1);
  session.SetSampling({});
  CHECK(Generate(session) == kAnswer);
  const auto refused = [&](auto set, const char* name) {
    dsv4::Sampling wrong;
    set(wrong);
    REQUIRE_ERROR(session.SetSampling(wrong), DSV4_ERR_INVALID_ARGUMENT, name);
  };
  refused([](dsv4::Sampling& s) { s.temperature = -2; }, "temperature");
  refused([](dsv4::Sampling& s) { s.top_k = -2; }, "top_k");
  refused([](dsv4::Sampling& s) { s.top_p = 2; }, "top_p");
  refused([](dsv4::Sampling& s) { s.min_p = 2; }, "min_p");
  refused([](dsv4::Sampling& s) { s.repetition_penalty = -1; }, "repetition_penalty");
  refused([](dsv4::Sampling& s) { s.presence_penalty = 3; }, "presence_penalty");
  refused([](dsv4::Sampling& s) { s.frequency_penalty = 3; }, "frequency_penalty");
  refused([](dsv4::Sampling& s) { s.max_tokens = -2; }, "max_tokens");
  refused([](dsv4::Sampling& s) { s.max_thinking_tokens = -1; }, "max_thinking_tokens");
  refused([](dsv4::Sampling& s) { s.log_probs = 21; }, "log_probs");
  refused([](dsv4::Sampling& s) { s.draft_tokens = 2; }, "draft_tokens");
}

TEST_CASE("hpp: the seed decides what is sampled, and drafts are counted") {
  dsv4::EngineOptions options;
  options.max_draft_tokens = 3;
  const dsv4::Engine engine = OpenBundled(options);
  dsv4::Sampling sampling;
  sampling.draft_tokens = 3;
  dsv4::Session drafted = Ask(engine, sampling);
  CHECK(Generate(drafted) == kAnswer);
  CHECK(drafted.stats().drafted_tokens > 0);

  const auto first_tokens = [&](uint64_t seed) {
    dsv4::Sampling random;
    random.temperature = 100;
    random.seed = seed;
    dsv4::Session session = Ask(engine, random);
    return std::vector<int32_t>{session.Step().token, session.Step().token};
  };
  CHECK(first_tokens(1) == first_tokens(1));
  CHECK(first_tokens(1) != first_tokens(2));

  dsv4::Sampling unseeded;
  CHECK(Ask(engine, unseeded).stats().seed == 0);
  unseeded.seed = DSV4_SEED_RANDOM;
  const uint64_t drawn = Ask(engine, unseeded).stats().seed;
  CHECK(drawn != DSV4_SEED_RANDOM);
  CHECK(drawn != Ask(engine, unseeded).stats().seed);
}

TEST_CASE("hpp: log-probabilities of steps and prompts") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Sampling sampling;
  sampling.log_probs = 5;
  dsv4::Session session = Ask(engine, sampling);
  const auto position = static_cast<int64_t>(session.tokens().size());
  const dsv4::StepResult step = session.Step();
  const dsv4::LogProbs chosen = session.log_probs(position);
  REQUIRE(chosen.top.size() == 5);
  CHECK(chosen.top[0].token == step.token);
  CHECK(chosen.top[0].log_prob == chosen.log_prob);
  CHECK(chosen.top[1].log_prob <= chosen.top[0].log_prob);
  CHECK(chosen.log_prob <= 0);

  const std::vector<int32_t> tokens(session.tokens().begin(), session.tokens().end());
  session.Sync(tokens, {position, 2});
  session.Prefill();
  const dsv4::LogProbs prompt = session.log_probs(position);
  CHECK(prompt.log_prob == chosen.log_prob);
  CHECK(prompt.top.size() == 2);
  REQUIRE_ERROR(session.log_probs(1), DSV4_ERR_NOT_FOUND, "position 1");
}

// Rounds up, and flushes subnormal numbers to zero.
void SetOddFloatMode() {
  std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  constexpr unsigned kFlush = 0x8040;  // of results and of operands
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | kFlush);
#endif
}

TEST_CASE("hpp: the host's floating-point mode changes no result, and stays as it was") {
  using Steps = std::vector<std::pair<int32_t, float>>;  // tokens and their log-probabilities
  const auto run = [] {
    const dsv4::Engine engine = OpenBundled();
    dsv4::Sampling sampling;
    sampling.log_probs = 1;
    sampling.temperature = 1;
    sampling.seed = 7;
    dsv4::Session session = Ask(engine, sampling);
    Steps steps;
    for (int i = 0; i < 6; ++i) {
      const auto position = static_cast<int64_t>(session.tokens().size());
      const int32_t token = session.Step().token;
      steps.emplace_back(token, session.log_probs(position).log_prob);
    }
    return steps;
  };
  const Steps expected = run();
  std::fenv_t before;
  std::fegetenv(&before);
  SetOddFloatMode();
  const Steps steps = run();
  const int rounding = std::fegetround();
  volatile float least = std::numeric_limits<float>::min();
  const float half = least / 2;
  std::fesetenv(&before);
  CHECK(steps == expected);
  CHECK(rounding == FE_UPWARD);
#if defined(__x86_64__)
  CHECK(half == 0);
#endif
  static_cast<void>(half);
}

TEST_CASE("hpp: allowed tokens are those of the next token; a fork has them too") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Session session = Ask(engine);
  const auto prompt_tokens = static_cast<int64_t>(session.tokens().size());
  dsv4::AllowedTokens allowed(engine.info().vocab_size);
  CHECK(allowed.allows(777));
  allowed.ForbidAll();
  CHECK_FALSE(allowed.allows(777));
  allowed.Allow(777);
  allowed.Allow(778);
  allowed.Forbid(778);
  session.SetAllowed(allowed);
  dsv4::Session fork = session.Fork();
  CHECK(session.Step().token == 777);
  CHECK(fork.Step().token == 777);
  CHECK(fork.Step().token != 777);
  REQUIRE_ERROR(session.SetAllowed(dsv4::AllowedTokens(32)), DSV4_ERR_INVALID_ARGUMENT, "count");

  // Of several sessions the one that may choose no token alone fails, and continues later.
  allowed.ForbidAll();
  session.SetAllowed(allowed);
  dsv4::Session other = Ask(engine);
  other.Prefill();
  const std::vector<dsv4::StepOutcome> outcomes = dsv4::StepAll(engine, {&session, &other});
  REQUIRE(outcomes.size() == 2);
  REQUIRE(outcomes[0].failure != nullptr);
  REQUIRE_ERROR(std::rethrow_exception(outcomes[0].failure), DSV4_ERR_INVALID_ARGUMENT, "token");
  CHECK(outcomes[1].failure == nullptr);
  CHECK(outcomes[1].result.token == engine.tokenizer().Encode(kAnswer)[0]);
  session.SetAllowed({});
  CHECK(session.Step().token >= 0);
  session.Rewind(prompt_tokens);
  CHECK(Generate(session) == kAnswer);
}

TEST_CASE("hpp: several sessions are stepped at once") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Session first = Ask(engine), second = Ask(engine);
  std::string texts[2];
  bool continues = true;
  while (continues) {
    const std::vector<dsv4::StepOutcome> outcomes = dsv4::StepAll(engine, {&first, &second});
    for (size_t i = 0; i < 2; ++i) texts[i] += outcomes[i].result.text;
    continues = outcomes[0].result.finish == DSV4_FINISH_NONE;
  }
  CHECK(texts[0] == kAnswer);
  CHECK(texts[1] == kAnswer);
  REQUIRE_ERROR(dsv4::StepAll(engine, {&first, &first}), DSV4_ERR_INVALID_ARGUMENT, "sessions[1]");
  REQUIRE_ERROR(dsv4::StepAll(engine, {&first, nullptr}), DSV4_ERR_INVALID_ARGUMENT, "sessions[1]");
  CHECK(dsv4::StepAll(engine, {}).empty());
  // The one that is empty fails alone.
  dsv4::Session empty(engine);
  first.Rewind(5);
  const std::vector<dsv4::StepOutcome> outcomes = dsv4::StepAll(engine, {&first, &empty});
  CHECK(outcomes[0].failure == nullptr);
  REQUIRE_ERROR(std::rethrow_exception(outcomes[1].failure), DSV4_ERR_INVALID_ARGUMENT, "");
}

TEST_CASE("hpp: a stopped step continues later") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Session session = Ask(engine);
  session.Prefill();
  session.Stop();
  REQUIRE_ERROR(session.Step(), DSV4_ERR_CANCELLED, "");
  session.Resume();
  CHECK(Generate(session) == kAnswer);
}

TEST_CASE("hpp: sessions are saved and loaded") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Session session = Ask(engine);
  std::string first = session.Step().text;
  first += session.Step().text;

  const std::vector<uint8_t> image = session.SaveMemory();
  dsv4::Session from_memory(engine);
  from_memory.LoadMemory(image);
  CHECK(first + Generate(from_memory) == kAnswer);
  REQUIRE_ERROR(from_memory.LoadMemory({image.data(), image.size() / 2}), DSV4_ERR_CORRUPT, "");

  char path[] = "/tmp/dsv4_hpp_XXXXXX";
  const int descriptor = mkstemp(path);
  REQUIRE(descriptor >= 0);
  close(descriptor);
  std::vector<dsv4_progress_phase> phases;
  const dsv4::Progress note = [&](const dsv4::ProgressReport& report) {
    phases.push_back(report.phase);
    return true;
  };
  const dsv4::Progress surprise = [](const dsv4::ProgressReport&) -> bool { throw Surprise{2}; };
  session.Save(path, note);
  CHECK_THROWS_AS(session.Save(path, surprise), Surprise);
  dsv4::Session from_file(engine);
  CHECK_THROWS_AS(from_file.Load(path, surprise), Surprise);
  CHECK(from_file.tokens().empty());
  from_file.Load(path, note);
  CHECK(phases.front() == DSV4_PROGRESS_SAVE);
  CHECK(phases.back() == DSV4_PROGRESS_RESTORE);
  CHECK(first + Generate(from_file) == kAnswer);
  std::remove(path);
  REQUIRE_ERROR(from_file.Load(path), DSV4_ERR_NOT_FOUND, path);
}

}  // namespace
