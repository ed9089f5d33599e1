// SPDX-License-Identifier: Apache-2.0
// dsv4_parser_feed on every recorded completion, by tokens: their bytes give the events of the
// text.
#include <dsv4/dsv4.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

EventLog OfTokens(dsv4_parser* parser, const dsv4_tokenizer* tokenizer,
                  const std::vector<int32_t>& ids) {
  EventLog log;
  for (const int32_t id : ids) {
    char bytes[256];
    size_t length = 0;
    REQUIRE(dsv4_tokenizer_get_token_bytes(tokenizer, id, bytes, sizeof bytes, &length, nullptr) ==
            DSV4_OK);
    REQUIRE(length <= sizeof bytes);
    REQUIRE(dsv4_parser_feed(parser, bytes, length, Add, &log, nullptr) == DSV4_OK);
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
      const EventLog log = OfTokens(parser.get(), tokenizer.get(), *ids);
      CHECK(log.events() == expected.events());
      CHECK(log.whole_characters());
    }
  }
  CHECK(controls > 250);
  CHECK(events > 900);
}

}  // namespace
}  // namespace dsv4
