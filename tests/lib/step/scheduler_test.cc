// SPDX-License-Identifier: Apache-2.0
#include "lib/step/scheduler.h"

#include <future>

#include "tests/lib/session/recorded_run.h"
#include "tests/support/sanitized.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::OpenBundled;
using test::OpenColdSession;
using test::RecordedRun;
using test::RunAlone;
using test::RunTogether;

EngineOptions Options(int32_t threads = 2) {
  return {.context_tokens = 1024,
          .cache_tokens = 8192,
          .max_sessions = 7,
          .prefill_chunk_tokens = 64,
          .threads = threads,
          .max_draft_tokens = 3};
}

// Short prompts decode while long ones are computed.
std::vector<std::vector<int32_t>> MixedPrompts(size_t count) {
  const int64_t lengths[] = {5, 200, 1, 130, 64, 333};
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < count; ++i) {
    prompts.push_back(AnyTokens(lengths[i], 30 + static_cast<uint32_t>(i)));
  }
  return prompts;
}

TEST_CASE("calls that come together give the tokens and logits of each alone") {
  const std::vector<std::vector<int32_t>> prompts = MixedPrompts(6);
  std::vector<RecordedRun> alone;
  const std::shared_ptr<Engine> one = OpenBundled(Options(1));
  for (const std::vector<int32_t>& prompt : prompts) alone.push_back(RunAlone(one, prompt, 20));
  for (const int32_t threads : {1, 2, 3}) {
    const std::shared_ptr<Engine> engine = OpenBundled(Options(threads));
    for (const size_t concurrency : {1, 2, 4, 6}) {
      if (test::kSanitized && (threads == 1 || concurrency < 6)) continue;
      CAPTURE(threads, concurrency);
      const std::vector<RecordedRun> runs =
          RunTogether(engine, {prompts.begin(), prompts.begin() + concurrency}, 20);
      for (size_t i = 0; i < concurrency; ++i) REQUIRE((runs[i] == alone[i]));
    }
  }
}

struct Sessions {
  Sessions(const std::shared_ptr<Engine>& engine, const std::vector<std::vector<int32_t>>& prompts,
           const SamplingParams& sampling = {}) {
    for (const std::vector<int32_t>& prompt : prompts) {
      owned.push_back(OpenColdSession(engine, sampling));
      REQUIRE_OK(owned.back()->Sync(prompt));
      all.push_back(owned.back().get());
    }
    results.resize(all.size(), StepResult{});
  }
  std::vector<std::unique_ptr<Session>> owned;
  std::vector<Session*> all;
  std::vector<absl::StatusOr<StepResult>> results;
};

TEST_CASE("one thread steps many sessions, each as alone") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<std::vector<int32_t>> prompts = MixedPrompts(6);
  for (const int32_t drafts : {0, 3}) {
    if (test::kSanitized && drafts == 0) continue;
    CAPTURE(drafts);
    const SamplingParams sampling{.banned_tokens = engine->eos_tokens(), .draft_tokens = drafts};
    Sessions sessions(engine, prompts, sampling);
    std::vector<RecordedRun> runs(6);
    for (size_t i = 0; i < 6; ++i) test::RecordTo(*sessions.all[i], &runs[i]);
    for (int call = 0; call < 60; ++call) {
      REQUIRE_OK(Session::StepAll(sessions.all, absl::MakeSpan(sessions.results)));
      for (size_t i = 0; i < 6; ++i) {
        REQUIRE_OK(sessions.results[i]);
        const int32_t token = sessions.results[i]->token;
        if (token >= 0 && runs[i].tokens.size() < 20) runs[i].tokens.push_back(token);
      }
    }
    const SamplingParams plain{.banned_tokens = engine->eos_tokens()};
    for (size_t i = 0; i < 6; ++i) {
      CAPTURE(i);
      runs[i].logits.erase(runs[i].logits.lower_bound(static_cast<int64_t>(prompts[i].size()) + 20),
                           runs[i].logits.end());
      REQUIRE((runs[i] == RunAlone(engine, prompts[i], 20, plain)));
    }
  }
}

TEST_CASE("a list of sessions that cannot be stepped is refused") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options()), other = OpenBundled(Options());
  Sessions sessions(engine, MixedPrompts(2)), foreign(other, MixedPrompts(1));
  Session* const a = sessions.all[0];
  const auto step = [&](std::vector<Session*> list) {
    return Session::StepAll(list, absl::MakeSpan(sessions.results));
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  REQUIRE_FAILS(step({a}), kInvalid, "1 sessions, but 2 results");
  REQUIRE_FAILS(step({a, a}), kInvalid, "sessions[1] is named twice");
  REQUIRE_FAILS(step({a, nullptr}), kInvalid, "sessions[1] is null");
  REQUIRE_FAILS(step({a, foreign.all[0]}), kInvalid, "another engine");
  REQUIRE_OK(step({sessions.all[1], a}));
}

// Time that only the test lets pass.
struct ScriptedClock {
  explicit ScriptedClock(Engine& engine) : engine(engine) {
    engine.scheduler().set_clock([this] { return now; });
  }
  ~ScriptedClock() { engine.scheduler().set_clock(&std::chrono::steady_clock::now); }
  Engine& engine;
  std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now();
};

TEST_CASE("long prompts share a step fairly and do not delay sessions that decode") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const ScriptedClock clock(*engine);
  const SamplingParams sampling{.banned_tokens = engine->eos_tokens()};
  Sessions sessions(engine, {AnyTokens(3, 1), AnyTokens(700, 2), AnyTokens(650, 3)}, sampling);
  REQUIRE_OK(sessions.all[0]->Prefill(0, nullptr));
  REQUIRE_OK(sessions.all[0]->Step());
  int64_t left[] = {700, 650};
  for (int call = 0; call < 20; ++call) {
    REQUIRE_OK(Session::StepAll(sessions.all, absl::MakeSpan(sessions.results)));
    REQUIRE(sessions.results[0]->token >= 0);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(sessions.results[i + 1]->token == -1);
      // 64 rows for two.
      left[i] -= 32;
      REQUIRE(sessions.owned[i + 1]->timeline().pending() == left[i]);
    }
  }
}

// The layers that ran, one entry per layer of each forward pass, and what to do as one begins.
struct LayerWatch {
  explicit LayerWatch(Engine& engine, std::function<void(int64_t layer)> begins)
      : engine(engine),
        tap([this, begins](int64_t layer, absl::string_view, const void*, DType, int64_t rows,
                           int64_t) {
          if (!layers.empty() && layers.back().first == layer && layers.back().second == rows) {
            return;
          }
          layers.emplace_back(layer, rows);
          begins(layer);
        }) {
    engine.model().set_tap(&tap);
  }
  ~LayerWatch() { engine.model().set_tap(nullptr); }
  Engine& engine;
  std::vector<std::pair<int64_t, int64_t>> layers;  // and their rows
  Tap tap;
};

// A machine that takes 2 ms for each row of a forward pass.
struct SlowMachine {
  explicit SlowMachine(Engine& engine)
      : clock(engine), watch(engine, [this](int64_t layer) {
          if (layer != 0) return;
          rows = watch.layers.back().second;
          clock.now += rows * std::chrono::milliseconds(2);
        }) {}
  ScriptedClock clock;
  int64_t rows = 0;  // of the last pass
  LayerWatch watch;
};

TEST_CASE("a session that decodes gets a token every 100 ms beside a long prompt") {
  EngineOptions options = Options();
  options.prefill_chunk_tokens = 256;
  const std::shared_ptr<Engine> engine = OpenBundled(options);
  const SamplingParams sampling{.banned_tokens = engine->eos_tokens(), .draft_tokens = 3};
  const std::vector<int32_t> prompts[] = {AnyTokens(3, 1), AnyTokens(900, 2)};
  const RecordedRun alone[] = {RunAlone(engine, prompts[0], 100, sampling),
                               RunAlone(engine, prompts[1], 3, sampling)};
  // The drafts of the session that decodes are right, so that three of four calls deliver a token
  // that was chosen before, or it has none.
  const auto continuation = [&](absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts) {
    for (size_t i = 0; i < drafts.size(); ++i) {
      drafts[i] = alone[0].tokens.at(timeline.size() - prompts[0].size() + i);
    }
    return drafts.size();
  };
  for (const int32_t drafts : {0, 3}) {
    CAPTURE(drafts);
    // That has not seen the time that the other machine came to.
    const std::shared_ptr<Engine> fresh = OpenBundled(options);
    SlowMachine machine(*fresh);
    Sessions sessions(fresh, {prompts[0], prompts[1]}, sampling);
    Session* const reader = sessions.all[1];
    RecordedRun run;
    test::RecordTo(*reader, &run);
    machine.clock.now += std::chrono::seconds(1);
    // Nobody decodes: all 256 tokens at once, which say how slow this machine is.
    REQUIRE_OK(Session::StepAll({reader}, absl::MakeSpan(&sessions.results[1], 1)));
    CHECK(machine.rows == 256);
    REQUIRE_OK(sessions.all[0]->Step());
    int calls = 0, passes_of_prompt = 0;
    for (; reader->timeline().pending() > 1; ++calls) {
      CAPTURE(calls);
      REQUIRE(calls < 90);
      if (sessions.all[0]->timeline().ahead() == 0) {
        test::PlantDrafts(*sessions.all[0], drafts, continuation);
      }
      const auto begin = machine.clock.now;
      REQUIRE_OK(Session::StepAll(sessions.all, absl::MakeSpan(sessions.results)));
      REQUIRE(sessions.results[0]->token == alone[0].tokens[static_cast<size_t>(calls) + 1]);
      if (calls > 0) CHECK(machine.clock.now - begin <= std::chrono::milliseconds(100));
      passes_of_prompt += machine.rows > 4;
    }
    CHECK(passes_of_prompt >= calls - 1);  // the last one may have few tokens
    // And the prompt's result is the same.
    REQUIRE(Continue(*reader, 3, &run));
    REQUIRE((run == alone[1]));
  }
}

TEST_CASE("a session that just got a token decodes, too, until it is the one with a prompt") {
  EngineOptions options = Options();
  options.prefill_chunk_tokens = 256;
  const std::shared_ptr<Engine> engine = OpenBundled(options);
  SlowMachine machine(*engine);
  const SamplingParams sampling{.banned_tokens = engine->eos_tokens(), .draft_tokens = 0};
  Sessions sessions(engine, {AnyTokens(3, 1), AnyTokens(900, 2)}, sampling);
  const auto rows_of_step = [&](size_t i) {
    REQUIRE_OK(Session::StepAll({sessions.all[i]}, absl::MakeSpan(&sessions.results[i], 1)));
    return machine.rows;
  };
  REQUIRE_OK(sessions.all[0]->Step());
  CHECK(rows_of_step(1) == 64);  // its thread may ask for the next token now
  machine.clock.now += std::chrono::milliseconds(100);
  CHECK(rows_of_step(1) == 256);
  REQUIRE_OK(sessions.all[0]->Step());
  REQUIRE_OK(sessions.all[0]->Sync(AnyTokens(500, 3)));
  CHECK(rows_of_step(0) == 256);
}

TEST_CASE("a cancelled step ends with the layer it is in, and the session continues from there") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<int32_t> prompt = AnyTokens(300, 4);
  const RecordedRun straight = RunAlone(engine, prompt, 5);
  for (const int64_t at : {0, 2, 4}) {
    CAPTURE(at);
    const std::unique_ptr<Session> session = OpenColdSession(engine);
    REQUIRE_OK(session->Sync(prompt));
    REQUIRE(session->Prefill(128, nullptr).value() == 172);
    {
      LayerWatch watch(*engine, [&](int64_t layer) {
        if (layer == at) session->SetStopped(true);
      });
      REQUIRE_FAILS(session->Step(), absl::StatusCode::kCancelled, "172 tokens pending");
      session->SetStopped(false);
      REQUIRE(watch.layers.size() == static_cast<size_t>(at + 1));
      REQUIRE(watch.layers.back().first == at);
    }
    REQUIRE(session->timeline().pending() == 172);
    RecordedRun run;
    REQUIRE(Continue(*session, 5, &run));
    REQUIRE((run == straight));
  }
}

TEST_CASE("the others of a cancelled step are computed without the one that cancelled") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<std::vector<int32_t>> prompts = {AnyTokens(50, 5), AnyTokens(20, 6)};
  const RecordedRun straight[] = {RunAlone(engine, prompts[0], 4), RunAlone(engine, prompts[1], 4)};
  Sessions sessions(engine, prompts);
  {
    LayerWatch watch(*engine, [&](int64_t layer) {
      if (layer == 3) sessions.all[0]->SetStopped(true);
    });
    REQUIRE_OK(Session::StepAll(sessions.all, absl::MakeSpan(sessions.results)));
    // The 19 rows before the second prompt's last token with 45 of the first; then the 19 alone.
    REQUIRE((watch.layers[3] == std::pair<int64_t, int64_t>(3, 64)));
    REQUIRE((watch.layers[4] == std::pair<int64_t, int64_t>(0, 19)));
  }
  REQUIRE_FAILS(sessions.results[0], absl::StatusCode::kCancelled, "50 tokens pending");
  sessions.all[0]->SetStopped(false);
  REQUIRE_OK(sessions.results[1]);
  for (size_t i = 0; i < 2; ++i) {
    RecordedRun run;
    REQUIRE(Continue(*sessions.all[i], 4, &run));
    REQUIRE((run == straight[i]));
  }
}

TEST_CASE("a call that waits for another call's step is cancelled within one layer") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  Sessions sessions(engine, {AnyTokens(50, 5), AnyTokens(20, 6)});
  std::future<absl::Status> waiting;
  LayerWatch watch(*engine, [&](int64_t layer) {
    if (layer == 1 && !waiting.valid()) {
      const auto requests = [&] { return engine->scheduler().counts().waiting_requests; };
      const int32_t before = requests();
      waiting = std::async(std::launch::async, [&] { return sessions.all[1]->Step().status(); });
      while (requests() == before) std::this_thread::yield();
      sessions.all[1]->SetStopped(true);
    }
    // Nothing else ends its wait: the step of the other session does not continue before.
    if (layer == 3) waiting.wait();
  });
  REQUIRE_OK(sessions.all[0]->Step());
  REQUIRE_FAILS(waiting.get(), absl::StatusCode::kCancelled, "20 tokens pending");
}

}  // namespace
}  // namespace dsv4
