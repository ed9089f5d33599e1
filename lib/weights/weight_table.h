// SPDX-License-Identifier: Apache-2.0
// The table of a model's weights: for each its name, the place of its view, its size, and which of
// its rows each rank of an engine has (docs/adr/0020-exact-split.md). Stored dtype and shape follow
// from the type of the view.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/experts/expert_residency.h"
#include "lib/packing/weight_views.h"

namespace dsv4 {

// The place of a weight's view. Names of stored tensors:
// - NAME, of weights that are not quantised;
// - NAME.weight and NAME.scale, of quantised weights;
// - NAME.weight, NAME.weight_scale and NAME.weight_scale_2, of NVFP4 experts.
using ViewPointer = std::variant<const float**,     // F32 [n], or [n, k]
                                 const uint16_t**,  // BF16 [n]
                                 Bf16Weight*,       // BF16 [n, k]
                                 const int32_t**,   // I64 or I32 [n, k], expert numbers
                                 Fp8Weight*, ExpertMatrix*>;

// The unit by which ranks divide the rows of a weight; kNone: every rank has all rows.
enum class Split { kNone, kGroups, kHidden, kInter, kVocab };

struct WeightSpec {
  std::string name;
  ViewPointer view;
  int64_t n = 0;
  int64_t k = 0;  // 0: one dimension
  Split split = Split::kNone;
  // The matrix of a routed expert: 0 is w1, 1 w3, 2 w2.
  ExpertId expert{};
  int matrix = 0;
  // Blocks of a Bf16Weight are dequantized to bf16 on load, for operators that take no others.
  bool widened = false;
};

class WeightTable {
 public:
  explicit WeightTable(const ModelConfig& config) : c_(config) {}

  void AddMain(WeightViews* w);
  void AddLayer(int64_t layer, BlockWeights* w);
  // The weights outside the blocks that only drafters of kind w->kind have. Their names depend on
  // the number of w->blocks.
  void AddDrafterInputs(DrafterWeights* w);
  // All weights of the drafter, AddDrafterInputs last.
  void AddDrafter(DrafterWeights* w);
  // All weights that `w` has views for, in the order of the functions above.
  void AddAll(WeightViews* w);

  const std::vector<WeightSpec>& specs() const { return specs_; }

 private:
  void Add(absl::string_view prefix, absl::string_view name, ViewPointer view, int64_t n,
           int64_t k = 0, Split split = Split::kNone);
  void AddHyperConnection(const std::string& p, int64_t mixes, int64_t scales,
                          HyperConnectionWeights* hc);
  void AddCompressor(const std::string& p, int64_t ratio, int64_t dim, CompressorWeights* w);
  void AddAttention(const std::string& p, int64_t ratio, AttentionWeights* w);
  void AddMoe(const std::string& p, int64_t block, MoeWeights* w);
  void AddBlock(const std::string& p, int64_t layer, BlockWeights* w);

  const ModelConfig& c_;
  std::vector<WeightSpec> specs_;
};

// The MoE weights of the main layers, then of the drafter's blocks.
std::vector<MoeWeights*> MoeLayersOf(WeightViews* views);

// The views of `rank`, into the memory of `whole`, which must outlive them.
WeightViews ShardOf(const WeightViews& whole, const ModelConfig& config, const Shards& shards,
                    int rank);
// Stored bytes of the weights that ranks divide.
int64_t SharedOutBytes(const ModelConfig& config, WeightViews* views);

// The rows that `rank` has.
Slice RowsOfRank(const WeightSpec& spec, const Shards& shards, int rank);
// Sets the view `to` to rows `rows` of the view `from`. REQUIRES: both have the same type.
void CutRows(const ViewPointer& from, const Slice& rows, const ViewPointer& to);

}  // namespace dsv4
