// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE, defined by GPT-2: one printable character for each byte value.
// tokenizer.json spells its vocabulary in this alphabet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// The character, in UTF-8, that stands for `byte`.
std::string AlphabetCharacter(uint8_t byte);

// The bytes that `token` stands for; nullopt if one of its characters is not in the alphabet.
std::optional<std::string> AlphabetBytes(absl::string_view token);

}  // namespace dsv4
