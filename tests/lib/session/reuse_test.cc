// SPDX-License-Identifier: Apache-2.0
// What is not computed again must be what computing it would give: rewinds, forks, shared prefixes.
#include <map>

#include "tests/lib/session/recorded_run.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::ChooseDrafts;
using test::OpenBundled;
using test::OpenColdSession;
using test::PlantDrafts;
using test::RecordedRun;
using test::RunAlone;

constexpr int64_t kPositions[] = {1,   3,   4,   5,   127, 128, 129, 130, 255,
                                  256, 257, 258, 383, 384, 385, 511, 512, 513};
constexpr int64_t kTokens = 6;

EngineOptions Options() {
  return {.context_tokens = 1024,
          .cache_tokens = 8192,
          .max_sessions = 4,
          .prefill_chunk_tokens = 64,
          .threads = 2,
          .max_draft_tokens = 3};
}

std::vector<int32_t> Prefix(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(count)};
}

RecordedRun ContinueFrom(Session& session) {
  RecordedRun run;
  REQUIRE(Continue(session, kTokens, &run));
  return run;
}

TEST_CASE("a session rewound or forked at any position continues as a straight one") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<int32_t> tokens = AnyTokens(540, 1);
  std::map<std::pair<std::vector<int32_t>, int64_t>, RecordedRun> runs;
  const auto alone = [&](const std::vector<int32_t>& prompt, int64_t count) -> const RecordedRun& {
    const auto [run, is_new] = runs.try_emplace({prompt, count});
    if (is_new) run->second = RunAlone(engine, prompt, count);
    return run->second;
  };
  for (const int32_t drafts : {0, 3}) {
    const SamplingParams sampling{.draft_tokens = drafts};
    // At the end of the tokens and some of the model's own.
    const std::unique_ptr<Session> ended = OpenColdSession(engine, sampling);
    REQUIRE_OK(ended->Sync(tokens));
    RecordedRun ended_run = ContinueFrom(*ended);
    const std::unique_ptr<Session> forked = OpenColdSession(engine, sampling);
    for (const int64_t position : kPositions) {
      CAPTURE(drafts, position);
      const RecordedRun& straight = alone(Prefix(tokens, position), kTokens);
      std::unique_ptr<Session> rewound = ended->Fork().value();
      const absl::StatusOr<int64_t> again = rewound->Rewind(position);
      REQUIRE_OK(again);
      // The last restore point is the block boundary before the last token.
      REQUIRE(*again == position - (position - 1) / 256 * 256);
      REQUIRE(std::vector<int32_t>(rewound->tokens().begin(), rewound->tokens().end()) ==
              Prefix(tokens, position));
      REQUIRE((ContinueFrom(*rewound) == straight));
      rewound.reset();

      REQUIRE_OK(forked->Sync(Prefix(tokens, position)));
      REQUIRE_OK(forked->Prefill(0, nullptr));
      const std::unique_ptr<Session> fork = forked->Fork().value();
      REQUIRE(fork->timeline().pending() == 0);
      // The fork goes another way first, in blocks of its own.
      std::vector<int32_t> other = Prefix(tokens, position);
      other.push_back(77);
      REQUIRE_OK(fork->Sync(other));
      RecordedRun fork_run = ContinueFrom(*fork);
      const RecordedRun& other_run = alone(other, kTokens + 1);
      const std::unique_ptr<Session> second = forked->Fork().value();
      REQUIRE((ContinueFrom(*forked) == straight));
      REQUIRE((ContinueFrom(*second) == straight));
      // Its rows are still its own.
      REQUIRE_OK(fork->SetSampling(sampling));  // drops what drafts decided ahead
      REQUIRE(Continue(*fork, 1, &fork_run));
      REQUIRE((fork_run == other_run));
    }
    // The one whose forks were rewound is as it was, and goes back itself.
    REQUIRE_OK(ended->SetSampling(sampling));
    REQUIRE(Continue(*ended, kTokens, &ended_run));
    REQUIRE((ended_run == alone(tokens, 2 * kTokens)));
    REQUIRE(ended->Rewind(258).value() == 2);
    REQUIRE((ContinueFrom(*ended) == alone(Prefix(tokens, 258), kTokens)));
  }
}

TEST_CASE("a session forked and rewound in the middle of a prefill continues as a straight one") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<int32_t> tokens = AnyTokens(300, 2);
  const RecordedRun straight = RunAlone(engine, tokens, kTokens);
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(tokens));
  REQUIRE(session->Prefill(100, nullptr).value() == 200);  // 64 + 36 rows
  const std::unique_ptr<Session> fork = session->Fork().value();
  REQUIRE(session->Rewind(77).value() == 77);
  REQUIRE(session->Sync(tokens).value().reused_tokens == 0);
  REQUIRE((ContinueFrom(*session) == straight));
  REQUIRE((ContinueFrom(*fork) == straight));
}

TEST_CASE("a session rewound or forked after a rejected draft continues as a straight one") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  SamplingParams sampling{.banned_tokens = engine->eos_tokens(), .draft_tokens = 3};
  for (const int64_t length : {120, 126, 254}) {
    const std::vector<int32_t> tokens = AnyTokens(length, 3);
    RecordedRun straight;
    std::unique_ptr<Session> prefilled;  // all but the last token
    // Right, then wrong: the second draft is rejected.
    const ChooseDrafts choose = [&](absl::Span<const int32_t> timeline,
                                    absl::Span<int32_t> drafts) {
      for (size_t i = 0; i < drafts.size(); ++i) {
        const size_t at = timeline.size() + i - tokens.size();
        drafts[i] = at < 20 && i == 0 ? straight.tokens[at] : 9;
      }
      return drafts.size();
    };
    for (int64_t steps = 2; steps < 8; ++steps) {
      for (int64_t back = 0; back < 4; ++back) {
        CAPTURE(length, steps, back);
        if (prefilled == nullptr) {
          straight = RunAlone(engine, tokens, 20, sampling);
          prefilled = OpenColdSession(engine, sampling);
          REQUIRE_OK(prefilled->Sync(tokens));
          REQUIRE(prefilled->Prefill(length - 1, nullptr).value() == 1);
        }
        const std::unique_ptr<Session> session = prefilled->Fork().value();
        for (int64_t i = 0; i < steps; ++i) {
          REQUIRE_OK(session->Step());
          PlantDrafts(*session, 3, choose);
        }
        const std::unique_ptr<Session> fork = session->Fork().value();
        const int64_t position = std::max(length + steps - back, length);
        REQUIRE_OK(session->Rewind(position));
        for (Session* each : {session.get(), fork.get()}) {
          const int64_t first = static_cast<int64_t>(each->tokens().size());
          const RecordedRun run = ContinueFrom(*each);
          for (int64_t i = 0; i < kTokens; ++i) {
            REQUIRE(run.tokens[i] == straight.tokens[first - length + i]);
            // The fork's next tokens may have been chosen before it was made.
            const auto logits = run.logits.find(first + i);
            if (logits != run.logits.end()) REQUIRE(*logits == *straight.logits.find(first + i));
          }
          if (each == session.get()) REQUIRE(run.logits.size() == kTokens);
        }
      }
    }
  }
}

TEST_CASE("a prefix from the cache is as if computed, drafts included") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::vector<int32_t> tokens = AnyTokens(600, 4);
  for (const int32_t drafts : {0, 3}) {
    CAPTURE(drafts);
    const SamplingParams sampling{.banned_tokens = engine->eos_tokens(), .draft_tokens = drafts};
    const uint64_t salt = 7 + static_cast<uint64_t>(drafts);
    const std::unique_ptr<Session> first = Session::Open(engine, sampling, salt).value();
    REQUIRE(first->Sync(tokens).value().reused_tokens == 0);
    const RecordedRun straight = ContinueFrom(*first);
    const std::unique_ptr<Session> second = Session::Open(engine, sampling, salt).value();
    const SyncResult hit = second->Sync(tokens).value();
    REQUIRE(hit.common_tokens == 0);
    REQUIRE(hit.cached_tokens == 512);
    REQUIRE(hit.reused_tokens == 512);
    REQUIRE(hit.pending_tokens == 88);
    REQUIRE(hit.limit == ReuseLimit::kIncompleteBlock);
    REQUIRE(hit.limit_position == 512);
    REQUIRE((ContinueFrom(*second) == straight));
    REQUIRE(second->stats().speculation.drafted == first->stats().speculation.drafted);
    REQUIRE(second->stats().speculation.accepted == first->stats().speculation.accepted);
    // A text that differs within the second block has the first one.
    std::vector<int32_t> other = tokens;
    other[300] = 1 + other[300] % 1000;
    const std::unique_ptr<Session> third = Session::Open(engine, sampling, salt).value();
    REQUIRE(third->Sync(other).value().cached_tokens == 256);
    REQUIRE((ContinueFrom(*third) == RunAlone(engine, other, kTokens, sampling)));
    // Another salt has nothing.
    const std::unique_ptr<Session> stranger = Session::Open(engine, sampling, salt + 100).value();
    REQUIRE(stranger->Sync(tokens).value().reused_tokens == 0);
  }
}

TEST_CASE("rewinds are held to the timeline, and count the text anew") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options());
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  const std::vector<int32_t> prompt =
      test::ChatPrompt(*engine, "Do you know the capital of Russia?");
  REQUIRE_OK(session->Sync(prompt));
  REQUIRE_FAILS(session->Rewind(13), absl::StatusCode::kInvalidArgument, "13 is not in 0..12");
  REQUIRE_FAILS(session->Rewind(-1), absl::StatusCode::kInvalidArgument, "-1 is not in 0..12");
  std::vector<std::string> pieces;
  for (int i = 0; i < 11; ++i) pieces.push_back(std::string(session->Step().value().text));
  REQUIRE_OK(session->Rewind(15));
  REQUIRE(session->stats().generated_tokens == 3);
  for (int i = 3; i < 11; ++i) REQUIRE(session->Step().value().text == pieces[i]);
  REQUIRE(session->Rewind(0).value() == 0);
  REQUIRE_FAILS(session->Step(), absl::StatusCode::kInvalidArgument, "empty");
}

}  // namespace
}  // namespace dsv4
