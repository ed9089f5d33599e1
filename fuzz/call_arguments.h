// SPDX-License-Identifier: Apache-2.0
// Valid and invalid arguments of calls of the C API, made from a fuzzer's input.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

namespace fuzz {

class CallArguments {
 public:
  CallArguments(const uint8_t* data, size_t size, int32_t vocab)
      : data_(data), end_(data + size), vocab_(vocab) {}
  bool empty() const { return data_ == end_; }
  uint8_t Byte() { return empty() ? uint8_t{0} : *data_++; }
  size_t Below(size_t limit) { return Byte() % limit; }
  bool Rarely() { return Byte() % 32 == 31; }

  // Numbers at which something may begin or end.
  int64_t Number() {
    static constexpr int64_t kNumbers[] = {0,
                                           1,
                                           -1,
                                           2,
                                           3,
                                           7,
                                           8,
                                           15,
                                           16,
                                           17,
                                           20,
                                           21,
                                           31,
                                           63,
                                           64,
                                           65,
                                           127,
                                           128,
                                           129,
                                           255,
                                           256,
                                           2047,
                                           2048,
                                           2049,
                                           4095,
                                           4096,
                                           4097,
                                           INT32_MAX,
                                           INT32_MIN,
                                           INT64_MAX,
                                           INT64_MIN,
                                           UINT32_MAX,
                                           int64_t{1} << 40,
                                           -(int64_t{1} << 40),
                                           300};
    const uint8_t which = Byte();
    return which < 128 ? kNumbers[which % std::size(kNumbers)] : which - 128;
  }
  int32_t Number32() { return static_cast<int32_t>(Number()); }

  float Fraction() {
    static constexpr float kFractions[] = {0, 1, -1, 0.5f, 0.95f, 2, -2, 1e-30f, 1e30f, 100, -100};
    const uint8_t which = Byte();
    if (which == 255) return __builtin_nanf("");
    if (which == 254) return __builtin_inff();
    return kFractions[which % std::size(kFractions)];
  }

  // Never more than the struct that is there, unless it is too much for any.
  uint32_t StructSize(size_t size) {
    if (!Rarely()) return static_cast<uint32_t>(size);
    const auto given = static_cast<uint32_t>(Number());
    return given > 4096 ? given : std::min(given, static_cast<uint32_t>(size));
  }

  std::string Text() {
    static const char* const kTexts[] = {
        "",
        "Hi",
        "What is 2 + 3?",
        "</think>",
        "\xff",
        "caf\xc3\xa9",
        "[",
        "{}",
        "[]",
        "{\"a\": 1}",
        "[{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]",
        "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": "
        "\"Yes\"}]",
        "[{\"role\": \"tool\", \"content\": \"5\", \"tool_call_id\": \"call_1_0\"}]",
        "<\xef\xbd\x9c"
        "DSML\xef\xbd\x9ctool_calls>"};
    const uint8_t which = Byte();
    if (which < 200) return kTexts[which % std::size(kTexts)];
    const size_t asked = Byte();  // before it is asked how much there is
    const size_t length = std::min(asked, static_cast<size_t>(end_ - data_));
    std::string text(reinterpret_cast<const char*>(data_), length);
    data_ += length;
    return text;
  }

  std::vector<int32_t> Tokens(size_t most) {
    std::vector<int32_t> tokens(Below(most + 1));
    for (int32_t& token : tokens) {
      token = Rarely() ? Number32() : static_cast<int32_t>((Byte() * 7 + 3) % vocab_);
    }
    return tokens;
  }

 private:
  const uint8_t* data_;
  const uint8_t* end_;
  int32_t vocab_;
};

}  // namespace fuzz
