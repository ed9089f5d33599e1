// SPDX-License-Identifier: Apache-2.0
// What must not change a bit of the logits: how a prompt is cut into chunks, what else is in the
// batch, whether a token was prefilled or decoded, which blocks a sequence has, how many threads
// run.
#include <algorithm>

#include "lib/step/step_batch.h"
#include "tests/support/bundled_model.h"
#include "tests/support/loud_experts.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::LogitsAfter;
using test::OpenBundled;
using test::OpenSession;

struct Mode {
  Backend backend;
  Numerics numerics;
};

const Mode kPublished{Backend::kCpu, Numerics::kPublished};

// What users run, and the scalar truth without quantisers unless it is another backend's turn.
std::vector<Mode> Modes() {
  if (test::OnTestedBackend != nullptr) return {kPublished};
  return {kPublished, {Backend::kReference, Numerics::kExact}};
}

EngineOptions Options(const Mode& mode, int32_t chunk = 0, int32_t threads = 2) {
  return {.backend = mode.backend,
          .numerics = mode.numerics,
          .context_tokens = 2048,
          .cache_tokens = 8192,
          .prefill_chunk_tokens = chunk,
          .threads = threads};
}

// A row that has another one's experts shows.
std::shared_ptr<Engine> OpenLoud(const EngineOptions& options) {
  return OpenBundled(options, test::LoudModel());
}

TEST_CASE("a prompt in chunks gives the logits of the prompt in one piece") {
  for (const Mode& mode : Modes()) {
    CAPTURE(BackendName(mode.backend));
    const std::vector<int32_t> tokens = AnyTokens(403, 1);
    const std::vector<float> whole = LogitsAfter(OpenLoud(Options(mode, 1024)), tokens);
    for (const int32_t chunk : {1, 3, 64, 127, 128, 130}) {
      CAPTURE(chunk);
      REQUIRE(LogitsAfter(OpenLoud(Options(mode, chunk)), tokens) == whole);
    }
  }
}

TEST_CASE("the number of threads does not change the logits") {
  for (const Mode& mode : Modes()) {
    CAPTURE(BackendName(mode.backend));
    const std::vector<int32_t> tokens = AnyTokens(300, 2);
    const std::vector<float> one = LogitsAfter(OpenLoud(Options(mode, 0, 1)), tokens);
    for (const int32_t threads : {2, 3, 5}) {
      CAPTURE(threads);
      REQUIRE(LogitsAfter(OpenLoud(Options(mode, 0, threads)), tokens) == one);
    }
  }
}

TEST_CASE("decoding a text gives the logits of prefilling it, at every kind of position") {
  for (const Mode& mode : Modes()) {
    CAPTURE(BackendName(mode.backend));
    const std::shared_ptr<Engine> engine = OpenLoud(Options(mode));
    const std::vector<int32_t> tokens = AnyTokens(262, 3);
    KvSequence sequence = KvSequence::Open(&engine->cache()).value();
    StepBatch& batch = engine->batch();
    const auto compared = {1, 3, 4, 5, 8, 63, 64, 65, 127, 128, 129, 255, 256, 257, 262};
    for (int64_t length = 1; length <= 262; ++length) {
      batch.Clear();
      REQUIRE_OK(batch.Add(&sequence, {&tokens[static_cast<size_t>(length - 1)], 1}));
      REQUIRE_OK(engine->model().Forward(batch.rows(), batch.tokens()));
      if (std::find(compared.begin(), compared.end(), length) != compared.end()) {
        CAPTURE(length);
        const int32_t row = 0;
        const float* logits = engine->model().Logits({&row, 1}).value();
        const std::vector<float> decoded(logits, logits + engine->config().vocab_size);
        batch.Commit();
        REQUIRE(LogitsAfter(engine, {tokens.begin(), tokens.begin() + length}) == decoded);
      } else {
        batch.Commit();
      }
    }
  }
}

TEST_CASE("sequences in one batch give the logits of each alone") {
  for (const Mode& mode : Modes()) {
    CAPTURE(BackendName(mode.backend));
    const std::shared_ptr<Engine> engine = OpenLoud(Options(mode, 512));
    // Two steps: prompts of different lengths together, then decode rows with a prefill chunk.
    const int64_t first[] = {130, 1, 77, 140}, second[] = {1, 1, 90, 1};
    std::vector<std::vector<int32_t>> tokens;
    std::vector<KvSequence> sequences;
    for (int i = 0; i < 4; ++i) {
      tokens.push_back(AnyTokens(first[i] + second[i], 10 + i));
      sequences.push_back(KvSequence::Open(&engine->cache()).value());
    }
    StepBatch& batch = engine->batch();
    batch.Clear();
    for (int i = 0; i < 4; ++i) {
      REQUIRE_OK(batch.Add(&sequences[i], absl::MakeConstSpan(tokens[i]).subspan(0, first[i])));
    }
    REQUIRE_OK(engine->model().Forward(batch.rows(), batch.tokens()));
    batch.Commit();
    batch.Clear();
    // In another order than the first time.
    const int order[] = {2, 0, 3, 1};
    for (const int i : order) {
      REQUIRE_OK(batch.Add(&sequences[i], absl::MakeConstSpan(tokens[i]).subspan(first[i])));
    }
    REQUIRE_OK(engine->model().Forward(batch.rows(), batch.tokens()));
    std::vector<int32_t> rows;
    for (int i = 0; i < 4; ++i) rows.push_back(batch.last_row(i));
    const float* logits = engine->model().Logits(rows).value();
    const int64_t vocab = engine->config().vocab_size;
    std::vector<std::vector<float>> batched(4);
    for (int i = 0; i < 4; ++i)
      batched[order[i]].assign(logits + i * vocab, logits + (i + 1) * vocab);
    batch.Commit();
    sequences.clear();
    for (int i = 0; i < 4; ++i) {
      CAPTURE(i);
      REQUIRE(LogitsAfter(engine, tokens[i]) == batched[i]);
    }
  }
}

TEST_CASE("after a divergence the logits are those of a fresh session") {
  for (const Mode& mode : Modes()) {
    CAPTURE(BackendName(mode.backend));
    const std::shared_ptr<Engine> engine = OpenBundled(Options(mode));
    // No end of a turn in between, to which the session could go back.
    const std::unique_ptr<Session> session =
        OpenSession(engine, {.banned_tokens = engine->eos_tokens()});
    std::vector<int32_t> tokens = AnyTokens(333, 4);
    REQUIRE_OK(session->Sync(tokens));
    for (int i = 0; i < 40; ++i) REQUIRE_OK(session->Step());
    const std::vector<int32_t> straight(session->tokens().begin(), session->tokens().end());

    const auto check = [&](const std::vector<int32_t>& wanted, int64_t common, int64_t reused) {
      absl::StatusOr<SyncResult> result = session->Sync(wanted);
      REQUIRE_OK(result);
      REQUIRE(result->common_tokens == common);
      REQUIRE(result->reused_tokens == reused);
      REQUIRE(result->pending_tokens == static_cast<int64_t>(wanted.size()) - reused);
      REQUIRE_OK(session->Prefill(0, nullptr));
      const absl::Span<const float> logits = session->logits();
      REQUIRE(std::vector<float>(logits.begin(), logits.end()) == LogitsAfter(engine, wanted));
    };
    // Another continuation of the prompt: back to just before the prompt's last token.
    std::vector<int32_t> other = straight;
    other.resize(360);
    other[350] = (other[350] + 1) % 2000;
    check(other, 350, 332);
    // The same list again: nothing to compute. Then longer: everything is reused.
    check(other, 360, 360);
    const std::vector<int32_t> more = AnyTokens(20, 5);
    other.insert(other.end(), more.begin(), more.end());
    check(other, 360, 360);
    // Shorter than any restore point, and a different first token: from the start.
    check({other.begin(), other.begin() + 100}, 100, 0);
    std::vector<int32_t> different = AnyTokens(50, 6);
    different[0] = other[0] + 1;
    check(different, 0, 0);
  }
}

TEST_CASE("a prompt again after its answer computes its last token alone") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(kPublished));
  const std::unique_ptr<Session> session = OpenSession(engine);
  const std::vector<int32_t> prompt = AnyTokens(200, 7);
  REQUIRE_OK(session->Sync(prompt));
  std::vector<int32_t> first, second;
  for (int i = 0; i < 10; ++i) first.push_back(session->Step().value().token);
  const absl::StatusOr<SyncResult> again = session->Sync(prompt);
  REQUIRE(again.value().reused_tokens == 199);
  REQUIRE(again.value().pending_tokens == 1);
  for (int i = 0; i < 10; ++i) second.push_back(session->Step().value().token);
  REQUIRE(first == second);
}

TEST_CASE("a prompt that differs in its last token alone keeps all the others") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(kPublished));
  const std::unique_ptr<Session> session = OpenSession(engine);
  std::vector<int32_t> prompt = AnyTokens(300, 9);
  REQUIRE_OK(session->Sync(prompt));
  for (int i = 0; i < 5; ++i) REQUIRE_OK(session->Step());
  prompt.back() += 1;
  prompt.push_back(77);
  REQUIRE(session->Sync(prompt).value().reused_tokens == 299);
  REQUIRE_OK(session->Prefill(0, nullptr));
  const absl::Span<const float> logits = session->logits();
  REQUIRE(std::vector<float>(logits.begin(), logits.end()) == LogitsAfter(engine, prompt));
}

TEST_CASE("a chunk's end that becomes the whole prompt has its logits computed") {
  const std::shared_ptr<Engine> engine = OpenBundled(Options(kPublished, 64));
  const std::unique_ptr<Session> session = OpenSession(engine);
  const std::vector<int32_t> tokens = AnyTokens(300, 8);
  REQUIRE_OK(session->Sync(tokens));
  REQUIRE(session->Prefill(64, nullptr).value() == 236);
  const std::vector<int32_t> shorter(tokens.begin(), tokens.begin() + 64);
  REQUIRE_OK(session->Sync(shorter));
  REQUIRE_OK(session->Prefill(0, nullptr));
  const absl::Span<const float> logits = session->logits();
  REQUIRE(std::vector<float>(logits.begin(), logits.end()) == LogitsAfter(engine, shorter));
}

}  // namespace
}  // namespace dsv4
