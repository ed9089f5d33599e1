// SPDX-License-Identifier: Apache-2.0
// Whole sequences, drafted several tokens at a time, under rules that look at what came before:
// penalties, a bias and a mask per position. Every sequence of four tokens must come as often as
// the product of its tokens' probabilities says, which is worked out here the plain way, and drafts
// must change no sequence.
#include <cmath>
#include <vector>

#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"
#include "tests/support/chi_squared.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int32_t kVocab = 4, kTokens = 4;
constexpr int64_t kDraws = 100'000;
constexpr int32_t kPrompt = 2;

// Logits after each last token: of the model, and of a drafter that is often wrong.
constexpr float kModel[kVocab][kVocab] = {{0.3f, -0.4f, 1.1f, 0.2f},
                                          {-0.8f, 0.9f, 0.1f, -0.3f},
                                          {1.2f, 0.4f, 0.6f, -0.5f},
                                          {0.1f, -0.2f, -1.0f, 0.8f}};
constexpr float kDrafter[kVocab][kVocab] = {{0.5f, 0.4f, 0.9f, -0.6f},
                                            {-0.3f, 0.2f, 0.7f, 0.3f},
                                            {0.2f, 1.0f, 0.5f, 0.1f},
                                            {1.1f, 0.3f, -0.7f, -0.2f}};

constexpr float kTemperature = 0.8f, kRepetition = 1.3f, kPresence = 0.4f, kFrequency = 0.7f;
constexpr float kBias = 0.5f;  // of token 3

// Token 1 must not follow token 0, nor 2 follow 3.
uint32_t Allowed(int32_t last) { return last == 0 ? 0b1101 : last == 3 ? 0b1011 : 0b1111; }

// The probability of each token after `output`.
std::vector<double> Expected(const std::vector<int32_t>& output) {
  const int32_t last = output.empty() ? kPrompt : output.back();
  std::vector<double> weights(kVocab);
  double mass = 0;
  for (int32_t token = 0; token < kVocab; ++token) {
    if ((Allowed(last) >> token & 1) == 0) continue;
    int count = 0;
    for (const int32_t earlier : output) count += earlier == token;
    double logit = kModel[last][token];
    if (count > 0 || token == kPrompt)
      logit = logit > 0 ? logit / kRepetition : logit * kRepetition;
    if (count > 0) logit -= kPresence + kFrequency * count;
    if (token == 3) logit += kBias;
    mass += weights[token] = std::exp(logit / kTemperature);
  }
  for (double& weight : weights) weight /= mass;
  return weights;
}

// By the number whose base-4 digits a sequence is.
void AddSequences(std::vector<int32_t>* output, double probability, std::vector<double>* sum) {
  if (output->size() == kTokens) {
    size_t index = 0;
    for (const int32_t token : *output) index = index * kVocab + static_cast<size_t>(token);
    (*sum)[index] += probability;
    return;
  }
  const std::vector<double> next = Expected(*output);
  for (int32_t token = 0; token < kVocab; ++token) {
    output->push_back(token);
    AddSequences(output, probability * next[token], sum);
    output->pop_back();
  }
}

// The loop of a session that speculates.
class Generator {
 public:
  Generator() : sampler_(kVocab, kVocab, {}), history_(kVocab), p_(kVocab), q_(kVocab) {
    REQUIRE_OK(sampler_.SetParams({.temperature = kTemperature,
                                   .seed = 11,
                                   .repetition_penalty = kRepetition,
                                   .presence_penalty = kPresence,
                                   .frequency_penalty = kFrequency,
                                   .logit_bias = {{3, kBias}}}));
  }

  // Appends to *output until it has kTokens, at positions from `position` on.
  void Generate(uint64_t position, int32_t draft_tokens, std::vector<int32_t>* output) {
    history_.Reset({kPrompt});
    while (output->size() < kTokens) {
      std::vector<int32_t> drafts;
      for (int32_t i = 0; i < draft_tokens; ++i) {
        const int32_t last = i > 0 ? drafts.back() : Last(*output);
        ComputeDistribution(kDrafter[last], last, &q_);
        drafts.push_back(Draw(q_, Uniform(11, position + i)));
        history_.Push(drafts.back());
      }
      for (size_t i = drafts.size(); i-- > 0;) history_.Pop(drafts[i]);
      bool accepted = true;
      for (int32_t i = 0; i <= draft_tokens && accepted && output->size() < kTokens; ++i) {
        ComputeDistribution(kModel[Last(*output)], Last(*output), &p_);
        const int32_t token = Draw(p_, Uniform(11, position));
        history_.Push(token);
        output->push_back(token);
        ++position;
        accepted = i < draft_tokens && token == drafts[i];
        accepted_ += accepted;
      }
    }
  }

  int64_t accepted() const { return accepted_; }

 private:
  static int32_t Last(const std::vector<int32_t>& output) {
    return output.empty() ? kPrompt : output.back();
  }
  void ComputeDistribution(const float* logits, int32_t last, Distribution* out) {
    const uint32_t allowed = Allowed(last);
    const absl::Status status = sampler_.ComputeDistribution(
        {logits, kVocab}, history_, {.allowed = absl::MakeConstSpan(&allowed, 1)}, out);
    if (!status.ok()) FAIL(status.ToString());
  }

  Sampler sampler_;
  TokenHistory history_;
  Distribution p_, q_;
  int64_t accepted_ = 0;
};

TEST_CASE("speculated sequences under rules are the plain ones, which come as they should") {
  std::vector<double> expected(kVocab * kVocab * kVocab * kVocab);
  std::vector<int32_t> output;
  AddSequences(&output, 1, &expected);
  Generator generator;
  std::vector<int64_t> counts(expected.size());
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    const uint64_t position = static_cast<uint64_t>(draw) * kTokens;
    output.clear();
    generator.Generate(position, 0, &output);
    size_t index = 0;
    for (const int32_t token : output) index = index * kVocab + static_cast<size_t>(token);
    ++counts[index];
    for (const int32_t draft_tokens : {1, 2, 3, 7}) {
      std::vector<int32_t> speculated;
      generator.Generate(position, draft_tokens, &speculated);
      if (speculated != output) FAIL("draw " << draw << " with " << draft_tokens << " drafts");
    }
  }
  REQUIRE(test::ChiSquaredPValue(counts, expected) > 1e-3);
  // Of drafts that come to be verified; a wrong drafter's are wrong often.
  REQUIRE(generator.accepted() > kDraws);
}

}  // namespace
}  // namespace dsv4
