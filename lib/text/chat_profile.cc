// SPDX-License-Identifier: Apache-2.0
#include "lib/text/chat_profile.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/io/mapped_file.h"

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

std::optional<FoundChatEncoder> FindChatEncoder(const std::string& folder) {
  for (const char* file : kEvidence) {
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(folder, "/", file), kMaxEvidenceBytes);
    if (!text.ok()) continue;
    // The newer encoder has both texts.
    if (absl::StrContains(*text, DSV4_BEYOND)) return FoundChatEncoder{ChatEncoder::k0731, file};
    if (absl::StrContains(*text, DSV4_ABSOLUTE)) {
      return FoundChatEncoder{ChatEncoder::kPreview, file};
    }
  }
  return std::nullopt;
}

}  // namespace dsv4
