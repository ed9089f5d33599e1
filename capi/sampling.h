// SPDX-License-Identifier: Apache-2.0
// Sampling parameters as they come in through the C interface.
#pragma once

#include <dsv4/sampling.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/sampling/sampler.h"

namespace dsv4::capi {

// The caller's parameters; their ranges are left to the session.
absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given);

// A session's parameters but the grammar, which a saved session brings along; and the arrays that a
// dsv4_sampling of them points to.
class HeldSampling {
 public:
  explicit HeldSampling(SamplingParams params);
  HeldSampling(const HeldSampling&) = delete;
  HeldSampling& operator=(const HeldSampling&) = delete;

  const SamplingParams& params() const { return params_; }
  // What they mean, with 0 nowhere for another value. Its arrays live as long as this object.
  dsv4_sampling View() const;

 private:
  const SamplingParams params_;
  std::vector<int32_t> bias_tokens_;
  std::vector<float> biases_;
  std::vector<const char*> stop_strings_;
  std::vector<uint64_t> stop_string_lengths_;
};

}  // namespace dsv4::capi
