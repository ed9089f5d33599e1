// SPDX-License-Identifier: Apache-2.0
// The one table of a model's tensors: for each its runtime name, where its view goes, its size, and
// which of its rows each rank of an engine has (docs/adr/0020-exact-split.md). Stored dtype and
// shape follow from the type of the view.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/model/config.h"
#include "lib/model/expert_residency.h"
#include "lib/model/shard.h"
#include "lib/model/weight_views.h"

namespace dsv4 {

// Where a tensor's view goes. Quantised weights are stored as NAME.weight and NAME.scale, or, of an
// NVFP4 expert, NAME.weight, NAME.weight_scale and NAME.weight_scale_2.
using ViewPointer = std::variant<const float**,     // F32 [n], or [n, k]
                                 const uint16_t**,  // BF16 [n]
                                 Bf16Weight*,       // BF16 [n, k]
                                 const int32_t**,   // I64 or I32 [n, k], expert numbers
                                 Fp8Weight*, ExpertMatrix*>;

// What the rows of a tensor are counted in where ranks share them out.
enum class Split { kNone, kGroups, kHidden, kInter, kVocab };

struct WeightRow {
  std::string name;
  ViewPointer view;
  int64_t n = 0;
  int64_t k = 0;  // 0: the tensor has one dimension
  Split split = Split::kNone;
  ExpertId expert{};  // of a routed expert's matrices,
  int matrix = 0;     // which are w1, w3 and w2
};

class WeightTable {
 public:
  explicit WeightTable(const ModelConfig& config) : c_(config) {}

  void AddMain(WeightViews* w);
  void AddLayer(int64_t layer, BlockWeights* w);
  // What only drafters of w->kind have, with so many blocks as w->blocks.
  void AddDrafterInputs(DrafterWeights* w);
  // The same behind the blocks.
  void AddDrafter(DrafterWeights* w);
  // All tensors that `w` has room for, in the order in which they were added to it.
  void AddAll(WeightViews* w);

  const std::vector<WeightRow>& rows() const { return rows_; }

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
  std::vector<WeightRow> rows_;
};

// The mixtures of experts of main layers, then of the drafter's: block by block.
std::vector<MoeWeights*> MoeLayersOf(WeightViews* views);

// The views of `whole` that `rank` computes with, into the same memory. `whole` must outlive it.
WeightViews ShardOf(const WeightViews& whole, const ModelConfig& config, const Shards& shards,
                    int rank);
// Bytes of those tensors that ranks share out, as they are stored.
int64_t SharedOutBytes(const ModelConfig& config, WeightViews* views);

// The rows of the tensor that `rank` has.
Slice RowsOfRank(const WeightRow& row, const Shards& shards, int rank);
// Makes what `to` points to the rows `rows` of what `from` points to. REQUIRES: pointers of one
// type.
void CutRows(const ViewPointer& from, const Slice& rows, const ViewPointer& to);

}  // namespace dsv4
