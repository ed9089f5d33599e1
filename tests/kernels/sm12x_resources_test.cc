// SPDX-License-Identifier: Apache-2.0
// Bounds of what nvcc makes of the kernels for SM12x, read from the machine code: no kernel spills,
// takes so many registers that fewer of its warps are resident than it is planned for, or issues
// many more instructions for each MMA of its loops. Where __launch_bounds__ names resident blocks,
// nvcc keeps to them by spilling. The bounds leave room for another nvcc: a sixth of the
// instructions, registers up to the next step of residency.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/cuda_image.h"
#include "tests/kernels/sm12x_images.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

// Of 65,536 registers a multiprocessor, so many for each thread leave 32, 24, 16 and 8 warps.
constexpr int64_t kWarps32 = 64, kWarps24 = 80, kWarps16 = 128, kWarps8 = 255;

// Of the kernels whose "FILE NAME" begins so, unless a longer one fits.
struct Bound {
  std::string_view kernels;
  int64_t registers;
  double others_per_mma = 0;  // in the innermost loop with the most MMAs; 0: has no MMA
  int64_t local = 0;          // instructions on local memory: spills, or arrays by index
};
constexpr Bound kBounds[] = {
    {"", kWarps32},
    // Bound by loads in flight, for which 12 warps have chunks enough in registers.
    {"block_products_iq block_gemm_kernel", kWarps8, 31, 32},
    {"block_products_iq block_products_kernel", kWarps8, 0, 44},
    {"block_products_k block_gemm_kernel", kWarps8, 40, 32},
    {"block_products_k block_products_kernel", kWarps8, 0, 44},
    {"block_products_plain block_gemm_kernel", kWarps8, 39, 32},
    {"block_products_plain block_plain_gemm_kernel", kWarps8},
    {"block_products_plain block_plain_gemm_kernel<(BlockType)1>", kWarps8, 0, 96},  // F32
    {"block_products_plain block_products_kernel", kWarps8, 0, 44},
    {"expert_ffn expert_down_few_kernel", kWarps16, 49},
    {"expert_ffn expert_down_split_kernel", kWarps16, 20},
    {"expert_ffn expert_gemm_kernel", kWarps8, 9.5},
    {"expert_ffn expert_one_row_kernel", kWarps16, 60},
    {"expert_ffn expert_shared_gemm_kernel", kWarps8, 8},
    {"expert_ffn expert_up_few_kernel", kWarps16, 39},
    {"expert_ffn expert_up_split_kernel", kWarps16, 20},
    {"expert_formats expert_down_split_kernel<Fp8F32Slices", kWarps16, 19},
    {"expert_formats expert_down_split_kernel<Nvfp4Slices", kWarps16, 29},
    {"expert_formats expert_gemm_kernel", kWarps8, 13.5},
    {"expert_formats expert_shared_gemm_kernel", kWarps8, 10},
    {"expert_formats expert_up_split_kernel<Fp8F32Slices", kWarps16, 19},
    {"expert_formats expert_up_split_kernel<Nvfp4Slices", kWarps16, 27},
    {"gather_columns gather_columns_kernel<uint4>", kWarps24},
    {"gather_columns push_columns_kernel", kWarps32, 0, 8},
    {"hc_head hc_head_mix_kernel", kWarps32, 34},
    {"hc_pre hc_pre_mix_kernel", kWarps16, 15.5},
    {"hc_pre hc_pre_mix_many_kernel", kWarps8, 8.5, 8},
    {"index_score_topk index_score_kernel", kWarps16, 3.5},
    {"linear_bf16 linear_gemm_kernel<GemmShape<Bf16Slices, 1, 2", kWarps8, 34},
    {"linear_bf16 linear_gemm_kernel<GemmShape<Bf16Slices, 1, 4", kWarps8, 18.5},
    {"linear_bf16 linear_gemm_kernel<GemmShape<Bf16Slices, 2, 4", kWarps8, 12},
    {"linear_bf16 linear_gemm_kernel<GemmShape<Bf16Slices, 2, 6", kWarps8, 8},
    {"linear_bf16 linear_gemm_kernel<GemmShape<Bf16Slices, 2, 8", kWarps8, 7.5, 6},
    {"linear_bf16 linear_split_kernel", kWarps16, 5},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8F32Slices, 1, 2", kWarps8, 45.5},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8F32Slices, 1, 4", kWarps8, 26},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8F32Slices, 2, 4", kWarps8, 17},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8F32Slices, 2, 6", kWarps8, 13},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8F32Slices, 2, 8", kWarps8, 12},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8Slices, 1, 2", kWarps8, 43},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8Slices, 1, 4", kWarps8, 24},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8Slices, 2, 4", kWarps8, 15},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8Slices, 2, 6", kWarps8, 11},
    {"linear_fp8 linear_gemm_kernel<GemmShape<Fp8Slices, 2, 8", kWarps8, 10.5},
    {"linear_fp8 linear_split_kernel", kWarps16, 9},
    {"moe_gate gate_products_kernel", kWarps32, 16},
    {"moe_gate linear_gemm_kernel<GemmShape<Bf16Slices, 1, 2", kWarps8, 39.5},
    {"moe_gate linear_gemm_kernel<GemmShape<Bf16Slices, 1, 4", kWarps8, 21.5},
    {"moe_gate linear_gemm_kernel<GemmShape<Bf16Slices, 2, 4", kWarps8, 13},
    {"moe_gate linear_gemm_kernel<GemmShape<Bf16Slices, 2, 6", kWarps8, 9},
    {"moe_gate linear_gemm_kernel<GemmShape<Bf16Slices, 2, 8", kWarps8, 8},
    {"moe_gate select_experts_kernel<32>", kWarps24},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8RoundedSlices, 1, 2", kWarps8, 55.5},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8RoundedSlices, 1, 4", kWarps8, 29.5},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8RoundedSlices, 2, 4", kWarps8, 23},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8RoundedSlices, 2, 6", kWarps8, 15},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8RoundedSlices, 2, 8", kWarps8, 13, 70},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 1, 2", kWarps8, 43.5},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 1, 4", kWarps8, 23.5},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 2, 4", kWarps8, 17},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 2, 6", kWarps8, 11},
    {"output_groups linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 2, 8", kWarps8, 10},
    {"output_groups linear_split_kernel<Fp8RoundedSlices", kWarps16, 5},
    {"output_groups linear_split_kernel<Fp8UnpackedSlices", kWarps16, 24},
    {"sparse_attention attend_chunks_kernel", kWarps16, 19.5},
    {"sparse_attention attend_query_kernel", kWarps16, 17.5},
    {"step_program expert_program_kernel", kWarps16, 60, 5},
    {"step_program output_program_kernel", kWarps16, 22},
    {"sparse_attention attend_tile_kernel", kWarps8, 14},
};

const Bound& BoundOf(const std::string& kernel) {
  const Bound* longest = &kBounds[0];
  for (const Bound& bound : kBounds) {
    if (kernel.rfind(bound.kernels, 0) == 0 && bound.kernels.size() > longest->kernels.size()) {
      longest = &bound;
    }
  }
  return *longest;
}

TEST_CASE("kernels for SM12x keep to their bounds of registers, spills and issue slots") {
  std::set<const Bound*> used;
  int second = 0;
  for (const std::string path : kSm12xImages) {
    const std::string file = path.substr(path.rfind('/') + 1);
    const absl::StatusOr<std::vector<CudaImage>> images = ReadCudaImages(path);
    REQUIRE_OK(images);
    for (const CudaImage& image : *images) {
      if (image.architecture != 120) continue;
      for (const CudaKernel& kernel : image.kernels) {
        const std::string name = file.substr(0, file.find('.')) + " " + kernel.name;
        if (name.find("sm12x_second::") != std::string::npos) {
          // For cards that fail with the first set: correct, not fast.
          INFO(name);
          CHECK(kernel.registers <= kWarps8);
          CHECK(kernel.local == 0);
          CHECK(kernel.scaled_mma == 0);
          ++second;
          continue;
        }
        const Bound& bound = BoundOf(name);
        used.insert(&bound);
        INFO(name);
        CHECK(kernel.registers <= bound.registers);
        CHECK(kernel.local <= bound.local);
        CHECK((kernel.stack_bytes == 0 || bound.local > 0));
        CHECK((kernel.scaled_mma + kernel.other_mma > 0) == (bound.others_per_mma > 0));
        const auto mmas = static_cast<double>(kernel.loop_scaled_mma + kernel.loop_other_mma);
        const auto others = static_cast<double>(kernel.loop_instructions) - mmas;
        INFO(others << " other instructions for " << mmas << " MMAs in a loop");
        CHECK((mmas > 0) == (bound.others_per_mma > 0));
        CHECK(others <= bound.others_per_mma * mmas);
      }
    }
  }
  REQUIRE(used.size() > 1);
  REQUIRE(second > 30);
  for (const Bound& bound : kBounds) {
    INFO("no kernel \"" << bound.kernels << "\"");
    CHECK(used.count(&bound) == 1);
  }
}

}  // namespace
}  // namespace dsv4::test
