// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json. Where they are accepted, texts come through encoding and decoding:
// as ids that have tokens, and unchanged where every byte has one.
#include <cstddef>
#include <cstdint>
#include <string>

#include "lib/text/tokenizer.h"

namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

constexpr absl::string_view kTexts[] = {
    "",
    "Hello, world's 12345 worlds!\n\n  \t end",
    "na\xc3\xafve \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x91\x8b \xe2\x80\x8d\xef\xbb\xbf",
    "<|a|><\xef\xbd\x9c"
    "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>x<\xef\xbd\x9cUser\xef\xbd\x9c>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
};

// Whether the bytes of `text` all have tokens, so that none is lost.
bool HasAllBytes(const dsv4::Tokenizer& tokenizer, absl::string_view text) {
  bool known[256] = {};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.HasToken(id)) continue;
    const absl::string_view bytes = *tokenizer.TokenBytes(id);
    if (bytes.size() == 1) known[static_cast<uint8_t>(bytes[0])] = true;
  }
  for (const char c : text) {
    if (!known[static_cast<uint8_t>(c)]) return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto loaded =
      dsv4::Tokenizer::FromJson({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!loaded.ok()) return 0;
  const dsv4::Tokenizer& tokenizer = **loaded;
  for (int32_t id = -1; id <= tokenizer.vocab_size(); ++id) {
    const bool has = id >= 0 && id < tokenizer.vocab_size() && tokenizer.HasToken(id);
    Require(tokenizer.TokenBytes(id).ok() == has);
    if (id == 4096) break;
  }
  for (const absl::string_view text : kTexts) {
    for (const bool added_tokens : {false, true}) {
      const auto ids = tokenizer.Encode(text, {.added_tokens = added_tokens});
      if (!ids.ok()) continue;
      for (const int32_t id : *ids) Require(tokenizer.HasToken(id));
      const auto decoded = tokenizer.Decode(*ids);
      Require(decoded.ok());
      if (!added_tokens && HasAllBytes(tokenizer, text)) Require(*decoded == text);
    }
  }
  return 0;
}
