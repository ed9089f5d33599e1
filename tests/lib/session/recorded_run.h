// SPDX-License-Identifier: Apache-2.0
// Runs of sessions that are compared bit for bit: the tokens, and all the logits that each of them
// was chosen from. A confident model's tokens hide wrong rows; its logits do not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "lib/text/chat_message.h"
#include "tests/support/bundled_model.h"
#include "tests/support/catch.h"

namespace dsv4::test {

struct RecordedRun {
  std::vector<int32_t> tokens;                   // generated
  std::map<int64_t, std::vector<float>> logits;  // by the position of the token chosen from them
  Finish finish = Finish::kNone;

  bool operator==(const RecordedRun& other) const {
    return tokens == other.tokens && logits == other.logits && finish == other.finish;
  }
};

// Requires the same tokens, and the same logits of the tokens that were computed in both runs: how
// many tokens lie ahead at a given step depends on the pace of drafts.
inline void RequireSame(const RecordedRun& run, const RecordedRun& expected) {
  REQUIRE(run.tokens == expected.tokens);
  REQUIRE(run.finish == expected.finish);
  size_t compared = 0;
  for (const auto& [position, logits] : run.logits) {
    const auto known = expected.logits.find(position);
    if (known == expected.logits.end()) continue;
    REQUIRE(logits == known->second);
    ++compared;
  }
  REQUIRE(compared > 0);
}

// Everything that `session` chooses from here on is recorded in `run`, which must outlive it.
inline void RecordTo(Session& session, RecordedRun* run) {
  session.timeline().set_logits_tap([run](int64_t position, absl::Span<const float> logits) {
    run->logits[position].assign(logits.begin(), logits.end());
  });
}

// Chooses what follows `timeline`. Returns how many tokens it chose, drafts.size() at most.
using ChooseDrafts =
    std::function<size_t(absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts)>;

// Between two steps: up to `count` drafts, as the context has room, in place of those that wait for
// the session's next computed step.
void PlantDrafts(Session& session, int32_t count, const ChooseDrafts& choose);

// Steps until `count` tokens or the turn's end, with a call of `after_step`, if given, after each
// step. What a draft decided beyond the last token that is delivered is not part of the run. False
// when a step fails. Any thread.
inline bool Continue(Session& session, int64_t count, RecordedRun* run,
                     const std::function<void()>& after_step = {}) {
  RecordTo(session, run);
  for (int64_t i = 0; i < count && run->finish == Finish::kNone; ++i) {
    const absl::StatusOr<StepResult> step = session.Step();
    if (!step.ok()) return false;
    run->tokens.push_back(step->token);
    run->finish = step->finish;
    if (after_step) after_step();
  }
  run->logits.erase(run->logits.lower_bound(static_cast<int64_t>(session.tokens().size())),
                    run->logits.end());
  session.timeline().set_logits_tap(nullptr);
  return true;
}

inline RecordedRun RunAlone(const std::shared_ptr<Engine>& engine,
                            const std::vector<int32_t>& prompt, int64_t count,
                            const SamplingParams& sampling = {}) {
  const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
  REQUIRE_OK(session->Sync(prompt));
  RecordedRun run;
  REQUIRE(Continue(*session, count, &run));
  return run;
}

// One session and one thread for each prompt, all at once.
inline std::vector<RecordedRun> RunTogether(const std::shared_ptr<Engine>& engine,
                                            const std::vector<std::vector<int32_t>>& prompts,
                                            int64_t count, const SamplingParams& sampling = {}) {
  std::vector<std::unique_ptr<Session>> sessions;
  for (const std::vector<int32_t>& prompt : prompts) {
    sessions.push_back(OpenColdSession(engine, sampling));
    REQUIRE_OK(sessions.back()->Sync(prompt));
  }
  std::vector<RecordedRun> runs(prompts.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < prompts.size(); ++i) {
    threads.emplace_back([&, i] { (void)Continue(*sessions[i], count, &runs[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return runs;
}

std::vector<int32_t> ChatPrompt(const Engine& engine, const std::string& question,
                                ThinkingMode mode = ThinkingMode::kChat);

// Prompts of 1 to about 400 tokens: chats that the model knows the answers to, and noise.
std::vector<std::vector<int32_t>> VariedPrompts(const Engine& engine, size_t count);

}  // namespace dsv4::test
