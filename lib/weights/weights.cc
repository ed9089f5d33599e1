// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/weights.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_join.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/packing/expert_format.h"
#include "lib/weights/weight_table.h"

namespace dsv4 {

absl::Status Weights::CountUse(const ExpertProfile* profile) {
  ResidencyPlan& plan = residency_;
  if (profile != nullptr) {
    if (profile->blocks != plan.blocks || profile->experts != plan.experts) {
      return Corrupt("option expert_profile: the file has ", profile->blocks, " layers of ",
                     profile->experts, " experts; the model has ", plan.blocks, " of ",
                     plan.experts);
    }
    plan.places = std::make_shared<const std::vector<int64_t>>(PlacesByUse(plan, *profile));
  }
  use_ = std::make_unique<ExpertUse>(plan.blocks, plan.experts,
                                     profile == nullptr ? ExpertProfile() : *profile);
  return absl::OkStatus();
}

std::string Weights::weight_format() const {
  if (checkpoint_->is_gguf()) {
    const auto names = [](const std::set<BlockType>& types) {
      return absl::StrJoin(types, ",",
                           [](std::string* out, BlockType type) { *out += InfoOf(type).name; });
    };
    return absl::StrCat(names(matrix_blocks_), "+", names(expert_blocks_));
  }
  return absl::StrCat(
      "fp8+", absl::StrJoin(expert_formats_, ",", [](std::string* out, ExpertFormat format) {
        *out += ExpertFormatName(format);
      }));
}

bool Weights::ExpertsAre(absl::string_view expert_dtype) const {
  return std::all_of(expert_formats_.begin(), expert_formats_.end(), [&](ExpertFormat format) {
    return (format == ExpertFormat::kFp8) == (expert_dtype == "fp8");
  });
}

std::vector<TensorEntry> Weights::TensorsOf(const ModelConfig& config) {
  Weights scratch;
  std::vector<TensorEntry> tensors;
  const auto add = [&](std::string name, DType dtype, std::vector<int64_t> shape) {
    int64_t bytes = DTypeBytes(dtype);
    for (const int64_t extent : shape) bytes *= extent;
    tensors.push_back({.name = std::move(name),
                       .dtype = dtype,
                       .other_dtype = {},
                       .shape = std::move(shape),
                       .bytes = bytes});
  };
  const auto add_rows = [&](const WeightTable& table) {
    for (const WeightSpec& spec : table.specs()) {
      const int64_t n = spec.n, k = spec.k;
      if (std::holds_alternative<const float**>(spec.view)) {
        add(spec.name, DType::kF32, k == 0 ? std::vector<int64_t>{n} : std::vector<int64_t>{n, k});
      } else if (std::holds_alternative<const uint16_t**>(spec.view)) {
        add(spec.name, DType::kBF16, {n});
      } else if (std::holds_alternative<Bf16Weight*>(spec.view)) {
        add(spec.name, DType::kBF16, {n, k});
      } else if (std::holds_alternative<const int32_t**>(spec.view)) {
        add(spec.name, DType::kI64, {n, k});
      } else if (std::holds_alternative<Fp8Weight*>(spec.view)) {
        add(spec.name + ".weight", DType::kF8E4M3, {n, k});
        add(spec.name + ".scale", DType::kF8E8M0, {CeilDiv(n, kFp8Block), CeilDiv(k, kFp8Block)});
      } else {
        add(spec.name + ".weight", DType::kI8, {n, k / 2});
        add(spec.name + ".scale", DType::kF8E8M0, {n, k / kFp4Run});
      }
    }
  };
  WeightTable main(config);
  main.AddMain(&scratch);
  add_rows(main);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    BlockWeights block;
    WeightTable table(config);
    table.AddLayer(layer, &block);
    add_rows(table);
  }
  DrafterWeights drafter;
  drafter.kind = DrafterOf(config);
  if (drafter.kind == DrafterKind::kNone) return tensors;
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  drafter.blocks.resize(drafter.kind == DrafterKind::kMtp ? 1
                                                          : config.compress_ratios.size() - layers);
  WeightTable table(config);
  table.AddDrafter(&drafter);
  add_rows(table);
  return tensors;
}

}  // namespace dsv4
