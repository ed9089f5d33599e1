// SPDX-License-Identifier: Apache-2.0
// Prompts of exact lengths, made of simple sentences.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/gates/client.h"

namespace gates {

// The same numbers for a seed everywhere (splitmix64).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  // From 0 to `count` - 1.
  size_t Below(size_t count) { return static_cast<size_t>(Next() % count); }

 private:
  uint64_t state_;
};

// People whose numbers notes have.
const std::vector<std::string_view>& Names();

std::string Sentence(Random* random);

// So many tokens; another text for each `variant`. Throws a ServerError.
std::vector<int32_t> Prompt(const Client& client, size_t tokens, uint64_t variant);

// A chat's message of about `tokens` tokens that asks for a number in it.
struct Needle {
  std::string message, number;
  int64_t position = 0;  // of the needle's first token in the prompt
};
// The needle lies at `place`, from 0 to 1, of the notes, and its position is `residue` modulo 8.
// Throws a ServerError.
Needle MakeNeedle(const Client& client, size_t tokens, double place, int64_t residue,
                  uint64_t variant);

}  // namespace gates
