// SPDX-License-Identifier: Apache-2.0
// The threshold is found bit by bit: 32 counting passes at most, which vectors make cheaper than
// the four scalar passes of a radix selection at every length that occurs (256 compressed blocks:
// about 4 times).
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/top_k.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/top_k.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys are signed integers in the order of the floats: negative floats have their magnitude turned.
using DI = hn::CappedTag<int32_t, 16>;
constexpr int64_t kKeyLanes = hn::MaxLanes(DI());

HWY_INLINE int64_t CountAbove(const int32_t* HWY_RESTRICT keys, int64_t padded, int32_t below) {
  const DI d;
  const auto bound = hn::Set(d, below);
  auto c0 = hn::Zero(d), c1 = c0;
  for (int64_t i = 0; i < padded; i += 2 * kKeyLanes) {
    // A true lane is -1.
    c0 = hn::Sub(c0, hn::VecFromMask(d, hn::Gt(hn::LoadU(d, keys + i), bound)));
    c1 = hn::Sub(c1, hn::VecFromMask(d, hn::Gt(hn::LoadU(d, keys + i + kKeyLanes), bound)));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(c0, c1)));
}

void Select(float* scores, int64_t n, int32_t k, int32_t* out) {
  const DI d;
  const hn::RebindToFloat<DI> df;
  constexpr int64_t kStep = 2 * kKeyLanes;
  static_assert(kStep <= 32);
  const int64_t padded = (n + kStep - 1) / kStep * kStep;
  auto* keys = reinterpret_cast<int32_t*>(scores);
  for (int64_t i = 0; i < n; i += kKeyLanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(df, scores + i));
    const auto turn =
        hn::ShiftRight<1>(hn::BitCast(hn::RebindToUnsigned<DI>(), hn::ShiftRight<31>(bits)));
    hn::StoreU(hn::Xor(bits, hn::BitCast(d, turn)), d, keys + i);
  }
  for (int64_t i = n; i < padded; ++i) keys[i] = INT32_MIN;
  // The highest bound that at least k keys reach, from the sign bit down.
  uint32_t least = 0x80000000u;
  int64_t reached = padded;
  for (uint32_t bit = 0x80000000u; bit != 0 && reached != k; bit >>= 1) {
    const uint32_t next = bit == 0x80000000u ? 0 : least | bit;
    const int64_t count = CountAbove(keys, padded, static_cast<int32_t>(next - 1));
    if (count < k) continue;
    least = next;
    reached = count;
  }
  const auto bound = static_cast<int32_t>(least);
  if (reached == k) {
    const auto below = hn::Set(d, bound - 1);
    int64_t count = 0;
    for (int64_t i = 0; count < k; i += kKeyLanes) {
      const auto mask = hn::Gt(hn::LoadU(d, keys + i), below);
      const auto indices = hn::Iota(d, static_cast<int32_t>(i));
      if (count + kKeyLanes <= k) {
        count += static_cast<int64_t>(hn::CompressStore(indices, mask, d, out + count));
        continue;
      }
      // A store may write a whole vector, and what follows `out` is another thread's row.
      int32_t last[kKeyLanes];
      const size_t selected = hn::CompressStore(indices, mask, d, last);
      std::memcpy(out + count, last, selected * sizeof(int32_t));
      count += static_cast<int64_t>(selected);
    }
    return;
  }
  // Only the first of the keys equal to the bound are selected.
  int64_t equal = k - CountAbove(keys, padded, bound);
  int32_t count = 0;
  for (int64_t i = 0; count < k; ++i) {
    const bool tie = keys[i] == bound && equal > 0;
    out[count] = static_cast<int32_t>(i);
    count += keys[i] > bound || tie;
    equal -= tie;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
HWY_EXPORT(Select);

void SelectTopK(float* scores, int64_t n, int32_t k, int32_t* out) {
  HWY_DYNAMIC_DISPATCH(Select)(scores, n, k, out);
}

}  // namespace dsv4
#endif  // HWY_ONCE
