// SPDX-License-Identifier: Apache-2.0
// include/dsv4/sampling.h.
#include "capi/sampling.h"

#include <dsv4/sampling.h>

#include <cstring>
#include <random>
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

// DSV4_SEED_RANDOM itself is no seed.
uint64_t RandomSeed() {
  std::random_device device;
  const uint64_t seed = uint64_t{device()} << 32 | device();
  return seed == DSV4_SEED_RANDOM ? 0 : seed;
}

}  // namespace

absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given,
                                            const SamplingParams& defaults, int32_t engine_drafts) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_sampling in, CopyIn(given, "sampling"));
  // 0 is the model's value, `off` turns the step off.
  const auto value = [](auto field, auto off, auto models) {
    return field == off ? decltype(field){0} : field == 0 ? models : field;
  };
  SamplingParams params = {.temperature = value(in.temperature, DSV4_GREEDY, defaults.temperature),
                           .top_k = value(in.top_k, -1, defaults.top_k),
                           .top_p = in.top_p == 0 ? defaults.top_p : in.top_p,
                           .min_p = value(in.min_p, -1.0f, defaults.min_p),
                           .seed = in.seed == DSV4_SEED_RANDOM ? RandomSeed() : in.seed,
                           .max_tokens = value(in.max_tokens, int64_t{-1}, defaults.max_tokens),
                           .repetition_penalty = in.repetition_penalty == 0
                                                     ? defaults.repetition_penalty
                                                     : in.repetition_penalty,
                           .presence_penalty = in.presence_penalty,
                           .frequency_penalty = in.frequency_penalty,
                           .max_thinking_tokens = in.max_thinking_tokens,
                           .log_probs = in.log_probs,
                           .draft_tokens = value(in.draft_tokens, -1, engine_drafts)};
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

}  // namespace dsv4::capi

dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                               dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(sampling, "sampling").status());
    const dsv4::SamplingParams defaults = dsv4::Session::DefaultSampling(*engine->engine);
    dsv4_sampling out = DSV4_SAMPLING_INIT;
    out.temperature = defaults.temperature == 0 ? DSV4_GREEDY : defaults.temperature;
    out.top_k = defaults.top_k == 0 ? -1 : defaults.top_k;
    out.top_p = defaults.top_p == 0 ? 1 : defaults.top_p;
    out.min_p = defaults.min_p == 0 ? -1 : defaults.min_p;
    out.repetition_penalty = defaults.repetition_penalty == 0 ? 1 : defaults.repetition_penalty;
    out.seed = defaults.seed;
    out.max_tokens = defaults.max_tokens == 0 ? -1 : defaults.max_tokens;
    CopyOut(out, sampling);
    return absl::OkStatus();
  });
}
