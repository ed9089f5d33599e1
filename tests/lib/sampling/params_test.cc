// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/params.h"

#include <limits>

#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kVocab = 50;

TEST_CASE("parameters outside their range are refused by name, with the range") {
  const auto refused = [](SamplingParams params, const char* text) {
    REQUIRE_FAILS(ValidateSampling(params, kVocab), absl::StatusCode::kInvalidArgument, text);
  };
  SamplingParams p;
  p = {}, p.temperature = -0.5f, refused(p, "temperature is -0.5; expected 0 (greedy) or more");
  p = {}, p.temperature = kNan, refused(p, "temperature is nan");
  p = {}, p.temperature = kInf, refused(p, "temperature is inf");
  p = {}, p.top_k = -1, refused(p, "top_k is -1; expected 0 (all) or more");
  p = {}, p.top_p = 1.5f, refused(p, "top_p is 1.5; expected at most 1");
  p = {}, p.top_p = -0.5f, refused(p, "top_p is -0.5");
  p = {}, p.top_p = kNan, refused(p, "top_p is nan");
  p = {}, p.min_p = 1.25f, refused(p, "min_p is 1.25; expected 0 to 1");
  p = {}, p.min_p = -0.25f, refused(p, "min_p is -0.25");
  p = {}, p.min_p = kNan, refused(p, "min_p is nan");
  p = {}, p.max_tokens = -1, refused(p, "max_tokens is -1; expected 0 (no limit) or more");
  p = {}, p.repetition_penalty = -1, refused(p, "repetition_penalty is -1; expected 0 (off) or");
  p = {}, p.repetition_penalty = 0.005f, refused(p, "repetition_penalty is 0.005");
  p = {}, p.repetition_penalty = 101, refused(p, "0.01 to 100");
  p = {}, p.repetition_penalty = kNan, refused(p, "repetition_penalty is nan");
  p = {}, p.presence_penalty = 2.5f, refused(p, "presence_penalty is 2.5; expected -2 to 2");
  p = {}, p.presence_penalty = kNan, refused(p, "presence_penalty is nan");
  p = {}, p.frequency_penalty = -2.5f, refused(p, "frequency_penalty is -2.5; expected -2 to 2");
  p = {}, p.frequency_penalty = kInf, refused(p, "frequency_penalty is inf");
  p = {}, p.log_probs = -1, refused(p, "log_probs is -1; expected 0 to 20");
  p = {}, p.log_probs = 21, refused(p, "log_probs is 21");
  p = {}, p.draft_tokens = 8, refused(p, "draft_tokens is 8; expected 0 to 7");
  p = {}, p.draft_tokens = -1, refused(p, "draft_tokens is -1");
}

TEST_CASE("token lists are held against the vocabulary") {
  const auto refused = [](SamplingParams params, const char* text) {
    REQUIRE_FAILS(ValidateSampling(params, kVocab), absl::StatusCode::kInvalidArgument, text);
  };
  refused({.logit_bias = {{3, 1}, {50, 1}}}, "logit_bias[1] is token 50; expected 0 to 49");
  refused({.logit_bias = {{-1, 1}}}, "logit_bias[0] is token -1");
  refused({.logit_bias = {{3, 1}, {4, 100.5f}}},
          "logit_bias[1] of token 4 is 100.5; expected -100 to 100");
  refused({.logit_bias = {{3, kNan}}}, "logit_bias[0] of token 3 is nan");
  refused({.logit_bias = {{3, -kInf}}}, "logit_bias[0] of token 3 is -inf");
  refused({.banned_tokens = {1, 2, 99}}, "banned_tokens[2] is token 99");
  refused({.banned_tokens = {-7}}, "banned_tokens[0] is token -7");
  refused({.forced_tokens = {50}}, "forced_tokens[0] is token 50");
  refused({.stop_tokens = {1, 50}}, "stop_tokens[1] is token 50");
}

TEST_CASE("parameters at the ends of their ranges are accepted") {
  REQUIRE_OK(ValidateSampling({}, kVocab));
  for (const float sign : {1.0f, -1.0f}) {
    REQUIRE_OK(ValidateSampling({.temperature = 100,
                                 .top_k = 1,
                                 .top_p = 1,
                                 .min_p = 1,
                                 .max_tokens = 1,
                                 .repetition_penalty = sign > 0 ? 100 : 0.01f,
                                 .presence_penalty = 2 * sign,
                                 .frequency_penalty = 2 * sign,
                                 .logit_bias = {{0, 100 * sign}, {49, 0}, {0, 1}},
                                 .banned_tokens = {0, 49, 0},
                                 .forced_tokens = {49, 0},
                                 .stop_tokens = {0, 49},
                                 .log_probs = 20,
                                 .draft_tokens = 7},
                                kVocab));
  }
}

}  // namespace
}  // namespace dsv4
