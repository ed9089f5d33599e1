// SPDX-License-Identifier: Apache-2.0
// The speed of one session that has the machine to itself: ppN, tgN and ppP+tgN, at a depth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/dsv4-bench/record.h"
#include "benchmarks/dsv4-bench/subject.h"

namespace bench {

struct SpeedTest {
  int64_t prompt = 0, generated = 0, depth = 0;  // tokens

  // "pp512", "tg128", "pp512+tg128"; with " @ d4096" at a depth.
  std::string name() const;
  // The context that it needs: with the token that begins a generation, and the one whose choice
  // is timed at the end.
  int64_t context_tokens() const { return depth + prompt + generated + 2; }
};

// One repetition.
struct SpeedSample {
  // The prompt's forwards, and where tokens are generated too the choice of the first one.
  double prefill_seconds = 0;
  // As many forwards as tokens are generated, or with drafts the fewer that these took.
  double decode_seconds = 0;
};

// The record fields of the samples: samples_ns, samples_ts, their means and deviations, and the
// fields of ds4-bench. Separate from measuring, for tests.
void AddTo(Record* record, const SpeedTest& test, const std::vector<SpeedSample>& samples,
           int64_t kvcache_bytes);

// Throws chat::Failure and dsv4::Error.
Record MeasureSpeed(const Subject& subject, const SpeedTest& test, float temperature,
                    const Options& options);

}  // namespace bench
