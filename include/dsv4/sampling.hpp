// SPDX-License-Identifier: Apache-2.0
//
// How a session chooses the next token.
#ifndef DSV4_SAMPLING_HPP_
#define DSV4_SAMPLING_HPP_

#include <dsv4/sampling.h>
#include <dsv4/grammar.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// A value that is added to the logit of a token.
struct TokenBias {
  int32_t token;
  float bias;
};

// The fields of dsv4_sampling. 0 is the model's own value, which Engine::default_sampling()
// returns.
struct Sampling {
  float temperature = 0;
  int32_t top_k = 0;
  float top_p = 0;
  float min_p = 0;
  float repetition_penalty = 0;
  uint64_t seed = 0;
  int64_t max_tokens = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<TokenBias> biases = {};
  std::vector<int32_t> banned_tokens = {};
  std::vector<int32_t> forced_tokens = {};
  int64_t max_thinking_tokens = 0;
  std::vector<int32_t> stop_tokens = {};
  std::vector<std::string> stop_strings = {};
  int32_t log_probs = 0;
  int32_t draft_tokens = 0;
  Grammar grammar = {};
};

namespace detail {

// Parameters as a C struct. The parameters must outlive the object.
class SamplingView {
 public:
  explicit SamplingView(const Sampling& in) {
    for (const TokenBias& bias : in.biases) {
      bias_tokens_.push_back(bias.token);
      biases_.push_back(bias.bias);
    }
    for (const std::string& text : in.stop_strings) {
      stop_strings_.push_back(text.data());
      stop_string_lengths_.push_back(text.size());
    }
    view_.temperature = in.temperature;
    view_.top_k = in.top_k;
    view_.top_p = in.top_p;
    view_.min_p = in.min_p;
    view_.repetition_penalty = in.repetition_penalty;
    view_.seed = in.seed;
    view_.max_tokens = in.max_tokens;
    view_.presence_penalty = in.presence_penalty;
    view_.frequency_penalty = in.frequency_penalty;
    view_.bias_tokens = bias_tokens_.data();
    view_.biases = biases_.data();
    view_.bias_count = biases_.size();
    view_.banned_tokens = in.banned_tokens.data();
    view_.banned_count = in.banned_tokens.size();
    view_.forced_tokens = in.forced_tokens.data();
    view_.forced_count = in.forced_tokens.size();
    view_.max_thinking_tokens = in.max_thinking_tokens;
    view_.stop_tokens = in.stop_tokens.data();
    view_.stop_token_count = in.stop_tokens.size();
    view_.stop_strings = stop_strings_.data();
    view_.stop_string_lengths = stop_string_lengths_.data();
    view_.stop_string_count = stop_strings_.size();
    view_.log_probs = in.log_probs;
    view_.draft_tokens = in.draft_tokens;
    view_.grammar = in.grammar.get();
  }
  SamplingView(const SamplingView&) = delete;
  SamplingView& operator=(const SamplingView&) = delete;

  const dsv4_sampling* get() const noexcept { return &view_; }

 private:
  std::vector<int32_t> bias_tokens_;
  std::vector<float> biases_;
  std::vector<const char*> stop_strings_;
  std::vector<uint64_t> stop_string_lengths_;
  dsv4_sampling view_ = DSV4_SAMPLING_INIT;
};

}  // namespace detail
}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_SAMPLING_HPP_
