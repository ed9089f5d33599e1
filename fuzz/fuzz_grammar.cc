// SPDX-License-Identifier: Apache-2.0
// Any bytes as a grammar and a text. The input is a letter (S schema, R regular expression, E EBNF,
// s and t the same as far as they can be enforced, T tools), the grammar, a NUL, and the text. In
// each state along the text a mask must hold a token exactly if its bytes lead to a state from
// which a match is reached.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/utf8.h"
#include "lib/grammar/ebnf.h"
#include "lib/grammar/json_schema.h"
#include "lib/grammar/mask_builder.h"
#include "lib/grammar/regex.h"
#include "lib/grammar/token_trie.h"
#include "lib/grammar/tool_markup.h"

namespace {

using dsv4::grammar::Expr;
using dsv4::grammar::ExpressionPool;

// Less than the library allows: an input is to take no longer than a few seconds with sanitizers.
constexpr int64_t kCompileWork = 1 << 18, kStepWork = 1 << 15;
constexpr size_t kMaxSteps = 40;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

absl::StatusOr<Expr> LanguageOf(char kind, absl::string_view source, ExpressionPool* pool) {
  using namespace dsv4::grammar;
  if (kind == 'E') return EbnfLanguage(pool, source);
  if (kind == 'R') return RegexLanguage(pool, source, Encoding::kUtf8, Anchoring::kWhole);
  const auto json = ParseSchema(source, "fuzz");
  if (!json.ok()) return json.status();
  Enforcement enforcement(kind == 's' || kind == 't' ? Enforcement::Effort::kBest
                                                     : Enforcement::Effort::kStrict);
  if (kind == 'S' || kind == 's') {
    SchemaCompiler compiler(pool, *json, "schema#", false, &enforcement);
    return compiler.Language(*json, "", SchemaCompiler::Part::kValues, Encoding::kJson);
  }
  const auto tools =
      ToolCallLanguage(pool, *json, {.strict = kind != 't'}, std::nullopt, &enforcement);
  if (!tools.ok()) return tools.status();
  return tools->content;
}

const std::vector<std::string>& Tokens() {
  static const auto* const tokens = [] {
    auto* list = new std::vector<std::string>();
    for (int byte = 0; byte < 256; ++byte) list->push_back(std::string(1, static_cast<char>(byte)));
    for (const char* text :
         {"{\"", "\":", "\",\"", "\"}", "]}", "true", "12", "\xC3\xA9", "aaaa"}) {
      list->push_back(text);
    }
    return list;
  }();
  return *tokens;
}

// The state after `bytes`; kFail, too, when the pool is exhausted.
Expr After(ExpressionPool* pool, Expr state, absl::string_view bytes) {
  for (const char byte : bytes) state = pool->Next(state, static_cast<uint8_t>(byte));
  return state;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t end = std::min(input.find('\0'), input.size());
  const absl::string_view source = input.substr(0, end);
  if (dsv4::ValidUtf8Prefix(source) < source.size()) return 0;
  ExpressionPool pool;
  pool.AllowWork(kCompileWork);
  const absl::StatusOr<Expr> root = LanguageOf(static_cast<char>(data[0]), source, &pool);
  Require(root.ok() || !root.status().message().empty());
  if (!root.ok() || !pool.Compile(*root).ok()) return 0;

  static const dsv4::grammar::TokenTrie trie(Tokens());
  dsv4::grammar::MaskBuilder masks(&pool, trie);
  const absl::string_view text = input.substr(std::min(end + 1, input.size())).substr(0, kMaxSteps);
  Expr state = *root;
  for (size_t i = 0; state != dsv4::grammar::kFail; ++i) {
    pool.AllowWork(kStepWork);
    const auto mask = masks.MaskOf(state);
    if (mask == nullptr) return 0;
    bool any = pool.Accepts(state);
    for (size_t token = 0; token < Tokens().size(); ++token) {
      const bool allowed = ((*mask)[token / 32] >> (token % 32) & 1) != 0;
      const bool follows = After(&pool, state, Tokens()[token]) != dsv4::grammar::kFail;
      if (pool.exhausted()) return 0;
      Require(allowed == follows);
      any |= allowed;
    }
    Require(any);  // a state that is reached leads to a match
    if (i == text.size()) break;
    state = After(&pool, state, text.substr(i, 1));
  }
  return 0;
}
