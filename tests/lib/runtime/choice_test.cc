// SPDX-License-Identifier: Apache-2.0
// What a session makes of its sampling parameters, with drafts and without.
#include <cmath>

#include "tests/lib/runtime/recorded_run.h"
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

// Even tokens alone, in the thread that steps.
struct EvenTokens {
  int64_t prompt_tokens = 0;
  std::thread::id thread;
  int calls = 0;
  bool refuse = false, wrong = false;

  static bool Allow(void* user, absl::Span<const int32_t> timeline, int64_t prompt_tokens,
                    absl::Span<uint32_t> allowed) {
    EvenTokens& self = *static_cast<EvenTokens*>(user);
    ++self.calls;
    self.wrong |= std::this_thread::get_id() != self.thread || prompt_tokens != self.prompt_tokens;
    for (size_t i = static_cast<size_t>(prompt_tokens); i < timeline.size(); ++i) {
      self.wrong |= timeline[i] % 2 != 0;
    }
    for (uint32_t& word : allowed) word &= 0x55555555;
    return !self.refuse;
  }
};

TEST_CASE("a mask holds for every token, in the thread of the call, and drafts obey it",
          "[threads]") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  std::vector<std::vector<int32_t>> expected;
  for (const int32_t drafts : {0, 3}) {
    CAPTURE(drafts);
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<EvenTokens> masks(3);
    std::vector<std::vector<int32_t>> tokens(3);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; ++i) {
      sessions.push_back(OpenColdSession(engine, {.draft_tokens = drafts}));
      const std::vector<int32_t> prompt = AnyTokens(50 + static_cast<int64_t>(i), 8);
      masks[i].prompt_tokens = static_cast<int64_t>(prompt.size());
      sessions[i]->SetTokenMask({.fn = EvenTokens::Allow, .user = &masks[i]});
      REQUIRE_OK(sessions[i]->Sync(prompt));
    }
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        masks[i].thread = std::this_thread::get_id();
        for (int step = 0; step < 20; ++step) {
          const absl::StatusOr<StepResult> result = sessions[i]->Step();
          if (!result.ok()) return;
          tokens[i].push_back(result->token);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      REQUIRE(tokens[i].size() == 20);
      REQUIRE_FALSE(masks[i].wrong);
      REQUIRE(masks[i].calls >= 20);
      for (const int32_t token : tokens[i]) REQUIRE(token % 2 == 0);
    }
    if (expected.empty()) expected = tokens;
    REQUIRE(tokens == expected);
    // A callback that refuses fails the step and changes nothing.
    masks[0].refuse = true;
    masks[0].thread = std::this_thread::get_id();
    // What is ahead was allowed.
    while (sessions[0]->timeline().ahead() > 0) REQUIRE_OK(sessions[0]->Step());
    const size_t before = sessions[0]->tokens().size();
    REQUIRE_FAILS(sessions[0]->Step(), absl::StatusCode::kCancelled, "mask");
    REQUIRE(sessions[0]->tokens().size() == before);
    masks[0].refuse = false;
    REQUIRE_OK(sessions[0]->Step());
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

bool AllowAll(void*, absl::Span<const int32_t>, int64_t, absl::Span<uint32_t>) { return true; }

// A mask that is asked for every token has all logits looked at; without it, a device that lists
// candidates need not show more of them.
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
  for (SamplingParams sampling : kinds) {
    for (const int32_t drafts : {0, 3}) {
      CAPTURE(sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, drafts);
      sampling.seed = 5;
      sampling.draft_tokens = drafts;
      sampling.banned_tokens = drafts > 0 ? engine->eos_tokens() : std::vector<int32_t>();
      std::vector<std::vector<int32_t>> tokens;
      for (const bool masked : {false, true}) {
        const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
        if (masked) session->SetTokenMask({.fn = AllowAll, .user = nullptr});
        REQUIRE_OK(session->Sync(AnyTokens(60, 3)));
        tokens.push_back(Speak(*session, 40).tokens);
      }
      REQUIRE(tokens[0] == tokens[1]);
    }
  }
}

}  // namespace
}  // namespace dsv4
