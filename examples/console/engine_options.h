// SPDX-License-Identifier: Apache-2.0
// The options of the programs that open an engine.
#pragma once

#include <cstdint>
#include <dsv4/dsv4.hpp>
#include <string>

#include "examples/console/command_line.h"

namespace chat {

inline constexpr Named<dsv4_backend> kBackends[] = {{"auto", DSV4_BACKEND_AUTO},
                                                    {"cpu", DSV4_BACKEND_CPU},
                                                    {"cuda", DSV4_BACKEND_CUDA},
                                                    {"reference", DSV4_BACKEND_REFERENCE}};
inline constexpr Named<dsv4_drafter> kDrafters[] = {{"auto", DSV4_DRAFTER_AUTO},
                                                    {"mtp", DSV4_DRAFTER_MTP},
                                                    {"dspark", DSV4_DRAFTER_DSPARK},
                                                    {"ngram", DSV4_DRAFTER_NGRAM}};
inline constexpr Named<dsv4_thinking_mode> kThinkingModes[] = {{"off", DSV4_THINKING_OFF},
                                                               {"low", DSV4_THINKING_LOW},
                                                               {"high", DSV4_THINKING_HIGH},
                                                               {"max", DSV4_THINKING_MAX}};
inline constexpr Named<dsv4_chat_encoder> kChatEncoders[] = {{"auto", DSV4_CHAT_ENCODER_AUTO},
                                                             {"preview", DSV4_CHAT_ENCODER_PREVIEW},
                                                             {"0731", DSV4_CHAT_ENCODER_0731}};

// For Option::apply: adds a setting of the engine, KEY=VALUE. The library checks the value.
template <const auto& key, class Target>
void AddSetting(Target* target, const std::string&, const std::string& value) {
  target->engine.settings.push_back(key + ("=" + value));
}
inline constexpr char kCacheFormat[] = "cache_format", kExpertProfile[] = "expert_profile",
                      kNumerics[] = "numerics", kStepLimit[] = "step_limit_seconds",
                      kTuningDir[] = "tuning_dir";

// For Option::apply: a model whose drafter is used.
template <class Target>
void AddDrafterModel(Target* target, const std::string& name, const std::string& value) {
  target->engine.settings.push_back("drafter_model=" + ParseFolder(name, value));
}
template <class Target>
inline constexpr Option<Target> kDrafterModelOption = {
    "-md", "--model-draft", "MODEL", "take the drafter of this folder, GGUF file or OWNER/NAME",
    AddDrafterModel<Target>};

// Drafts on the command line, where 0 is none, as the library's max_draft_tokens.
inline int32_t ParseDrafts(const std::string& name, const std::string& value) {
  const auto drafts = ParseNumber<int32_t>(name, value, 0, 7);
  return drafts == 0 ? -1 : drafts;
}

// All options except the number of drafts, which dsv4-chat may change later. A Target has the
// member `engine` of type dsv4::EngineOptions.
template <class Target>
inline constexpr Option<Target> kEngineOptions[] = {
    {"-c", "--context", "N", "tokens of context (default: the model's limit)",
     SetCount<&Target::engine, &dsv4::EngineOptions::context_tokens>},
    {"", "--backend", "auto|cpu|cuda|reference", "where the model runs (default: auto)",
     SetName<kBackends, &Target::engine, &dsv4::EngineOptions::backend>},
    {"", "--devices", "N,...", "devices that split the model (default: the best)",
     SetParsed<ParseDevices, &Target::engine, &dsv4::EngineOptions::devices>},
    {"", "--device-count", "N", "split the model over the N best devices of one kind",
     SetNumber<1u, 8u, &Target::engine, &dsv4::EngineOptions::device_count>},
    {"", "--device-weights", "GB", "limit of weights per device; other experts stay in host memory",
     SetParsed<ParseGigabytes, &Target::engine, &dsv4::EngineOptions::device_weight_bytes>},
    {"", "--host-weights", "GB", "limit of host memory for experts; others stay on disk",
     SetParsed<ParseGigabytes, &Target::engine, &dsv4::EngineOptions::host_weight_bytes>},
    {"", "--expert-profile", "FILE|off",
     "file that records the use of experts (default: in ~/.cache/dsv4)",
     [](Target* target, const std::string& name, const std::string& value) {
       AddSetting<kExpertProfile>(target, name, value == "off" ? "" : value);
     }},
    {"", "--workers", "N", "split the model with N dsv4-worker processes (cuda)",
     [](Target* o, const std::string& name, const std::string& v) {
       o->engine.group.size = 1 + ParseNumber<int32_t>(name, v, 1, 7);
     }},
    {"", "--threads", "N", "CPU threads (default: one per core)",
     SetCount<&Target::engine, &dsv4::EngineOptions::threads>},
    {"", "--chunk", "N", "tokens of a prompt to compute at once",
     SetCount<&Target::engine, &dsv4::EngineOptions::prefill_chunk_tokens>},
    {"", "--numerics", "published|fp32|exact", "how numbers are rounded (default: as published)",
     AddSetting<kNumerics, Target>},
    {"", "--cache-format", "FORMAT", "packed, bf16, fp8_per_tensor or f32",
     AddSetting<kCacheFormat, Target>},
    {"", "--drafter", "auto|mtp|dspark|ngram", "who drafts (default: the model's own drafter)",
     SetName<kDrafters, &Target::engine, &dsv4::EngineOptions::drafter>},
    kDrafterModelOption<Target>,
    {"", "--step-limit", "SECONDS",
     "give up a GPU that does not answer for so long (default: 120; 0: never)",
     AddSetting<kStepLimit, Target>},
    {"", "--tuning", "DIR", "tuning tables to use instead of the library's (cuda)",
     AddSetting<kTuningDir, Target>},
};

}  // namespace chat
