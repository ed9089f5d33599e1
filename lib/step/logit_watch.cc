// SPDX-License-Identifier: Apache-2.0
#include "lib/step/logit_watch.h"

#include <bit>

#include "lib/base/error.h"

namespace dsv4 {

const char* AlarmName(Alarm alarm) {
  switch (alarm) {
    case Alarm::kNonFiniteLogits:
      return "nonfinite_logits";
    case Alarm::kFrozenLogits:
      return "frozen_logits";
    case Alarm::kTokenRun:
      return "token_run";
    case Alarm::kBosRun:
      return "bos_run";
    case Alarm::kFewAccepted:
      return "few_accepted";
    case Alarm::kCanary:
      return "canary";
  }
  return "unknown";
}

// Plain sums, which compilers turn into vector instructions. The second one depends on the order.
LogitSum SumOf(absl::Span<const float> logits) {
  constexpr uint32_t kExponent = 0x7f800000u;
  uint32_t sum = 0, weighted = 0, bad = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(logits[i]);
    sum += bits;
    weighted += bits * (2 * static_cast<uint32_t>(i) + 1);
    bad |= static_cast<uint32_t>((bits & kExponent) == kExponent);
  }
  return {.hash = uint64_t{sum} << 32 | weighted, .non_finite = bad != 0};
}

absl::Status LogitWatch::See(int64_t position, absl::Span<const float> logits) {
  const LogitSum sum = SumOf(logits);
  if (sum.non_finite) {
    Raise(Alarm::kNonFiniteLogits);
    return Internal("the logits after token ", position - 1,
                    " are not all finite: the device or the weights are damaged");
  }
  // The same position again, after a rewind or a change of sampling, does not count.
  const bool equal = sum.hash == row_hash_ && position - row_position_ <= kDevicePositions;
  if (!equal || position < row_position_) {
    equal_rows_ = 0;
  } else if (position > row_position_) {
    ++equal_rows_;
  }
  row_position_ = position;
  row_hash_ = sum.hash;
  if (equal_rows_ < kFrozenRows - 1) return absl::OkStatus();
  Raise(Alarm::kFrozenLogits);
  return Internal("the logits after token ", position - 1, " equal those of the ", kFrozenRows - 1,
                  " rows before: the device does not compute");
}

void LogitWatch::SeeToken(int64_t position, int32_t token) {
  same_tokens_ = position == token_position_ + 1 && token == token_ ? same_tokens_ + 1 : 1;
  token_position_ = position;
  token_ = token;
  if (same_tokens_ >= kTokenRun) Raise(Alarm::kTokenRun);
  if (token == bos_ && same_tokens_ >= kBosRun) Raise(Alarm::kBosRun);
}

void LogitWatch::Raise(Alarm alarm) {
  const auto bit = static_cast<int32_t>(alarm);
  new_ |= bit & ~alarms_;
  alarms_ |= bit;
}

int32_t LogitWatch::TakeNew() {
  const int32_t raised = new_;
  new_ = 0;
  return raised;
}

void LogitWatch::Reset() {
  alarms_ = new_ = 0;
  row_position_ = token_position_ = kNowhere;
  equal_rows_ = same_tokens_ = 0;
}

}  // namespace dsv4
