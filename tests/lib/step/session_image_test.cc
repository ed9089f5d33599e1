// SPDX-License-Identifier: Apache-2.0
#include "lib/step/session_image.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr auto kCorrupt = absl::StatusCode::kDataLoss;
const absl::StatusCode kMismatch = VersionMismatch().code();

const SessionIdentity kIdentity{.weights = {1, 2}, .tokenizer = {3, 4}, .cache = {5, 6}};
const SessionCounts kCounts{.tokens = 5,
                            .delivered_tokens = 4,
                            .computed_tokens = 4,
                            .prompt_tokens = 3,
                            .logits = 7,
                            .cache_bytes = 21,
                            .grammar_bytes = 9};

std::vector<uint8_t> Image(const SessionCounts& counts = kCounts) {
  std::vector<uint8_t> image(static_cast<size_t>(SessionImageBytes(counts)), 0xee);
  const SessionSections<uint8_t> sections = SectionsOf(counts, absl::MakeSpan(image));
  std::fill(sections.tokens.begin(), sections.tokens.end(), 't');
  std::fill(sections.logits.begin(), sections.logits.end(), 'l');
  std::fill(sections.cache.begin(), sections.cache.end(), 'c');
  std::fill(sections.grammar.begin(), sections.grammar.end(), 'g');
  SealSessionImage(kIdentity, counts, absl::MakeSpan(image));
  return image;
}

std::string Text(absl::Span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

TEST_CASE("a session image comes back as it was") {
  const std::vector<uint8_t> image = Image();
  // 128 of header, 5 tokens padded to 24, 7 logits to 32, 21 to 24, 9 to 16, the checksum.
  REQUIRE(image.size() == 128 + 24 + 32 + 24 + 16 + 16);
  const auto parsed = ParseSessionImage(image, kIdentity, "file");
  REQUIRE_OK(parsed);
  REQUIRE(parsed->counts.tokens == 5);
  REQUIRE(parsed->counts.delivered_tokens == 4);
  REQUIRE(parsed->counts.computed_tokens == 4);
  REQUIRE(parsed->counts.prompt_tokens == 3);
  REQUIRE(Text(parsed->sections.tokens) == std::string(20, 't'));
  REQUIRE(Text(parsed->sections.logits) == std::string(28, 'l'));
  REQUIRE(Text(parsed->sections.cache) == std::string(21, 'c'));
  REQUIRE(Text(parsed->sections.grammar) == std::string(9, 'g'));
}

TEST_CASE("an empty session has an image, too") {
  const std::vector<uint8_t> image = Image({});
  REQUIRE(image.size() == 144);
  REQUIRE_OK(ParseSessionImage(image, kIdentity, "file"));
}

TEST_CASE("checking a session image is told by parts, and can be ended") {
  SessionCounts counts = kCounts;
  counts.cache_bytes = 2 * kImagePartBytes;
  const std::vector<uint8_t> image = Image(counts);
  const auto size = static_cast<int64_t>(image.size());
  std::vector<int64_t> told;
  const auto parsed = ParseSessionImage(image, kIdentity, "file", [&](int64_t done) {
    told.push_back(done);
    return absl::OkStatus();
  });
  REQUIRE_OK(parsed);
  REQUIRE(parsed->counts.cache_bytes == counts.cache_bytes);
  REQUIRE(told == std::vector<int64_t>{kImagePartBytes, 2 * kImagePartBytes, size});

  told.clear();
  const auto ended = ParseSessionImage(image, kIdentity, "file", [&](int64_t done) {
    told.push_back(done);
    return absl::CancelledError("enough");
  });
  REQUIRE_FAILS(ended, absl::StatusCode::kCancelled, "enough");
  REQUIRE(told == std::vector<int64_t>{kImagePartBytes});
}

TEST_CASE("every flipped bit and every cut of a session image is refused") {
  const std::vector<uint8_t> image = Image();
  for (size_t at = 0; at < image.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<uint8_t> damaged = image;
      damaged[at] ^= static_cast<uint8_t>(1 << bit);
      REQUIRE_FALSE(ParseSessionImage(damaged, kIdentity, "file").ok());
    }
    const std::vector<uint8_t> cut(image.begin(), image.begin() + static_cast<ptrdiff_t>(at));
    REQUIRE_FAILS(ParseSessionImage(cut, kIdentity, "file"), kCorrupt, "file: ");
  }
  std::vector<uint8_t> longer = image;
  longer.push_back(0);
  REQUIRE_FAILS(ParseSessionImage(longer, kIdentity, "file"), kCorrupt, "file: ");
}

TEST_CASE("a session image names what it does not fit") {
  const std::vector<uint8_t> image = Image();
  SessionIdentity other = kIdentity;
  other.weights.high = 9;
  REQUIRE_FAILS(ParseSessionImage(image, other, "file"), kMismatch, "weights");
  other = kIdentity;
  other.tokenizer.low = 9;
  REQUIRE_FAILS(ParseSessionImage(image, other, "file"), kMismatch, "tokenizer");
  other = kIdentity;
  other.cache.low = 9;
  REQUIRE_FAILS(ParseSessionImage(image, other, "file"), kMismatch, "cache_format");
  std::vector<uint8_t> newer = image;
  newer[8] = 2;
  REQUIRE_FAILS(ParseSessionImage(newer, kIdentity, "file"), kMismatch, "format 2");
  REQUIRE_FAILS(ParseSessionImage(std::vector<uint8_t>(200, 'x'), kIdentity, "file"), kCorrupt,
                "not a saved session");
}

// With a right checksum: made on purpose, not by accident.
TEST_CASE("impossible counts of a session image are refused") {
  const int64_t huge = int64_t{1} << 62;
  for (const int64_t SessionCounts::*field :
       {&SessionCounts::tokens, &SessionCounts::delivered_tokens, &SessionCounts::computed_tokens,
        &SessionCounts::prompt_tokens, &SessionCounts::logits, &SessionCounts::cache_bytes,
        &SessionCounts::grammar_bytes}) {
    for (const int64_t value : {int64_t{-1}, int64_t{100}, huge}) {
      std::vector<uint8_t> image = Image();
      const size_t offset =
          72 + static_cast<size_t>(reinterpret_cast<const char*>(&(kCounts.*field)) -
                                   reinterpret_cast<const char*>(&kCounts));
      std::copy_n(reinterpret_cast<const uint8_t*>(&value), 8, image.data() + offset);
      const ContentHash checksum = HashOf(absl::MakeConstSpan(image).subspan(0, image.size() - 16));
      std::copy_n(reinterpret_cast<const uint8_t*>(&checksum), 16,
                  image.data() + image.size() - 16);
      REQUIRE_FAILS(ParseSessionImage(image, kIdentity, "file"), kCorrupt, "inconsistent");
    }
  }
}

}  // namespace
}  // namespace dsv4
