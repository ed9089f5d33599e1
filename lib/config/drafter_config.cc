// SPDX-License-Identifier: Apache-2.0
#include "lib/config/drafter_config.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/config/gguf_config.h"
#include "lib/config/model_files.h"
#include "lib/io/gguf.h"
#include "lib/io/model_path.h"

namespace dsv4 {
namespace {

struct SharedInt {
  const char* key;
  int64_t ModelConfig::*value;
};
struct SharedReal {
  const char* key;
  double ModelConfig::*value;
};

// A drafter's blocks are computed as the model's layers are.
constexpr SharedInt kInts[] = {
    {"hidden_size", &ModelConfig::hidden_size},
    {"vocab_size", &ModelConfig::vocab_size},
    {"num_attention_heads", &ModelConfig::num_attention_heads},
    {"q_lora_rank", &ModelConfig::q_lora_rank},
    {"o_groups", &ModelConfig::o_groups},
    {"o_lora_rank", &ModelConfig::o_lora_rank},
    {"n_routed_experts", &ModelConfig::n_routed_experts},
    {"num_experts_per_tok", &ModelConfig::num_experts_per_tok},
    {"moe_intermediate_size", &ModelConfig::moe_intermediate_size},
    {"hc_sinkhorn_iters", &ModelConfig::hc_sinkhorn_iters},
};
constexpr SharedReal kReals[] = {
    {"routed_scaling_factor", &ModelConfig::routed_scaling_factor},
    {"swiglu_limit", &ModelConfig::swiglu_limit},
    {"hc_eps", &ModelConfig::hc_eps},
    {"rms_norm_eps", &ModelConfig::rms_norm_eps},
    {"rope_theta", &ModelConfig::rope_theta},
};

absl::Status CheckShared(const std::string& path, const ModelConfig& drafter,
                         const ModelConfig& model) {
  for (const SharedInt& shared : kInts) {
    if (drafter.*shared.value != model.*shared.value) {
      return InvalidArgument(path, ": is the drafter of another model: ", shared.key, " is ",
                             drafter.*shared.value, ", the model's is ", model.*shared.value);
    }
  }
  // GGUF files have them as f32.
  for (const SharedReal& shared : kReals) {
    if (static_cast<float>(drafter.*shared.value) != static_cast<float>(model.*shared.value)) {
      return InvalidArgument(path, ": is the drafter of another model: ", shared.key, " is ",
                             drafter.*shared.value, ", the model's is ", model.*shared.value);
    }
  }
  return absl::OkStatus();
}

bool HasTensor(const GgufModel& model, absl::string_view part) {
  for (const GgufFile& file : model.parts) {
    for (const GgufTensor& tensor : file.tensors) {
      if (absl::StrContains(tensor.name, part)) return true;
    }
  }
  return false;
}

absl::Status AddGguf(const std::string& path, ModelConfig* config) {
  DSV4_ASSIGN_OR_RETURN(const GgufModel model, OpenGguf(path));
  if (GgufRoleOf(model.parts.front()) != GgufRole::kDrafter) {
    return InvalidArgument(path, ": is no drafter's file: it has no tensor mtp.* or blk.N.nextn.*");
  }
  const bool dspark = GgufArchitecture(model) == kGgufDspark;
  // ds4's drafters have few keys; the sizes of their tensors tell them.
  if (dspark || HasTensor(model, ".nextn.")) {
    DSV4_ASSIGN_OR_RETURN(const ModelConfig drafter,
                          dspark ? ReadGgufDsparkConfig(model) : ReadGgufConfig(model));
    DSV4_RETURN_IF_ERROR(CheckShared(path, drafter, *config));
  }
  if (dspark || HasTensor(model, "main_proj")) {
    DSV4_ASSIGN_OR_RETURN(config->dspark,
                          ReadGgufDsparkKeys(model, config->num_hidden_layers, config->vocab_size));
  } else {
    config->dspark = {};
    config->num_nextn_predict_layers = 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddDrafterConfig(const std::string& path, ModelConfig* config) {
  DSV4_ASSIGN_OR_RETURN(const ModelPath found, ModelPath::Find(path));
  if (!found.gguf.empty()) return AddGguf(found.gguf, config);
  DSV4_ASSIGN_OR_RETURN(ModelFiles drafter, ReadModelFiles(path));
  DSV4_RETURN_IF_ERROR(CheckShared(path, drafter.config, *config));
  for (const int32_t layer : drafter.config.dspark.target_layers) {
    if (layer >= config->num_hidden_layers) {
      return InvalidArgument(path,
                             ": is the drafter of another model: dspark_target_layer_ids has ",
                             layer, ", the model has ", config->num_hidden_layers, " layers");
    }
  }
  config->dspark = std::move(drafter.config.dspark);
  config->num_nextn_predict_layers = drafter.config.num_nextn_predict_layers;
  return absl::OkStatus();
}

}  // namespace dsv4
