// SPDX-License-Identifier: Apache-2.0
#include "lib/step/speculation.h"

#include "kernels/op/kv_layout.h"
#include "lib/base/error.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/sanitized.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::ChooseDrafts;
using test::OpenBundled;
using test::OpenColdSession;
using test::PlantDrafts;
using test::RecordedRun;
using test::RunAlone;
using test::RunTogether;
using test::VariedPrompts;

constexpr int64_t kTokens = 24;
// One round of each concurrency.
constexpr size_t kPrompts = test::kSanitized ? 13 : 20;

// Who drafts: a bundled model's own drafter, or n-grams.
struct Drafting {
  const std::string* folder;
  std::optional<DrafterKind> drafter;  // empty: the folder's
  int32_t most;                        // drafts at once
};
const Drafting kMtpDrafts = {&test::kBundledModel, {}, 7};
const Drafting kDsparkDrafts = {&test::kBundledDspark, {}, 5};
const Drafting kNgramDrafts = {&test::kBundledModel, DrafterKind::kNgram, 7};

EngineOptions Options(int32_t max_drafts, Backend backend = Backend::kCpu) {
  return {.backend = backend,
          .numerics = backend == Backend::kCpu ? Numerics::kPublished : Numerics::kExact,
          .context_tokens = 1024,
          .cache_tokens = 8192,
          .max_sessions = 6,
          .prefill_chunk_tokens = 64,
          .threads = 2,
          .max_draft_tokens = max_drafts};
}

// `prompts`, at each concurrency in turn, with each number of drafts, greedy or sampled by a seed,
// against a run without.
void CompareWithDrafts(const Drafting& drafter, EngineOptions options, size_t prompt_count,
                       int32_t draft_step) {
  options.max_draft_tokens = 0;
  const std::shared_ptr<Engine> plain = OpenBundled(options, *drafter.folder);
  options.max_draft_tokens = drafter.most;
  options.drafter = drafter.drafter;
  const std::shared_ptr<Engine> engine = OpenBundled(options, *drafter.folder);
  const std::vector<std::vector<int32_t>> prompts = VariedPrompts(*engine, prompt_count);
  const SamplingParams samplings[] = {{}, {.temperature = 1.5f, .seed = 9}};
  std::vector<RecordedRun> expected[2] = {std::vector<RecordedRun>(prompts.size()),
                                          std::vector<RecordedRun>(prompts.size())};
  const size_t concurrencies[] = {1, 2, 4, 6};
  for (int32_t drafts = 1; drafts <= drafter.most; drafts += draft_step) {
    size_t round = static_cast<size_t>(drafts);
    for (size_t begin = 0, count = 0; begin < prompts.size(); begin += count) {
      const size_t sampled = (round / 4 + static_cast<size_t>(drafts)) % 2;
      count = std::min(concurrencies[round++ % 4], prompts.size() - begin);
      CAPTURE(drafts, begin, count, sampled);
      SamplingParams drafting = samplings[sampled];
      drafting.draft_tokens = drafts;
      const auto first = prompts.begin() + static_cast<ptrdiff_t>(begin);
      const std::vector<RecordedRun> runs =
          RunTogether(engine, {first, first + static_cast<ptrdiff_t>(count)}, kTokens, drafting);
      for (size_t i = 0; i < count; ++i) {
        CAPTURE(i);
        RecordedRun& alone = expected[sampled][begin + i];
        if (alone.tokens.empty()) {
          alone = RunAlone(plain, prompts[begin + i], kTokens, samplings[sampled]);
        }
        REQUIRE(runs[i].tokens == alone.tokens);
        REQUIRE((runs[i] == alone));
      }
    }
  }
}

TEST_CASE("drafts change no token and no logit, whatever runs concurrently") {
  CompareWithDrafts(kMtpDrafts, Options(0), kPrompts, test::kSanitized ? 3 : 1);
}

TEST_CASE("drafts of a DSpark drafter change no token and no logit, whatever runs concurrently",
          "[dspark]") {
  CompareWithDrafts(kDsparkDrafts, Options(0), kPrompts, test::kSanitized ? 4 : 2);
}

TEST_CASE("drafts by n-grams change no token and no logit, whatever runs concurrently") {
  CompareWithDrafts(kNgramDrafts, Options(0), kPrompts, 3);
}

TEST_CASE("drafts change no token and no logit under exact numerics", "[reference]") {
  CompareWithDrafts(kMtpDrafts, Options(0, Backend::kReference), 2, 3);
  CompareWithDrafts(kDsparkDrafts, Options(0, Backend::kReference), 2, 4);
}

TEST_CASE("drafts change nothing on 200 prompts", "[.long]") {
  for (const Drafting* drafter : {&kMtpDrafts, &kDsparkDrafts, &kNgramDrafts}) {
    CompareWithDrafts(*drafter, Options(0), 200, drafter == &kMtpDrafts ? 1 : 2);
  }
}

// Knows what comes, and is right with a chance.
ChooseDrafts DraftFrom(const std::vector<int32_t>& straight, size_t prompt_tokens,
                       uint32_t right_of_8) {
  return [=, state = 1u](absl::Span<const int32_t> timeline,
                         absl::Span<int32_t> drafts) mutable -> size_t {
    for (size_t i = 0; i < drafts.size(); ++i) {
      state = state * 1664525u + 1013904223u;
      const size_t at = timeline.size() + i - prompt_tokens;
      const int32_t right = at < straight.size() ? straight[at] : 5;
      drafts[i] = (state >> 24) % 8 < right_of_8 ? right : (right + 1) % 2000;
    }
    return drafts.size();
  };
}

TEST_CASE("wrong drafts change nothing, right ones are all accepted") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(7));
  for (const std::vector<int32_t>& prompt :
       {AnyTokens(120, 1), AnyTokens(250, 2), AnyTokens(3, 3)}) {
    constexpr int64_t kCount = 40;  // past positions 128 and 256
    SamplingParams plain{.banned_tokens = engine->eos_tokens()};
    if (prompt.size() == 250) plain.temperature = 2, plain.seed = 4;
    RecordedRun straight;
    std::vector<int32_t> future;         // drafts reach beyond the last token
    std::unique_ptr<Session> prefilled;  // all but the last token
    for (const int32_t drafts : {1, 2, 3, 5, 7}) {
      for (const uint32_t right_of_8 : {0u, 3u, 7u, 8u}) {
        CAPTURE(prompt.size(), drafts, right_of_8);
        if (prefilled == nullptr) {
          const std::unique_ptr<Session> alone = OpenColdSession(engine, plain);
          REQUIRE_OK(alone->Sync(prompt));
          REQUIRE(Continue(*alone, kCount, &straight));
          RecordedRun rest;
          REQUIRE(Continue(*alone, 7, &rest));
          future = straight.tokens;
          future.insert(future.end(), rest.tokens.begin(), rest.tokens.end());
          prefilled = OpenColdSession(engine, plain);
          REQUIRE_OK(prefilled->Sync(prompt));
          const auto all_but_one = static_cast<int64_t>(prompt.size()) - 1;
          REQUIRE(prefilled->Prefill(all_but_one, nullptr).value() == 1);
        }
        const std::unique_ptr<Session> session = prefilled->Fork().value();
        const ChooseDrafts choose = DraftFrom(future, prompt.size(), right_of_8);
        RecordedRun run;
        REQUIRE(Continue(*session, kCount, &run, [&] { PlantDrafts(*session, drafts, choose); }));
        REQUIRE((run == straight));
        const SpeculationStats stats = session->stats().speculation;
        REQUIRE(stats.drafted > 0);
        if (right_of_8 == 0) REQUIRE(stats.accepted == 0);
        if (right_of_8 == 8) {
          REQUIRE(stats.accepted == stats.drafted);
          REQUIRE(stats.acceptance_length() == Approx(1 + drafts));
        }
      }
    }
  }
}

// All that a session keeps of its tokens: the rows of every layer, the drafter's among them, the
// states of compressors, and the last logits.
std::vector<uint8_t> Saved(const Session& session) {
  std::vector<uint8_t> image(static_cast<size_t>(session.SaveBytes()));
  REQUIRE_OK(session.SaveTo(absl::MakeSpan(image)));
  return image;
}

TEST_CASE("whatever number of drafts is accepted, the rows are those of a run without drafts",
          "[dspark]") {
  constexpr int64_t kCount = 12;
  const std::shared_ptr<Engine> engine = OpenBundled(Options(5), test::kBundledDspark);
  for (const int64_t prompt_tokens : {3, 120, 252}) {
    const std::vector<int32_t> prompt = AnyTokens(prompt_tokens, 8);
    const SamplingParams plain{.banned_tokens = engine->eos_tokens()};
    std::vector<std::vector<uint8_t>> images;  // after each token
    RecordedRun straight;
    const std::unique_ptr<Session> alone = OpenColdSession(engine, plain);
    REQUIRE_OK(alone->Sync(prompt));
    for (int64_t i = 0; i < kCount + 6; ++i) {
      REQUIRE(Continue(*alone, 1, &straight));
      images.push_back(Saved(*alone));
    }
    for (size_t right = 0; right <= 5; ++right) {
      const std::unique_ptr<Session> session = OpenColdSession(engine, plain);
      const ChooseDrafts choose = [&](absl::Span<const int32_t> timeline,
                                      absl::Span<int32_t> drafts) {
        const size_t at = timeline.size() - prompt.size();
        for (size_t i = 0; i < drafts.size(); ++i) {
          const int32_t token = straight.tokens[std::min(at + i, straight.tokens.size() - 1)];
          drafts[i] = i < right ? token : (token + 1) % 2000;
        }
        return drafts.size();
      };
      REQUIRE_OK(session->Sync(prompt));
      RecordedRun run;
      for (int64_t i = 0; i < kCount; ++i) {
        REQUIRE(Continue(*session, 1, &run, [&] { PlantDrafts(*session, 5, choose); }));
        CAPTURE(prompt_tokens, right, i);
        // While tokens lie ahead, the rows are those of more tokens.
        if (session->timeline().ahead() > 0) continue;
        REQUIRE((Saved(*session) == images[static_cast<size_t>(i)]));
      }
      REQUIRE(session->stats().speculation.steps_by_accepted[right] > 0);
    }
  }
}

// The output after n tokens, of which every third is new: 300, 100, 101, 301, 100, 101, ...
int32_t ThirdIsNew(int64_t n) {
  return static_cast<int32_t>(n % 3 == 0 ? 300 + n / 3 : 99 + n % 3);
}

// After each 100, 101, n-grams draft 7 tokens: those after the last time, of which the first is
// wrong. The 10th such step has the 64th draft.
TEST_CASE("drafting is given up when drafts are never right, with a reason") {
  EngineOptions options = Options(7);
  options.drafter = DrafterKind::kNgram;
  const std::shared_ptr<Engine> engine = OpenBundled(options);
  SamplingParams sampling{.draft_tokens = 7};
  for (int64_t i = 0; i < 45; ++i) sampling.forced_tokens.push_back(ThirdIsNew(i));
  const std::unique_ptr<Session> session = OpenColdSession(engine, sampling);
  REQUIRE_OK(session->Sync(std::vector<int32_t>{100, 101, 299, 100, 101}));
  RecordedRun run;
  REQUIRE(Continue(*session, 45, &run));
  for (int64_t i = 0; i < 45; ++i) REQUIRE(run.tokens[static_cast<size_t>(i)] == ThirdIsNew(i));
  const SpeculationStats stats = session->stats().speculation;
  REQUIRE(stats.drafted == 70);
  REQUIRE(stats.steps_by_accepted[0] == 10);
  REQUIRE(stats.fall_back == "fewer than 10 % of the last 64 draft tokens were accepted");
  // A new prompt tries again.
  REQUIRE_OK(session->Sync(AnyTokens(30, 2)));
  REQUIRE(session->stats().speculation.fall_back.empty());
}

// mtp_acceptance of gates.json is 1.0: the training code's first drafts were all right.
void FirstDraftsAreRight(const std::string& folder) {
  for (const char* question : {"Do you know the capital of Russia?", "What is 3 plus 4?",
                               "What is the capital of France?"}) {
    // An engine that has measured nothing yet drafts; on a busy machine it may find that it does
    // not pay.
    const std::shared_ptr<Engine> engine = OpenBundled(Options(3), folder);
    const std::unique_ptr<Session> session = OpenColdSession(engine, {.draft_tokens = 3});
    REQUIRE_OK(session->Sync(test::ChatPrompt(*engine, question)));
    RecordedRun run;
    REQUIRE(Continue(*session, 100, &run));
    CAPTURE(question, session->stats().speculation.steps_by_accepted[0]);
    REQUIRE(run.finish == Finish::kStop);
    REQUIRE(session->stats().speculation.first_acceptance() == 1);
  }
}

TEST_CASE("the MTP block's first drafts of known answers are right") {
  FirstDraftsAreRight(test::kBundledModel);
}

TEST_CASE("a DSpark drafter's first drafts of known answers are right", "[dspark]") {
  FirstDraftsAreRight(test::kBundledDspark);
}

TEST_CASE("drafters that a folder does not have are refused by name") {
  const auto refused = [](const std::string& folder, DrafterKind drafter) {
    EngineOptions options = Options(2);
    options.drafter = drafter;
    return Engine::Open(folder, options);
  };
  REQUIRE_FAILS(refused(test::kBundledModel, DrafterKind::kDspark), absl::StatusCode::kNotFound,
                "option drafter = DSpark: the checkpoint's drafter is MTP");
  REQUIRE_FAILS(refused(test::kBundledDspark, DrafterKind::kMtp), absl::StatusCode::kNotFound,
                "option drafter = MTP: the checkpoint's drafter is DSpark");
  REQUIRE_FAILS(refused(test::kBundledModel, DrafterKind::kNone),
                absl::StatusCode::kInvalidArgument,
                "option drafter = none with max_draft_tokens = 2");
  REQUIRE_OK(refused(test::kBundledDspark, DrafterKind::kNgram));
}

TEST_CASE("more drafts than planned are refused, and drafts end with the answer's limits") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(2));
  REQUIRE_FAILS(Session::Open(engine, {.draft_tokens = 3}), absl::StatusCode::kInvalidArgument,
                "draft_tokens is 3; the engine was opened with max_draft_tokens = 2");
  REQUIRE_FAILS(Engine::Open(test::kBundledModel, {.max_draft_tokens = 8}),
                absl::StatusCode::kInvalidArgument, "max_draft_tokens = 8 is not in 1..7");
  for (const int64_t limit : {1, 2, 3, 4, 5}) {
    const std::unique_ptr<Session> session =
        OpenColdSession(engine, {.max_tokens = limit, .draft_tokens = 2});
    REQUIRE_OK(session->Sync(test::ChatPrompt(*engine, "Do you know the capital of Russia?")));
    RecordedRun run;
    REQUIRE(Continue(*session, 100, &run));
    REQUIRE(static_cast<int64_t>(run.tokens.size()) == limit);
    REQUIRE(run.finish == Finish::kLength);
  }
  // To the end of the context.
  const std::unique_ptr<Session> session =
      OpenColdSession(engine, {.banned_tokens = engine->eos_tokens(), .draft_tokens = 2});
  REQUIRE_OK(session->Sync(AnyTokens(1010, 1)));
  RecordedRun run;
  REQUIRE(Continue(*session, 100, &run));
  REQUIRE(run.tokens.size() == 14);
  REQUIRE(run.finish == Finish::kContextFull);
}

TEST_CASE("a full pool ends a session with drafts where it ends one without") {
  EngineOptions options = Options(7);
  options.cache_tokens = 512;
  options.max_sessions = 1;
  const std::shared_ptr<Engine> engine = OpenBundled(options);
  std::vector<std::vector<int32_t>> tokens;
  for (const int32_t drafts : {0, 3, 7}) {
    const std::unique_ptr<Session> session =
        OpenColdSession(engine, {.banned_tokens = engine->eos_tokens(), .draft_tokens = drafts});
    // So near to the pool's end that fewer than 64 drafts come, and none are given up before it.
    REQUIRE_OK(session->Sync(AnyTokens(760, 3)));
    absl::StatusOr<StepResult> step;
    do {
      step = session->Step();
    } while (step.ok());
    REQUIRE_FAILS(step, OutOfBlocks().code(), "blocks");
    tokens.emplace_back(session->tokens().begin(), session->tokens().end());
    REQUIRE(tokens.back() == tokens.front());
    REQUIRE((session->stats().speculation.drafted > 0) == (drafts > 0));
    REQUIRE(session->stats().speculation.fall_back.empty());
  }
}

// A flipped bit in a row that the next step sees must show, or the comparisons above prove nothing.
TEST_CASE("a damaged cache row changes the logits") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(3));
  const std::vector<int32_t> prompt = AnyTokens(300, 5);
  const RecordedRun straight = RunAlone(engine, prompt, 5);
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(prompt));
  REQUIRE_OK(session->Prefill(0, nullptr));
  // The window row of the last position, in layer 0: its slot of every block, for the session does
  // not say which block is its own.
  const KvCache& cache = engine->cache();
  for (int32_t block = 0; block < cache.plan().window_blocks; ++block) {
    std::byte* const row =
        cache.layer(0).window.Row(block, (prompt.size() - 1) % kWindowBlockTokens);
    std::byte damaged;
    REQUIRE_OK(engine->device().Download(&damaged, row + 1, 1));
    damaged ^= std::byte{64};
    REQUIRE_OK(engine->device().Upload(row + 1, &damaged, 1));
  }
  RecordedRun run;
  REQUIRE(Continue(*session, 5, &run));
  REQUIRE_FALSE((run == straight));
}

}  // namespace
}  // namespace dsv4
