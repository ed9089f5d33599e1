// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/op.h"

#include <array>

namespace dsv4 {
namespace {

constexpr std::array kOpNames = {
    "rope_table",       "embed_rows",       "hc_pre",        "hc_post",          "hc_head",
    "rms_norm",         "linear_fp8",       "linear_bf16",   "qkv_prepare",      "compress_kv",
    "index_score_topk", "sparse_attention", "output_groups", "moe_gate",         "expert_ffn",
    "mtp_combine",      "copy_rows",        "pack_weight",   "token_candidates", "gather_columns",
    "draft_logits",
};
static_assert(kOpNames.size() == static_cast<size_t>(Op::kCount));

constexpr std::array kPointNames = {
    "round_linear",        "round_hc_pre",        "round_rms_norm",       "round_q_norm",
    "round_rope",          "round_pooling",       "round_hadamard",       "round_attention",
    "round_inverse_rope",  "round_output_groups", "round_swiglu",         "round_expert_output",
    "round_ffn_output",    "round_hc_post",       "quant_linear_input",   "quant_output_groups",
    "quant_expert_hidden", "quant_window_row",    "quant_compressed_row", "quant_index_query",
    "quant_index_key",
};
static_assert(kPointNames.size() == static_cast<size_t>(Point::kCount));

constexpr const char* kNumericsNames[] = {"published", "fp32", "exact"};

}  // namespace

const char* OpName(Op op) { return kOpNames[static_cast<size_t>(op)]; }
const char* NumericsName(Numerics numerics) {
  return kNumericsNames[static_cast<size_t>(numerics)];
}
const char* PointName(Point point) { return kPointNames[static_cast<size_t>(point)]; }

}  // namespace dsv4
