// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_profile.h"

#include <cstdint>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/io/native_path.h"

namespace dsv4 {
namespace {

// By these words files show their encoder.
#define DSV4_ABSOLUTE "Absolute maximum"
#define DSV4_BEYOND "Beyond maximum"
constexpr absl::string_view kAbsolute =
    "Reasoning Effort: " DSV4_ABSOLUTE
    " with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to "
    "resolve the root cause, rigorously stress-testing your logic against all potential paths, "
    "edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, "
    "considered alternative, and rejected hypothesis to ensure absolutely no assumption is left "
    "unchecked.\n\n";
constexpr absl::string_view kBeyond =
    "Reasoning Effort: " DSV4_BEYOND
    " — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: "
    "exhaustively decompose the problem into its most fundamental components, trace every causal "
    "chain to its root, and resolve the underlying cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple "
    "angles and are certain that no assumption remains unchecked and no error remains "
    "undiscovered.\n\n";

constexpr int64_t kMaxEvidenceBytes = 1 << 20;
constexpr const char* kEvidence[] = {"encoding/encoding_dsv4.py", "chat_template.jinja",
                                     "tokenizer_config.json"};

// The name that its publisher gave the folder. In the hub's cache a snapshot's folder has a hash
// for a name, and the model's name stands above it.
std::string NameOf(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(NativePath(folder), error);
  if (error) path = NativePath(folder);
  const std::filesystem::path above = path.parent_path();
  return TextOf((above.filename() == "snapshots" ? above.parent_path() : path).filename());
}

// REQUIRES: no file of the folder identifies the encoder.
FoundChatEncoder Guess(const std::string& folder) {
  const std::string name = NameOf(folder);
  for (const char* date : {"0731", "0813"}) {
    if (absl::StrContains(name, date)) {
      return {ChatEncoder::k0731, "", absl::StrCat("the folder's name has ", date)};
    }
  }
  if (absl::StrContains(absl::AsciiStrToLower(name), "dspark")) {
    return {ChatEncoder::kPreview, "", "the folder's name has DSpark and no date"};
  }
  const std::string config = absl::StrCat(folder, "/config.json");
  const absl::StatusOr<std::string> json = ReadFile(config, kMaxEvidenceBytes);
  const absl::StatusOr<JsonValue> keys =
      json.ok() ? ParseJson(*json, config, kMaxEvidenceBytes) : json.status();
  if (keys.ok() && keys->Find("dspark_block_size") != nullptr) {
    return {ChatEncoder::k0731, "", "config.json has the keys of a DSpark drafter"};
  }
  return {ChatEncoder::kPreview, "", "config.json has no keys of a DSpark drafter"};
}

}  // namespace

absl::string_view ChatEncoderName(ChatEncoder encoder) {
  return encoder == ChatEncoder::k0731 ? "0731" : "preview";
}

absl::string_view EffortPrompt(ChatEncoder encoder, ReasoningEffort effort) {
  const bool newer = encoder == ChatEncoder::k0731;
  switch (effort) {
    case ReasoningEffort::kNone:
    case ReasoningEffort::kLow:
      return "";
    case ReasoningEffort::kHigh:
      return newer ? kAbsolute : "";
    case ReasoningEffort::kMax:
      return newer ? kBeyond : kAbsolute;
  }
  return "";
}

absl::StatusOr<ReasoningEffort> EffortFromName(ChatEncoder encoder, absl::string_view name) {
  const bool newer = encoder == ChatEncoder::k0731;
  if (newer && name.empty()) return ReasoningEffort::kNone;
  if (newer && name == "low") return ReasoningEffort::kLow;
  if (name == "high") return ReasoningEffort::kHigh;
  if (name == "max") return ReasoningEffort::kMax;
  return InvalidArgument("the reasoning effort is ", Quoted(name), "; expected ",
                         newer ? "low, " : "", "high or max");
}

FoundChatEncoder FindChatEncoder(const std::string& folder) {
  for (const char* file : kEvidence) {
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(folder, "/", file), kMaxEvidenceBytes);
    if (!text.ok()) continue;
    // The newer encoder has both texts.
    if (absl::StrContains(*text, DSV4_BEYOND)) return {ChatEncoder::k0731, file, ""};
    if (absl::StrContains(*text, DSV4_ABSOLUTE)) return {ChatEncoder::kPreview, file, ""};
  }
  return Guess(folder);
}

}  // namespace dsv4
