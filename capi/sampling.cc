// SPDX-License-Identifier: Apache-2.0
// include/dsv4/sampling.h.
#include "capi/sampling.h"

#include <dsv4/sampling.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {
namespace {

absl::StatusOr<std::vector<int32_t>> TokensFrom(const int32_t* tokens, uint64_t count,
                                                absl::string_view name) {
  DSV4_RETURN_IF_ERROR(CheckArray(tokens, count, name));
  return std::vector<int32_t>(tokens, tokens + count);
}

absl::StatusOr<std::vector<std::string>> StopStringsFrom(const dsv4_sampling& in) {
  DSV4_RETURN_IF_ERROR(CheckArray(in.stop_strings, in.stop_string_count, "sampling.stop_strings"));
  std::vector<std::string> strings;
  for (uint64_t i = 0; i < in.stop_string_count; ++i) {
    const char* bytes = in.stop_strings[i];
    const std::string name = absl::StrCat("sampling.stop_strings[", i, "]");
    DSV4_RETURN_IF_ERROR(NotNull(bytes, name));
    const uint64_t length =
        in.stop_string_lengths != nullptr ? in.stop_string_lengths[i] : std::strlen(bytes);
    DSV4_RETURN_IF_ERROR(CheckArray(bytes, length, name));
    strings.emplace_back(bytes, length);
  }
  return strings;
}

}  // namespace

absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_sampling in, CopyIn(given, "sampling"));
  SamplingParams params = {.temperature = in.temperature,
                           .top_k = in.top_k,
                           .top_p = in.top_p,
                           .min_p = in.min_p,
                           .seed = in.seed,
                           .max_tokens = in.max_tokens,
                           .repetition_penalty = in.repetition_penalty,
                           .presence_penalty = in.presence_penalty,
                           .frequency_penalty = in.frequency_penalty,
                           .max_thinking_tokens = in.max_thinking_tokens,
                           .log_probs = in.log_probs,
                           .draft_tokens = in.draft_tokens};
  if (in.grammar != nullptr) params.grammar = in.grammar->grammar;
  DSV4_RETURN_IF_ERROR(CheckArray(in.bias_tokens, in.bias_count, "sampling.bias_tokens"));
  DSV4_RETURN_IF_ERROR(CheckArray(in.biases, in.bias_count, "sampling.biases"));
  for (uint64_t i = 0; i < in.bias_count; ++i)
    params.logit_bias.push_back({in.bias_tokens[i], in.biases[i]});
  DSV4_ASSIGN_OR_RETURN(params.banned_tokens,
                        TokensFrom(in.banned_tokens, in.banned_count, "sampling.banned_tokens"));
  DSV4_ASSIGN_OR_RETURN(params.forced_tokens,
                        TokensFrom(in.forced_tokens, in.forced_count, "sampling.forced_tokens"));
  DSV4_ASSIGN_OR_RETURN(params.stop_tokens,
                        TokensFrom(in.stop_tokens, in.stop_token_count, "sampling.stop_tokens"));
  DSV4_ASSIGN_OR_RETURN(params.stop_strings, StopStringsFrom(in));
  return params;
}

HeldSampling::HeldSampling(SamplingParams params) : params_(std::move(params)) {
  for (const LogitBias& entry : params_.logit_bias) {
    bias_tokens_.push_back(entry.token);
    biases_.push_back(entry.bias);
  }
  for (const std::string& stop : params_.stop_strings) {
    stop_strings_.push_back(stop.c_str());
    stop_string_lengths_.push_back(stop.size());
  }
}

dsv4_sampling HeldSampling::View() const {
  dsv4_sampling out = DSV4_SAMPLING_INIT;
  out.temperature = params_.temperature;
  out.top_k = params_.top_k;
  out.top_p = params_.top_p == 0 ? 1 : params_.top_p;
  out.min_p = params_.min_p;
  out.repetition_penalty = params_.repetition_penalty == 0 ? 1 : params_.repetition_penalty;
  out.seed = params_.seed;
  out.max_tokens = params_.max_tokens;
  out.presence_penalty = params_.presence_penalty;
  out.frequency_penalty = params_.frequency_penalty;
  out.bias_tokens = bias_tokens_.data();
  out.biases = biases_.data();
  out.bias_count = bias_tokens_.size();
  out.banned_tokens = params_.banned_tokens.data();
  out.banned_count = params_.banned_tokens.size();
  out.forced_tokens = params_.forced_tokens.data();
  out.forced_count = params_.forced_tokens.size();
  out.max_thinking_tokens = params_.max_thinking_tokens;
  out.stop_tokens = params_.stop_tokens.data();
  out.stop_token_count = params_.stop_tokens.size();
  out.stop_strings = stop_strings_.data();
  out.stop_string_lengths = stop_string_lengths_.data();
  out.stop_string_count = stop_strings_.size();
  out.log_probs = params_.log_probs;
  out.draft_tokens = params_.draft_tokens;
  return out;
}

}  // namespace dsv4::capi

dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                               dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(sampling, "sampling").status());
    const dsv4::SamplingParams defaults = dsv4::Session::DefaultSampling(*engine->engine);
    dsv4_sampling out = DSV4_SAMPLING_INIT;
    out.temperature = defaults.temperature;
    out.top_k = defaults.top_k;
    out.top_p = defaults.top_p;
    out.min_p = defaults.min_p;
    out.repetition_penalty = defaults.repetition_penalty;
    out.seed = defaults.seed;
    out.max_tokens = defaults.max_tokens;
    CopyOut(out, sampling);
    return absl::OkStatus();
  });
}
