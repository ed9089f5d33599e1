// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/oracle_case.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "tools/verify/oracle_words.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxCaseBytes = 1 << 20;
constexpr int64_t kMaxShards = 99999;
constexpr int64_t kMaxTokens = 1 << 24;
constexpr int64_t kFirstToken = 3;  // prompts hold no control token

std::string JsonString(absl::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&out, "\\u%04x", c);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// `value` as Python's json.dump(..., indent=1) writes it. Two exceptions: text outside ASCII stays
// UTF-8, and numbers keep their text.
void AppendIndented(const JsonValue& value, int depth, std::string* out) {
  const std::string line = absl::StrCat("\n", std::string(depth + 1, ' '));
  const std::string last_line = absl::StrCat("\n", std::string(depth, ' '));
  if (const auto* members = value.AsObject()) {
    *out += '{';
    for (const JsonMember& member : *members) {
      absl::StrAppend(out, &member == members->data() ? "" : ",", line, JsonString(member.key),
                      ": ");
      AppendIndented(member.value, depth + 1, out);
    }
    absl::StrAppend(out, members->empty() ? "" : last_line, "}");
  } else if (const auto* elements = value.AsArray()) {
    *out += '[';
    for (const JsonValue& element : *elements) {
      absl::StrAppend(out, &element == elements->data() ? "" : ",", line);
      AppendIndented(element, depth + 1, out);
    }
    absl::StrAppend(out, elements->empty() ? "" : last_line, "]");
  } else if (const std::string* text = value.AsString()) {
    *out += JsonString(*text);
  } else if (const std::string* number = value.AsNumberText()) {
    *out += *number;
  } else if (const std::optional<bool> flag = value.AsBool()) {
    *out += *flag ? "true" : "false";
  } else {
    *out += "null";
  }
}

absl::StatusOr<int64_t> ReadInt(const JsonValue* value, absl::string_view name, int64_t low,
                                int64_t high) {
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : value->AsInt64();
  if (number && *number >= low && *number <= high) return *number;
  return InvalidArgument(name, value == nullptr ? " is missing" : " is out of range",
                         "; expected an integer from ", low, " to ", high);
}

// Numbers of tokens from `least` on.
absl::StatusOr<std::vector<int64_t>> ReadLengths(const JsonValue* value, absl::string_view name,
                                                 int64_t least = 1, int64_t most = kMaxTokens) {
  if (value == nullptr || value->AsArray() == nullptr) {
    return InvalidArgument(name, " is not a list of numbers of tokens");
  }
  std::vector<int64_t> lengths;
  for (const JsonValue& element : *value->AsArray()) {
    DSV4_ASSIGN_OR_RETURN(const int64_t length, ReadInt(&element, name, least, most));
    lengths.push_back(length);
  }
  return lengths;
}

absl::StatusOr<CaseFormat> ReadFormat(const JsonValue* value, absl::string_view name) {
  constexpr std::pair<absl::string_view, CaseFormat> kFormats[] = {
      {"mxfp4", CaseFormat::kMxfp4},          {"nvfp4", CaseFormat::kNvfp4},
      {"nvfp4_real", CaseFormat::kNvfp4Real}, {"fp8", CaseFormat::kFp8},
      {"fp8_cast", CaseFormat::kFp8Cast},
  };
  if (value == nullptr) return CaseFormat::kMxfp4;
  const std::string* text = value->AsString();
  for (const auto& [format_name, format] : kFormats) {
    if (text != nullptr && *text == format_name) return format;
  }
  return InvalidArgument(name, " is not mxfp4, nvfp4, nvfp4_real, fp8 or fp8_cast");
}

// How weights are stored, and what the drafter is. REQUIRES: `oracle->model` is read.
absl::Status ReadFormats(const JsonValue& root, const JsonValue& model, absl::string_view path,
                         OracleCase* oracle) {
  const auto key = [&](absl::string_view name) { return absl::StrCat(path, ": ", name); };
  DSV4_ASSIGN_OR_RETURN(oracle->expert_format,
                        ReadFormat(root.Find("expert_format"), key("expert_format")));
  DSV4_ASSIGN_OR_RETURN(oracle->drafter_format,
                        ReadFormat(root.Find("drafter_format"), key("drafter_format")));
  if (const JsonValue* format = root.Find("scale_format")) {
    oracle->f32_scales = format->AsString() != nullptr && *format->AsString() == "f32";
    if (!oracle->f32_scales) return InvalidArgument(key("scale_format"), " is not f32");
  }
  oracle->stages = static_cast<int64_t>(model.Find("compress_ratios")->AsArray()->size()) -
                   oracle->model.num_hidden_layers;
  const JsonValue* block_size = model.Find("dspark_block_size");
  if (block_size == nullptr) return absl::OkStatus();
  CaseDspark& dspark = oracle->dspark;
  constexpr int64_t kMaxBlock = 64, kMaxRank = 1 << 16;
  DSV4_ASSIGN_OR_RETURN(dspark.block_size,
                        ReadInt(block_size, key("dspark_block_size"), 1, kMaxBlock));
  DSV4_ASSIGN_OR_RETURN(dspark.markov_rank, ReadInt(model.Find("dspark_markov_rank"),
                                                    key("dspark_markov_rank"), 1, kMaxRank));
  const JsonValue* layers = model.Find("dspark_target_layer_ids");
  if (layers == nullptr || layers->AsArray() == nullptr || layers->AsArray()->empty()) {
    return InvalidArgument(key("dspark_target_layer_ids"), " is not a list of layers");
  }
  dspark.taps = static_cast<int64_t>(layers->AsArray()->size());
  if (root.Find("draft_after") == nullptr) return absl::OkStatus();
  // The anchor is the forced token after them.
  DSV4_ASSIGN_OR_RETURN(
      oracle->draft_after,
      ReadLengths(root.Find("draft_after"), key("draft_after"), 0, oracle->decode - 1));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<OracleCase> LoadOracleCase(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxCaseBytes));
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(text, path, kMaxCaseBytes));
  const auto key = [&](absl::string_view name) { return absl::StrCat(path, ": ", name); };
  OracleCase oracle;
  const JsonValue* name = root.Find("name");
  if (name == nullptr || name->AsString() == nullptr) {
    return InvalidArgument(key("name"), " is not a string");
  }
  oracle.name = *name->AsString();
  DSV4_ASSIGN_OR_RETURN(const int64_t seed, ReadInt(root.Find("seed"), key("seed"), 0,
                                                    std::numeric_limits<int64_t>::max()));
  oracle.seed = static_cast<uint64_t>(seed);
  if (const JsonValue* shards = root.Find("shards")) {
    DSV4_ASSIGN_OR_RETURN(oracle.shards, ReadInt(shards, key("shards"), 1, kMaxShards));
  }
  DSV4_ASSIGN_OR_RETURN(oracle.prompts, ReadLengths(root.Find("prompts"), key("prompts")));
  DSV4_ASSIGN_OR_RETURN(oracle.decode, ReadInt(root.Find("decode"), key("decode"), 0, kMaxTokens));
  DSV4_ASSIGN_OR_RETURN(oracle.record, ReadLengths(root.Find("record"), key("record")));

  const JsonValue* model = root.Find("model");
  if (model == nullptr) return InvalidArgument(key("model"), " is missing");
  AppendIndented(*model, 0, &oracle.model_json);
  DSV4_ASSIGN_OR_RETURN(oracle.model, ParseModelConfig(oracle.model_json, key("model")));
  DSV4_RETURN_IF_ERROR(ReadFormats(root, *model, path, &oracle));
  if (oracle.model.vocab_size <= kFirstToken) {
    return InvalidArgument(key("model"), ": vocab_size is ", oracle.model.vocab_size,
                           "; prompts take their tokens from ", kFirstToken, " on");
  }
  return oracle;
}

std::vector<int32_t> OraclePrompt(const OracleCase& oracle, absl::string_view what, int64_t n) {
  // Prompts of each length have words of their own; the forced tokens are one stream.
  const OracleWords words(oracle.seed,
                          what == "prompt" ? absl::StrCat(what, ".", n) : std::string(what));
  const auto choices = static_cast<uint64_t>(oracle.model.vocab_size - kFirstToken);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    tokens[i] = static_cast<int32_t>(kFirstToken + static_cast<int64_t>(words[i] % choices));
  }
  return tokens;
}

}  // namespace dsv4
