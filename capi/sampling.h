// SPDX-License-Identifier: Apache-2.0
// Converts sampling parameters between the C interface and lib/sampling.
#pragma once

#include <dsv4/sampling.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/sampling/sampler.h"

namespace dsv4::capi {

// Copies the caller's parameters. The session checks their ranges.
absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given);

// A session's parameters, and the arrays that their dsv4_sampling points to. Without the grammar,
// because loading a saved session can replace it.
class HeldSampling {
 public:
  explicit HeldSampling(SamplingParams params);
  HeldSampling(const HeldSampling&) = delete;
  HeldSampling& operator=(const HeldSampling&) = delete;

  const SamplingParams& params() const { return params_; }
  // The parameters in effect: a field that was 0 for its default has the default's value. The
  // arrays live as long as this object.
  dsv4_sampling View() const;

 private:
  const SamplingParams params_;
  std::vector<int32_t> bias_tokens_;
  std::vector<float> biases_;
  std::vector<const char*> stop_strings_;
  std::vector<uint64_t> stop_string_lengths_;
};

}  // namespace dsv4::capi
