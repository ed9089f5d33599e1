// SPDX-License-Identifier: Apache-2.0
// The mixing weights of a hyper-connection, from the 24 numbers m of one row (model.md 4.1).
#pragma once

#include <cstdint>

namespace dsv4::reference {

inline constexpr int64_t kStreams = 4;
inline constexpr int64_t kMixes = 2 * kStreams + kStreams * kStreams;  // pre, post, comb

// pre [4], post [4], comb [4][4] (comb[h][j]) of m [24]; scale [3], base [24]; `iterations` counts
// column steps of the Sinkhorn normalisation.
void HyperConnectionWeights(const float* m, const float* scale, const float* base, float eps,
                            int32_t iterations, float* pre, float* post, float* comb);

}  // namespace dsv4::reference
