// SPDX-License-Identifier: Apache-2.0
// The views of Weights and the tensors of the checkpoint behind them.
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/packing/expert_format.h"
#include "lib/weights/gguf_tensors.h"
#include "lib/weights/weights_loader.h"

namespace dsv4 {
namespace {

struct Mark {
  absl::string_view suffix;  // of a tensor's name
  absl::string_view layout;
};

// The most specific first: files of one tool may also have the suffixes of another.
constexpr Mark kMarks[] = {
    {".weight_packed", "the layout of compressed-tensors"},
    {".qweight", "the layout of GPTQ and AWQ"},
    {".weight_scale_inv", "the FP8 layout of Hugging Face"},
    {"embed_tokens.weight", "the layout of Hugging Face transformers"},
    {"lm_head.weight", "the layout of Hugging Face transformers"},
    {"token_embd.weight", "the layout of GGUF"},
};

// Recognises checkpoints in the layouts of other tools by their tensor names, so that an error can
// name the layout and not only a missing tensor: "the FP8 layout of Hugging Face (tensor
// "layers.0.attn.wq_a.weight_scale_inv")". Empty if no name identifies one.
std::string ForeignLayout(const Checkpoint& checkpoint) {
  for (const Mark& mark : kMarks) {
    std::string shown;  // the first by name, so that a folder gives one message
    for (const auto& [name, entry] : checkpoint.tensors()) {
      if (absl::EndsWith(name, mark.suffix) && (shown.empty() || name < shown)) shown = name;
    }
    if (!shown.empty()) return absl::StrCat(mark.layout, " (tensor ", Quoted(shown), ")");
  }
  return "";
}

constexpr char kScale[] = ".scale";

// The suffixes of the names of a weight's stored tensors.
absl::Span<const char* const> PartsOf(const WeightSpec& spec) {
  static constexpr const char* kPlain[] = {""};
  static constexpr const char* kQuantised[] = {".weight", kScale};
  static constexpr const char* kExpert[] = {".weight"};  // the others depend on its dtype
  if (std::holds_alternative<ExpertMatrix*>(spec.view)) return kExpert;
  if (std::holds_alternative<Fp8Weight*>(spec.view)) return kQuantised;
  return kPlain;
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// For messages; the file may have any text in its place.
std::string DTypeText(const TensorEntry& entry) {
  return entry.dtype == DType::kOther ? Quoted(entry.dtype_name())
                                      : std::string(entry.dtype_name());
}

}  // namespace

absl::Status WeightsLoader::Resolve(const std::vector<WeightSpec>& specs) {
  for (const WeightSpec& spec : specs) {
    const size_t first = pending_.size();
    DSV4_RETURN_IF_ERROR(std::visit([&](auto* view) { return Bind(spec, view); }, spec.view));
    bound_.push_back({spec, bound_.size(), first, pending_.size() - first});
  }
  return absl::OkStatus();
}

std::string WeightsLoader::First(const std::vector<WeightSpec>& specs, bool present) const {
  for (const WeightSpec& spec : specs) {
    for (const absl::string_view part : PartsOf(spec)) {
      if (part == kScale && InGguf(absl::StrCat(spec.name, ".weight"))) continue;  // in the blocks
      std::string name = absl::StrCat(spec.name, part);
      if ((checkpoint_.Find(name) != nullptr) == present) return name;
    }
  }
  return "";
}

bool WeightsLoader::InGguf(const std::string& name) const {
  const TensorEntry* entry = checkpoint_.Find(name);
  return entry == nullptr ? checkpoint_.is_gguf() : entry->in_gguf;
}

absl::Status WeightsLoader::Missing(const std::string& name) const {
  if (checkpoint_.is_gguf()) {
    return NotFound(checkpoint_.folder(), ": tensor ", GgufNameOf(name),
                    " is missing; this reader knows the names of llama.cpp's converter and of ds4");
  }
  const std::string foreign = ForeignLayout(checkpoint_);
  if (foreign.empty()) return NotFound(checkpoint_.folder(), ": tensor ", name, " is missing");
  return Unsupported(checkpoint_.folder(), ": tensor ", name, " is missing: the files are in ",
                     foreign, "; DeepSeek's own is supported");
}

absl::StatusOr<const TensorEntry*> WeightsLoader::Require(const std::string& name, DType dtype,
                                                          absl::Span<const int64_t> shape) const {
  const TensorEntry* entry = checkpoint_.Find(name);
  if (entry == nullptr) return Missing(name);
  if (entry->dtype != dtype) {
    return Corrupt(Where(*entry), " is ", DTypeText(*entry), "; expected ", DTypeName(dtype));
  }
  if (absl::MakeConstSpan(entry->shape) != shape) {
    return Corrupt(Where(*entry), " has the shape ", ShapeText(entry->shape),
                   "; the configuration asks for ", ShapeText(shape));
  }
  return entry;
}

std::byte* WeightsLoader::Own(int64_t bytes) {
  weights_->owned_bytes_ += bytes;
  alignas(std::max_align_t) static std::byte no_memory[1];
  if (!reads_) return no_memory;
  weights_->owned_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
  return weights_->owned_.back().get();
}

void WeightsLoader::ReadLater(const TensorEntry& entry, std::byte* copy) {
  pending_.push_back({&entry, copy});
  weights_->mapped_bytes_ += entry.bytes;
}

template <class T>
const T* WeightsLoader::Aligned(const TensorEntry& entry) {
  std::byte* copy = nullptr;
  if (reinterpret_cast<uintptr_t>(entry.data) % alignof(T) != 0) copy = Own(entry.bytes);
  ReadLater(entry, copy);
  return reinterpret_cast<const T*>(copy != nullptr ? static_cast<const void*>(copy) : entry.data);
}

absl::StatusOr<const TensorEntry*> WeightsLoader::RequireAny(
    const std::string& name, absl::Span<const int64_t> shape) const {
  const TensorEntry* entry = checkpoint_.Find(name);
  if (entry == nullptr) return Missing(name);
  if (BlockTypeOf(*entry) == BlockType::kNone) {
    return Corrupt(Where(*entry), " is ", DTypeText(*entry), "; expected numbers that are weights");
  }
  return Require(name, entry->dtype, shape);
}

BlockType WeightsLoader::BlockTypeOf(const TensorEntry& entry) {
  switch (entry.dtype) {
    case DType::kF32:
      return BlockType::kF32;
    case DType::kF16:
      return BlockType::kF16;
    case DType::kBF16:
      return BlockType::kBf16;
    default:
      return entry.blocks;
  }
}

std::byte* WeightsLoader::Changed(const TensorEntry& entry, int64_t count, Change change) {
  std::byte* const copy = Own(count * (change == Change::kToF32 ? 4 : 2));
  ReadLater(entry, copy);
  pending_.back().change = change;
  return copy;
}

absl::StatusOr<BlockWeight> WeightsLoader::BindBlocks(const std::string& name, int64_t n,
                                                      int64_t k) {
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, RequireAny(name, {n, k}));
  ReadLater(*entry, nullptr);
  return BlockWeight{entry->data, BlockTypeOf(*entry), n, k};
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, const float** view) {
  const int64_t shape[2] = {spec.n, spec.k};
  if (InGguf(spec.name)) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                          RequireAny(spec.name, absl::MakeConstSpan(shape, spec.k == 0 ? 1 : 2)));
    *view = entry->dtype == DType::kF32
                ? Aligned<float>(*entry)
                : reinterpret_cast<const float*>(
                      Changed(*entry, spec.n * std::max<int64_t>(spec.k, 1), Change::kToF32));
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(
      const TensorEntry* entry,
      Require(spec.name, DType::kF32, absl::MakeConstSpan(shape, spec.k == 0 ? 1 : 2)));
  *view = Aligned<float>(*entry);
  return absl::OkStatus();
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, const uint16_t** view) {
  if (InGguf(spec.name)) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, RequireAny(spec.name, {spec.n}));
    *view = entry->dtype == DType::kBF16
                ? Aligned<uint16_t>(*entry)
                : reinterpret_cast<const uint16_t*>(Changed(*entry, spec.n, Change::kToBf16));
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, Require(spec.name, DType::kBF16, {spec.n}));
  *view = Aligned<uint16_t>(*entry);
  return absl::OkStatus();
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, Bf16Weight* view) {
  const TensorEntry* stored = checkpoint_.Find(spec.name);
  if (InGguf(spec.name) && (stored == nullptr || stored->dtype != DType::kBF16)) {
    if (spec.widened) {
      DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, RequireAny(spec.name, {spec.n, spec.k}));
      *view = {reinterpret_cast<const uint16_t*>(Changed(*entry, spec.n * spec.k, Change::kToBf16)),
               spec.n, spec.k};
      return absl::OkStatus();
    }
    DSV4_ASSIGN_OR_RETURN(const BlockWeight blocks, BindBlocks(spec.name, spec.n, spec.k));
    // A pointer to any bytes: nothing reads 16-bit words through it.
    *view = {reinterpret_cast<const uint16_t*>(blocks.data), spec.n, spec.k, blocks.type};
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                        Require(spec.name, DType::kBF16, {spec.n, spec.k}));
  *view = {Aligned<uint16_t>(*entry), spec.n, spec.k};
  return absl::OkStatus();
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, const int32_t** view) {
  const TensorEntry* stored = checkpoint_.Find(spec.name);
  const bool narrow = stored != nullptr && stored->dtype == DType::kI32;
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                        Require(spec.name, narrow ? DType::kI32 : DType::kI64, {spec.n, spec.k}));
  if (narrow) {
    *view = Aligned<int32_t>(*entry);
  } else {
    std::byte* copy = Own(entry->bytes / 2);
    ReadLater(*entry, copy);
    *view = reinterpret_cast<const int32_t*>(copy);
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, Fp8Weight* view) {
  if (InGguf(spec.name + ".weight")) {
    DSV4_ASSIGN_OR_RETURN(const BlockWeight blocks,
                          BindBlocks(spec.name + ".weight", spec.n, spec.k));
    *view = {.data = blocks.data, .n = spec.n, .k = spec.k, .blocks = blocks.type};
    if (!absl::StartsWith(spec.name, "mtp.")) weights_->matrix_blocks_.insert(blocks.type);
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* weight,
                        Require(spec.name + ".weight", DType::kF8E4M3, {spec.n, spec.k}));
  const std::string scale_name = spec.name + ".scale";
  const TensorEntry* stored = checkpoint_.Find(scale_name);
  const bool f32 = stored != nullptr && stored->dtype == DType::kF32;
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* scale,
                        Require(scale_name, f32 ? DType::kF32 : DType::kF8E8M0,
                                {CeilDiv(spec.n, kFp8Block), CeilDiv(spec.k, kFp8Block)}));
  *view = {.data = Aligned<uint8_t>(*weight), .n = spec.n, .k = spec.k};
  if (f32) {
    view->f32_scale = Aligned<float>(*scale);
  } else {
    view->scale = Aligned<uint8_t>(*scale);
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::Bind(const WeightSpec& spec, ExpertMatrix* view) {
  if (InGguf(spec.name + ".weight")) {
    DSV4_ASSIGN_OR_RETURN(*view, BindBlocks(spec.name + ".weight", spec.n, spec.k));
    if (absl::StartsWith(spec.name, "layers.")) weights_->expert_blocks_.insert(view->blocks);
    return absl::OkStatus();
  }
  const TensorEntry* weight = checkpoint_.Find(spec.name + ".weight");
  if (weight == nullptr) return Missing(spec.name + ".weight");
  const std::optional<ExpertFormat> format = ExpertFormatOf(weight->dtype);
  if (!format) {
    return Corrupt(Where(*weight), " is ", DTypeText(*weight),
                   "; expected I8 (MXFP4), U8 (NVFP4) or F8_E4M3 (FP8)");
  }
  if (absl::StartsWith(spec.name, "layers.")) weights_->expert_formats_.insert(*format);
  if (*format == ExpertFormat::kFp8) {
    Fp8Weight fp8;
    DSV4_RETURN_IF_ERROR(Bind(spec, &fp8));
    *view = fp8;
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(
      Require(spec.name + ".weight", weight->dtype, {spec.n, spec.k / 2}).status());
  if (*format == ExpertFormat::kMxfp4) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* scale, Require(spec.name + ".scale", DType::kF8E8M0,
                                                            {spec.n, spec.k / kFp4Run}));
    *view = Fp4Weight{Aligned<uint8_t>(*weight), Aligned<uint8_t>(*scale), spec.n, spec.k};
    return absl::OkStatus();
  }
  DSV4_ASSIGN_OR_RETURN(
      const TensorEntry* scale,
      Require(spec.name + ".weight_scale", DType::kF8E4M3, {spec.n, spec.k / kNvfp4Run}));
  DSV4_ASSIGN_OR_RETURN(const TensorEntry* tensor_scale,
                        RequireScalar(spec.name + ".weight_scale_2"));
  *view = Nvfp4Weight{Aligned<uint8_t>(*weight), Aligned<uint8_t>(*scale), spec.n, spec.k};
  ReadLater(*tensor_scale, reinterpret_cast<std::byte*>(&view->tensor_scale));
  foldable_bytes_ += spec.n * spec.k / kFp4Run;
  weights_->owned_bytes_ += spec.n * spec.k / kFp4Run;
  return absl::OkStatus();
}

absl::StatusOr<const TensorEntry*> WeightsLoader::RequireScalar(const std::string& name) const {
  const TensorEntry* entry = checkpoint_.Find(name);
  if (entry != nullptr && entry->shape.empty()) return Require(name, DType::kF32, {});
  return Require(name, DType::kF32, {1});
}

absl::Status WeightsLoader::ResolveAll() {
  WeightTable main(config_);
  main.AddMain(weights_);
  DSV4_RETURN_IF_ERROR(Resolve(main.specs()));
  // Layer by layer, so that a configuration with far more of them than the files have costs
  // nothing.
  weights_->layers.resize(config_.num_hidden_layers);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    WeightTable table(config_);
    table.AddLayer(layer, &weights_->layers[layer]);
    DSV4_RETURN_IF_ERROR(Resolve(table.specs()));
  }
  return ResolveDrafter();
}

// The configuration does not tell drafters apart: files of both kinds say the same.
absl::Status WeightsLoader::ResolveDrafter() {
  const size_t stages = DrafterStages();
  if (stages == 0) return absl::OkStatus();
  auto drafter = std::make_unique<DrafterWeights>();
  drafter->kind = DrafterKind::kDspark;
  drafter->blocks.resize(stages);
  WeightTable inputs(config_);
  inputs.AddDrafterInputs(drafter.get());
  if (FirstPresent(inputs.specs()).empty()) {
    drafter->kind = DrafterKind::kMtp;
    drafter->blocks.resize(1);
  } else if (config_.dspark.block_size == 0) {
    return Corrupt(checkpoint_.folder(), ": config.json has no dspark_block_size, though tensor ",
                   FirstPresent(inputs.specs()), " is there");
  }
  WeightTable table(config_);
  table.AddDrafter(drafter.get());
  const std::string absent = FirstAbsent(table.specs());
  if (!absent.empty()) {
    return Corrupt(checkpoint_.folder(), ": tensor ", absent, " is missing, though the ",
                   DrafterName(drafter->kind), " drafter's ", FirstPresent(table.specs()),
                   " is there");
  }
  DSV4_RETURN_IF_ERROR(Resolve(table.specs()));
  weights_->drafter = std::move(drafter);
  return absl::OkStatus();
}

// Up to the last mtp.N that has a tensor.
size_t WeightsLoader::DrafterStages() const {
  size_t stages = 0;
  for (const auto& [name, entry] : checkpoint_.tensors()) {
    absl::string_view rest = name;
    uint32_t stage = 0;
    if (!absl::ConsumePrefix(&rest, "mtp.")) continue;
    if (!absl::SimpleAtoi(rest.substr(0, rest.find('.')), &stage)) continue;
    if (stage < kMaxDrafterStages) stages = std::max<size_t>(stages, stage + 1);
  }
  return stages;
}

}  // namespace dsv4
