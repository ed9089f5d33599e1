// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/gguf_tensors.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/model_path.h"

namespace dsv4 {
namespace {

// A name in DeepSeek's files and in GGUF.
struct NamePair {
  const char* own;
  const char* gguf;
};

constexpr NamePair kTop[] = {
    {"embed.weight", "token_embd.weight"},     {"head.weight", "output.weight"},
    {"norm.weight", "output_norm.weight"},     {"hc_head_fn", "output_hc_fn.weight"},
    {"hc_head_base", "output_hc_base.weight"}, {"hc_head_scale", "output_hc_scale.weight"},
};
constexpr absl::Span<const NamePair> kHcHead = absl::Span<const NamePair>(kTop).subspan(3);
constexpr NamePair kLayer[] = {
    {"attn_norm.weight", "attn_norm.weight"},
    {"ffn_norm.weight", "ffn_norm.weight"},
    {"attn.attn_sink", "attn_sinks.weight"},
    {"attn.wq_a.weight", "attn_q_a.weight"},
    {"attn.q_norm.weight", "attn_q_a_norm.weight"},
    {"attn.wq_b.weight", "attn_q_b.weight"},
    {"attn.wkv.weight", "attn_kv.weight"},
    {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
    {"attn.wo_a.weight", "attn_output_a.weight"},
    {"attn.wo_b.weight", "attn_output_b.weight"},
    {"attn.compressor.ape", "attn_compressor_ape.weight"},
    {"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
    {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
    {"attn.compressor.norm.weight", "attn_compressor_norm.weight"},
    {"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
    {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
    {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
    {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
    {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
    {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"},
    {"ffn.gate.weight", "ffn_gate_inp.weight"},
    {"ffn.gate.bias", "exp_probs_b.bias"},
    {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
    {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
    {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"},
    {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"},
    {"hc_attn_fn", "hc_attn_fn.weight"},
    {"hc_attn_base", "hc_attn_base.weight"},
    {"hc_attn_scale", "hc_attn_scale.weight"},
    {"hc_ffn_fn", "hc_ffn_fn.weight"},
    {"hc_ffn_base", "hc_ffn_base.weight"},
    {"hc_ffn_scale", "hc_ffn_scale.weight"},
};
// Tensors of drafters. Those of MTP lie in a block of llama.cpp's files, beside the model's
// hc_head.
constexpr NamePair kMtp[] = {
    {"enorm.weight", "nextn.enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight"},
    {"norm.weight", "nextn.shared_head_norm.weight"},
};
constexpr char kBothProjections[] = "nextn.eh_proj.weight";  // e_proj and h_proj side by side
// Tensors of the first and of the last stage of llama.cpp's dflash files.
constexpr NamePair kFirstStage[] = {
    {"main_proj.weight", "fc.weight"},
    {"main_norm.weight", "enc.output_norm.weight"},
};
constexpr NamePair kLastStage[] = {
    {"norm.weight", "output_norm.weight"},
    {"markov_head.markov_w1.weight", "markov_w1.weight"},
    {"markov_head.markov_w2.weight", "markov_w2.weight"},
    {"confidence_head.proj.weight", "conf_proj.weight"},
};
// Tensors of the blocks mtp.S of ds4's files, without the suffix .weight.
constexpr NamePair kDs4Drafter[] = {
    {"e_proj.weight", "e_proj"},
    {"h_proj.weight", "h_proj"},
    {"enorm.weight", "enorm"},
    {"hnorm.weight", "hnorm"},
    {"norm.weight", "norm"},
    {"hc_head_fn", "hc_head_fn"},
    {"hc_head_base", "hc_head_base"},
    {"hc_head_scale", "hc_head_scale"},
    {"main_proj.weight", "main_proj"},
    {"main_norm.weight", "main_norm"},
    {"markov_head.markov_w1.weight", "markov_w1"},
    {"markov_head.markov_w2.weight", "markov_w2"},
    {"confidence_head.proj.weight", "confidence_proj"},
};
// Tensors of all experts of a layer, and an expert's matrix.
constexpr NamePair kExperts[] = {
    {"w1.weight", "ffn_gate_exps.weight"},
    {"w3.weight", "ffn_up_exps.weight"},
    {"w2.weight", "ffn_down_exps.weight"},
};

std::optional<absl::string_view> OwnName(absl::Span<const NamePair> pairs, absl::string_view gguf) {
  for (const NamePair& pair : pairs) {
    if (gguf == pair.gguf) return pair.own;
  }
  return std::nullopt;
}

// Cuts "layers.12." or "blk.12." off; nullopt if the text begins otherwise.
std::optional<int64_t> ConsumeLayer(absl::string_view prefix, absl::string_view* name) {
  absl::string_view rest = *name;
  if (!absl::ConsumePrefix(&rest, prefix)) return std::nullopt;
  const size_t dot = rest.find('.');
  int64_t layer = 0;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dot), &layer)) {
    return std::nullopt;
  }
  *name = rest.substr(dot + 1);
  return layer;
}

class Translation {
 public:
  Translation(const GgufModel& model, const ModelConfig& config) : model_(model), config_(config) {}

  // The tensors of a model.
  absl::Status AddOfModel(const GgufTensor& tensor, int32_t file) {
    absl::string_view rest = tensor.name;
    if (const std::optional<int64_t> layer = ConsumeLayer("blk.", &rest)) {
      return AddOfBlock(tensor, file, absl::StrCat("layers.", *layer, "."), rest);
    }
    return Keep(tensor, file, OwnName(kTop, rest).value_or(rest));
  }

  // The tensors of a drafter; others are left out. `first_block`: of llama.cpp's MTP
  // files. `stages`: of a DSpark drafter.
  absl::Status AddOfDrafter(const GgufTensor& tensor, int32_t file, int64_t first_block,
                            int64_t stages) {
    absl::string_view rest = tensor.name;
    if (const std::optional<int64_t> stage = ConsumeLayer("mtp.", &rest)) {
      const std::string prefix = absl::StrCat("mtp.", *stage, ".");
      if (const auto own = OwnName(kDs4Drafter, absl::StripSuffix(rest, ".weight"))) {
        return Keep(tensor, file, absl::StrCat(prefix, *own));
      }
      return AddOfBlock(tensor, file, prefix, rest);
    }
    if (const std::optional<int64_t> block = ConsumeLayer("blk.", &rest)) {
      if (*block < first_block) return absl::OkStatus();
      const std::string prefix = absl::StrCat("mtp.", *block - first_block, ".");
      if (rest == kBothProjections) return AddBothProjections(tensor, file, prefix);
      if (const auto own = OwnName(kMtp, rest)) {
        return Keep(tensor, file, absl::StrCat(prefix, *own));
      }
      return AddOfBlock(tensor, file, prefix, rest);
    }
    const std::string last = absl::StrCat("mtp.", stages - 1, ".");
    if (const auto own = OwnName(kHcHead, rest))
      return Keep(tensor, file, last + std::string(*own));
    if (first_block > 0) return absl::OkStatus();
    if (const auto own = OwnName(kFirstStage, rest)) {
      return Keep(tensor, file, absl::StrCat("mtp.0.", *own));
    }
    if (const auto own = OwnName(kLastStage, rest)) {
      return Keep(tensor, file, last + std::string(*own));
    }
    return absl::OkStatus();
  }

  std::vector<std::vector<uint8_t>> TakeMemory() { return std::move(memory_); }
  std::vector<TensorEntry> Take() { return std::move(entries_); }

 private:
  static TensorEntry Describe(const GgufTensor& tensor, int32_t file) {
    TensorEntry entry;
    entry.shape.assign(tensor.dims.rbegin(), tensor.dims.rend());
    entry.data = tensor.data;
    entry.bytes = tensor.bytes;
    entry.file = file;
    entry.stored_name = std::string(tensor.name);
    if (tensor.type == kGgufI32) {
      entry.dtype = DType::kI32;
      return entry;
    }
    const BlockType type = *BlockTypeOfGguf(tensor.type);  // ParseGguf knows no others
    entry.dtype = type == BlockType::kF32    ? DType::kF32
                  : type == BlockType::kF16  ? DType::kF16
                  : type == BlockType::kBf16 ? DType::kBF16
                                             : DType::kBlocks;
    if (entry.dtype == DType::kBlocks) entry.blocks = type;
    return entry;
  }

  void Keep(TensorEntry entry, absl::string_view name) {
    entry.name = std::string(name);
    entries_.push_back(std::move(entry));
  }
  absl::Status Keep(const GgufTensor& tensor, int32_t file, absl::string_view name) {
    DSV4_RETURN_IF_ERROR(CheckScale(tensor, file));
    Keep(Describe(tensor, file), name);
    return absl::OkStatus();
  }

  // `rest`: the name in the block, whose tensors get the prefix.
  absl::Status AddOfBlock(const GgufTensor& tensor, int32_t file, const std::string& prefix,
                          absl::string_view rest) {
    DSV4_RETURN_IF_ERROR(CheckScale(tensor, file));
    TensorEntry entry = Describe(tensor, file);
    if (const auto matrix = OwnName(kExperts, rest)) {
      return AddExperts(tensor, std::move(entry), prefix, *matrix, PathOf(file));
    }
    const auto own = OwnName(kLayer, rest);
    Keep(std::move(entry), own ? absl::StrCat(prefix, *own) : std::string(tensor.name));
    return absl::OkStatus();
  }

  // Rows of e_proj and of h_proj alternate, so that each gets a copy.
  absl::Status AddBothProjections(const GgufTensor& tensor, int32_t file,
                                  const std::string& prefix) {
    TensorEntry both = Describe(tensor, file);
    const BlockType type = *BlockTypeOfGguf(tensor.type);
    if (both.shape.size() != 2 || both.shape[1] % 2 != 0 ||
        both.shape[1] / 2 % InfoOf(type).elements != 0) {
      return Corrupt(PathOf(file), ": tensor ", Quoted(tensor.name),
                     " is no matrix of two halves side by side");
    }
    const int64_t rows = both.shape[0], half = BlockBytes(type, both.shape[1] / 2);
    int part = 0;
    for (const char* name : {"e_proj.weight", "h_proj.weight"}) {
      std::vector<uint8_t> copy(static_cast<size_t>(rows * half));
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(both.data + (2 * row + part) * half, half, copy.data() + row * half);
      }
      TensorEntry one = both;
      one.shape[1] /= 2;
      one.bytes = rows * half;
      one.data = copy.data();
      memory_.push_back(std::move(copy));
      Keep(std::move(one), absl::StrCat(prefix, name));
      ++part;
    }
    return absl::OkStatus();
  }

  const std::string& PathOf(int32_t file) const {
    return model_.files[static_cast<size_t>(file)].path();
  }

  absl::Status CheckScale(const GgufTensor& tensor, int32_t file) const {
    if (BlockTypeOfGguf(tensor.type) == BlockType::kNvfp4 && HasScale(tensor.name)) {
      return Unsupported(PathOf(file), ": tensor ", Quoted(tensor.name),
                         " is of NVFP4 with a scale of the whole tensor, which is not read");
    }
    return absl::OkStatus();
  }

  // The scale of tensor NAME.weight is NAME.scale.
  bool HasScale(absl::string_view name) const {
    absl::ConsumeSuffix(&name, ".weight");
    const std::string scale = absl::StrCat(name, ".scale");
    for (const GgufFile& part : model_.parts) {
      for (const GgufTensor& tensor : part.tensors) {
        if (tensor.name == scale) return true;
      }
    }
    return false;
  }

  absl::Status AddExperts(const GgufTensor& tensor, TensorEntry all, const std::string& prefix,
                          absl::string_view matrix, const std::string& path) {
    const int64_t experts = config_.n_routed_experts;
    if (tensor.dims.size() != 3 || tensor.dims[2] != experts) {
      return Corrupt(path, ": tensor ", Quoted(tensor.name), " has ",
                     tensor.dims.size() < 3 ? 1 : tensor.dims[2], " experts in ",
                     tensor.dims.size(), " dimensions; the model has ", experts);
    }
    all.bytes /= experts;
    all.shape.erase(all.shape.begin());
    for (int64_t expert = 0; expert < experts; ++expert) {
      TensorEntry one = all;
      one.data += expert * all.bytes;
      Keep(std::move(one), absl::StrCat(prefix, "ffn.experts.", expert, ".", matrix));
    }
    return absl::OkStatus();
  }

  const GgufModel& model_;
  const ModelConfig& config_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<uint8_t>> memory_;
};

// Calls add(tensor, file) with all tensors, and makes a checkpoint of what was added.
template <class Add>
absl::StatusOr<std::unique_ptr<Checkpoint>> Translated(GgufModel* model, Translation* translation,
                                                       const Add& add) {
  std::vector<int64_t> header_bytes;
  for (size_t part = 0; part < model->parts.size(); ++part) {
    header_bytes.push_back(model->parts[part].header_bytes);
    for (const GgufTensor& tensor : model->parts[part].tensors) {
      DSV4_RETURN_IF_ERROR(add(tensor, static_cast<int32_t>(part)));
    }
  }
  const std::string path = model->path();
  return Checkpoint::FromGguf(path, translation->Take(), std::move(model->files),
                              std::move(header_bytes), translation->TakeMemory());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> GgufCheckpoint(GgufModel model,
                                                           const ModelConfig& config) {
  Translation translation(model, config);
  return Translated(&model, &translation, [&](const GgufTensor& tensor, int32_t file) {
    return translation.AddOfModel(tensor, file);
  });
}

absl::StatusOr<std::unique_ptr<Checkpoint>> GgufDrafterCheckpoint(GgufModel model,
                                                                  const ModelConfig& config) {
  // llama.cpp's MTP block lies past the model's, a DSpark drafter's begin with 0.
  std::optional<int64_t> first_block;
  int64_t last_block = 0;
  for (const GgufFile& part : model.parts) {
    for (const GgufTensor& tensor : part.tensors) {
      absl::string_view rest = tensor.name;
      const std::optional<int64_t> block = ConsumeLayer("blk.", &rest);
      if (!block) continue;
      last_block = std::max(last_block, *block);
      if (absl::StartsWith(rest, "nextn."))
        first_block = std::min(*block, first_block.value_or(*block));
    }
  }
  const int64_t first = first_block.value_or(0), stages = last_block - first + 1;
  Translation translation(model, config);
  return Translated(&model, &translation, [&](const GgufTensor& tensor, int32_t file) {
    return translation.AddOfDrafter(tensor, file, first, stages);
  });
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenWithDrafter(std::unique_ptr<Checkpoint> model,
                                                            const std::string& path,
                                                            const ModelConfig& config) {
  DSV4_ASSIGN_OR_RETURN(const ModelPath found, ModelPath::Find(path));
  std::unique_ptr<Checkpoint> drafter;
  if (found.gguf.empty()) {
    DSV4_ASSIGN_OR_RETURN(drafter, Checkpoint::Open(path));
  } else {
    DSV4_ASSIGN_OR_RETURN(GgufModel file, OpenGguf(found.gguf));
    DSV4_ASSIGN_OR_RETURN(drafter, GgufDrafterCheckpoint(std::move(file), config));
  }
  constexpr absl::string_view kPrefix = "mtp.";
  const bool any =
      std::any_of(drafter->tensors().begin(), drafter->tensors().end(),
                  [&](const auto& named) { return absl::StartsWith(named.first, kPrefix); });
  if (!any) return NotFound(path, ": has no drafter: no tensor of one is there");
  return Checkpoint::WithTensorsOf(std::move(model), std::move(drafter), kPrefix);
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenWeights(const std::string& path,
                                                        const ModelConfig& config) {
  DSV4_ASSIGN_OR_RETURN(const ModelPath found, ModelPath::Find(path));
  if (found.gguf.empty()) return Checkpoint::Open(path);
  DSV4_ASSIGN_OR_RETURN(GgufModel model, OpenGguf(found.gguf));
  return GgufCheckpoint(std::move(model), config);
}

std::string GgufNameOf(absl::string_view name) {
  const auto gguf_name = [](absl::Span<const NamePair> pairs, absl::string_view own) {
    for (const NamePair& pair : pairs) {
      if (own == pair.own) return std::string(pair.gguf);
    }
    return std::string();
  };
  absl::string_view rest = name;
  const std::optional<int64_t> layer = ConsumeLayer("layers.", &rest);
  if (!layer) {
    const std::string top = gguf_name(kTop, name);
    return top.empty() ? std::string(name) : top;
  }
  std::string own = gguf_name(kLayer, rest);
  if (absl::ConsumePrefix(&rest, "ffn.experts.")) {
    own = gguf_name(kExperts, rest.substr(rest.find('.') + 1));
  }
  return own.empty() ? std::string(name) : absl::StrCat("blk.", *layer, ".", own);
}

}  // namespace dsv4
