// SPDX-License-Identifier: Apache-2.0
// Whatever the parameters, a choice of a token allocates nothing.
#include "tests/support/allocation_counter.h"

#include <vector>

#include "lib/sampling/log_probs.h"
#include "lib/sampling/rng.h"
#include "lib/sampling/sampler.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int32_t kVocab = 129280;

TEST_CASE("neither choosing nor verifying nor reporting allocates") {
  std::vector<float> logits(kVocab), draft_logits(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) {
    logits[i] = static_cast<float>(int64_t{i} * 7919 % kVocab) * 1e-4f;
    draft_logits[i] = static_cast<float>(int64_t{i} * 6007 % kVocab) * 1e-4f;
  }
  const std::vector<uint32_t> mask(TokenMaskWords(kVocab), 0x55555555);
  std::vector<int32_t> prompt(kVocab);
  for (int32_t i = 0; i < kVocab; ++i) prompt[i] = i;
  Sampler sampler(kVocab, kVocab, {});
  TokenHistory history(kVocab);
  Distribution p(kVocab), q(kVocab);
  std::vector<TokenLogProb> top(kMaxLogProbs);
  std::vector<SamplingParams> all(7, {.temperature = 0.8f});
  all[0].temperature = 0;
  all[1].top_k = 40;
  all[2].top_p = 0.9f;
  all[3].min_p = 0.1f;
  all[4].repetition_penalty = 1.2f;
  all[5].logit_bias = {{5, 1}};
  for (const SamplingParams& params : all) {
    REQUIRE_OK(sampler.SetParams(params));
    bool ok = true;
    REQUIRE(test::CountAllocations([&] {
              history.Reset(prompt);
              for (const bool masked : {false, true}) {
                const TokenRules rules = {.allowed = masked ? absl::MakeConstSpan(mask)
                                                            : absl::Span<const uint32_t>()};
                for (uint64_t position = 0; position < 3; ++position) {
                  ok = ok && sampler.ComputeDistribution(draft_logits, history, rules, &q).ok();
                  const int32_t draft = Draw(q, Uniform(1, position));
                  history.Push(draft);
                  history.Pop(draft);
                  ok = ok && sampler.ComputeDistribution(logits, history, rules, &p).ok();
                  history.Push(Draw(p, Uniform(1, position)));
                  TopLogProbs(logits, LogMass(logits), absl::MakeSpan(top));
                }
              }
            }) == 0);
    REQUIRE(ok);
  }
}

}  // namespace
}  // namespace dsv4
