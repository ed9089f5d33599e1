// SPDX-License-Identifier: Apache-2.0
#include "tools/gates/prompts.h"

#include <algorithm>

namespace gates {
namespace {

using Words = std::vector<std::string_view>;

// Of English text; prompts are cut, so that it need not be right.
constexpr size_t kBytesOfToken = 7;

const Words& Adjectives() {
  static const Words words = {"calm", "bright", "heavy", "narrow", "golden", "quiet",
                              "old",  "warm",   "small", "round",  "dusty",  "green"};
  return words;
}

const Words& Things() {
  static const Words words = {"river",  "lamp",  "bridge", "garden", "train", "chair",
                              "mirror", "clock", "basket", "window", "boat",  "stone"};
  return words;
}

const Words& Verbs() {
  static const Words words = {"shines", "rests", "waits", "turns", "fades", "stands"};
  return words;
}

const Words& Places() {
  static const Words words = {"forest",  "harbor", "library", "market",
                              "village", "mill",   "museum",  "school"};
  return words;
}

const Words& Times() {
  static const Words words = {"at noon",   "at night",  "in winter",
                              "in spring", "in summer", "in the morning"};
  return words;
}

std::string One(const Words& words, Random* random) {
  return std::string(words[random->Below(words.size())]);
}

// Sentences of about so many tokens, with numbers of people of whom `asked` is none.
std::string Notes(size_t bytes, std::string_view asked, size_t* next_name, Random* random) {
  constexpr size_t kSentences = 6;  // for each number
  std::string text;
  for (size_t count = 1; text.size() < bytes; ++count) {
    text += Sentence(random) + "\n";
    if (count % kSentences != 0 || *next_name == Names().size()) continue;
    const std::string_view name = Names()[(*next_name)++];
    if (name != asked)
      text += std::string(name) + " = " + std::to_string(11 + random->Below(89)) + "\n";
  }
  return text;
}

size_t CommonTokens(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

}  // namespace

uint64_t Random::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

const std::vector<std::string_view>& Names() {
  static const Words words = {"Tim",  "Vera",   "Erik",  "Otto",  "Clara", "Will", "Nick", "Leo",
                              "Tina", "Bella",  "Carl",  "Doris", "Susan", "Ian",  "Rita", "Rob",
                              "Pia",  "Vince",  "Luis",  "Henry", "Diana", "Uma",  "Kim",  "Joe",
                              "Elsa", "Ursula", "Laura", "Frank", "Sam",   "Iris", "Mark", "Simon"};
  return words;
}

std::string Sentence(Random* random) {
  return "The " + One(Adjectives(), random) + " " + One(Things(), random) + " " +
         One(Verbs(), random) + " near the " + One(Places(), random) + " " + One(Times(), random) +
         ".";
}

std::vector<int32_t> Prompt(const Client& client, size_t tokens, uint64_t variant) {
  Random random(variant);
  std::string text;
  std::vector<int32_t> ids;
  for (size_t bytes = tokens * kBytesOfToken; ids.size() < tokens; bytes += bytes) {
    while (text.size() < bytes) text += Sentence(&random) + " ";
    ids = client.Tokenize(text);
    if (ids.empty())
      throw ServerError{"/tokenize: no tokens of " + std::to_string(text.size()) +
                        " bytes of text"};
  }
  ids.resize(tokens);
  return ids;
}

Needle MakeNeedle(const Client& client, size_t tokens, double place, int64_t residue,
                  uint64_t variant) {
  Random random(variant);
  const std::string asked(Names()[random.Below(Names().size())]);
  Needle needle;
  needle.number = std::to_string(11 + random.Below(89));
  // As many bytes as the tokens have in a sample.
  constexpr size_t kSampleBytes = 4096;
  size_t sample_names = Names().size();
  const std::string sample = Notes(kSampleBytes, asked, &sample_names, &random);
  const double bytes = static_cast<double>(sample.size()) /
                       static_cast<double>(client.Tokenize(sample).size() + 1) *
                       static_cast<double>(tokens);
  size_t next_name = 0;
  const std::string before = "Read these notes.\n\n" +
                             Notes(static_cast<size_t>(bytes * place), asked, &next_name, &random);
  const std::string after =
      "\n" + Notes(static_cast<size_t>(bytes * (1 - place)), asked, &next_name, &random) +
      "\nWhat is " + asked + "'s number?";
  const std::string line = asked + " = " + needle.number;
  // Further sentences before the needle move it. Each length modulo 8 comes up before long.
  constexpr int kMostAttempts = 200;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    std::string text = before;
    for (size_t count = 1 + random.Below(8); count > 0; --count) text += Sentence(&random) + "\n";
    needle.position = static_cast<int64_t>(
        CommonTokens(client.TokenizeChat(text), client.TokenizeChat(text + line)));
    if (needle.position % 8 != residue) continue;
    needle.message = text + line + after;
    return needle;
  }
  throw ServerError{"/tokenize: no prompt has its needle at a position of " +
                    std::to_string(residue) + " modulo 8"};
}

}  // namespace gates
