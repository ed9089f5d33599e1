// SPDX-License-Identifier: Apache-2.0
#include "lib/sampling/log_probs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dsv4 {

double LogMass(absl::Span<const float> logits) {
  float top = -std::numeric_limits<float>::infinity();
  for (const float logit : logits) {
    if (std::isfinite(logit)) top = std::max(top, logit);
  }
  double mass = 0;
  for (const float logit : logits) {
    if (std::isfinite(logit)) mass += std::exp(logit - top);
  }
  return top + std::log(mass);
}

float LogProb(absl::Span<const float> logits, double log_mass, int32_t token) {
  const float logit = logits[static_cast<size_t>(token)];
  if (!std::isfinite(logit)) return -std::numeric_limits<float>::infinity();
  return static_cast<float>(logit - log_mass);
}

size_t TopLogProbs(absl::Span<const float> logits, double log_mass, absl::Span<TokenLogProb> out) {
  // Logits stand in the place of log-probabilities until the end.
  size_t found = 0;
  for (size_t token = 0; token < logits.size(); ++token) {
    const float logit = logits[token];
    if (!std::isfinite(logit) || out.empty()) continue;
    if (found == out.size() && logit <= out[found - 1].log_prob) continue;
    size_t place = found < out.size() ? found++ : found - 1;
    // Equals stay before it: their ids are lower.
    for (; place > 0 && out[place - 1].log_prob < logit; --place) out[place] = out[place - 1];
    out[place] = {static_cast<int32_t>(token), logit};
  }
  for (size_t i = 0; i < found; ++i)
    out[i].log_prob = static_cast<float>(out[i].log_prob - log_mass);
  return found;
}

}  // namespace dsv4
