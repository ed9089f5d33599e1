// SPDX-License-Identifier: Apache-2.0
// The gates' options: the server, the gates to run, and their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gates {

struct Options {
  std::string url = "http://127.0.0.1:8000";
  std::string api_key, model;             // empty: none; the server's first
  std::vector<std::string> gates;         // empty: all
  std::vector<size_t> depths;             // tokens of context, rising
  std::vector<size_t> concurrencies;      // of the latency matrix
  size_t output = 32;                     // tokens of an answer
  size_t requests = 16;                   // at once, of gates under pressure
  size_t needles = 3;                     // places of a needle in a context, each at 8 positions
  size_t decoders = 4, long_prompts = 2;  // of fairness
  size_t chunk = 4096;                    // the server's tokens of prompt in a step, or more
  double least_recall = 0.75, least_share = 0.8;
  double most_ttft_ms = 0, most_itl_ms = 0;  // 99th percentiles; 0 = no limit
  double timeout_s = 600;                    // without a byte from the server
  uint64_t seed = 0;
  std::string output_file;  // empty: standard output
  bool list = false, help = false, version = false;
};

}  // namespace gates
