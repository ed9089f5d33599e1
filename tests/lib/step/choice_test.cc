// SPDX-License-Identifier: Apache-2.0
// What a session makes of its sampling parameters, with drafts and without.
#include <cmath>

#include "tests/lib/session/recorded_run.h"
#include "tests/support/sanitized.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::ChatPrompt;
using test::OpenBundled;
using test::OpenColdSession;
using test::RecordedRun;
using test::RunAlone;
using test::RunTogether;

std::shared_ptr<Engine> OpenEngine() {
  return OpenBundled({.context_tokens = 1024,
                      .cache_tokens = 8192,
                      .max_sessions = 4,
                      .prefill_chunk_tokens = 64,
                      .threads = 2,
                      .max_draft_tokens = 3});
}

const char* const kQuestion = "Do you know the capital of Russia?";
const char* const kAnswer = "The capital of Russia is Moscow.";

struct Spoken {
  std::vector<int32_t> tokens;
  std::string text;
  Finish finish = Finish::kNone;
};

Spoken Speak(Session& session, int limit = 100) {
  Spoken spoken;
  while (spoken.finish == Finish::kNone && limit-- > 0) {
    const StepResult step = session.Step().value();
    spoken.tokens.push_back(step.token);
    spoken.text += std::string(step.text);
    spoken.finish = step.finish;
  }
  return spoken;
}

TEST_CASE("stop strings end the text before them, stop tokens with them") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const std::vector<int32_t> prompt = ChatPrompt(*engine, kQuestion);
  for (const int32_t drafts : {0, 3}) {
    CAPTURE(drafts);
    const auto speak = [&](SamplingParams sampling) {
      sampling.draft_tokens = drafts;
      const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
      REQUIRE_OK(session->Sync(prompt));
      return Speak(*session);
    };
    const Spoken whole = speak({});
    REQUIRE(whole.text == kAnswer);
    const Spoken stopped = speak({.stop_strings = {"Paris", " Mos", "Moscow!"}});
    REQUIRE(stopped.text == "The capital of Russia is");
    REQUIRE(stopped.finish == Finish::kStop);
    // Text that might have begun a stop string comes when it has not.
    const Spoken held = speak({.stop_strings = {"Moscow!", "capitals"}});
    REQUIRE(held.text == kAnswer);
    REQUIRE(held.tokens == whole.tokens);
    const Spoken token = speak({.stop_tokens = {whole.tokens[4]}});
    REQUIRE(token.finish == Finish::kStop);
    REQUIRE(token.tokens == std::vector<int32_t>(whole.tokens.begin(), whole.tokens.begin() + 5));
  }
}

TEST_CASE("a session continues after a stop string as if it had not stopped") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  for (const int32_t drafts : {0, 3}) {
    const std::unique_ptr<Session> session =
        OpenColdSession(engine, {.stop_strings = {"Russia"}, .draft_tokens = drafts});
    REQUIRE_OK(session->Sync(ChatPrompt(*engine, kQuestion)));
    REQUIRE(Speak(*session).text == "The capital of ");
    REQUIRE(session->timeline().ahead() == 0);
    REQUIRE(Speak(*session).text == " is Moscow.");
  }
}

double LogSumExp(const std::vector<float>& logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  return top + std::log(sum);
}

TEST_CASE("log-probabilities of generated tokens are those of their logits") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  for (const int32_t drafts : {0, 3}) {
    // Penalties and the temperature must not show.
    const std::unique_ptr<Session> session = OpenColdSession(
        engine,
        {.temperature = 0.7f, .frequency_penalty = 1, .log_probs = 5, .draft_tokens = drafts});
    RecordedRun run;
    test::RecordTo(*session, &run);
    REQUIRE_OK(session->Sync(AnyTokens(70, 1)));
    for (int64_t position = 70; position < 90; ++position) {
      CAPTURE(drafts, position);
      const StepResult step = session->Step().value();
      const std::vector<float>& logits = run.logits.at(position);
      const double mass = LogSumExp(logits);
      REQUIRE(step.log_probs != nullptr);
      REQUIRE(step.log_probs->log_prob == Approx(logits[step.token] - mass).margin(1e-5));
      const absl::Span<const TokenLogProb> top = step.log_probs->most_likely();
      REQUIRE(top.size() == 5);
      std::vector<float> sorted = logits;
      std::sort(sorted.rbegin(), sorted.rend());
      sorted.resize(5);
      std::vector<float> top_logits, log_probs;
      std::vector<double> expected;
      for (size_t i = 0; i < 5; ++i) {
        top_logits.push_back(logits[top[i].token]);
        log_probs.push_back(top[i].log_prob);
        expected.push_back(sorted[i] - mass);
      }
      REQUIRE(test::FarElements(top_logits, sorted) == "");
      REQUIRE(test::FarElements(log_probs, expected, {.absolute = 1e-5}) == "");
    }
    REQUIRE_OK(session->SetSampling({}));
    REQUIRE(session->Step().value().log_probs == nullptr);
  }
}

TEST_CASE("log-probabilities of a prompt are those of computing its beginnings") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const std::vector<int32_t> prompt = AnyTokens(200, 6);
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(prompt));
  REQUIRE_OK(session->Prefill(0, nullptr));
  REQUIRE(session->prompt_log_probs().empty());
  for (const int64_t begin : {1, 130}) {
    // Rows that could be reused are computed again for it.
    const SyncOptions options{.log_probs = {.begin = begin, .count = 2}};
    REQUIRE(session->Sync(prompt, options).value().reused_tokens < begin);
    REQUIRE_OK(session->Step());
    const absl::Span<const PositionLogProbs> found = session->prompt_log_probs();
    REQUIRE(static_cast<int64_t>(found.size()) == 200 - begin);
    for (const int64_t position : {1, 2, 64, 65, 130, 198, 199}) {
      if (position < begin) continue;
      CAPTURE(begin, position);
      const std::vector<float> logits =
          test::LogitsAfter(engine, {prompt.begin(), prompt.begin() + position});
      const PositionLogProbs& at = found[static_cast<size_t>(position - begin)];
      REQUIRE(at.log_prob == Approx(logits[prompt[position]] - LogSumExp(logits)).margin(1e-5));
      const auto top = std::max_element(logits.begin(), logits.end());
      REQUIRE(at.most_likely().size() == 2);
      REQUIRE(at.most_likely()[0].token == top - logits.begin());
    }
  }
  REQUIRE_FAILS(session->Sync(prompt, {.log_probs = {.begin = 201}}),
                absl::StatusCode::kInvalidArgument, "log_probs_begin is 201");
  REQUIRE_FAILS(session->Sync(prompt, {.log_probs = {.begin = 1, .count = 21}}),
                absl::StatusCode::kInvalidArgument, "log_probs_count is 21");
}

TEST_CASE("reasoning ends with its budget") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const Tokenizer& tokenizer = **engine->tokenizer();
  const int32_t end = tokenizer.FindAddedToken("</think>").value();
  const std::vector<int32_t> prompt =
      ChatPrompt(*engine, "What is 3 plus 4?", ThinkingMode::kThinking);
  REQUIRE(prompt.back() == tokenizer.FindAddedToken("<think>").value());
  std::vector<std::vector<int32_t>> spoken;
  for (const int32_t drafts : {0, 3}) {
    const std::unique_ptr<Session> session =
        OpenColdSession(engine, {.max_thinking_tokens = 3, .draft_tokens = drafts});
    REQUIRE_OK(session->Sync(prompt));
    spoken.push_back(Speak(*session).tokens);
    REQUIRE(spoken.back()[3] == end);
    REQUIRE(std::count(spoken.back().begin(), spoken.back().end(), end) == 1);
    // Back within the reasoning, the budget is what it was there.
    REQUIRE_OK(session->Rewind(static_cast<int64_t>(prompt.size()) + 2));
    REQUIRE(Speak(*session).tokens ==
            std::vector<int32_t>(spoken.back().begin() + 2, spoken.back().end()));
  }
  REQUIRE(spoken[0] == spoken[1]);
}

TEST_CASE("allowed tokens hold for the next token alone, also where drafts lie ahead") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const size_t words = static_cast<size_t>(TokenMaskWords(engine->config().vocab_size));
  const std::vector<uint32_t> even(words, 0x55555555);
  std::vector<std::vector<int32_t>> expected;
  for (const int32_t drafts : {0, 3}) {
    CAPTURE(drafts);
    std::vector<std::vector<int32_t>> tokens;
    for (const bool restrict_all : {true, false}) {
      const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = drafts});
      REQUIRE_OK(session->Sync(AnyTokens(50, 8)));
      std::vector<int32_t>& said = tokens.emplace_back();
      for (int step = 0; step < 20; ++step) {
        const bool restricted = restrict_all || step % 4 == 3;
        if (restricted) REQUIRE_OK(session->SetAllowed(even));
        const absl::StatusOr<StepResult> result = session->Step();
        REQUIRE_OK(result);
        if (restricted) REQUIRE(result->token % 2 == 0);
        said.push_back(result->token);
      }
      // What leaves no token fails the step, stays, and changes nothing.
      REQUIRE_OK(session->SetAllowed(std::vector<uint32_t>(words)));
      const size_t before = session->tokens().size();
      for (int i = 0; i < 2; ++i) {
        REQUIRE_FAILS(session->Step(), absl::StatusCode::kInvalidArgument, "token");
        REQUIRE(session->tokens().size() == before);
      }
      REQUIRE_OK(session->SetAllowed({}));
      REQUIRE_OK(session->Step());
    }
    if (expected.empty()) expected = tokens;
    REQUIRE(tokens == expected);
  }
}

TEST_CASE("sampled tokens do not depend on concurrent work or drafts; a fork continues alike",
          "[threads]") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  for (const int32_t drafts : {0, 3}) {
    if (test::kSanitized && drafts == 0) continue;
    CAPTURE(drafts);
    const SamplingParams sampling{.temperature = 0.8f,
                                  .top_p = 0.95f,
                                  .seed = 11,
                                  .repetition_penalty = 1.1f,
                                  .banned_tokens = engine->eos_tokens(),
                                  .draft_tokens = drafts};
    std::vector<std::vector<int32_t>> prompts;
    std::vector<RecordedRun> alone;
    for (uint32_t i = 0; i < 4; ++i) {
      prompts.push_back(AnyTokens(20 + 50 * i, i));
      alone.push_back(RunAlone(engine, prompts.back(), 30, sampling));
    }
    const std::vector<RecordedRun> together = RunTogether(engine, prompts, 30, sampling);
    for (size_t i = 0; i < 4; ++i) REQUIRE((together[i] == alone[i]));
    for (int steps = 5; steps < 9; ++steps) {
      const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
      REQUIRE_OK(session->Sync(prompts[1]));
      for (int i = 0; i < steps; ++i) REQUIRE_OK(session->Step());
      const std::unique_ptr<Session> fork = session->Fork().value();
      REQUIRE_OK(session->Step());
      for (int i = steps; i < 30; ++i) {
        REQUIRE(fork->Step().value().token == alone[1].tokens[static_cast<size_t>(i)]);
      }
    }
  }
}

// With a set of allowed tokens all logits are looked at; without it, a device that lists candidates
// need not show more of them.
TEST_CASE("tokens are the same from candidates and from all logits") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const SamplingParams kinds[] = {{},
                                  {.temperature = 1},
                                  {.temperature = 1.5f, .top_k = 40},
                                  {.temperature = 1, .top_k = 5, .top_p = 0.8f},
                                  {.temperature = 1, .top_p = 0.95f},
                                  {.temperature = 2, .top_p = 0.6f, .min_p = 0.05f},
                                  {.temperature = 0.7f, .min_p = 0.1f},
                                  {.temperature = 5, .top_p = 0.99f}};
  const std::vector<uint32_t> all(static_cast<size_t>(TokenMaskWords(engine->config().vocab_size)),
                                  ~uint32_t{0});
  for (SamplingParams sampling : kinds) {
    for (const int32_t drafts : {0, 3}) {
      CAPTURE(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, drafts);
      sampling.seed = 5;
      sampling.draft_tokens = drafts;
      sampling.banned_tokens = drafts > 0 ? engine->eos_tokens() : std::vector<int32_t>();
      std::vector<std::vector<int32_t>> tokens;
      for (const bool masked : {false, true}) {
        const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
        REQUIRE_OK(session->Sync(AnyTokens(60, 3)));
        std::vector<int32_t>& said = tokens.emplace_back();
        for (int step = 0; step < 40; ++step) {
          if (masked) REQUIRE_OK(session->SetAllowed(all));
          const absl::StatusOr<StepResult> result = session->Step();
          REQUIRE_OK(result);
          said.push_back(result->token);
          if (result->finish != Finish::kNone) break;
        }
      }
      REQUIRE(tokens[0] == tokens[1]);
    }
  }
}

}  // namespace
}  // namespace dsv4
