// SPDX-License-Identifier: Apache-2.0
// Raises alarms for logits and tokens that a healthy model does not produce. They are the first
// sign of a device that fails without an error.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace dsv4 {

// The bits of dsv4_alarms.
enum class Alarm : int32_t {
  kNonFiniteLogits = 1,
  kFrozenLogits = 2,
  kTokenRun = 4,
  kBosRun = 8,
  kFewAccepted = 16,
  kCanary = 32,  // the engine's: every session of it has it
};
inline constexpr int32_t kAlarmKinds = 6;
const char* AlarmName(Alarm alarm);  // "nonfinite_logits"

// Identifies a row of logits.
struct LogitSum {
  uint64_t hash = 0;        // equal rows have equal hashes
  bool non_finite = false;  // the row has a NaN or an infinity
};
// Reads the row once.
LogitSum SumOf(absl::Span<const float> logits);

class LogitWatch {
 public:
  // Rows in a row that are equal to the bit, and tokens in a row that are the same one.
  static constexpr int32_t kFrozenRows = 4, kTokenRun = 256, kBosRun = 4;
  // A GPU returns only candidates: the host downloads a whole row once in so many positions.
  static constexpr int64_t kDevicePositions = 64;

  explicit LogitWatch(int32_t bos) : bos_(bos) {}

  // Checks the row that the token at `position` is chosen from. Internal, with an alarm, if a logit
  // is NaN or infinite, or if kFrozenRows rows are equal: then no token may be chosen from it.
  absl::Status See(int64_t position, absl::Span<const float> logits);
  // The token at `position` is chosen.
  void SeeToken(int64_t position, int32_t token);
  void Raise(Alarm alarm);

  // Set since Reset, as bits.
  int32_t alarms() const { return alarms_; }
  // Alarms that were raised since the last call, as bits.
  int32_t TakeNew();
  // A new prompt.
  void Reset();

 private:
  int32_t bos_;
  int32_t alarms_ = 0, new_ = 0;
  // The last row seen, and how many before it were equal to it.
  static constexpr int64_t kNowhere = -2 * kDevicePositions;  // near no position
  int64_t row_position_ = kNowhere;
  uint64_t row_hash_ = 0;
  int32_t equal_rows_ = 0;
  int64_t token_position_ = kNowhere;
  int32_t token_ = -1, same_tokens_ = 0;
};

}  // namespace dsv4
