// SPDX-License-Identifier: Apache-2.0
// Drafts, batches, rewinds and shared prefixes on the oracle's mixed case. Its weights are random:
// no logit is far from the next one, and no draft of the MTP block is right but by chance.
#include <algorithm>

#include "tests/lib/runtime/recorded_run.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/temporary_folder.h"

namespace dsv4 {
namespace {

using test::OpenColdSession;
using test::RecordedRun;
using test::RunAlone;
using test::RunTogether;

constexpr int64_t kTokens = 12;

std::shared_ptr<Engine> OpenMixed(Backend backend, int32_t max_drafts) {
  static const TemporaryFolder folder = [] {
    TemporaryFolder made = TemporaryFolder::Create().value();
    const OracleCase oracle =
        LoadOracleCase(DSV4_SOURCE_DIR "/tests/oracle/cases/mixed.json").value();
    REQUIRE_OK(WriteOracleCheckpoint(oracle, made.path()));
    return made;
  }();
  absl::StatusOr<std::shared_ptr<Engine>> engine =
      Engine::Open(folder.path(),
                   {.backend = backend,
                    .numerics = backend == Backend::kCpu ? Numerics::kPublished : Numerics::kExact,
                    .context_tokens = 1024,
                    .cache_tokens = 8192,
                    .max_sessions = 6,
                    .prefill_chunk_tokens = 64,
                    .threads = 2,
                    .max_draft_tokens = max_drafts});
  REQUIRE_OK(engine);
  return *std::move(engine);
}

// In the case's vocabulary of 1024.
std::vector<int32_t> CaseTokens(int64_t count, uint32_t seed) {
  std::vector<int32_t> tokens = test::AnyTokens(count, seed);
  for (int32_t& token : tokens) token %= 1024;
  return tokens;
}

std::vector<std::vector<int32_t>> Prompts(const std::vector<int64_t>& lengths) {
  std::vector<std::vector<int32_t>> prompts;
  for (const int64_t length : lengths) {
    prompts.push_back(CaseTokens(length, static_cast<uint32_t>(length)));
  }
  return prompts;
}

// Each draft is the token that comes, every third one excepted.
Timeline::Proposer MostlyRight(const std::vector<int32_t>& future, size_t prompt_tokens) {
  return [=](absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts) {
    for (size_t i = 0; i < drafts.size(); ++i) {
      const size_t at = timeline.size() + i - prompt_tokens;
      drafts[i] = at < future.size() && at % 3 != 2 ? future[at] : 7;
    }
    return drafts.size();
  };
}

void CompareWithPlain(Backend backend, const std::vector<int64_t>& lengths,
                      std::initializer_list<int32_t> draft_counts) {
  const std::shared_ptr<Engine> plain = OpenMixed(backend, 0), drafting = OpenMixed(backend, 7);
  const std::vector<std::vector<int32_t>> prompts = Prompts(lengths);
  std::vector<RecordedRun> straight;
  for (const std::vector<int32_t>& prompt : prompts) {
    straight.push_back(RunAlone(plain, prompt, kTokens));
  }
  for (const int32_t drafts : draft_counts) {
    CAPTURE(BackendName(backend), drafts);
    const SamplingParams sampling{.draft_tokens = drafts};
    const std::vector<RecordedRun> together = RunTogether(drafting, prompts, kTokens, sampling);
    for (size_t i = 0; i < prompts.size(); ++i) {
      CAPTURE(prompts[i].size());
      REQUIRE((together[i] == straight[i]));
      REQUIRE((RunAlone(drafting, prompts[i], kTokens, sampling) == straight[i]));
      const std::unique_ptr<Session> session = OpenColdSession(drafting, sampling);
      session->timeline().set_proposer(MostlyRight(straight[i].tokens, prompts[i].size()));
      REQUIRE_OK(session->Sync(prompts[i]));
      RecordedRun run;
      REQUIRE(Continue(*session, kTokens, &run));
      REQUIRE((run == straight[i]));
      REQUIRE(session->stats().speculation.accepted > 0);
      if (drafts >= 3) {
        REQUIRE(session->stats().speculation.accepted < session->stats().speculation.drafted);
      }
    }
  }
}

TEST_CASE("drafts change nothing on random weights, alone or together") {
  CompareWithPlain(Backend::kCpu, {1, 5, 128, 257, 300, 640}, {1, 2, 3, 4, 5, 6, 7});
  CompareWithPlain(Backend::kReference, {5, 129}, {1, 3});
}

TEST_CASE("rewinds, forks and shared prefixes change nothing on random weights") {
  const std::shared_ptr<Engine> engine = OpenMixed(Backend::kCpu, 3);
  const std::vector<int32_t> tokens = CaseTokens(540, 1);
  const SamplingParams sampling{.draft_tokens = 3};
  const auto go_on = [&](Session& session) {
    RecordedRun run;
    REQUIRE(Continue(session, kTokens, &run));
    return run;
  };
  absl::StatusOr<std::unique_ptr<Session>> writer = Session::Open(engine, sampling, 5);
  REQUIRE_OK(writer);
  REQUIRE_OK((*writer)->Sync(tokens));
  go_on(**writer);
  for (const int64_t position :
       {1, 3, 4, 5, 127, 128, 129, 130, 255, 256, 257, 258, 383, 384, 385, 511, 512, 513}) {
    CAPTURE(position);
    const std::vector<int32_t> prefix(tokens.begin(), tokens.begin() + position);
    const RecordedRun straight = RunAlone(engine, prefix, kTokens);
    const std::unique_ptr<Session> rewound = OpenColdSession(engine, sampling);
    REQUIRE_OK(rewound->Sync(tokens));
    go_on(*rewound);
    REQUIRE_OK(rewound->Rewind(position));
    const std::unique_ptr<Session> fork = rewound->Fork().value();
    REQUIRE((go_on(*rewound) == straight));
    REQUIRE((go_on(*fork) == straight));
    const std::unique_ptr<Session> reader = Session::Open(engine, sampling, 5).value();
    REQUIRE(reader->Sync(prefix).value().cached_tokens == (position - 1) / 256 * 256);
    REQUIRE((go_on(*reader) == straight));
  }
}

}  // namespace
}  // namespace dsv4
