// SPDX-License-Identifier: Apache-2.0
// rope_table: cosines and sines in double precision (three-part reduction by multiples of pi / 2,
// then the polynomials of fdlibm), rounded once to f32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_table.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/entries.h"
#include "kernels/cpu/row_blocks.h"
#include "kernels/op/rope.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// out[0..31] = cos, out[32..63] = sin of fp32(position * frequencies[i]).
void FillRow(int64_t position, const float* frequencies, float* out) {
  const hn::CappedTag<double, 8> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<float, decltype(d)> df;
  const auto t = hn::Set(df, static_cast<float>(position));
  for (int64_t i = 0; i < kRopePairs; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::PromoteTo(d, hn::Mul(t, hn::LoadU(df, frequencies + i)));
    const auto magic = hn::Set(d, 6755399441055744.0);
    const auto shifted = hn::MulAdd(x, hn::Set(d, 0.63661977236758134308), magic);
    const auto n = hn::Sub(shifted, magic);
    // Angles stay below 2^20, so n has at most 20 bits and its products with the first two parts of
    // pi / 2, of 33 bits each, are exact even where there is no fused multiply-add.
    auto r = hn::NegMulAdd(n, hn::Set(d, 1.57079632673412561417e+00), x);
    r = hn::NegMulAdd(n, hn::Set(d, 6.07710050630396597660e-11), r);
    r = hn::NegMulAdd(n, hn::Set(d, 2.02226624879595063154e-21), r);
    const auto z = hn::Mul(r, r);
    auto s = hn::MulAdd(z, hn::Set(d, 1.58969099521155010221e-10),
                        hn::Set(d, -2.50507602534068634195e-08));
    s = hn::MulAdd(z, s, hn::Set(d, 2.75573137070700676789e-06));
    s = hn::MulAdd(z, s, hn::Set(d, -1.98412698298579493134e-04));
    s = hn::MulAdd(z, s, hn::Set(d, 8.33333333332248946124e-03));
    s = hn::MulAdd(z, s, hn::Set(d, -1.66666666666666324348e-01));
    s = hn::MulAdd(hn::Mul(z, r), s, r);
    auto c = hn::MulAdd(z, hn::Set(d, -1.13596475577881948265e-11),
                        hn::Set(d, 2.08757232129817482790e-09));
    c = hn::MulAdd(z, c, hn::Set(d, -2.75573143513906633035e-07));
    c = hn::MulAdd(z, c, hn::Set(d, 2.48015872894767294178e-05));
    c = hn::MulAdd(z, c, hn::Set(d, -1.38888888888741095749e-03));
    c = hn::MulAdd(z, c, hn::Set(d, 4.16666666666666019037e-02));
    c = hn::MulAdd(hn::Mul(z, z), c, hn::NegMulAdd(hn::Set(d, 0.5), z, hn::Set(d, 1.0)));
    // Quadrant n mod 4 from the low bits: odd swaps; the sine's sign is bit 1, the cosine's bit 1
    // of n + 1.
    const auto bits = hn::BitCast(du, shifted);
    const auto one = hn::Set(du, 1), two = hn::Set(du, 2);
    const auto swap = hn::RebindMask(d, hn::Eq(hn::And(bits, one), one));
    const auto sine_sign = hn::ShiftLeft<62>(hn::And(bits, two));
    const auto cosine_sign = hn::ShiftLeft<62>(hn::And(hn::Add(bits, one), two));
    const auto sine = hn::Xor(hn::IfThenElse(swap, c, s), hn::BitCast(d, sine_sign));
    const auto cosine = hn::Xor(hn::IfThenElse(swap, s, c), hn::BitCast(d, cosine_sign));
    hn::StoreU(hn::DemoteTo(df, cosine), df, out + i);
    hn::StoreU(hn::DemoteTo(df, sine), df, out + kRopePairs + i);
  }
}

void RopeTableRow(const RopeTableParams& p, int64_t row) {
  const int64_t position = p.positions[row], offset = row * 2 * kRopePairs;
  FillRow(position, p.frequencies.window, p.out.window + offset);
  FillRow(position, p.frequencies.compressed, p.out.compressed + offset);
  if ((position + 1) % kCsaRatio == 0) {
    FillRow(position + 1 - kCsaRatio, p.frequencies.compressed, p.out.ratio4 + offset);
  }
  if ((position + 1) % kHcaRatio == 0) {
    FillRow(position + 1 - kHcaRatio, p.frequencies.compressed, p.out.ratio128 + offset);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace {

HWY_EXPORT(RopeTableRow);

void LaunchRopeTable(const LaunchContext& context, const RopeTableParams& params) {
  const auto row = HWY_DYNAMIC_DISPATCH(RopeTableRow);
  ForRowBlocks(context, params.rows, 64, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) row(params, r);
  });
}

}  // namespace

constinit const KernelEntry kCpuRopeTable = MakeEntry<RopeTableParams, &LaunchRopeTable>(
    "cpu.rope_table", Backend::kCpu, NumericsBit(Numerics::kPublished), 1);

}  // namespace dsv4
#endif  // HWY_ONCE
