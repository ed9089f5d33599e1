// SPDX-License-Identifier: Apache-2.0
// The latency of requests that share an engine: several at a time, in a queue, which gets the next
// one when one is answered. Fields have the names of `vllm bench
// serve`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/dsv4-bench/record.h"
#include "benchmarks/dsv4-bench/subject.h"

namespace bench {

struct ServingTest {
  int64_t prompt = 0, generated = 0;  // tokens of each request
  int32_t concurrency = 1, requests = 1;

  std::string name() const;
  int64_t context_tokens() const { return prompt + generated + 1; }
};

// One answered request.
struct RequestTimes {
  double first_token_seconds = 0;       // from the request to its first token
  std::vector<double> between_seconds;  // between each token and the next
  double total_seconds = 0;             // from the request to its last token
};

// Apart from the measuring, for tests. `seconds`: from the first request to the last token.
void AddTo(Record* record, const ServingTest& test, const std::vector<RequestTimes>& requests,
           double seconds);

// Throws chat::Failure and dsv4::Error.
Record MeasureServing(const Subject& subject, const ServingTest& test, float temperature,
                      const Options& options);

}  // namespace bench
