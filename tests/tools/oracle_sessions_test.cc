// SPDX-License-Identifier: Apache-2.0
// Sessions of the oracle's mixed case: a random network, which has no confident answers behind
// which a wrong row could hide. Whatever a session went through, its logits are those of a straight
// run, bit for bit.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tools/verify/oracle_case.h"
#include "tools/verify/oracle_checkpoint.h"

namespace dsv4 {
namespace {

using test::ChooseDrafts;
using test::Continue;
using test::OpenColdSession;
using test::PlantDrafts;
using test::RecordedRun;
using test::RunAlone;
using test::RunTogether;

constexpr int64_t kTokens = 12;
constexpr int64_t kPositions[] = {1,   3,   4,   5,   127, 128, 129, 130, 255,
                                  256, 257, 258, 383, 384, 385, 511, 512, 513};

// The case's vocabulary has 1024 tokens.
std::vector<int32_t> AnyTokens(int64_t count, uint32_t seed) {
  std::vector<int32_t> tokens = test::AnyTokens(count, seed);
  for (int32_t& token : tokens) token %= 1024;
  return tokens;
}

std::shared_ptr<Engine> OpenMixed(Backend backend) {
  static const test::TempFolder folder;
  static const bool written = [] {
    const auto oracle =
        LoadOracleCase(std::string(DSV4_SOURCE_DIR) + "/tests/oracle/cases/mixed.json");
    return oracle.ok() && WriteOracleCheckpoint(*oracle, folder.path()).ok();
  }();
  REQUIRE(written);
  const auto engine = Engine::Open(
      folder.path(),
      test::Tested({.backend = backend,
                    .numerics = backend == Backend::kCpu ? Numerics::kPublished : Numerics::kExact,
                    .context_tokens = 1024,
                    .cache_tokens = 8192,
                    .max_sessions = 6,
                    .prefill_chunk_tokens = 100,
                    .threads = 2,
                    .max_draft_tokens = 7}));
  REQUIRE_OK(engine);
  return *engine;
}

SamplingParams Drafting(const Engine& engine, int32_t drafts) {
  return {.banned_tokens = engine.eos_tokens(), .draft_tokens = drafts};
}

RecordedRun ContinueFrom(Session& session) {
  RecordedRun run;
  REQUIRE(Continue(session, kTokens, &run));
  return run;
}

std::vector<int32_t> Prefix(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

// Every other draft is the right one.
ChooseDrafts HalfRight(const std::vector<int32_t>& future, size_t prompt_tokens) {
  return [=](absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts) -> size_t {
    for (size_t i = 0; i < drafts.size(); ++i) {
      const size_t at = timeline.size() + i - prompt_tokens;
      drafts[i] = at < future.size() && at % 4 != 3 ? future[at] : 9;
    }
    return drafts.size();
  };
}

void CompareDrafts(Backend backend, const std::vector<std::vector<int32_t>>& prompts,
                   const std::vector<int32_t>& draft_counts) {
  const std::shared_ptr<Engine> engine = OpenMixed(backend);
  std::vector<RecordedRun> straight;
  for (const std::vector<int32_t>& prompt : prompts) {
    straight.push_back(RunAlone(engine, prompt, kTokens, Drafting(*engine, 0)));
  }
  for (const int32_t drafts : draft_counts) {
    CAPTURE(drafts);
    REQUIRE(RunTogether(engine, prompts, kTokens, Drafting(*engine, drafts)) == straight);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto session = OpenColdSession(engine, Drafting(*engine, 0));
      const ChooseDrafts choose = HalfRight(straight[i].tokens, prompts[i].size());
      REQUIRE_OK(session->Sync(prompts[i]));
      RecordedRun run;
      REQUIRE(Continue(*session, kTokens, &run, [&] { PlantDrafts(*session, drafts, choose); }));
      REQUIRE((run == straight[i]));
      REQUIRE(session->stats().speculation.accepted > 0);
      REQUIRE(session->stats().speculation.accepted < session->stats().speculation.drafted);
    }
  }
}

TEST_CASE("drafts and company change no logit of the mixed case") {
  for (const size_t together : {1, 2, 4, 6}) {
    CAPTURE(together);
    std::vector<std::vector<int32_t>> prompts;
    for (size_t i = 0; i < together; ++i) {
      prompts.push_back(AnyTokens(static_cast<int64_t>(3 + i * 61), static_cast<uint32_t>(i)));
    }
    CompareDrafts(
        Backend::kCpu, prompts,
        together == 4 ? std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7} : std::vector<int32_t>{3});
  }
}

TEST_CASE("drafts change no logit of the mixed case under exact numerics", "[reference]") {
  CompareDrafts(Backend::kReference, {AnyTokens(125, 3), AnyTokens(9, 4)}, {3});
}

TEST_CASE("the mixed case rewound, forked and loaded anywhere continues as straight") {
  const std::shared_ptr<Engine> engine = OpenMixed(Backend::kCpu);
  const std::vector<int32_t> tokens = AnyTokens(540, 1);
  const SamplingParams sampling = Drafting(*engine, 0);
  const std::unique_ptr<Session> travelled = OpenColdSession(engine, sampling);
  for (const int64_t position : kPositions) {
    CAPTURE(position);
    const RecordedRun straight = RunAlone(engine, Prefix(tokens, position), kTokens, sampling);
    REQUIRE_OK(travelled->Sync(tokens));
    ContinueFrom(*travelled);
    REQUIRE_OK(travelled->Rewind(position));
    const std::unique_ptr<Session> fork = travelled->Fork().value();
    std::vector<uint8_t> image(static_cast<size_t>(travelled->SaveBytes()));
    REQUIRE_OK(travelled->SaveTo(absl::MakeSpan(image)));
    const std::unique_ptr<Session> loaded = OpenColdSession(engine, sampling);
    REQUIRE_OK(loaded->Load(image, "image"));
    for (Session* each : {travelled.get(), fork.get(), loaded.get()}) {
      REQUIRE((ContinueFrom(*each) == straight));
    }
  }
}

TEST_CASE("a prefix of the mixed case from the cache is as if computed") {
  const std::shared_ptr<Engine> engine = OpenMixed(Backend::kCpu);
  const std::vector<int32_t> tokens = AnyTokens(600, 4);
  const SamplingParams sampling = Drafting(*engine, 2);
  const std::unique_ptr<Session> first = Session::Open(engine, sampling, 5).value();
  REQUIRE_OK(first->Sync(tokens));
  const RecordedRun straight = ContinueFrom(*first);
  const std::unique_ptr<Session> second = Session::Open(engine, sampling, 5).value();
  REQUIRE(second->Sync(tokens).value().cached_tokens == 512);
  REQUIRE((ContinueFrom(*second) == straight));
}

// What all of this would notice: a bit of one row.
TEST_CASE("a wrong bit in a row changes logits of the mixed case") {
  const std::shared_ptr<Engine> engine = OpenMixed(Backend::kCpu);
  const std::vector<int32_t> prompt = AnyTokens(70, 2);
  const SamplingParams sampling = Drafting(*engine, 0);
  const RecordedRun straight = RunAlone(engine, prompt, kTokens, sampling);
  const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
  REQUIRE_OK(session->Sync(prompt));
  REQUIRE_OK(session->Prefill(0, nullptr));
  std::vector<uint8_t> image(static_cast<size_t>(session->SaveBytes()));
  REQUIRE_OK(session->SaveTo(absl::MakeSpan(image)));
  const SessionCounts counts = session->timeline().Counts();
  // The sign of one number of a window row, under a checksum that says it is right.
  SectionsOf(counts, absl::MakeSpan(image)).cache[40] ^= 0x80;
  SealSessionImage(engine->identity(), counts, absl::MakeSpan(image));
  REQUIRE_OK(session->Load(image, "image"));
  REQUIRE_FALSE((ContinueFrom(*session) == straight));
}

}  // namespace
}  // namespace dsv4
