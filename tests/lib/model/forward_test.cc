// SPDX-License-Identifier: Apache-2.0
// What the runtime builds on: rows of the MTP block by slots, in chunks, in batches and chained to
// drafts; stored streams and states; and forward passes that are abandoned between layers. That the
// values are right is the oracle's to say (tests/oracle, dsv4-verify); here they are equal to the
// bit, or equal to the bundled model's recorded answers.
#include <algorithm>
#include <cstring>
#include <functional>

#include "tests/support/bundled_model.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::OpenBundled;
using Bytes = std::vector<std::byte>;
using Tokens = absl::Span<const int32_t>;

constexpr int32_t kLogitRows = 8;

// The scalar truth without quantisers, and what users run.
const std::pair<Backend, Numerics> kModes[] = {{Backend::kReference, Numerics::kExact},
                                               {Backend::kCpu, Numerics::kPublished}};

std::shared_ptr<Engine> Open(const std::pair<Backend, Numerics>& mode) {
  return OpenBundled({.backend = mode.first,
                      .numerics = mode.second,
                      .context_tokens = 1024,
                      .cache_tokens = 4096,
                      .max_sessions = 6,
                      .prefill_chunk_tokens = 512,
                      .threads = 2,
                      .drafts = true,
                      .logit_rows = kLogitRows});
}

KvSequence OpenSequence(Engine& engine) {
  absl::StatusOr<KvSequence> sequence = KvSequence::Open(&engine.cache());
  REQUIRE_OK(sequence);
  return *std::move(sequence);
}

// The main layers on the next `tokens` of one sequence; not committed.
void Forward(Engine& engine, KvSequence& sequence, Tokens tokens, int64_t draft_slots) {
  engine.batch().Clear();
  REQUIRE_OK(engine.batch().Add(&sequence, tokens, draft_slots));
  REQUIRE_OK(engine.model().Forward(engine.batch().rows(), engine.batch().tokens()));
}

// The MTP block on one sequence's slots from `first_slot` on.
void ForwardMtp(Engine& engine, const KvSequence& sequence, int64_t first_slot, Tokens tokens,
                const std::vector<StreamSource>& sources) {
  StepBatch batch(engine.model().limits());
  batch.AddMtp(sequence, tokens, first_slot);
  REQUIRE_OK(engine.model().ForwardDraft(batch.rows(), batch.tokens(), sources));
}

Bytes StreamsOf(Engine& engine, int32_t row) {
  const std::byte* streams = engine.model().StreamsOfRow(row);
  return {streams, streams + engine.model().streams_row_bytes()};
}

std::vector<float> LogitsOf(Engine& engine, int32_t row, bool mtp) {
  ModelRanks& model = engine.model();
  const absl::StatusOr<const float*> logits =
      mtp ? model.DraftLogits({&row, 1}) : model.Logits({&row, 1});
  REQUIRE_OK(logits);
  return {*logits, *logits + engine.config().vocab_size};
}

int32_t Argmax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// What the MTP block gave for slots 1, 2, ...: its streams, and the logits of the last slot.
struct MtpRows {
  std::vector<Bytes> streams;
  std::vector<float> last_logits;

  void Add(Engine& engine, int32_t rows) {
    for (int32_t row = 0; row < rows; ++row) streams.push_back(StreamsOf(engine, row));
    last_logits = LogitsOf(engine, rows - 1, true);
  }
};

// All of `tokens` but the last in one step, then all slots in one.
MtpRows AllAtOnce(Engine& engine, KvSequence& sequence, Tokens tokens) {
  const auto rows = static_cast<int32_t>(tokens.size()) - 1;
  Forward(engine, sequence, tokens.subspan(0, static_cast<size_t>(rows)), 1);
  std::vector<StreamSource> sources;
  for (int32_t row = 0; row < rows; ++row) sources.push_back(StreamSource::OfRow(row));
  ForwardMtp(engine, sequence, 1, tokens.subspan(1), sources);
  MtpRows result;
  result.Add(engine, rows);
  return result;
}

// The same in steps of `chunk` tokens. Each step fills the slots of its own tokens, the first from
// the streams that the step before it stored, as when the next token is not known yet.
MtpRows InChunks(Engine& engine, KvSequence& sequence, Tokens tokens, int64_t chunk) {
  ModelRanks& model = engine.model();
  const auto length = static_cast<int64_t>(tokens.size()) - 1;
  int32_t stored = kNoBlock;  // slot
  MtpRows result;
  for (int64_t begin = 0; begin < length; begin += chunk) {
    const int64_t end = std::min(length, begin + chunk);
    Forward(engine, sequence, tokens.subspan(begin, end - begin), 1);
    const int64_t first_slot = std::max<int64_t>(begin, 1);
    const int64_t slots_end = end == length ? end + 1 : end;
    std::vector<StreamSource> sources;
    const auto last_row = static_cast<int32_t>(end - begin - 1);
    const SequenceRows& step = engine.batch().sequence(0);
    const int32_t to = step.state_writes[step.state_write_count - 1].slot;
    REQUIRE_OK(model.StoreStreams({&last_row, 1}, {&to, 1}));
    for (int64_t slot = first_slot; slot < slots_end; ++slot) {
      sources.push_back(slot == begin
                            ? StreamSource::OfSlot(stored)
                            : StreamSource::OfRow(static_cast<int32_t>(slot - 1 - begin)));
    }
    if (!sources.empty()) {
      ForwardMtp(engine, sequence, first_slot, tokens.subspan(first_slot, slots_end - first_slot),
                 sources);
      result.Add(engine, static_cast<int32_t>(sources.size()));
    }
    engine.batch().Commit();
    stored = sequence.state_slot();
    REQUIRE(stored == to);
  }
  return result;
}

void RequireEqual(const MtpRows& got, const MtpRows& want) {
  REQUIRE(got.streams == want.streams);
  REQUIRE(got.last_logits == want.last_logits);
}

TEST_CASE("MTP rows in chunks are those of all slots at once, bit for bit") {
  for (const auto& mode : kModes) {
    CAPTURE(BackendName(mode.first));
    const std::shared_ptr<Engine> engine = Open(mode);
    const std::vector<int32_t> tokens = AnyTokens(271, 1);
    KvSequence whole = OpenSequence(*engine);
    const MtpRows want = AllAtOnce(*engine, whole, tokens);
    for (const int64_t chunk : {1, 3, 64, 127, 128, 130}) {
      if (chunk < 64 && mode.first == Backend::kReference) continue;  // slow
      CAPTURE(chunk);
      KvSequence sequence = OpenSequence(*engine);
      RequireEqual(InChunks(*engine, sequence, tokens, chunk), want);
    }
  }
}

TEST_CASE("MTP slots of several sequences in one step are those of each alone") {
  for (const auto& mode : kModes) {
    CAPTURE(BackendName(mode.first));
    const std::shared_ptr<Engine> engine = Open(mode);
    const std::vector<int64_t> lengths = {130, 1, 77};
    std::vector<std::vector<int32_t>> tokens;
    std::vector<KvSequence> sequences;
    std::vector<int32_t> first_rows;
    StepBatch& batch = engine->batch();
    batch.Clear();
    sequences.reserve(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      tokens.push_back(AnyTokens(lengths[i] + 1, static_cast<uint32_t>(20 + i)));
      sequences.push_back(OpenSequence(*engine));
      first_rows.push_back(batch.rows().rows);
      REQUIRE_OK(batch.Add(&sequences[i], Tokens(tokens[i]).subspan(0, tokens[i].size() - 1), 1));
    }
    REQUIRE_OK(engine->model().Forward(batch.rows(), batch.tokens()));
    // In another order than the main rows.
    StepBatch mtp(engine->model().limits());
    std::vector<StreamSource> sources;
    const std::vector<size_t> order = {2, 0, 1};
    for (const size_t i : order) {
      mtp.AddMtp(sequences[i], Tokens(tokens[i]).subspan(1), 1);
      for (int32_t row = 0; row < lengths[i]; ++row) {
        sources.push_back(StreamSource::OfRow(first_rows[i] + row));
      }
    }
    REQUIRE_OK(engine->model().ForwardDraft(mtp.rows(), mtp.tokens(), sources));
    std::vector<std::vector<Bytes>> batched(lengths.size());
    int32_t row = 0;
    for (const size_t i : order) {
      for (int64_t slot = 1; slot <= lengths[i]; ++slot) {
        batched[i].push_back(StreamsOf(*engine, row++));
      }
    }
    for (size_t i = 0; i < lengths.size(); ++i) {
      CAPTURE(i);
      KvSequence alone = OpenSequence(*engine);
      REQUIRE(AllAtOnce(*engine, alone, tokens[i]).streams == batched[i]);
    }
  }
}

// `count` drafts at the end of `sequence`, committed, whose next token's slot was row `row` of the
// last pass: each is the block's guess, and the block applied to its own output guesses the next.
std::vector<int32_t> Draft(Engine& engine, KvSequence& sequence, int32_t row, int count,
                           MtpRows* rows) {
  REQUIRE_OK(sequence.Reserve(count));
  std::vector<int32_t> drafts = {Argmax(LogitsOf(engine, row, true))};
  while (static_cast<int>(drafts.size()) < count) {
    const int64_t slot = sequence.length() + static_cast<int64_t>(drafts.size());
    ForwardMtp(engine, sequence, slot, {&drafts.back(), 1}, {StreamSource::OfRow(row)});
    row = 0;
    if (rows != nullptr) rows->Add(engine, 1);
    drafts.push_back(Argmax(LogitsOf(engine, 0, true)));
  }
  return drafts;
}

TEST_CASE("drafts chain by the MTP block's own output, and leave no trace") {
  constexpr int kDrafts = 7;
  // Drafts begin here, before blocks and windows end.
  constexpr int32_t kBegin = 125;
  for (const auto& mode : kModes) {
    CAPTURE(BackendName(mode.first));
    const std::shared_ptr<Engine> engine = Open(mode);
    const std::vector<int32_t> tokens = AnyTokens(134, 5), others = AnyTokens(91, 6);
    const Tokens known = Tokens(tokens).subspan(0, kBegin + 1);
    const auto fill = [&](KvSequence& sequence, Tokens list) {
      AllAtOnce(*engine, sequence, list);
      engine->batch().Commit();
    };
    KvSequence straight = OpenSequence(*engine);
    const MtpRows want = AllAtOnce(*engine, straight, tokens);

    KvSequence sequence = OpenSequence(*engine);
    fill(sequence, known);
    MtpRows chain;
    const std::vector<int32_t> drafts = Draft(*engine, sequence, kBegin - 1, kDrafts, &chain);
    REQUIRE(chain.streams.size() == kDrafts - 1);

    // Together with another sequence, from streams that were copied: the same.
    KvSequence other = OpenSequence(*engine), again = OpenSequence(*engine);
    fill(again, known);
    const int32_t kept = again.state_slot(), last_row = kBegin - 1;
    REQUIRE_OK(engine->model().StoreStreams({&last_row, 1}, {&kept, 1}));
    fill(other, others);
    const auto other_end = static_cast<int32_t>(other.length());
    REQUIRE_OK(other.Reserve(kDrafts));
    REQUIRE_OK(again.Reserve(kDrafts));
    for (int i = 1; i < kDrafts; ++i) {
      CAPTURE(i);
      const Tokens draft = {&drafts[static_cast<size_t>(i) - 1], 1};
      StepBatch both(engine->model().limits());
      both.AddMtp(other, draft, other_end + i);
      both.AddMtp(again, draft, kBegin + i);
      const std::vector<StreamSource> sources = {StreamSource::OfRow(i == 1 ? other_end - 1 : 0),
                                                 StreamSource::OfSlot(kept)};
      REQUIRE_OK(engine->model().ForwardDraft(both.rows(), both.tokens(), sources));
      const int32_t second = 1;
      REQUIRE_OK(engine->model().StoreStreams({&second, 1}, {&kept, 1}));
      REQUIRE(StreamsOf(*engine, 1) == chain.streams[static_cast<size_t>(i) - 1]);
      REQUIRE(Argmax(LogitsOf(*engine, 1, true)) == drafts[static_cast<size_t>(i)]);
    }

    // The text continues otherwise: the drafts' slots are written again from the main streams.
    for (int32_t position = kBegin; position + 1 < static_cast<int32_t>(tokens.size());
         ++position) {
      CAPTURE(position);
      Forward(*engine, sequence, {&tokens[static_cast<size_t>(position)], 1}, 1);
      ForwardMtp(*engine, sequence, position + 1, {&tokens[static_cast<size_t>(position) + 1], 1},
                 {StreamSource::OfRow(0)});
      REQUIRE(StreamsOf(*engine, 0) == want.streams[static_cast<size_t>(position)]);
      engine->batch().Commit();
      Draft(*engine, sequence, 0, kDrafts, nullptr);
    }
  }
}

TEST_CASE("the first draft of a recorded answer is its next token, always") {
  // gates.json: greedy tokens of case facts, whose mtp_acceptance is 1.0.
  const std::shared_ptr<Engine> engine = Open(kModes[1]);
  const std::string text =
      "<｜begin▁of▁sentence｜><｜User｜>Do you know the capital of Russia?"
      "<｜Assistant｜></think>";
  const std::vector<int32_t> prompt =
      engine->tokenizer().value()->Encode(text, {.added_tokens = true}).value();
  REQUIRE(prompt.size() == 12);
  const std::vector<int32_t> answer = {278, 581, 299, 1866, 280, 672, 820, 69, 301, 16, 1};
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  KvSequence sequence = OpenSequence(*engine);
  const size_t known = prompt.size() + 1;
  AllAtOnce(*engine, sequence, Tokens(tokens).subspan(0, known));
  int32_t row = static_cast<int32_t>(prompt.size()) - 1;
  for (size_t next = known; next < tokens.size(); ++next, row = 0) {
    CAPTURE(next);
    REQUIRE(Argmax(LogitsOf(*engine, row, true)) == tokens[next]);
    engine->batch().Commit();
    Forward(*engine, sequence, {&tokens[next - 1], 1}, 1);
    REQUIRE(Argmax(LogitsOf(*engine, 0, false)) == tokens[next]);
    ForwardMtp(*engine, sequence, static_cast<int64_t>(next), {&tokens[next], 1},
               {StreamSource::OfRow(0)});
  }
}

TEST_CASE("a forward pass that stops leaves the sequence as it was") {
  for (const auto& mode : kModes) {
    CAPTURE(BackendName(mode.first));
    const std::shared_ptr<Engine> engine = Open(mode);
    ModelRanks& model = engine->model();
    const auto layers = static_cast<int>(engine->config().num_hidden_layers);
    const std::vector<int32_t> tokens = AnyTokens(300, 30), garbage = AnyTokens(300, 31);
    KvSequence straight = OpenSequence(*engine), sequence = OpenSequence(*engine);
    // Inside compressed blocks, at their ends, and at the ends of window blocks and compressed KV
    // blocks.
    int64_t begin = 0;
    int round = 0;
    for (const int64_t end : {3, 4, 63, 127, 128, 130, 255, 256, 300}) {
      CAPTURE(begin, end);
      const Tokens next = Tokens(tokens).subspan(begin, end - begin);
      Forward(*engine, straight, next, 0);
      const std::vector<float> want =
          LogitsOf(*engine, static_cast<int32_t>(next.size()) - 1, false);
      engine->batch().Commit();

      // Stopped before each of the layers in turn, with other tokens, more of them, and fewer.
      for (const int64_t rows : {int64_t{1}, end - begin, int64_t{90}}) {
        int asked = 0;
        const int stop_at = round++ % layers;
        const std::function<bool()> stop = [&] { return asked++ == stop_at; };
        engine->batch().Clear();
        REQUIRE_OK(engine->batch().Add(&sequence, Tokens(garbage).subspan(0, rows), 1));
        REQUIRE_FAILS(model.Forward(engine->batch().rows(), engine->batch().tokens(), &stop),
                      absl::StatusCode::kCancelled, "layer");
        REQUIRE(asked == stop_at + 1);
        REQUIRE(sequence.length() == begin);
      }
      // Or computed to its end, and discarded all the same.
      Forward(*engine, sequence, Tokens(garbage).subspan(0, 70), 1);

      Forward(*engine, sequence, next, 0);
      REQUIRE(LogitsOf(*engine, static_cast<int32_t>(next.size()) - 1, false) == want);
      engine->batch().Commit();
      begin = end;
    }
    int asked = 0;
    const std::function<bool()> never = [&] { return ++asked < 0; };
    engine->batch().Clear();
    REQUIRE_OK(engine->batch().Add(&sequence, Tokens(garbage).subspan(0, 5)));
    REQUIRE_OK(model.Forward(engine->batch().rows(), engine->batch().tokens(), &never));
    REQUIRE(asked == layers);
  }
}

TEST_CASE("a pass can continue from a state that was written inside a step") {
  for (const auto& mode : kModes) {
    CAPTURE(BackendName(mode.first));
    const std::shared_ptr<Engine> engine = Open(mode);
    const std::vector<int32_t> tokens = AnyTokens(300, 50), others = AnyTokens(300, 51);
    // One chunk over the block boundary at 256, then back to it and on with other tokens.
    KvSequence sequence = OpenSequence(*engine), straight = OpenSequence(*engine);
    Forward(*engine, sequence, tokens, 0);
    engine->batch().Commit();
    REQUIRE(sequence.Rewind(299) == 256);
    Forward(*engine, sequence, Tokens(others).subspan(256), 0);
    const std::vector<float> resumed = LogitsOf(*engine, 300 - 256 - 1, false);
    engine->batch().Commit();
    Forward(*engine, straight, Tokens(tokens).subspan(0, 256), 0);
    engine->batch().Commit();
    Forward(*engine, straight, Tokens(others).subspan(256), 0);
    REQUIRE(LogitsOf(*engine, 300 - 256 - 1, false) == resumed);
  }
}

TEST_CASE("stored streams are those of their rows; wrong calls are refused by name") {
  const std::shared_ptr<Engine> engine = Open(kModes[1]);
  ModelRanks& model = engine->model();
  const std::vector<int32_t> tokens = AnyTokens(20, 40);
  KvSequence sequence = OpenSequence(*engine);
  Forward(*engine, sequence, tokens, 1);
  const auto bytes = static_cast<size_t>(model.streams_row_bytes());
  REQUIRE(bytes == size_t{4 * 256 * 2});
  // The sequence's own slots, and one between them that stays as it was.
  const KvCache& cache = engine->cache();
  const std::vector<int32_t> rows = {19, 0};
  const int32_t first = sequence.Rows(0).state_writes[0].slot;
  const std::vector<int32_t> places = {first, first + 2};
  const auto kept = [&](int32_t slot) { return cache.streams().Slot(slot); };
  std::memset(kept(first + 1), 0x5a, bytes);
  REQUIRE_OK(model.StoreStreams(rows, places));
  REQUIRE(std::memcmp(kept(first), model.StreamsOfRow(19), bytes) == 0);
  REQUIRE(std::memcmp(kept(first + 2), model.StreamsOfRow(0), bytes) == 0);
  REQUIRE(std::count(kept(first + 1), kept(first + 1) + bytes, std::byte{0x5a}) ==
          static_cast<int64_t>(bytes));
  REQUIRE(StreamsOf(*engine, 19) != StreamsOf(*engine, 0));
  REQUIRE_OK(model.StoreStreams({}, {}));
  const std::vector<int32_t> beyond = {3, 20};
  REQUIRE_FAILS(model.StoreStreams(beyond, places), absl::StatusCode::kInvalidArgument, "row 20");
  REQUIRE_FAILS(model.StoreStreams({&rows[0], 1}, places), absl::StatusCode::kInvalidArgument,
                "1 rows to 2");

  StepBatch batch(model.limits());
  batch.AddMtp(sequence, {&tokens[0], 1}, 0);
  const std::vector<StreamSource> source = {StreamSource::OfRow(0)};
  REQUIRE_FAILS(model.ForwardDraft(batch.rows(), batch.tokens(), source),
                absl::StatusCode::kInvalidArgument, "slot 0");
  REQUIRE_FAILS(model.ForwardDraft(batch.rows(), batch.tokens(), {}),
                absl::StatusCode::kInvalidArgument, "0 sources");
  batch.Clear();
  REQUIRE_FAILS(model.ForwardDraft(batch.rows(), batch.tokens(), {}),
                absl::StatusCode::kInvalidArgument, "0 rows");

  const std::shared_ptr<Engine> plain = OpenBundled({.context_tokens = 64, .threads = 1});
  KvSequence other = OpenSequence(*plain);
  batch.AddMtp(other, {&tokens[0], 1}, 1);
  REQUIRE_FAILS(plain->model().ForwardDraft(batch.rows(), batch.tokens(), source),
                absl::StatusCode::kInternal, "not planned");
  REQUIRE_FAILS(plain->model().DraftLogits({&rows[1], 1}), absl::StatusCode::kInternal,
                "not planned");
}

}  // namespace
}  // namespace dsv4
