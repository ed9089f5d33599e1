// SPDX-License-Identifier: Apache-2.0
// The command line of bench_decode, whose source says what its options do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/engine/engine.h"

namespace dsv4 {

struct BenchDecodeOptions {
  std::string folder;
  EngineOptions engine;
  std::vector<int64_t> contexts = {2048};
  std::vector<int64_t> sessions = {1};
  std::vector<int64_t> prefills;
  int64_t steps = 32, warm_steps = 8, drafts = 0;
  int64_t own_tokens = 16;  // of a session, at the end of its context
  float temperature = 1;
  bool operators = false;
  bool without_weights = false;
  bool leave_out = false;
  bool automatic = false;  // the library chooses devices, limits and context
  int64_t left_bytes = 0;  // 0: all of each GPU's memory that is free
};

std::string BenchDecodeUsage();

// Throws a chat::Failure that names the option and the value.
BenchDecodeOptions ParseBenchDecode(int argc, const char* const* argv);

}  // namespace dsv4
