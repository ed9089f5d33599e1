// SPDX-License-Identifier: Apache-2.0
// Every text is fed in every split into two, in single bytes and in single characters, and must end
// where a plain search over the whole text says.
#include "lib/text/stop_strings.h"
#include "lib/base/utf8.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

StopStrings Stops(const std::vector<std::string>& strings) {
  absl::StatusOr<StopStrings> stops = StopStrings::Create(strings);
  REQUIRE_OK(stops);
  return *std::move(stops);
}

struct Outcome {
  std::string text;
  bool stopped = false;
  bool operator==(const Outcome& other) const {
    return text == other.text && stopped == other.stopped;
  }
};

// What pieces give; each piece of output must be whole characters if `whole_characters`.
Outcome Streamed(StopStrings& stops, const std::vector<absl::string_view>& pieces,
                 bool whole_characters = false) {
  Outcome outcome;
  for (const absl::string_view piece : pieces) {
    std::string out = "|";
    outcome.stopped = stops.Push(piece, &out);
    if (out[0] != '|') FAIL("Push changed what *out held");
    if (whole_characters && ValidUtf8Prefix(out) < out.size()) FAIL("cut within a character");
    outcome.text += out.substr(1);
    if (outcome.stopped) return outcome;
  }
  stops.Flush(&outcome.text);
  return outcome;
}

// The same by trying every end of the text.
Outcome Searched(const std::vector<std::string>& strings, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : strings) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

std::vector<absl::string_view> Characters(absl::string_view text) {
  std::vector<absl::string_view> characters;
  while (!text.empty()) {
    const size_t length = FirstUtf8Unit(text).length;
    characters.push_back(text.substr(0, length));
    text.remove_prefix(length);
  }
  return characters;
}

void RequireEverySplit(const std::vector<std::string>& strings, const std::string& text,
                       const Outcome& expected) {
  CAPTURE(strings, text);
  StopStrings stops = Stops(strings);  // of one object: each text must leave it as new
  const absl::string_view view = text;
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CAPTURE(cut);
    const Outcome outcome = Streamed(stops, {view.substr(0, cut), view.substr(cut)});
    REQUIRE(outcome.text == expected.text);
    REQUIRE(outcome.stopped == expected.stopped);
  }
  std::vector<absl::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(view.substr(i, 1));
  REQUIRE(Streamed(stops, bytes) == expected);
  REQUIRE(Streamed(stops, Characters(text), /*whole_characters=*/true) == expected);
}

TEST_CASE("a text ends before its first stop string") {
  RequireEverySplit({"STOP"}, "go on STOP here", {"go on ", true});
  RequireEverySplit({"STOP"}, "STOP", {"", true});
  RequireEverySplit({"STOP"}, "go SSTOP STOP", {"go S", true});
  RequireEverySplit({"STOP"}, "STO STO", {"STO STO", false});
  RequireEverySplit({"STOP"}, "", {"", false});
  RequireEverySplit({"\n"}, "one\ntwo\n", {"one", true});
  RequireEverySplit({}, "anything", {"anything", false});
}

TEST_CASE("a stop string that overlaps itself") {
  RequireEverySplit({"aab"}, "xaaaab", {"xaa", true});
  RequireEverySplit({"abab!"}, "abababab!", {"abab", true});
  RequireEverySplit({"aaaa"}, "aaabaaaac", {"aaab", true});
  RequireEverySplit({"abcabd"}, "abcabcabdx", {"abc", true});
}

TEST_CASE("of several stop strings the one that is complete first counts") {
  RequireEverySplit({"abcd", "bc"}, "xabcd", {"xa", true});
  RequireEverySplit({"bcd", "abcd"}, "xabcd", {"x", true});  // both at once: the longest
  RequireEverySplit({"end", "\n\n"}, "one\n\nend", {"one", true});
  RequireEverySplit({"end", "\n\n"}, "the end\n\n", {"the ", true});
  RequireEverySplit({"aXb", "Xa"}, "aXaXb", {"a", true});
  RequireEverySplit({"ab", "ab"}, "cab", {"c", true});
}

TEST_CASE("stop strings and texts of any characters") {
  RequireEverySplit({"好的"}, "他说：好，好的。", {"他说：好，", true});
  // The euro sign E2 82 AC and the per mille sign E2 80 B0 begin alike.
  RequireEverySplit({"€!"}, "‰€‰€€!", {"‰€‰€", true});
  RequireEverySplit({"🙂🙂"}, "🙂a🙂🙂🙂", {"🙂a", true});
  RequireEverySplit({std::string("a\0b", 3)}, std::string("a\0aa\0b", 6),
                    {std::string("a\0a", 3), true});
}

TEST_CASE("random texts of few letters stop where a search says") {
  std::mt19937 random(5);
  const auto letters = [&](size_t length) {
    static const std::string kLetters[] = {"a", "b", "é", "ê"};  // the last two begin alike
    std::string text;
    for (size_t i = 0; i < length; ++i) text += kLetters[random() % 4];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> strings;
    for (size_t i = 0, count = 1 + random() % 4; i < count; ++i)
      strings.push_back(letters(2 + random() % 5));
    const std::string text = letters(random() % 60);
    const Outcome expected = Searched(strings, text);
    stopped += expected.stopped;
    RequireEverySplit(strings, text, expected);
  }
  REQUIRE(stopped > 100);
  REQUIRE(stopped < 400);
}

TEST_CASE("what may begin a stop string is held back, and no more") {
  StopStrings stops = Stops({"abcd", "cx"});
  std::string out;
  const auto pushed = [&](absl::string_view text) {
    out.clear();
    REQUIRE_FALSE(stops.Push(text, &out));
    return out;
  };
  REQUIRE(pushed("zab") == "z");
  REQUIRE(pushed("c") == "");
  REQUIRE(pushed("c") == "abc");  // "c" may begin "cx"
  REQUIRE(pushed("a") == "c");
  REQUIRE(pushed("b") == "");
  REQUIRE(pushed("ab") == "ab");
  REQUIRE(pushed("zz") == "abzz");
  REQUIRE(pushed("abc") == "");
  out = "kept ";
  stops.Flush(&out);
  REQUIRE(out == "kept abc");
  REQUIRE(pushed("d") == "d");
  REQUIRE(pushed("ab") == "");
  stops.Reset();
  REQUIRE(pushed("cd") == "cd");
}

TEST_CASE("the longest stop string holds back one byte less than it has") {
  const std::string letters(StopStrings::kMaxBytes - 1, 'a');
  StopStrings stops = Stops({letters + "b"});
  std::string out;
  REQUIRE_FALSE(stops.Push(letters, &out));
  REQUIRE(out.empty());
  REQUIRE_FALSE(stops.Push(std::string(1 << 20, 'a'), &out));
  REQUIRE(out.size() == 1 << 20);
  REQUIRE(stops.Push("bc", &out));
  REQUIRE(out.size() == 1 << 20);
}

TEST_CASE("stop strings outside their limits are refused by number") {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  const auto create = [](const std::vector<std::string>& strings) {
    return StopStrings::Create(strings);
  };
  REQUIRE_FAILS(create(std::vector<std::string>(17, "a")), kInvalid,
                "stop_strings has 17 strings; expected at most 16");
  REQUIRE_FAILS(create({"a", ""}), kInvalid, "stop_strings[1] has 0 bytes; expected 1 to 256");
  REQUIRE_FAILS(create({std::string(257, 'a')}), kInvalid, "stop_strings[0] has 257 bytes");
  REQUIRE_FAILS(create({"a", "b", "x\xE5\xA5"}), kInvalid,
                "stop_strings[2] is not UTF-8 at byte 1");
  REQUIRE_OK(create(std::vector<std::string>(16, std::string(256, 'a'))));
  REQUIRE(create({})->empty());
  REQUIRE_FALSE(create({"a"})->empty());
}

}  // namespace
}  // namespace dsv4
