// SPDX-License-Identifier: Apache-2.0
// Streams against whole texts as the HF tokenizers library decoded them.
#include "lib/text/streaming_decoder.h"
#include "lib/base/utf8.h"

#include <string>
#include <vector>

#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

std::string Pushed(StreamingDecoder& decoder, int32_t id) {
  std::string text;
  REQUIRE_OK(decoder.Push(id, &text));
  return text;
}

std::string Flushed(StreamingDecoder& decoder) {
  std::string text;
  decoder.Flush(&text);
  return text;
}

// Each piece must be UTF-8 by itself.
std::string Streamed(const std::vector<int32_t>& ids, const DecodeOptions& options = {}) {
  StreamingDecoder decoder(test::TinyTokenizer(), options);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = Pushed(decoder, id);
    REQUIRE(ValidUtf8Prefix(piece) == piece.size());
    text += piece;
  }
  return text + Flushed(decoder);
}

// Ids of the tokens that stand for one byte each.
std::vector<int32_t> ByteIds(absl::string_view bytes) {
  static const std::vector<int32_t> by_byte = [] {
    std::vector<int32_t> ids(256, -1);
    const Tokenizer& tokenizer = test::TinyTokenizer();
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
      const absl::string_view token = *tokenizer.TokenBytes(id);
      if (token.size() == 1) ids[static_cast<uint8_t>(token[0])] = id;
    }
    return ids;
  }();
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(by_byte[static_cast<uint8_t>(c)]);
  return ids;
}

TEST_CASE("a stream gives the text of its ids") {
  for (const auto& c : test::TokenizerCases("dsv4_tiny_tokenizer_cases.json")) {
    REQUIRE(Streamed(c.ids) == c.decoded);
  }
}

TEST_CASE("ids whose bytes are not UTF-8 give the HF library's replacements") {
  const JsonValue cases = test::Document("tests/lib/text/dsv4_tiny_decode_cases.json");
  CHECK(cases.AsArray()->size() == 300);
  for (const JsonValue& c : *cases.AsArray()) {
    const std::vector<int32_t> ids = test::IdsOf(*c.Find("ids"));
    const std::string& decoded = *c.Find("decoded")->AsString();
    const std::string& without_special = *c.Find("decoded_skip_special")->AsString();
    REQUIRE(*test::TinyTokenizer().Decode(ids) == decoded);
    REQUIRE(Streamed(ids) == decoded);
    REQUIRE(*test::TinyTokenizer().Decode(ids, {.skip_special_tokens = true}) == without_special);
    REQUIRE(Streamed(ids, {.skip_special_tokens = true}) == without_special);
  }
}

TEST_CASE("a character comes with its last byte") {
  StreamingDecoder decoder(test::TinyTokenizer());
  for (const char* character : {"é", "你", "😀"}) {
    const std::vector<int32_t> ids = ByteIds(character);
    for (size_t i = 0; i + 1 < ids.size(); ++i) CHECK(Pushed(decoder, ids[i]).empty());
    CHECK(Pushed(decoder, ids.back()) == character);
  }
  CHECK(Flushed(decoder).empty());
}

TEST_CASE("what cannot be completed is replaced as soon as that is known") {
  StreamingDecoder decoder(test::TinyTokenizer());
  CHECK(Pushed(decoder, ByteIds("\xF0")[0]).empty());
  CHECK(Pushed(decoder, ByteIds("\x9F")[0]).empty());
  CHECK(Pushed(decoder, ByteIds("x")[0]) == "\uFFFDx");
  CHECK(Pushed(decoder, ByteIds("\x9F")[0]) == "\uFFFD");
  CHECK(Pushed(decoder, ByteIds("\xE4")[0]).empty());
  CHECK(Flushed(decoder) == "\uFFFD");
  CHECK(Flushed(decoder).empty());
  CHECK(Pushed(decoder, ByteIds("a")[0]) == "a");
}

TEST_CASE("cut at any place, a stream loses nothing") {
  const std::string text =
      "aé你😀\xF0\x9F"
      "b\xC3";
  const std::vector<int32_t> ids = ByteIds(text);
  for (size_t cut = 0; cut <= ids.size(); ++cut) {
    // The held bytes are at most 3, and what came out so far is a start of the whole.
    StreamingDecoder decoder(test::TinyTokenizer());
    std::string out;
    for (size_t i = 0; i < cut; ++i) out += Pushed(decoder, ids[i]);
    const std::string whole = "aé你😀\uFFFDb\uFFFD";
    CHECK(whole.substr(0, out.size()) == out);
    for (size_t i = cut; i < ids.size(); ++i) out += Pushed(decoder, ids[i]);
    CHECK(out + Flushed(decoder) == whole);
  }
}

TEST_CASE("a bad id is an error that leaves the stream as it was") {
  StreamingDecoder decoder(test::TinyTokenizer());
  CHECK(Pushed(decoder, ByteIds("\xC3")[0]).empty());
  std::string text = "before ";
  REQUIRE_FAILS(decoder.Push(2048, &text), absl::StatusCode::kInvalidArgument, "2048");
  REQUIRE_FAILS(decoder.Push(-1, &text), absl::StatusCode::kInvalidArgument, "-1");
  CHECK(text == "before ");
  REQUIRE_OK(decoder.Push(ByteIds("\xA9")[0], &text));
  CHECK(text == "before é");
}

}  // namespace
}  // namespace dsv4
