// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/top_k.h"

#include <bit>

namespace dsv4 {
namespace {

// Unsigned order = float order.
inline uint32_t Key(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

}  // namespace

void SelectTopK(const float* scores, int64_t n, int32_t k, int32_t* out) {
  // Radix selection, eight bits a pass: `threshold` becomes the k-th highest key, `wanted` how many
  // of its equals are selected.
  uint32_t threshold = 0, mask = 0;
  int64_t wanted = k;
  for (int shift = 24; shift >= 0; shift -= 8) {
    int32_t histogram[256] = {};
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = Key(scores[i]);
      if ((key & mask) == threshold) ++histogram[key >> shift & 255];
    }
    int bin = 255;
    for (; wanted > histogram[bin]; --bin) wanted -= histogram[bin];
    threshold |= static_cast<uint32_t>(bin) << shift;
    mask |= uint32_t{255} << shift;
  }
  int32_t count = 0;
  for (int64_t i = 0; count < k; ++i) {
    const uint32_t key = Key(scores[i]);
    const bool tie = key == threshold && wanted > 0;
    out[count] = static_cast<int32_t>(i);
    count += key > threshold || tie;
    wanted -= tie;
  }
}

}  // namespace dsv4
