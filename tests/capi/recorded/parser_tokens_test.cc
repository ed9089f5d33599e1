// SPDX-License-Identifier: Apache-2.0
// dsv4_parser_feed_tokens on every recorded completion: the events of its tokens, in any batches,
// are those of its bytes.
#include <dsv4/dsv4.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/text/unicode.h"
#include "tests/lib/text/event_log.h"
#include "tests/lib/text/parse_cases.h"

namespace dsv4 {
namespace {

using test::EventLog;

constexpr const char* kModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";

struct Close {
  void operator()(dsv4_tokenizer* tokenizer) const { dsv4_tokenizer_close(tokenizer); }
  void operator()(dsv4_parser* parser) const { dsv4_parser_close(parser); }
};
using OwnedTokenizer = std::unique_ptr<dsv4_tokenizer, Close>;
using OwnedParser = std::unique_ptr<dsv4_parser, Close>;

OwnedTokenizer OpenTokenizer() {
  dsv4_tokenizer* tokenizer = nullptr;
  REQUIRE(dsv4_tokenizer_open(kModel, &tokenizer, nullptr) == DSV4_OK);
  return OwnedTokenizer(tokenizer);
}

OwnedParser OpenParser(ThinkingMode mode) {
  dsv4_parser_options options = DSV4_PARSER_OPTIONS_INIT;
  options.thinking = mode == ThinkingMode::kThinking ? DSV4_THINKING_HIGH : DSV4_THINKING_OFF;
  dsv4_parser* parser = nullptr;
  REQUIRE(dsv4_parser_open(&options, &parser, nullptr) == DSV4_OK);
  return OwnedParser(parser);
}

void Add(void* log, const dsv4_parser_event* event) {
  // The kinds are in the order of the C names.
  static_cast<EventLog*>(log)->Add({.kind = static_cast<ParserEvent::Kind>(event->type - 1),
                                    .call = event->call,
                                    .text = {event->text, event->text_length},
                                    .id = {event->id, event->id_length},
                                    .repaired = event->repaired != 0,
                                    .reason = {event->reason, event->reason_length},
                                    .incomplete = event->incomplete != 0,
                                    .stopped = event->stopped != 0});
}

// The log of the ids, fed in batches that end at the places `cuts` (ascending) and at their end.
EventLog OfTokens(dsv4_parser* parser, const dsv4_tokenizer* tokenizer,
                  const std::vector<int32_t>& ids, std::vector<size_t> cuts) {
  EventLog log;
  cuts.push_back(ids.size());
  size_t done = 0;
  for (const size_t cut : cuts) {
    REQUIRE(dsv4_parser_feed_tokens(parser, tokenizer, ids.data() + done, cut - done, Add, &log,
                                    nullptr) == DSV4_OK);
    done = cut;
  }
  REQUIRE(dsv4_parser_end(parser, Add, &log, nullptr) == DSV4_OK);
  return log;
}

std::vector<int32_t> Encoded(const dsv4_tokenizer* tokenizer, const std::string& text,
                             uint32_t flags) {
  size_t count = 0;
  std::vector<int32_t> ids(text.size());
  REQUIRE(dsv4_tokenizer_encode(tokenizer, text.data(), text.size(), flags, ids.data(), ids.size(),
                                &count, nullptr) == DSV4_OK);
  REQUIRE(count <= ids.size());
  ids.resize(count);
  return ids;
}

// The ids of the tokens that are one byte each.
std::array<int32_t, 256> ByteTokens() {
  std::array<int32_t, 256> ids;
  ids.fill(-1);
  const Tokenizer& tokenizer = test::TinyTokenizer();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const auto bytes = tokenizer.TokenBytes(id);
    if (bytes.ok() && bytes->size() == 1) ids[static_cast<uint8_t>((*bytes)[0])] = id;
  }
  return ids;
}

TEST_CASE("tokens of recorded completions give the events of their bytes") {
  const OwnedTokenizer tokenizer = OpenTokenizer();
  const std::array<int32_t, 256> byte_tokens = ByteTokens();
  std::mt19937 random(5);
  int controls = 0, events = 0;
  for (const test::ParseCase& one : test::ReadParseCases()) {
    INFO(one.text);
    const OwnedParser parser = OpenParser(one.mode);
    EventLog expected;
    REQUIRE(dsv4_parser_feed(parser.get(), one.text.data(), one.text.size(), Add, &expected,
                             nullptr) == DSV4_OK);
    REQUIRE(dsv4_parser_end(parser.get(), Add, &expected, nullptr) == DSV4_OK);
    CHECK(expected.events() == test::Streamed(one.text, one.mode).events());
    events += static_cast<int>(expected.events().size());

    // As sampled, as a model would spell the markers, and with characters in pieces.
    const std::vector<int32_t> sampled =
        Encoded(tokenizer.get(), one.text, DSV4_ENCODE_ADDED_TOKENS);
    const std::vector<int32_t> spelled = Encoded(tokenizer.get(), one.text, DSV4_ENCODE_PLAIN);
    controls += sampled != spelled;
    std::vector<int32_t> in_bytes;
    for (const char byte : one.text) {
      in_bytes.push_back(byte_tokens[static_cast<uint8_t>(byte)]);
    }
    for (const std::vector<int32_t>* ids : {&sampled, &spelled, &std::as_const(in_bytes)}) {
      std::vector<size_t> each, some;
      for (size_t i = 0; i < ids->size(); ++i) {
        each.push_back(i);
        if (random() % 4 == 0) some.push_back(i);
      }
      for (const std::vector<size_t>& cuts : {std::vector<size_t>{}, each, some}) {
        const EventLog log = OfTokens(parser.get(), tokenizer.get(), *ids, cuts);
        CHECK(log.events() == expected.events());
        CHECK(log.whole_characters());
      }
    }
  }
  CHECK(controls > 250);
  CHECK(events > 900);
}

TEST_CASE("an id without a token delivers nothing") {
  const OwnedTokenizer tokenizer = OpenTokenizer();
  const OwnedParser parser = OpenParser(ThinkingMode::kChat);
  EventLog log;
  std::vector<int32_t> ids = Encoded(tokenizer.get(), "abc", DSV4_ENCODE_PLAIN);
  const std::vector<int32_t> good = ids;
  const auto refused = [&](int32_t bad) {
    dsv4_error* error = nullptr;
    ids.push_back(bad);
    CHECK(dsv4_parser_feed_tokens(parser.get(), tokenizer.get(), ids.data(), ids.size(), Add, &log,
                                  &error) == DSV4_ERR_INVALID_ARGUMENT);
    ids.pop_back();
    const std::string message = dsv4_error_get_message(error);
    dsv4_error_free(error);
    return message;
  };
  const std::string place = absl::StrCat("ids[", ids.size(), "]: token id ");
  CHECK(refused(-1).find(place + "-1 is not in") == 0);
  const int32_t end = dsv4_tokenizer_get_vocab_size(tokenizer.get());
  CHECK(refused(end).find(absl::StrCat(place, end)) == 0);
  CHECK(log.events().empty());
  log = OfTokens(parser.get(), tokenizer.get(), good, {});
  CHECK(log.Joined(ParserEvent::Kind::kText) == "abc");
}

}  // namespace
}  // namespace dsv4
