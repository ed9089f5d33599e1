// SPDX-License-Identifier: Apache-2.0
// y = x w^T for bf16 weights, which are read in place, and for FP8 weights and block formats,
// unpacked in registers or in a panel; contracts in kernels/op/dense.h.
#include <algorithm>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/dense.h"

namespace dsv4 {
namespace {

LinearOutput OutputOf(const LinearBf16Params::Part& part) {
  return part.round_output ? LinearOutput::kRound : LinearOutput::kF32;
}
LinearOutput OutputOf(const LinearFp8Params::Part&) { return LinearOutput::kRound; }

template <class Params, WeightView::Format kFormat>
int64_t Workspace(const Params& p, int threads) {
  int64_t bytes = 0;
  for (int i = 0; i < p.part_count; ++i) {
    bytes = std::max(bytes, LinearWorkspaceBytes(FormatOf(p.parts[i].w, kFormat),
                                                 LinearOutput::kRound, p.k, threads, p.rows));
  }
  return bytes;
}

template <class Params>
void Launch(const LaunchContext& context, const Params& p) {
  LinearPart parts[5];
  static_assert(std::size(decltype(p.parts){}) <= std::size(parts));
  for (int i = 0; i < p.part_count; ++i) {
    const auto& part = p.parts[i];
    parts[i] = {.x = {static_cast<const uint16_t*>(p.x), p.k},
                .w = part.w,
                .output = OutputOf(part),
                .y = part.y,
                .y_stride = part.w.n};
  }
  RunLinear(*static_cast<CpuStream*>(context.stream),
            absl::MakeConstSpan(parts, static_cast<size_t>(p.part_count)), p.rows,
            context.workspace);
}

template <class Params, WeightView::Format kFormat>
constexpr KernelEntry EntryOf(const char* name) {
  return MakeEntry<Params, &Launch<Params>, &SupportsAll<Params>, &Workspace<Params, kFormat>>(
      name, Backend::kCpu, NumericsBit(Numerics::kPublished), 3);
}

}  // namespace

constinit const KernelEntry kCpuLinearBf16 =
    EntryOf<LinearBf16Params, WeightView::Format::kBf16>("cpu.linear_bf16");
constinit const KernelEntry kCpuLinearFp8 =
    EntryOf<LinearFp8Params, WeightView::Format::kFp8>("cpu.linear_fp8");

}  // namespace dsv4
