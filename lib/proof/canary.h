// SPDX-License-Identifier: Apache-2.0
// A canary: a file of the model folder with a prompt and recorded logits. An engine that opens the
// folder computes the prompt and compares the logits. So changed weights or a faulty device are
// noticed before a user reads the first answer. The file is untrusted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/engine/engine.h"

namespace dsv4 {

struct CanaryLogit {
  int32_t token = 0;
  float logit = 0;
};

// The largest logits after one token of the prompt.
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

// Parses a canary for a model of `vocab_size` tokens. Errors: Corrupt, with `source` and the key.
absl::StatusOr<Canary> ParseCanary(absl::string_view json, absl::string_view source,
                                   int64_t vocab_size);
// The canary of a model folder, or of a GGUF file: FILE.gguf.dsv4_canary.json beside it; nullopt if
// it has none. Errors: those of ReadFile and ParseCanary.
absl::StatusOr<std::optional<Canary>> ReadCanary(const std::string& folder, int64_t vocab_size);
// The text of a canary file.
std::string CanaryText(const Canary& canary);

// The largest distance of an engine's logits from the recorded ones, and its place.
struct CanaryResult {
  float distance = 0;  // infinite for a logit that is NaN
  int64_t position = 0;
  int32_t token = 0;
  float logit = 0;
  float recorded = 0;          // the recorded logit of `token`; if it has none, the row's smallest
  bool among_recorded = true;  // whether `token` has a recorded logit
  std::string Describe() const;
};

// Compares rows. A token without a recorded logit must not exceed the smallest recorded one; its
// distance is the excess.
void Compare(const CanaryRow& row, absl::Span<const float> logits, CanaryResult* worst);

// Computes the prompt in the engine's prefill chunks and compares its logits.
// - Cost: the prefill, and the head for each recorded row.
// - Errors: those of the passes; ContextFull or OutOfBlocks if the engine has no room.
// - REQUIRES: no session computes.
absl::StatusOr<CanaryResult> RunCanary(Engine& engine, const Canary& canary);

// Records `canary->rows`: the `count` largest logits after each of `positions`, which ascend. The
// other members of `canary` are set by the caller.
absl::Status RecordCanary(Engine& engine, absl::Span<const int64_t> positions, int32_t count,
                          Canary* canary);

}  // namespace dsv4
