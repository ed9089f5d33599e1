// SPDX-License-Identifier: Apache-2.0
// What a grammar costs at the family's vocabulary size: opening it up to the first mask, a token
// whose masks are known, and one whose masks are not. Promised are 100 ms, 50 us and, for the first
// mask with 50 tools, 1 s.
//
// The tokens are made up, in the proportions of a multilingual vocabulary: bytes, words with and
// without a space before them, numbers, Chinese characters and pairs of them, starts of characters,
// and the runs of punctuation and space that source text and JSON are full of.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/grammar/grammar.h"

namespace dsv4::grammar {
namespace {

constexpr size_t kVocab = 129280;

class Random {
 public:
  uint32_t operator()(uint32_t below) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33) % below;
  }

 private:
  uint64_t state_ = 1;
};

std::string Han(Random& random) {
  const uint32_t c = 0x4E00 + random(0x5200);
  return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)),
          static_cast<char>(0x80 | (c & 0x3F))};
}

std::string Word(Random& random) {
  static constexpr const char* kParts[] = {
      "th",  "e", "in", "a",    "er", "on", "re", "st",  "t", "i",  "an", "en", "o",   "al", "s",
      "ion", "c", "p",  "ment", "d",  "m",  "ed", "ing", "l", "or", "u",  "v",  "ate", "n"};
  std::string word;
  for (uint32_t i = 0, parts = 1 + random(4); i < parts; ++i) word += kParts[random(29)];
  if (random(4) == 0) word[0] = static_cast<char>(word[0] - 32);
  return word;
}

std::shared_ptr<const Vocabulary> Tokens() {
  static const std::shared_ptr<const Vocabulary> shared = [] {
    Random random;
    std::vector<std::string> bytes;
    std::unordered_set<std::string> known;
    const auto add = [&](const std::string& token) {
      if (bytes.size() < kVocab - 480 && known.insert(token).second) bytes.push_back(token);
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    static constexpr char kMarks[] = " \n\t\"'{}[]():;,.<>/=-_*#$\\!|&";
    for (int i = 0; i < 12000; ++i) {
      std::string run;
      for (uint32_t j = 0, length = 2 + random(3); j < length; ++j) run += kMarks[random(28)];
      add(run);
    }
    for (int i = 1; i < 60; ++i) add(std::string(static_cast<size_t>(i), ' '));
    for (int i = 0; i < 1000; ++i) add(absl::StrCat(i));
    for (int i = 0; i < 6000; ++i) add(Han(random).substr(0, 2));
    while (bytes.size() < kVocab - 480) {
      const uint32_t kind = random(10);
      if (kind < 3) {
        add(kind == 0 ? Han(random) : Han(random) + Han(random));
      } else {
        add((kind < 7 ? " " : "") + Word(random) + (random(30) == 0 ? "\"" : ""));
      }
    }
    bytes.resize(kVocab);  // added tokens have no bytes
    auto vocabulary = std::make_shared<Vocabulary>(std::move(bytes));
    vocabulary->markup_token = -1;
    return vocabulary;
  }();
  return shared;
}

// The longest tokens that fit, as a tokenizer would mostly have them.
std::vector<std::string> Tokenized(const std::string& text) {
  static const auto* const known =
      new std::unordered_set<std::string>(Tokens()->bytes.begin(), Tokens()->bytes.end());
  std::vector<std::string> tokens;
  for (size_t at = 0; at < text.size(); at += tokens.back().size()) {
    size_t length = std::min<size_t>(text.size() - at, 12);
    while (length > 1 && !known->contains(text.substr(at, length))) --length;
    tokens.push_back(text.substr(at, length));
  }
  return tokens;
}

// A tool like those of agents: strings, numbers, enumerations, a list and an object.
std::string Tool(int number) {
  return absl::StrCat(
      R"({"type":"function","function":{"name":"tool_)", number,
      R"(","description":"Does it.","parameters":{"type":"object","properties":{"path)", number,
      R"(":{"type":"string","description":"Where."},"mode":{"type":"string","enum":["read","write",
      "append"]},"limit":{"type":"integer","minimum":1,"maximum":5000},"recursive":{"type":"boolean",
      "default":false},"globs":{"type":"array","items":{"type":"string"},"maxItems":20},"range":{
      "anyOf":[{"type":"null"},{"type":"object","properties":{"from":{"type":"integer"},"to":{"type":
      "integer"}},"required":["from","to"],"additionalProperties":false}]},"when":{"type":"string",
      "format":"date-time"}},"required":["path)",
      number, R"(","mode"],"additionalProperties":false}}})");
}

std::string Tools(int count) {
  std::string tools = "[";
  for (int i = 0; i < count; ++i) absl::StrAppend(&tools, i == 0 ? "" : ",", Tool(i));
  return tools + "]";
}

constexpr char kSchema[] =
    R"({"type":"object","properties":{"title":{"type":"string","maxLength":200},"items":{"type":
    "array","items":{"type":"object","properties":{"id":{"type":"integer"},"name":{"type":"string"},
    "price":{"type":"number","minimum":0},"tags":{"type":"array","items":{"enum":["new","used"]}}},
    "required":["id","name","price"],"additionalProperties":false}},"next":{"anyOf":[{"type":"null"},
    {"$ref":"#"}]}},"required":["title","items"],"additionalProperties":false})";

std::string Document() {
  std::string text = "{\"title\": \"the station of the name\", \"items\": [";
  for (int i = 0; i < 20; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", "{\"id\": ", i, ", \"name\": \"an internment ",
                    i * 37, " \xE4\xBD\xA0\xE5\xA5\xBD\", \"price\": ", i,
                    ".5, \"tags\": [\"new\"]}");
  }
  return text + "], \"next\": null}";
}

std::string Call(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(
        &text, i == 0 ? "ation and the rest\n\n<｜DSML｜tool_calls>\n" : "",
        "<｜DSML｜invoke name=\"tool_", i, "\">\n<｜DSML｜parameter name=\"path", i,
        "\" string=\"true\">/the/station of \"it\"</｜DSML｜parameter>\n<｜DSML｜parameter "
        "name=\"mode\" string=\"true\">write</｜DSML｜parameter>\n<｜DSML｜parameter "
        "name=\"range\" "
        "string=\"false\">{\"from\": 1, \"to\": 20}</｜DSML｜parameter>\n</｜DSML｜invoke>\n");
  }
  return text + "</｜DSML｜tool_calls>";
}

using Open = std::shared_ptr<const Grammar> (*)();
std::shared_ptr<const Grammar> Schema() { return *Grammar::OfSchema(kSchema, Tokens()); }
template <int kCount>
std::shared_ptr<const Grammar> ToolGrammar() {
  return *Grammar::OfTools(Tools(kCount), {}, Tokens());
}

// Opening, and the first mask.
void FirstMask(benchmark::State& state, Open open) {
  Tokens();
  for (auto _ : state) {
    Matcher matcher;
    matcher.Reset(open(), Matcher::Start::kContent);
    benchmark::DoNotOptimize(*matcher.Mask());
  }
}
BENCHMARK_CAPTURE(FirstMask, schema, Schema)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FirstMask, tool, ToolGrammar<1>)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FirstMask, tools_50, ToolGrammar<50>)->Unit(benchmark::kMillisecond);

// A push, a mask and whether the turn may end: of each token of a text that was there before, or
// (`cold`) that no output of the grammar had.
void Tokenwise(benchmark::State& state, Open open, std::string (*text)(), bool cold) {
  const std::vector<std::string> tokens = Tokenized(text());
  std::shared_ptr<const Grammar> grammar = open();
  Matcher matcher;
  const auto walk = [&] {
    matcher.Reset(grammar, Matcher::Start::kContent);
    for (const std::string& token : tokens) {
      benchmark::DoNotOptimize(*matcher.Mask());
      benchmark::DoNotOptimize(*matcher.MayEnd());
      matcher.Push(token);
    }
  };
  walk();
  if (!*matcher.MayEnd()) return state.SkipWithError("the text does not match");
  for (auto _ : state) {
    if (cold) {
      state.PauseTiming();
      grammar = open();
      state.ResumeTiming();
    }
    walk();
  }
  const auto count = static_cast<double>(tokens.size());
  state.counters["tokens"] = count;
  state.counters["s_per_token"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
std::string OneCall() { return Call(1); }
std::string ManyCalls() { return Call(50); }
BENCHMARK_CAPTURE(Tokenwise, schema, Schema, Document, false);
BENCHMARK_CAPTURE(Tokenwise, tools_50, ToolGrammar<50>, ManyCalls, false);
BENCHMARK_CAPTURE(Tokenwise, schema_cold, Schema, Document, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Tokenwise, tool_cold, ToolGrammar<1>, OneCall, true)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(Tokenwise, tools_50_cold, ToolGrammar<50>, ManyCalls, true)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dsv4::grammar

BENCHMARK_MAIN();
