// SPDX-License-Identifier: Apache-2.0
#include "lib/session/session.h"

#include <set>
#include <thread>

#include "lib/base/error.h"
#include "lib/text/chat_encoder.h"
#include "tests/support/bundled_model.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::OpenBundled;
using test::OpenSession;

std::vector<int32_t> Prompt(const Engine& engine, const std::string& user) {
  const ChatMessage message{.role = "user", .content = user, .reasoning_content = ""};
  return RenderChat(**engine.tokenizer(), {&message, 1}, ThinkingMode::kChat).value();
}

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  Finish finish = Finish::kNone;
};

Answer Run(Session& session, int limit = 200) {
  Answer answer;
  while (answer.finish == Finish::kNone && limit-- > 0) {
    absl::StatusOr<StepResult> step = session.Step();
    REQUIRE_OK(step);
    REQUIRE(step->text.data()[step->text.size()] == '\0');
    answer.text += std::string(step->text);
    answer.tokens.push_back(step->token);
    answer.finish = step->finish;
  }
  return answer;
}

// gates.json, "facts-0": the answer of the training code's own greedy decoding.
TEST_CASE("the bundled model answers with the tokens of its gates on every backend") {
  for (const Backend backend : {Backend::kCpu, Backend::kReference}) {
    const std::shared_ptr<Engine> engine = OpenBundled({.backend = backend, .threads = 2});
    const std::unique_ptr<Session> session = OpenSession(engine, Session::DefaultSampling(*engine));
    REQUIRE_OK(session->Sync(Prompt(*engine, "Do you know the capital of Russia?")));
    const Answer answer = Run(*session);
    REQUIRE(answer.text == "The capital of Russia is Moscow.");
    REQUIRE(answer.tokens ==
            std::vector<int32_t>{278, 581, 299, 1866, 280, 672, 820, 69, 301, 16, 1});
    REQUIRE(answer.finish == Finish::kStop);
  }
}

TEST_CASE("a seed fixes the text, whatever runs concurrently; another seed changes it") {
  const std::shared_ptr<Engine> engine = OpenBundled({.threads = 2});
  const std::vector<int32_t> prompt = AnyTokens(30, 1);
  const auto sample = [&](uint64_t seed) {
    const std::unique_ptr<Session> session = OpenSession(
        engine,
        {.temperature = 1.5f, .top_k = 200, .top_p = 0.98f, .seed = seed, .max_tokens = 30});
    REQUIRE_OK(session->Sync(prompt));
    return Run(*session).tokens;
  };
  const std::vector<int32_t> alone = sample(7);
  REQUIRE(sample(7) == alone);
  REQUIRE(sample(8) != alone);
  std::vector<std::vector<int32_t>> together(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(
          engine, {.temperature = 1.5f, .top_k = 200, .top_p = 0.98f, .seed = 7, .max_tokens = 30});
      if (!session.ok() || !(*session)->Sync(prompt).ok()) return;
      for (int step = 0; step < 30; ++step) {
        const absl::StatusOr<StepResult> result = (*session)->Step();
        if (!result.ok()) return;
        together[i].push_back(result->token);
        if (result->finish != Finish::kNone) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<int32_t>& tokens : together) REQUIRE(tokens == alone);
}

TEST_CASE("max_tokens ends an answer, and the statistics count it") {
  const std::shared_ptr<Engine> engine = OpenBundled({.threads = 1});
  const std::unique_ptr<Session> session = OpenSession(engine, {.max_tokens = 3});
  REQUIRE_OK(session->Sync(Prompt(*engine, "Do you know the capital of Russia?")));
  const Answer answer = Run(*session);
  REQUIRE(answer.tokens == std::vector<int32_t>{278, 581, 299});
  REQUIRE(answer.finish == Finish::kLength);
  const SessionStats stats = session->stats();
  REQUIRE(stats.prompt_tokens == 12);
  REQUIRE(stats.cached_tokens == 0);
  REQUIRE(stats.prefilled_tokens == 12);
  REQUIRE(stats.generated_tokens == 3);
  REQUIRE(stats.used_tokens == 15);
  REQUIRE(stats.prefill_seconds > 0);
  REQUIRE(stats.decode_seconds > 0);
}

TEST_CASE("the context is a limit for prompts and for answers") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 100, .threads = 1});
  const std::unique_ptr<Session> session = OpenSession(engine);
  REQUIRE_FAILS(session->Sync(AnyTokens(101, 1)), absl::StatusCode::kOutOfRange,
                "101 tokens; the context holds 100");
  REQUIRE_OK(session->Sync(AnyTokens(98, 1)));
  const Answer answer = Run(*session);
  REQUIRE(answer.tokens.size() == 2);
  REQUIRE(answer.finish == Finish::kContextFull);
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kOutOfRange, "100 tokens");
  REQUIRE_OK(session->Sync(AnyTokens(100, 1)));
  REQUIRE_OK(session->Prefill(0, nullptr));
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kOutOfRange, "100 tokens");
}

TEST_CASE("wrong calls fail by name and change nothing") {
  const std::shared_ptr<Engine> engine = OpenBundled({.threads = 1});
  const std::unique_ptr<Session> session = OpenSession(engine);
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kInvalidArgument, "empty");
  REQUIRE_FAILS(session->Sync({}), absl::StatusCode::kInvalidArgument, "empty");
  const std::vector<int32_t> prompt = AnyTokens(20, 1);
  REQUIRE_OK(session->Sync(prompt));
  std::vector<int32_t> wrong = prompt;
  wrong[4] = 2048;
  REQUIRE_FAILS(session->Sync(wrong), absl::StatusCode::kInvalidArgument, "token 4 is 2048");
  wrong[4] = -1;
  REQUIRE_FAILS(session->Sync(wrong), absl::StatusCode::kInvalidArgument, "token 4 is -1");
  REQUIRE_FAILS(session->Prefill(-1, nullptr), absl::StatusCode::kInvalidArgument, "-1");
  REQUIRE_FAILS(session->SetSampling({.temperature = -1}), absl::StatusCode::kInvalidArgument,
                "temperature");
  REQUIRE(std::vector<int32_t>(session->tokens().begin(), session->tokens().end()) == prompt);
}

TEST_CASE("a cancelled prefill leaves a session that continues to the same answer") {
  const std::shared_ptr<Engine> engine = OpenBundled({.prefill_chunk_tokens = 50, .threads = 1});
  const std::vector<int32_t> prompt = AnyTokens(220, 2);
  const std::unique_ptr<Session> straight = OpenSession(engine, {.max_tokens = 10});
  REQUIRE_OK(straight->Sync(prompt));
  const std::unique_ptr<Session> session = OpenSession(engine, {.max_tokens = 10});
  REQUIRE_OK(session->Sync(prompt));
  std::vector<int64_t> seen;
  const Session::Progress cancel_at_100 = [&](int64_t done, int64_t total) {
    REQUIRE(total == 220);
    seen.push_back(done);
    return done < 100;
  };
  REQUIRE_FAILS(session->Prefill(0, cancel_at_100), absl::StatusCode::kCancelled,
                "120 tokens left");
  REQUIRE(seen == std::vector<int64_t>{50, 100});
  REQUIRE(Run(*session).tokens == Run(*straight).tokens);
}

TEST_CASE("a full pool is the error of the session that asked; the others continue") {
  const std::shared_ptr<Engine> engine =
      OpenBundled({.cache_tokens = 512, .max_sessions = 2, .threads = 1});
  const std::unique_ptr<Session> first = OpenSession(engine), second = OpenSession(engine);
  REQUIRE_FAILS(Session::Open(engine, {}), OutOfBlocks().code(), "2 sessions");
  REQUIRE_OK(first->Sync(AnyTokens(700, 1)));
  REQUIRE_OK(first->Prefill(0, nullptr));
  REQUIRE_OK(second->Sync(AnyTokens(600, 2)));
  REQUIRE_FAILS(second->Prefill(0, nullptr), OutOfBlocks().code(), "compressed-row blocks");
  REQUIRE_OK(first->Step());
  REQUIRE_OK(second->Sync(AnyTokens(200, 2)));
  REQUIRE_OK(second->Step());
}

}  // namespace
}  // namespace dsv4
