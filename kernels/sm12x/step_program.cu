// SPDX-License-Identifier: Apache-2.0
// Step programs: their kernels, and how launches become programs.
//
// Roofline: the bytes of the operators that they stand for. Measurements: docs/kernels.md.
// Plan: a block a multiprocessor; all go through the phases in order. A phase first loads what is
// constant, then waits for its input, which comes as words of the phase before.
#include "kernels/sm12x/step_program.h"

#include <algorithm>
#include <utility>

#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/expert_one_row.cuh"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "kernels/sm12x/step_linear.cuh"
#include "kernels/sm12x/step_mix.cuh"

namespace dsv4::sm12x {
namespace step_program {

struct OutputProgram {
  LinearPhase groups, out;
  MixPhase mix;
};

__global__ void __launch_bounds__(kProgramThreads, 1)
    output_program_kernel(const __grid_constant__ OutputProgram program, std::byte* marked) {
  auto* const shared = DynamicShared<std::byte>();
  LaunchWords words;
  PrefetchMix(program.mix);
  RunLinear<true>(program.groups, shared, [&]() -> const LaunchWords& {
    words.Begin(marked);
    return words;
  });
  RunLinear<false>(program.out, shared, [&]() -> const LaunchWords& { return words; });
  RunMix(program.mix, words, shared);
  // Block 0 has read words of all blocks in the second phase.
  words.End();
}

__global__ void __launch_bounds__(kProgramThreads, 1)
    expert_program_kernel(const __grid_constant__ ExpertPhase experts,
                          const __grid_constant__ MixPhase mix, std::byte* marked) {
  auto* const shared = DynamicShared<std::byte>();
  LaunchWords words;
  PrefetchMix(mix);
  RunExperts(experts, shared, [&]() -> const LaunchWords& {
    words.Begin(marked);
    return words;
  });
  RunMix(mix, words, shared);
  // Block 0 has read hidden values of all blocks.
  words.End();
}

}  // namespace step_program
namespace {

using namespace step_program;  // NOLINT: of this file alone

// Whether `entry` is this one, which may be a copy.
bool Is(const KernelEntry& entry, const KernelEntry& one) { return entry.launch == one.launch; }

// e4m3 under E8M0 scales.
bool HasCodes(const Fp8Weight& w) {
  return !w.in_blocks() && w.f32_scale == nullptr && w.n % kTileRows == 0;
}

int ShiftOf(int64_t slices) {
  int shift = 0;
  while (shift < kProgramShift && 2 << shift <= slices) ++shift;
  return shift;
}

LinearPhase PhaseOf(const Fp8Weight& w, int64_t k) {
  const int64_t slices = k / kKSlice;
  return {.w = w,
          .tiles = static_cast<int32_t>(w.n / kTileRows),
          .slices = static_cast<int32_t>(slices),
          .shift = ShiftOf(slices)};
}

// Holds launches back until it is clear whether a program takes them.
class StepPrograms final : public LaunchProgram {
 public:
  bool Take(const KernelEntry& entry, const LaunchContext& context, const void* params) override {
    if (context.marked == nullptr) return false;
    if (Is(entry, kSm12xOutputGroups)) {
      return TakeGroups(context, *static_cast<const OutputGroupsParams*>(params));
    }
    if (Is(entry, kSm12xLinearFp8)) {
      return TakeLinear(context, *static_cast<const LinearFp8Params*>(params));
    }
    if (Is(entry, kSm12xExpertFfn)) {
      return TakeExpertFfn(context, *static_cast<const ExpertFfnParams*>(params));
    }
    if (Is(entry, kSm12xHcPost)) {
      return TakeHcPost(context, *static_cast<const HcPostParams*>(params));
    }
    return Is(entry, kSm12xHcPre) && TakeHcPre(context, *static_cast<const HcPreParams*>(params));
  }

  void Launch() override {
    switch (std::exchange(held_, Held::kNothing)) {
      case Held::kNothing:
        return;
      case Held::kGroups:
        return kSm12xOutputGroups.launch(groups_context_, &groups_);
      case Held::kOut:
        kSm12xOutputGroups.launch(groups_context_, &groups_);
        return kSm12xLinearFp8.launch(context_, &out_);
      case Held::kExperts:
        return kSm12xExpertFfn.launch(context_, &experts_);
      case Held::kPost: {
        HcPreParams update{.rows = 1, .hidden = post_.hidden, .streams = post_.streams};
        update.update = {post_.y, post_.post, post_.comb, post_.out};
        return LaunchExperts(context_, {.p = update});
      }
    }
  }

 private:
  enum class Held { kNothing, kGroups, kOut, kExperts, kPost };

  bool Hold(Held held, const LaunchContext& context) {
    held_ = held;
    context_ = context;
    return true;
  }

  bool TakeGroups(const LaunchContext& context, const OutputGroupsParams& p) {
    if (held_ != Held::kNothing || p.rows != 1 || !HasCodes(p.wo_a) || !p.quantise ||
        p.rank % kTileRows != 0 || p.wo_a.n * kActBytes > kWordsBytes / 2) {
      return false;
    }
    groups_ = p;
    groups_context_ = context;
    return Hold(Held::kGroups, context);
  }

  bool TakeLinear(const LaunchContext& context, const LinearFp8Params& p) {
    if (held_ != Held::kGroups || p.rows != 1 || p.x != groups_.y || p.part_count != 1 ||
        !HasCodes(p.parts[0].w) || p.k != groups_.wo_a.n ||
        p.parts[0].w.n * kActBytes > kWordsBytes / 2 ||
        OutputBytes(p, OutputBlocks(context)) > kMaxSharedBytes - 1024) {
      return false;
    }
    out_ = p;
    return Hold(Held::kOut, context);
  }

  bool TakeExpertFfn(const LaunchContext& context, const ExpertFfnParams& p) {
    if (held_ != Held::kNothing || OneRowBlocks(p, context.multiprocessors) == 0) return false;
    experts_ = p;
    return Hold(Held::kExperts, context);
  }

  bool TakeHcPost(const LaunchContext& context, const HcPostParams& p) {
    if (held_ != Held::kExperts || p.y != experts_.y || p.hidden != experts_.hidden ||
        !MixFits(p.rows, p.hidden, OneRowBlocks(experts_, context.multiprocessors))) {
      return false;
    }
    post_ = p;
    return Hold(Held::kPost, context);
  }

  bool TakeHcPre(const LaunchContext& context, const HcPreParams& p) {
    MixPhase mix{.p = p, .chunk_sums = reinterpret_cast<float*>(context.workspace)};
    if (held_ == Held::kOut && p.update.y == out_.parts[0].y && p.hidden == out_.parts[0].w.n &&
        MixFits(p.rows, p.hidden, OutputBlocks(context))) {
      LaunchOutput(context, mix);
    } else if (held_ == Held::kPost && p.rows == 1 && p.update.y == nullptr &&
               p.streams == post_.out && p.hidden == post_.hidden) {
      mix.p.streams = post_.streams;
      mix.p.update = {post_.y, post_.post, post_.comb, post_.out};
      LaunchExperts(context, mix);
    } else {
      return false;
    }
    held_ = Held::kNothing;
    LaunchHcPreRow(context, mix.p);
    return true;
  }

  // Whether so many blocks have a chunk at most.
  static bool MixFits(int32_t rows, int64_t hidden, int64_t blocks) {
    return rows == 1 && hidden % 128 == 0 && hidden / kMixColumns <= blocks;
  }

  // Each has a tile of wo_a.
  int64_t OutputBlocks(const LaunchContext& context) const {
    return std::min<int64_t>(context.multiprocessors, groups_.wo_a.n / kTileRows);
  }

  // Shared memory of the projections' program with groups_ and `out`.
  int64_t OutputBytes(const LinearFp8Params& out, int64_t blocks) const {
    const LinearPhase first = PhaseOf(groups_.wo_a, groups_.group_width);
    const LinearPhase second = PhaseOf(out.parts[0].w, out.k);
    return std::max({LinearProductBytes(first.tiles, first.slices, blocks),
                     OneRowBytes(out.k) + LinearProductBytes(second.tiles, second.slices, blocks),
                     int64_t{sizeof(MixShared)}});
  }

  void LaunchOutput(const LaunchContext& context, const MixPhase& mix) const {
    const int64_t blocks = OutputBlocks(context);
    OutputProgram program{.groups = PhaseOf(groups_.wo_a, groups_.group_width),
                          .out = PhaseOf(out_.parts[0].w, out_.k),
                          .mix = mix};
    program.groups.group_tiles = static_cast<int32_t>(groups_.rank / kTileRows);
    program.groups.x = groups_.o;
    program.groups.y_words = 0;
    program.out.x_words = 0;
    program.out.quantised = static_cast<uint8_t*>(groups_.y);
    program.out.y = out_.parts[0].y;
    program.out.y_words = program.mix.y_words = static_cast<WordsAt>(kWordsBytes / 2);
    LaunchOverlapped(CudaStreamOf(context), dim3(static_cast<unsigned>(blocks)), kProgramThreads,
                     OutputBytes(out_, blocks), output_program_kernel, program, context.marked);
  }

  // `mix` is behind the experts.
  void LaunchExperts(const LaunchContext& context, MixPhase mix) const {
    const ExpertFfnParams& p = experts_;
    mix.y_words = static_cast<WordsAt>(HiddenWordsBytes(p.inter, p.experts_per_token));
    const ExpertPhase phase{.p = p, .hidden_words = 0, .y_words = mix.y_words};
    const auto blocks = static_cast<unsigned>(OneRowBlocks(p, context.multiprocessors));
    LaunchOverlapped(CudaStreamOf(context), dim3(blocks), kProgramThreads,
                     OneRowSharedBytes(p.hidden, p.inter), expert_program_kernel, phase, mix,
                     context.marked);
  }

  Held held_ = Held::kNothing;
  LaunchContext groups_context_, context_;
  OutputGroupsParams groups_;
  LinearFp8Params out_;
  ExpertFfnParams experts_;
  HcPostParams post_;
};

}  // namespace

std::unique_ptr<LaunchProgram> MakeStepProgram() { return std::make_unique<StepPrograms>(); }

}  // namespace dsv4::sm12x
