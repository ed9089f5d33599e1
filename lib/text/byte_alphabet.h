// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level BPE, as GPT-2 defined it: one printable character for each byte value.
// The vocabulary of a tokenizer.json is written in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

// The character, in UTF-8, that stands for `byte`.
std::string AlphabetCharacter(uint8_t byte);

// The bytes that `token` stands for; nullopt when one of its characters is not of the alphabet.
std::optional<std::string> AlphabetBytes(absl::string_view token);

}  // namespace dsv4
