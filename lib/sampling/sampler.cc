// SPDX-License-Identifier: Apache-2.0
// Greedy choice without penalties is one pass over the logits. Otherwise candidates are collected
// in token order, and every later rule removes some of them in place.
#include "lib/sampling/sampler.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/sampling/keep_most_likely.h"

namespace dsv4 {
namespace {

constexpr uint32_t kWholeWord = ~uint32_t{0};
constexpr float kMaxLogit = std::numeric_limits<float>::max();

bool Contains(absl::Span<const uint32_t> mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

void Remove(int32_t token, std::vector<uint32_t>* mask) {
  (*mask)[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (token % 32));
}

// Calls visit(token) for the tokens of `mask` that `allowed` (empty: all) holds, too, in order.
// Whole words are a plain loop, which costs as if there were no masks.
template <class Visit>
void ForEachToken(absl::Span<const uint32_t> mask, absl::Span<const uint32_t> allowed,
                  Visit&& visit) {
  for (size_t word = 0; word < mask.size(); ++word) {
    uint32_t bits = mask[word] & (allowed.empty() ? kWholeWord : allowed[word]);
    const int32_t first = static_cast<int32_t>(word * 32);
    if (bits == kWholeWord) {
      for (int32_t i = 0; i < 32; ++i) visit(first + i);
    } else {
      for (; bits != 0; bits &= bits - 1) visit(first + std::countr_zero(bits));
    }
  }
}

bool IsEmpty(absl::Span<const uint32_t> mask) {
  return std::all_of(mask.begin(), mask.end(), [](uint32_t word) { return word == 0; });
}

}  // namespace

std::vector<uint32_t> MaskOfText(int64_t vocab, int32_t token_limit,
                                 absl::Span<const int32_t> gaps) {
  std::vector<uint32_t> mask(static_cast<size_t>(TokenMaskWords(vocab)));
  for (int32_t token = 0; token < token_limit; ++token)
    mask[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
  for (const int32_t gap : gaps) Remove(gap, &mask);
  return mask;
}

Sampler::Sampler(int64_t vocab, int32_t token_limit, absl::Span<const int32_t> gaps)
    : vocab_(vocab),
      with_text_(MaskOfText(vocab, token_limit, gaps)),
      choosable_(with_text_),
      adjusted_(static_cast<size_t>(vocab)),
      bin_measure_(kSelectionBins) {}

absl::Status Sampler::SetParams(const SamplingParams& params) {
  DSV4_RETURN_IF_ERROR(ValidateSampling(params, vocab_));
  std::vector<uint32_t> choosable = with_text_;
  for (const int32_t token : params.banned_tokens) Remove(token, &choosable);
  for (size_t i = 0; i < params.forced_tokens.size(); ++i) {
    const int32_t token = params.forced_tokens[i];
    if (!Contains(with_text_, token))
      return InvalidValue(absl::StrCat("forced_tokens[", i, "]"), " is token ", token,
                          ", which has no text");
    if (!Contains(choosable, token))
      return InvalidValue(absl::StrCat("forced_tokens[", i, "]"), " is token ", token,
                          ", which banned_tokens holds, too");
  }
  SamplingParams copy = params;  // before the first change: it may find no memory
  params_ = std::move(copy);
  choosable_ = std::move(choosable);
  choosable_id_ = NewMaskId();
  return absl::OkStatus();
}

uint64_t Sampler::NewMaskId() {
  static std::atomic<uint64_t> last_id{0};
  return last_id.fetch_add(1, std::memory_order_relaxed) + 1;
}

void Sampler::KeepChoosable(absl::Span<uint32_t> mask) const {
  for (size_t word = 0; word < mask.size(); ++word) mask[word] &= choosable_[word];
}

int32_t Sampler::ForcedToken(int64_t outputs) const {
  if (outputs >= static_cast<int64_t>(params_.forced_tokens.size())) return -1;
  return params_.forced_tokens[static_cast<size_t>(outputs)];
}

bool Sampler::adjusts() const {
  return (params_.repetition_penalty != 0 && params_.repetition_penalty != 1) ||
         params_.presence_penalty != 0 || params_.frequency_penalty != 0 ||
         !params_.logit_bias.empty();
}

absl::Span<const float> Sampler::Adjust(absl::Span<const float> logits,
                                        const TokenHistory& history) {
  if (!adjusts()) return logits;
  const bool repetition = params_.repetition_penalty != 0 && params_.repetition_penalty != 1;
  const bool counted = params_.presence_penalty != 0 || params_.frequency_penalty != 0;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  if (repetition || counted) {
    for (const int32_t token : history.tokens()) {
      float& logit = adjusted_[static_cast<size_t>(token)];
      if (repetition && std::isfinite(logit)) {
        logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
        // A finite logit stays finite, so that it stays a candidate. The other rules cannot
        // overflow.
        logit = std::clamp(logit, -kMaxLogit, kMaxLogit);
      }
      const int32_t outputs = history.outputs(token);
      if (outputs == 0) continue;
      logit -= params_.frequency_penalty * static_cast<float>(outputs) + params_.presence_penalty;
    }
  }
  for (const LogitBias& entry : params_.logit_bias) {
    adjusted_[static_cast<size_t>(entry.token)] += entry.bias;
  }
  return adjusted_;
}

absl::Status Sampler::NothingToChoose(const TokenRules& rules) const {
  int64_t left = 0;
  ForEachToken(choosable_, rules.allowed, [&](int32_t) { ++left; });
  if (left > 0) return Internal("none of the ", left, " logits to choose from is finite");
  if (!rules.allowed.empty() && IsEmpty(rules.allowed))
    return InvalidArgument("the mask of allowed tokens allows none");
  if (IsEmpty(choosable_)) return InvalidArgument("banned_tokens holds every token");
  return InvalidArgument(
      "the mask of allowed tokens allows only tokens that are banned or have no "
      "text");
}

absl::Status Sampler::CheckRules(const TokenRules& rules) const {
  if (!rules.allowed.empty() && rules.allowed.size() != choosable_.size())
    return InvalidArgument("the mask of allowed tokens has ", rules.allowed.size(),
                           " words; expected ", choosable_.size());
  if (rules.forced < 0) return absl::OkStatus();
  if (!Contains(choosable_, rules.forced))
    return InvalidArgument("token ", rules.forced, " is forced, but is banned or has no text");
  if (!rules.allowed.empty() && !Contains(rules.allowed, rules.forced))
    return InvalidArgument("token ", rules.forced,
                           " is forced, but the mask of allowed tokens forbids it");
  return absl::OkStatus();
}

absl::Status Sampler::ComputeDistribution(absl::Span<const float> logits,
                                          const TokenHistory& history, const TokenRules& rules,
                                          Distribution* out) {
  DSV4_RETURN_IF_ERROR(CheckRules(rules));
  if (rules.forced >= 0) {
    out->SetPoint(rules.forced);
    return absl::OkStatus();
  }
  logits = Adjust(logits, history);
  const bool found = params_.temperature == 0 ? SetArgmax(logits, rules.allowed, out)
                                              : SetSampled(logits, rules.allowed, out);
  return found ? absl::OkStatus() : NothingToChoose(rules);
}

std::optional<CandidateRule> Sampler::Rule(double uniform) const {
  if (adjusts()) return std::nullopt;
  CandidateRule rule{.temperature = params_.temperature,
                     .top_k = params_.top_k,
                     .top_p = params_.top_p,
                     .min_p = params_.min_p,
                     .uniform = uniform};
  if (params_.temperature == 0) {
    rule.kind = CandidateRule::kLargest;
  } else if (params_.top_k > 0) {
    rule.kind = CandidateRule::kMostLikely;
    if (params_.top_k > kMostCandidates) return std::nullopt;
  } else if (params_.top_p > 0 && params_.top_p < 1) {
    rule.kind = CandidateRule::kMostMass;
  } else if (params_.min_p > 0) {
    rule.kind = CandidateRule::kLeastWeight;
  } else {
    rule.kind = CandidateRule::kDraw;
  }
  return rule;
}

absl::Status Sampler::ComputeFromCandidates(const CandidateList& list, const TokenRules& rules,
                                            Distribution* out) {
  DSV4_RETURN_IF_ERROR(CheckRules(rules));
  if (rules.forced >= 0) {
    out->SetPoint(rules.forced);
    return absl::OkStatus();
  }
  if (list.count == 0) return NothingToChoose(rules);
  const absl::Span<const TokenLogit> listed(list.tokens, static_cast<size_t>(list.count));
  const bool whole =
      params_.top_k == 0 && (params_.top_p == 0 || params_.top_p == 1) && params_.min_p == 0;
  if (params_.temperature == 0 || whole) {
    out->SetPoint(listed[0].token);
    return absl::OkStatus();
  }
  out->Assign([&](std::vector<Candidate>* candidates) {
    candidates->clear();
    float best_logit = -std::numeric_limits<float>::infinity();
    for (const TokenLogit& one : listed) {
      candidates->push_back({one.token, one.logit});
      best_logit = std::max(best_logit, one.logit);
    }
    std::sort(candidates->begin(), candidates->end(),
              [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
    FilterCandidates(best_logit, params_.top_k > 0 ? std::nullopt : std::make_optional(list.mass),
                     candidates);
  });
  return absl::OkStatus();
}

bool Sampler::SetArgmax(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                        Distribution* out) const {
  int32_t best = -1;
  float best_logit = -std::numeric_limits<float>::infinity();
  ForEachToken(choosable_, allowed, [&](int32_t token) {
    const float logit = logits[static_cast<size_t>(token)];
    // NaN compares false; the other infinity is above the maximum.
    if (logit > best_logit && logit <= kMaxLogit) {
      best = token;
      best_logit = logit;
    }
  });
  if (best >= 0) out->SetPoint(best);
  return best >= 0;
}

bool Sampler::SetSampled(absl::Span<const float> logits, absl::Span<const uint32_t> allowed,
                         Distribution* out) {
  out->Assign([&](std::vector<Candidate>* candidates) {
    candidates->clear();
    float best_logit = -std::numeric_limits<float>::infinity();
    ForEachToken(choosable_, allowed, [&](int32_t token) {
      const float logit = logits[static_cast<size_t>(token)];
      if (!std::isfinite(logit)) return;
      candidates->push_back({token, logit});
      best_logit = std::max(best_logit, logit);
    });
    FilterCandidates(best_logit, std::nullopt, candidates);
  });
  return !out->candidates().empty();
}

void Sampler::FilterCandidates(float best_logit, std::optional<double> mass,
                               std::vector<Candidate>* candidates) {
  const absl::Span<double> bins = absl::MakeSpan(bin_measure_);
  if (params_.top_k > 0) KeepLargest(params_.top_k, candidates, bins);
  // The most likely one has weight 1; those without any cannot be drawn.
  double own_mass = 0;
  size_t kept = 0;
  for (Candidate& candidate : *candidates) {  // a loop of its own is vectorised
    candidate.weight = TokenWeight((candidate.weight - best_logit) / params_.temperature);
  }
  for (const Candidate candidate : *candidates) {
    own_mass += candidate.weight;
    (*candidates)[kept] = candidate;
    kept += candidate.weight > 0;  // a branch here would be a coin's toss
  }
  candidates->resize(kept);
  if (params_.top_p > 0 && params_.top_p < 1) {
    KeepMass(double{params_.top_p} * mass.value_or(own_mass), candidates, bins);
  }
  if (params_.min_p > 0) {
    std::erase_if(*candidates, [&](const Candidate& c) { return c.weight < params_.min_p; });
  }
}

}  // namespace dsv4
