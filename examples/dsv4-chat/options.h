// SPDX-License-Identifier: Apache-2.0
// The command line of dsv4-chat.
#pragma once

#include <dsv4/dsv4.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chat {

enum class ColorMode { kAuto, kAlways, kNever };

// Sampling options. Without a value: the model's default, and another seed in each run.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k;
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;
  float presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> stop_strings;
  int64_t think_budget = 0;  // tokens; 0 = no limit
  int32_t drafts = 0;        // as dsv4::EngineOptions::max_draft_tokens
  // The constraint of answers, at most one of these: the file of a JSON schema, or a regular
  // expression.
  std::string schema_file, regex;
};

struct Options {
  std::string model;  // folder
  // Without both of them: standard input, or a chat on a terminal.
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::string system;
  std::string tools;                 // file; empty: none
  std::string load_file, save_file;  // conversations; empty: none
  SamplingOptions sampling;
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;
  dsv4_chat_encoder chat_encoder = DSV4_CHAT_ENCODER_AUTO;
  dsv4::EngineOptions engine;
  bool raw = false;
  bool inspect = false, plan = false;
  bool list_devices = false, list_models = false;
  bool json = false;
  bool stats = true;
  bool verbose = false;
  bool history = true;
  bool hide_thinking = false;
  ColorMode color = ColorMode::kAuto;
  bool help = false, version = false;
};

// Throws a Failure that names the option and the value. Does not open files.
Options ParseOptions(int argc, const char* const* argv);

// "temp=0.5" as --temp 0.5, for the options that are SamplingOptions; throws a Failure as
// ParseOptions.
void SetSampling(SamplingOptions* sampling, const std::string& assignment);

std::string HelpText();

}  // namespace chat
