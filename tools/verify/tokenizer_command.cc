// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/tokenizer_command.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer.h"
#include "tools/verify/command_line.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxCasesBytes = int64_t{256} << 20;
constexpr int64_t kShownMismatches = 10;

struct TokenizerCase {
  std::string text, decoded;
  std::vector<int32_t> ids;
};

absl::StatusOr<TokenizerCase> ReadCase(const JsonValue& value, const std::string& source) {
  const JsonValue *text = value.Find("text"), *decoded = value.Find("decoded");
  const JsonValue* ids = value.Find("ids");
  if (text == nullptr || text->AsString() == nullptr || decoded == nullptr ||
      decoded->AsString() == nullptr || ids == nullptr || ids->AsArray() == nullptr) {
    return Corrupt(source, " is not {text, ids, decoded}");
  }
  TokenizerCase result{*text->AsString(), *decoded->AsString(), {}};
  for (const JsonValue& id : *ids->AsArray()) {
    const std::optional<int64_t> number = id.AsInt64();
    if (!number || *number < 0 || *number > INT32_MAX) return Corrupt(source, ": ids is malformed");
    result.ids.push_back(static_cast<int32_t>(*number));
  }
  return result;
}

// What is wrong with the case; empty when nothing is.
std::string Mismatch(const Tokenizer& tokenizer, const TokenizerCase& expected) {
  // The recorded encodings match added tokens in the text, as the HF library does.
  const absl::StatusOr<std::vector<int32_t>> ids =
      tokenizer.Encode(expected.text, {.added_tokens = true});
  if (!ids.ok()) return std::string(ids.status().message());
  if (*ids != expected.ids) {
    return absl::StrCat("encodes to [", absl::StrJoin(*ids, " "), "], expected [",
                        absl::StrJoin(expected.ids, " "), "]");
  }
  const absl::StatusOr<std::string> decoded = tokenizer.Decode(expected.ids);
  if (!decoded.ok()) return std::string(decoded.status().message());
  if (*decoded != expected.decoded) {
    return absl::StrCat("decodes to \"", *decoded, "\", expected \"", expected.decoded, "\"");
  }
  return "";
}

absl::StatusOr<bool> Verify(const std::string& tokenizer_path, const std::string& cases_path) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<const Tokenizer> tokenizer,
                        Tokenizer::Load(tokenizer_path));
  DSV4_ASSIGN_OR_RETURN(const std::string text, ReadFile(cases_path, kMaxCasesBytes));
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(text, cases_path, kMaxCasesBytes));
  if (root.AsArray() == nullptr || root.AsArray()->empty()) {
    return Corrupt(cases_path, ": not a list of cases");
  }
  int64_t index = 0, mismatches = 0;
  for (const JsonValue& value : *root.AsArray()) {
    const std::string source = absl::StrCat(cases_path, ": case ", index++);
    DSV4_ASSIGN_OR_RETURN(const TokenizerCase expected, ReadCase(value, source));
    const std::string mismatch = Mismatch(*tokenizer, expected);
    if (mismatch.empty() || ++mismatches > kShownMismatches) continue;
    std::printf("case %lld, \"%s\": %s\n", static_cast<long long>(index - 1), expected.text.c_str(),
                mismatch.c_str());
  }
  std::printf("tokenizer: %lld cases, %lld mismatches\n", static_cast<long long>(index),
              static_cast<long long>(mismatches));
  return mismatches == 0;
}

}  // namespace

int RunTokenizerCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, {}, 2);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  return ExitCodeOf(Verify(parsed->files[0], parsed->files[1]));
}

}  // namespace dsv4
