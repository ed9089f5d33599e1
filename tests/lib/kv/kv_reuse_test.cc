// SPDX-License-Identifier: Apache-2.0
// Restore points, the prefix cache's hits and what a sync is told of them, session images.
#include <memory>

#include "lib/base/error.h"
#include "tests/lib/kv/fake_forward.h"
#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::FakeForward;
using test::FakeSession;

struct Fixture {
  explicit Fixture(int64_t context = 4096, int64_t cache_tokens = 4096, int32_t sequences = 3,
                   bool far = false)
      : device(far ? std::unique_ptr<Device>(new test::FarDevice)
                   : Device::Open({.threads = 1}).value()),
        cache(KvCache::Create({.compress_ratios = {0, 4, 128, 0},
                               .mtp_layers = 1,
                               .row_format = RowFormat::kPacked,
                               .streams_bytes = 64,
                               .context_tokens = context,
                               .cache_tokens = cache_tokens,
                               .max_sequences = sequences,
                               .max_step_tokens = 256,
                               .max_draft_tokens = 3},
                              *device)
                  .value()),
        forward(cache.get()) {}
  FakeSession Open(uint64_t salt = 0) {
    return {KvSequence::Open(cache.get(), salt).value(), &forward};
  }

  std::unique_ptr<Device> device;
  std::unique_ptr<KvCache> cache;
  FakeForward forward;
};

std::vector<int32_t> Tokens(int64_t count, uint32_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<int32_t>(test::Mix(seed, static_cast<uint64_t>(i)) % 1000));
  }
  return tokens;
}

// Up to tokens.size(), in chunks.
void ExtendTo(FakeSession& session, const std::vector<int32_t>& tokens, int64_t prompt = 0,
              int64_t chunk = 256) {
  while (session.text.size() < static_cast<int64_t>(tokens.size())) {
    const auto begin = tokens.begin() + session.text.size();
    const int64_t rows = std::min<int64_t>(chunk, tokens.end() - begin);
    REQUIRE_OK(session.Extend({begin, begin + rows}, prompt));
  }
}

std::vector<int32_t> First(const std::vector<int32_t>& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

// The position to which Rewind(tokens) goes back.
int64_t Restorable(FakeSession& session, int64_t tokens) {
  KvSequence fork = session.kv.Fork().value();
  return fork.Rewind(tokens);
}

TEST_CASE("restore points: every 256 of the last 2048 tokens, every 4096 before, turn ends") {
  Fixture f(12288, 12288, 2);
  FakeSession session = f.Open();
  const std::vector<int32_t> tokens = Tokens(11000, 1);
  for (int64_t turn = 1; turn <= 10; ++turn) {
    ExtendTo(session, First(tokens, turn * 1000 + 7), 0, 100);
    session.kv.MarkTurnEnd();
  }
  ExtendTo(session, tokens, 0, 100);
  const auto restorable = [](int64_t position, int64_t length) {
    if (position == length) return true;
    if (position % 1000 == 7 && position / 1000 >= 1 && position / 1000 <= 10) return true;
    return position % 4096 == 0 || (position % 256 == 0 && position >= length - 2048);
  };
  int64_t expected = 0, wrong = 0;
  for (int64_t position = 0; position < 10900; ++position) {  // behind, the last step counts, too
    if (restorable(position, 11000)) expected = position;
    wrong += Restorable(session, position) != expected;
  }
  REQUIRE(wrong == 0);
  for (const int64_t asked : {10999, 10007, 9000, 6500, 4500, 4095}) {
    CAPTURE(asked);
    const int64_t length = session.kv.length();
    const int64_t target = session.Rewind(asked);
    REQUIRE(restorable(target, length));
    REQUIRE(session.Mismatches() == 0);
  }
  REQUIRE(session.kv.length() == 4007);
}

TEST_CASE("turn ends stay while their blocks are not needed, the last 8 always") {
  Fixture f(2048, 6144, 4);
  FakeSession talk = f.Open();
  const std::vector<int32_t> tokens = Tokens(1600, 1);
  constexpr int64_t kTurn = 21, kTurns = 70;
  const auto kept = [&] {
    int64_t count = 0;
    for (int64_t turn = 1; turn <= kTurns; ++turn) {
      count += Restorable(talk, turn * kTurn) == turn * kTurn;
    }
    return count;
  };
  for (int64_t turn = 1; turn <= kTurns; ++turn) {
    ExtendTo(talk, First(tokens, turn * kTurn), 0, 10);
    talk.kv.MarkTurnEnd();
  }
  ExtendTo(talk, tokens, 0, 10);
  const int64_t alone = kept();
  REQUIRE(alone > 20);  // as many as the other two sequences leave states for
  FakeSession others[] = {f.Open(), f.Open()};
  for (FakeSession& other : others) {
    for (int64_t turn = 1; turn <= 15; ++turn) {
      ExtendTo(other, First(Tokens(1600, 2 + (&other - others)), turn * 100 + 7), 0, 10);
      other.kv.MarkTurnEnd();
    }
  }
  const int64_t crowded = kept();
  REQUIRE(crowded < alone);
  REQUIRE(crowded >= 8);
  for (int64_t turn = kTurns; turn > kTurns - 8; --turn) {
    REQUIRE(talk.Rewind(turn * kTurn) == turn * kTurn);
    REQUIRE(talk.Mismatches() == 0);
  }
  for (const FakeSession& other : others) REQUIRE(other.Mismatches() == 0);
}

TEST_CASE("short steps can be undone row by row, long ones not") {
  Fixture f;
  FakeSession session = f.Open();
  ExtendTo(session, Tokens(300, 1));
  REQUIRE_OK(session.Step({1, 2, 3, 4}, 3, true));
  REQUIRE(session.kv.length() == 303);
  for (const int64_t position : {302, 301, 300}) {
    REQUIRE(session.Rewind(position) == position);
    REQUIRE(session.Mismatches() == 0);
  }
  REQUIRE(Restorable(session, 299) == 256);
  REQUIRE_OK(session.Step({1}, 1, false));
  REQUIRE(Restorable(session, 300) == 300);
  ExtendTo(session, Tokens(320, 2));
  REQUIRE(Restorable(session, 319) == 256);
}

TEST_CASE("every boundary in a verify step is a restore point of its own") {
  Fixture f;
  FakeSession session = f.Open();
  ExtendTo(session, Tokens(510, 1));
  REQUIRE_OK(session.Step({1, 2, 3, 4}, 4, true, 3));
  ExtendTo(session, Tokens(700, 3));
  REQUIRE(session.Rewind(600) == 512);
  REQUIRE(session.Mismatches() == 0);
}

TEST_CASE(
    "a prompt that another sequence computed is taken over, and the reason for less is told") {
  Fixture f;
  FakeSession first = f.Open();
  const std::vector<int32_t> tokens = Tokens(1000, 1);
  ExtendTo(first, tokens, 1000);
  FakeSession second = f.Open();
  PrefixReuse reuse = second.Adopt(tokens, 1000);
  REQUIRE(reuse.own_tokens == 0);
  REQUIRE(reuse.cached_tokens == 768);
  REQUIRE(reuse.limit == ReuseLimit::kIncompleteBlock);
  REQUIRE(reuse.limit_position == 768);
  REQUIRE(second.Mismatches() == 0);
  ExtendTo(second, tokens);
  REQUIRE(second.Mismatches() == 0);
  // Three of four blocks are one.
  REQUIRE(f.cache->use().compressed.held() == 3 + 2);

  SECTION("the same again is all there") {
    reuse = second.Adopt(tokens, 1000);
    REQUIRE(reuse.own_tokens == 1000);
    REQUIRE(reuse.cached_tokens == 0);
    REQUIRE(reuse.limit == ReuseLimit::kNone);
  }
  SECTION("its last token again: from the block before it") {
    reuse = second.Adopt(First(tokens, 768), 767);
    REQUIRE(reuse.tokens() == 512);
    REQUIRE(reuse.limit == ReuseLimit::kNoRestorePoint);
    REQUIRE(reuse.limit_position == 767);
  }
  SECTION("all but the last token, which must be computed again") {
    REQUIRE_OK(second.Extend({5}));
    std::vector<int32_t> longer = tokens;
    longer.push_back(5);
    reuse = second.Adopt(longer, 1000);
    REQUIRE(reuse.own_tokens == 1000);
    REQUIRE(reuse.limit == ReuseLimit::kLastToken);
  }
  SECTION("tokens that differ") {
    std::vector<int32_t> other = tokens;
    other[768] = 5000;
    reuse = second.Adopt(other, 1000);
    REQUIRE(reuse.own_tokens == 768);
    REQUIRE(reuse.limit == ReuseLimit::kTokensDiffer);
    REQUIRE(reuse.limit_position == 768);
    REQUIRE(second.Mismatches() == 0);
    other = tokens;
    other[800] = 5000;
    reuse = first.Adopt(other, 1000);
    REQUIRE(reuse.own_tokens == 768);
    REQUIRE(reuse.limit == ReuseLimit::kNoRestorePoint);
    REQUIRE(reuse.limit_position == 800);
  }
  SECTION("never seen") {
    reuse = second.Adopt(Tokens(1000, 2), 1000);
    REQUIRE(reuse.tokens() == 0);
    REQUIRE(reuse.limit == ReuseLimit::kTokensDiffer);
    FakeSession third = f.Open();
    reuse = third.Adopt(Tokens(1000, 2), 1000);
    REQUIRE(reuse.tokens() == 0);
    REQUIRE(reuse.limit == ReuseLimit::kNotCached);
  }
  SECTION("another salt sees nothing") {
    FakeSession third = f.Open(1);
    reuse = third.Adopt(tokens, 1000);
    REQUIRE(reuse.tokens() == 0);
    REQUIRE(reuse.limit == ReuseLimit::kNotCached);
  }
}

TEST_CASE("what two sequences compute at the same time is kept once") {
  Fixture f;
  FakeSession first = f.Open(), second = f.Open();
  const std::vector<int32_t> tokens = Tokens(1024, 1);
  for (int64_t end = 256; end <= 1024; end += 256) {
    ExtendTo(first, First(tokens, end));
    ExtendTo(second, First(tokens, end));
  }
  REQUIRE(f.cache->use().compressed.held() == 4);
  REQUIRE(first.Mismatches() + second.Mismatches() == 0);
  // Restore points, too: 4 of one state, and each sequence's own.
  REQUIRE(f.cache->use().states.held() == 1 + 4 + 1);
}

TEST_CASE(
    "a closed sequence's prompt outlives generated text, and goes when nothing else is left") {
  Fixture f(4096, 2048, 3);  // 11 blocks
  const std::vector<int32_t> prompt = Tokens(512, 1);
  {
    FakeSession session = f.Open();
    ExtendTo(session, prompt, 512);
  }
  {
    FakeSession session = f.Open();
    ExtendTo(session, Tokens(1024, 2));  // generated; later used
  }
  REQUIRE(f.cache->use().compressed.cached == 6);
  FakeSession session = f.Open();
  ExtendTo(session, Tokens(9 * 256, 3));  // 5 free, 4 evicted
  REQUIRE(f.cache->use().compressed.cached == 2);
  {
    FakeSession other = f.Open();
    REQUIRE(other.Adopt(prompt, 512).cached_tokens == 512);
  }
  ExtendTo(session, Tokens(11 * 256, 3));
  REQUIRE(f.cache->use().compressed.held() == 11);
  REQUIRE_FAILS(session.kv.Reserve(1), OutOfBlocks().code(), "compressed-row");
  FakeSession other = f.Open();
  REQUIRE(other.Adopt(prompt, 512).tokens() == 0);
}

TEST_CASE("a sequence that fills the cache can still go back into its last block") {
  Fixture f(4096, 1024, 1);  // 5 blocks
  FakeSession session = f.Open();
  ExtendTo(session, Tokens(1200, 1));
  session.kv.MarkTurnEnd();
  ExtendTo(session, Tokens(1280, 1));
  REQUIRE(f.cache->use().compressed.held() == 5);
  REQUIRE(session.Rewind(1250) == 1200);
  ExtendTo(session, First(Tokens(1280, 1), 1280));
  REQUIRE(session.Rewind(1279) == 1200);
  REQUIRE_OK(session.Extend({1, 2, 3}));
  REQUIRE(session.Mismatches() == 0);
}

TEST_CASE("an image is refused before anything changes, or is the sequence again") {
  const bool far = GENERATE(false, true);
  Fixture f(4096, 4096, 3, far);
  const int64_t length = GENERATE(0, 1, 3, 127, 128, 129, 300, 512);
  CAPTURE(far, length);
  FakeSession session = f.Open();
  ExtendTo(session, Tokens(length, 1));
  std::vector<std::byte> image(static_cast<size_t>(session.kv.ImageBytes()));
  REQUIRE_OK(session.kv.WriteImage(absl::MakeSpan(image)));
  if (length == 300) {
    // Rows of 584 bytes: 127 and 75 + 2, and of 127 MTP slots; keys of 68.
    REQUIRE(session.kv.ImageBytes() ==
            3 * 127 * 584 + 127 * 584 + 77 * 584 + 75 * 68 + f.cache->state_bytes());
  }
  FakeSession other = f.Open();
  const std::vector<int32_t> mine = Tokens(400, 2);
  ExtendTo(other, mine);
  const absl::Span<const std::byte> bytes = image;
  if (length > 0) {
    REQUIRE_FAILS(other.kv.ReadImage(length, bytes.subspan(1)), absl::StatusCode::kDataLoss,
                  "bytes, not");
    REQUIRE_FAILS(other.kv.ReadImage(length + 4, bytes), absl::StatusCode::kDataLoss,
                  "tokens take");
  }
  REQUIRE_FAILS(other.kv.ReadImage(-1, bytes), absl::StatusCode::kDataLoss, "-1 tokens");
  REQUIRE_FAILS(other.kv.ReadImage(4097, bytes), absl::StatusCode::kOutOfRange, "4097 tokens");
  REQUIRE(other.Mismatches() == 0);
  REQUIRE_OK(other.kv.ReadImage(length, bytes));
  other.text = session.text;
  REQUIRE(other.Mismatches() == 0);
  REQUIRE_OK(other.Extend(mine.size() > 5 ? First(mine, 5) : mine));
  REQUIRE(other.Mismatches() == 0);
}

TEST_CASE("an image that does not fit is refused and changes nothing") {
  Fixture f(4096, 1024, 2);  // 6 blocks
  FakeSession session = f.Open(), other = f.Open();
  ExtendTo(session, Tokens(1024, 1));
  std::vector<std::byte> image(static_cast<size_t>(session.kv.ImageBytes()));
  REQUIRE_OK(session.kv.WriteImage(absl::MakeSpan(image)));
  ExtendTo(other, Tokens(300, 2));
  REQUIRE_FAILS(other.kv.ReadImage(1024, image), OutOfBlocks().code(), "4 compressed-row");
  REQUIRE(other.Mismatches() == 0);
  // Over itself there is room.
  REQUIRE_OK(session.kv.ReadImage(1024, image));
  REQUIRE(session.Mismatches() == 0);
}

TEST_CASE("rows out of an image are not published to others") {
  Fixture f;
  const std::vector<int32_t> tokens = Tokens(512, 1);
  std::vector<std::byte> forged;
  {
    FakeSession liar = f.Open(1);  // another salt: its rows are not in the way
    ExtendTo(liar, Tokens(300, 9));
    forged.resize(static_cast<size_t>(liar.kv.ImageBytes()));
    REQUIRE_OK(liar.kv.WriteImage(absl::MakeSpan(forged)));
  }
  FakeSession session = f.Open();
  REQUIRE_OK(session.kv.ReadImage(300, forged));
  REQUIRE_OK(session.kv.Reserve(212));
  session.kv.Commit(212);
  session.kv.Publish(tokens, 512);
  FakeSession other = f.Open();
  REQUIRE(other.Adopt(tokens, 512).tokens() == 0);
  // From the start again, its rows are its own.
  session.kv.Rewind(0);
  ExtendTo(session, tokens);
  REQUIRE(other.Adopt(tokens, 512).tokens() == 512);
  REQUIRE(other.Mismatches() == 0);
}

}  // namespace
}  // namespace dsv4
