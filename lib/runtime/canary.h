// SPDX-License-Identifier: Apache-2.0
// A canary: a prompt whose logits were recorded, as a file of the model folder. An engine that
// opens the folder computes the prompt and compares, so that weights or a device that changed since
// are seen before a user reads the first answer. What the file holds is untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace dsv4 {

// Values of dsv4_canary.
enum class CanaryState : int32_t { kNone, kPassed, kFailed, kNotRun };
const char* CanaryStateName(CanaryState state);  // "none"

struct CanaryLogit {
  int32_t token = 0;
  float logit = 0;
};

// The largest logits behind one token of the prompt.
struct CanaryRow {
  int64_t position = 0;             // of that token
  std::vector<CanaryLogit> logits;  // from the largest on
};

struct Canary {
  std::string about;        // where the logits come from
  std::string fingerprint;  // of the checkpoint (Checkpoint::Fingerprint); may be empty
  std::vector<int32_t> tokens;
  float tolerance = 0;  // the most that a logit may differ
  std::string tolerance_reason;
  std::vector<CanaryRow> rows{};  // by ascending position
};

inline constexpr char kCanaryFile[] = "dsv4_canary.json";

// The canary of `json`. Corrupt, with `source` and the key, for anything else than one of a model
// of `vocab_size` tokens.
absl::StatusOr<Canary> ParseCanary(absl::string_view json, absl::string_view source,
                                   int64_t vocab_size);
// That of a folder; none where it has no such file. Errors: ReadFile's, ParseCanary's.
absl::StatusOr<std::optional<Canary>> ReadCanary(const std::string& folder, int64_t vocab_size);
// The file's text.
std::string CanaryText(const Canary& canary);

// How far an engine's logits are from the recorded ones, and where the most.
struct CanaryResult {
  float distance = 0;  // infinite for a logit that is NaN
  int64_t position = 0;
  int32_t token = 0;
  float logit = 0;
  float recorded = 0;  // of `token`, or the least of the row where it is none of the recorded
  bool among_recorded = true;  // whether it is one of them
  std::string Describe() const;
};

// A token that was not recorded must not have a larger logit than the recorded ones: by what it is
// above the least of them, it is too far.
void Compare(const CanaryRow& row, absl::Span<const float> logits, CanaryResult* worst);

}  // namespace dsv4
