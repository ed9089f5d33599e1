// SPDX-License-Identifier: Apache-2.0
// The command line of dsv4-chat.
#pragma once

#include <dsv4/dsv4.h>

#include <cstdint>
#include <optional>
#include <string>

namespace chat {

enum class ColorMode { kAuto, kAlways, kNever };

struct Options {
  std::string model;                  // folder
  std::optional<std::string> prompt;  // without one: standard input, or a chat on a terminal
  std::string system;
  std::string tools;       // file; empty: none
  int64_t max_tokens = 0;  // 0 = until the model ends its turn
  int64_t context = 0;     // 0 = the model's limit
  // Without a value: the model's default. Of the seed: another one each run.
  std::optional<float> temperature, top_p, min_p;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  int32_t drafts = 0;        // tokens for each forward to verify; 0 = none
  int64_t think_budget = 0;  // tokens; 0 = no limit
  dsv4_backend backend = DSV4_BACKEND_AUTO;
  int32_t threads = 0;  // 0 = one per core
  bool json = false;
  bool stats = true;
  bool hide_thinking = false;
  ColorMode color = ColorMode::kAuto;
  bool help = false, version = false;
};

// Throws a Failure that names the option and the value. Looks at nothing outside the arguments.
Options ParseOptions(int argc, const char* const* argv);

// "off", "high" or "max"; throws a Failure that names `where` for anything else.
dsv4_thinking_mode ParseThinking(const std::string& where, const std::string& value);

std::string HelpText();

}  // namespace chat
