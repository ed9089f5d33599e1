// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/canary.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

constexpr char kSchema[] = "dsv4.canary/1";
constexpr int64_t kMostBytes = 1 << 20;
constexpr size_t kMostTokens = 4096, kMostRows = 64, kMostLogits = 64;
constexpr size_t kFingerprintDigits = 32;

// Reads the members of the document. Errors name the file and the key.
class Reader {
 public:
  Reader(absl::string_view source, int64_t vocab_size) : source_(source), vocab_size_(vocab_size) {}

  absl::StatusOr<Canary> Read(const JsonValue& root) const {
    if (root.AsObject() == nullptr) return Wrong("the document", root, "an object");
    DSV4_ASSIGN_OR_RETURN(const std::string schema, Text(root, "", "schema"));
    if (schema != kSchema) {
      return Corrupt(source_, ": schema is ", Quoted(schema), "; expected \"", kSchema, "\"");
    }
    DSV4_RETURN_IF_ERROR(OnlyKeys(
        root, "",
        {"schema", "about", "fingerprint", "tokens", "tolerance", "tolerance_reason", "rows"}));
    Canary canary;
    DSV4_ASSIGN_OR_RETURN(canary.about, Text(root, "", "about"));
    DSV4_ASSIGN_OR_RETURN(canary.tolerance_reason, Text(root, "", "tolerance_reason"));
    if (root.Find("fingerprint") != nullptr) {
      DSV4_ASSIGN_OR_RETURN(canary.fingerprint, Text(root, "", "fingerprint"));
      if (canary.fingerprint.size() != kFingerprintDigits ||
          canary.fingerprint.find_first_not_of("0123456789abcdef") != std::string::npos) {
        return Corrupt(source_, ": fingerprint is ", Quoted(canary.fingerprint), "; expected ",
                       kFingerprintDigits, " hexadecimal digits");
      }
    }
    DSV4_ASSIGN_OR_RETURN(canary.tolerance, Number(root, "", "tolerance"));
    if (canary.tolerance <= 0) {
      return Corrupt(source_, ": tolerance is ", canary.tolerance, "; expected more than 0");
    }
    DSV4_ASSIGN_OR_RETURN(const auto* tokens, Array(root, "", "tokens", kMostTokens));
    for (size_t i = 0; i < tokens->size(); ++i) {
      DSV4_ASSIGN_OR_RETURN(const int64_t token,
                            Integer((*tokens)[i], absl::StrCat("tokens[", i, "]"), vocab_size_));
      canary.tokens.push_back(static_cast<int32_t>(token));
    }
    DSV4_ASSIGN_OR_RETURN(const auto* rows, Array(root, "", "rows", kMostRows));
    for (size_t i = 0; i < rows->size(); ++i) {
      DSV4_ASSIGN_OR_RETURN(CanaryRow row,
                            Row((*rows)[i], absl::StrCat("rows[", i, "]"), canary.tokens.size()));
      if (i > 0 && row.position <= canary.rows.back().position) {
        return Corrupt(source_, ": rows[", i, "].position is ", row.position,
                       ", not above that of the row before");
      }
      canary.rows.push_back(std::move(row));
    }
    const auto last = static_cast<int64_t>(canary.tokens.size()) - 1;
    if (canary.rows.back().position != last) {
      return Corrupt(source_, ": rows end at position ", canary.rows.back().position,
                     "; the last of tokens is ", last);
    }
    return canary;
  }

 private:
  absl::StatusOr<CanaryRow> Row(const JsonValue& value, const std::string& name,
                                size_t tokens) const {
    if (value.AsObject() == nullptr) return Wrong(name, value, "an object");
    const std::string path = absl::StrCat(name, ".");
    DSV4_RETURN_IF_ERROR(OnlyKeys(value, path, {"position", "logits"}));
    CanaryRow row;
    DSV4_ASSIGN_OR_RETURN(const JsonValue* position, Member(value, path, "position"));
    DSV4_ASSIGN_OR_RETURN(row.position, Integer(*position, absl::StrCat(path, "position"),
                                                static_cast<int64_t>(tokens)));
    DSV4_ASSIGN_OR_RETURN(const auto* logits, Array(value, path, "logits", kMostLogits));
    for (size_t i = 0; i < logits->size(); ++i) {
      const std::string pair_name = absl::StrCat(path, "logits[", i, "]");
      const std::vector<JsonValue>* pair = (*logits)[i].AsArray();
      if (pair == nullptr || pair->size() != 2) {
        return Wrong(pair_name, (*logits)[i], "a token and its logit");
      }
      CanaryLogit logit;
      DSV4_ASSIGN_OR_RETURN(const int64_t token,
                            Integer((*pair)[0], absl::StrCat(pair_name, "[0]"), vocab_size_));
      logit.token = static_cast<int32_t>(token);
      DSV4_ASSIGN_OR_RETURN(logit.logit, Float((*pair)[1], absl::StrCat(pair_name, "[1]")));
      if (absl::c_any_of(row.logits, [&](const CanaryLogit& l) { return l.token == token; })) {
        return Corrupt(source_, ": ", pair_name, " has token ", token, " again");
      }
      if (i > 0 && logit.logit > row.logits.back().logit) {
        return Corrupt(source_, ": ", pair_name, " is larger than the logit before");
      }
      row.logits.push_back(logit);
    }
    return row;
  }

  absl::Status Wrong(absl::string_view name, const JsonValue& value,
                     absl::string_view expected) const {
    return Corrupt(source_, ": ", name, " is of kind ", value.KindName(), "; expected ", expected);
  }

  absl::Status OnlyKeys(const JsonValue& object, absl::string_view path,
                        std::initializer_list<absl::string_view> keys) const {
    for (const JsonMember& member : *object.AsObject()) {
      if (!absl::c_linear_search(keys, member.key)) {
        return Corrupt(source_, ": unknown key ", path, Quoted(member.key));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const JsonValue*> Member(const JsonValue& object, absl::string_view path,
                                          absl::string_view key) const {
    const JsonValue* value = object.Find(key);
    if (value == nullptr) return Corrupt(source_, ": ", path, key, " is missing");
    return value;
  }

  absl::StatusOr<std::string> Text(const JsonValue& object, absl::string_view path,
                                   absl::string_view key) const {
    DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, path, key));
    if (value->AsString() == nullptr) return Wrong(absl::StrCat(path, key), *value, "a string");
    return *value->AsString();
  }

  absl::StatusOr<float> Number(const JsonValue& object, absl::string_view path,
                               absl::string_view key) const {
    DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, path, key));
    return Float(*value, absl::StrCat(path, key));
  }

  absl::StatusOr<float> Float(const JsonValue& value, absl::string_view name) const {
    if (value.AsNumberText() == nullptr) return Wrong(name, value, "a number");
    float number = 0;
    if (!absl::SimpleAtof(*value.AsNumberText(), &number) || !std::isfinite(number)) {
      return Corrupt(source_, ": ", name, " is ", value.AsNumberText()->substr(0, 64),
                     ", outside the range of float");
    }
    return number;
  }

  // From 0 to `end` - 1.
  absl::StatusOr<int64_t> Integer(const JsonValue& value, absl::string_view name,
                                  int64_t end) const {
    const std::optional<int64_t> number = value.AsInt64();
    if (number && *number >= 0 && *number < end) return *number;
    if (value.AsNumberText() == nullptr) return Wrong(name, value, "an integer");
    return Corrupt(source_, ": ", name, " is ", value.AsNumberText()->substr(0, 64),
                   "; expected an integer from 0 to ", end - 1);
  }

  absl::StatusOr<const std::vector<JsonValue>*> Array(const JsonValue& object,
                                                      absl::string_view path, absl::string_view key,
                                                      size_t most) const {
    DSV4_ASSIGN_OR_RETURN(const JsonValue* value, Member(object, path, key));
    const std::vector<JsonValue>* items = value->AsArray();
    if (items == nullptr) return Wrong(absl::StrCat(path, key), *value, "an array");
    if (items->empty() || items->size() > most) {
      return Corrupt(source_, ": ", path, key, " has ", items->size(), " entries; expected 1 to ",
                     most);
    }
    return items;
  }

  const absl::string_view source_;
  const int64_t vocab_size_;
};

// Computes the prompt; `see(i, logits)` gets those behind positions[i].
absl::Status ComputeRows(Engine& engine, absl::Span<const int32_t> tokens,
                         absl::Span<const int64_t> positions,
                         absl::FunctionRef<void(size_t, absl::Span<const float>)> see) {
  DSV4_ASSIGN_OR_RETURN(KvSequence sequence, KvSequence::Open(&engine.cache()));
  StepBatch& batch = engine.batch();
  ModelRanks& model = engine.model();
  constexpr int32_t kFirst = 0;
  int64_t done = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    while (done <= positions[i]) {
      const int64_t rows =
          std::min<int64_t>(positions[i] + 1 - done, engine.info().prefill_chunk_tokens);
      const bool last = done + rows == positions[i] + 1;
      batch.Clear();
      DSV4_RETURN_IF_ERROR(batch.Add(
          &sequence, tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(rows))));
      LogitRequests head;
      if (last) head.Add(static_cast<int32_t>(rows) - 1);
      DSV4_RETURN_IF_ERROR(model.Forward(batch.rows(), batch.tokens(), nullptr, head));
      DSV4_RETURN_IF_ERROR(model.Synchronize());
      batch.Commit();
      done += rows;
    }
    DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> logits, model.logits().Row(kFirst));
    see(i, logits);
  }
  batch.Clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Canary> ParseCanary(absl::string_view json, absl::string_view source,
                                   int64_t vocab_size) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(json, source, kMostBytes));
  return Reader(source, vocab_size).Read(root);
}

absl::StatusOr<std::optional<Canary>> ReadCanary(const std::string& folder, int64_t vocab_size) {
  const std::string path = absl::StrCat(folder, IsGgufPath(folder) ? "." : "/", kCanaryFile);
  const absl::StatusOr<std::string> json = ReadFile(path, kMostBytes);
  if (absl::IsNotFound(json.status())) return std::nullopt;
  DSV4_RETURN_IF_ERROR(json.status());
  DSV4_ASSIGN_OR_RETURN(Canary canary, ParseCanary(*json, path, vocab_size));
  return canary;
}

std::string CanaryText(const Canary& canary) {
  const auto text = [](const std::string& value) {
    std::string json;
    AppendPythonJson(JsonValue::FromString(value), &json);
    return json;
  };
  std::string json =
      absl::StrCat("{\n \"schema\": \"", kSchema, "\",\n \"about\": ", text(canary.about), ",\n");
  if (!canary.fingerprint.empty()) {
    absl::StrAppend(&json, " \"fingerprint\": ", text(canary.fingerprint), ",\n");
  }
  absl::StrAppend(&json, " \"tokens\": [", absl::StrJoin(canary.tokens, ", "),
                  "],\n \"tolerance\": ", canary.tolerance,
                  ",\n \"tolerance_reason\": ", text(canary.tolerance_reason), ",\n \"rows\": [");
  const char* between = "\n";
  for (const CanaryRow& row : canary.rows) {
    const auto pair = [](std::string* out, const CanaryLogit& logit) {
      absl::StrAppend(out, "[", logit.token, ", ", absl::StrFormat("%.9g", logit.logit), "]");
    };
    absl::StrAppend(&json, between, "  {\"position\": ", row.position, ", \"logits\": [",
                    absl::StrJoin(row.logits, ", ", pair), "]}");
    between = ",\n";
  }
  return absl::StrCat(json, "\n ]\n}\n");
}

std::string CanaryResult::Describe() const {
  return among_recorded ? absl::StrCat("the logit of token ", token, " behind token ", position,
                                       " of the prompt is ", logit, ", recorded ", recorded)
                        : absl::StrCat("the logit of token ", token, " behind token ", position,
                                       " of the prompt is ", logit,
                                       ", above the least recorded one, ", recorded);
}

void Compare(const CanaryRow& row, absl::Span<const float> logits, CanaryResult* worst) {
  const auto see = [&](int32_t token, float recorded, bool among, float distance) {
    if (std::isnan(distance)) distance = std::numeric_limits<float>::infinity();
    if (distance <= worst->distance) return;
    *worst = {.distance = distance,
              .position = row.position,
              .token = token,
              .logit = logits[static_cast<size_t>(token)],
              .recorded = recorded,
              .among_recorded = among};
  };
  for (const CanaryLogit& recorded : row.logits) {
    const float logit = logits[static_cast<size_t>(recorded.token)];
    see(recorded.token, recorded.logit, true, std::abs(logit - recorded.logit));
  }
  const float least = row.logits.back().logit;
  for (size_t token = 0; token < logits.size(); ++token) {
    const auto id = static_cast<int32_t>(token);
    if (logits[token] <= least + worst->distance) continue;  // not for NaN
    if (absl::c_any_of(row.logits, [&](const CanaryLogit& l) { return l.token == id; })) continue;
    see(id, least, false, logits[token] - least);
  }
}

absl::StatusOr<CanaryResult> RunCanary(Engine& engine, const Canary& canary) {
  std::vector<int64_t> positions;
  for (const CanaryRow& row : canary.rows) positions.push_back(row.position);
  CanaryResult worst;
  DSV4_RETURN_IF_ERROR(ComputeRows(
      engine, canary.tokens, positions,
      [&](size_t i, absl::Span<const float> logits) { Compare(canary.rows[i], logits, &worst); }));
  return worst;
}

absl::Status RecordCanary(Engine& engine, absl::Span<const int64_t> positions, int32_t count,
                          Canary* canary) {
  canary->rows.clear();
  return ComputeRows(
      engine, canary->tokens, positions, [&](size_t i, absl::Span<const float> logits) {
        std::vector<int32_t> order(logits.size());
        std::iota(order.begin(), order.end(), 0);
        const auto end = order.begin() + std::min<ptrdiff_t>(count, order.end() - order.begin());
        std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        CanaryRow& row = canary->rows.emplace_back();
        row.position = positions[i];
        for (auto token = order.begin(); token != end; ++token) {
          row.logits.push_back({*token, logits[static_cast<size_t>(*token)]});
        }
      });
}

}  // namespace dsv4
