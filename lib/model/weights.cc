// SPDX-License-Identifier: Apache-2.0
// One row per tensor: its runtime name, where its view goes, and its size. Stored dtype and shape
// follow from the type of the view. Loading first resolves every row against the file headers, then
// reads the data once, in file order.
#include "lib/model/weights.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/model/expert_format.h"
#include "lib/model/foreign_layout.h"
#include "lib/model/format_changes.h"
#include "lib/model/weight_upload.h"

namespace dsv4 {
namespace {

// Where a row's view goes. Quantised weights are stored as NAME.weight and NAME.scale, or, of an
// NVFP4 expert, NAME.weight, NAME.weight_scale and NAME.weight_scale_2.
using Slot = std::variant<const float**,     // F32 [n], or [n, k]
                          const uint16_t**,  // BF16 [n]
                          Bf16Weight*,       // BF16 [n, k]
                          const int32_t**,   // I64 or I32 [n, k], expert numbers
                          Fp8Weight*, ExpertMatrix*>;

struct Row {
  std::string name;
  Slot slot;
  int64_t n = 0;
  int64_t k = 0;  // 0: the tensor has one dimension
};

// What follows a row's name in the names of its stored tensors.
absl::Span<const char* const> PartsOf(const Row& row) {
  static constexpr const char* kPlain[] = {""};
  static constexpr const char* kQuantised[] = {".weight", ".scale"};
  static constexpr const char* kExpert[] = {".weight"};  // the others depend on its dtype
  if (std::holds_alternative<ExpertMatrix*>(row.slot)) return kExpert;
  if (std::holds_alternative<Fp8Weight*>(row.slot)) return kQuantised;
  return kPlain;
}

class Table {
 public:
  explicit Table(const ModelConfig& config) : c_(config) {}

  void AddMain(Weights* w) {
    const std::string p;
    Add(p, "embed.weight", &w->embed, c_.vocab_size, c_.hidden_size);
    Add(p, "head.weight", &w->head, c_.vocab_size, c_.hidden_size);
    Add(p, "norm.weight", &w->norm, c_.hidden_size);
    AddHyperConnection("hc_head", kStreams, 1, &w->hc_head);
  }

  void AddLayer(int64_t layer, BlockWeights* w) {
    AddBlock(absl::StrCat("layers.", layer, "."), layer, w);
  }

  // What only drafters of w->kind have, with so many blocks as w->blocks.
  void AddDrafterInputs(DrafterWeights* w) {
    const std::string first = "mtp.0.", last = absl::StrCat("mtp.", w->blocks.size() - 1, ".");
    const int64_t hidden = c_.hidden_size, rank = c_.dspark.markov_rank;
    if (w->kind == DrafterKind::kMtp) {
      Add(first, "e_proj", &w->mtp.e_proj, hidden, hidden);
      Add(first, "h_proj", &w->mtp.h_proj, hidden, hidden);
      Add(first, "enorm.weight", &w->mtp.enorm, hidden);
      Add(first, "hnorm.weight", &w->mtp.hnorm, hidden);
      return;
    }
    const auto taps = static_cast<int64_t>(c_.dspark.target_layers.size());
    Add(first, "main_proj", &w->dspark.main_proj, hidden, taps * hidden);
    Add(first, "main_norm.weight", &w->dspark.main_norm, hidden);
    Add(last, "markov_head.markov_w1.weight", &w->dspark.markov_w1, c_.vocab_size, rank);
    Add(last, "markov_head.markov_w2.weight", &w->dspark.markov_w2, c_.vocab_size, rank);
    Add(last, "confidence_head.proj.weight", &w->dspark.confidence, 1, hidden + rank);
  }

  void AddDrafterBlocks(DrafterWeights* w) {
    for (size_t i = 0; i < w->blocks.size(); ++i) {
      AddBlock(absl::StrCat("mtp.", i, "."), c_.num_hidden_layers + static_cast<int64_t>(i),
               &w->blocks[i]);
    }
    const std::string last = absl::StrCat("mtp.", w->blocks.size() - 1, ".");
    Add(last, "norm.weight", &w->norm, c_.hidden_size);
    AddHyperConnection(last + "hc_head", kStreams, 1, &w->hc_head);
  }

  const std::vector<Row>& rows() const { return rows_; }

 private:
  void Add(const std::string& prefix, absl::string_view name, Slot slot, int64_t n, int64_t k = 0) {
    rows_.push_back({absl::StrCat(prefix, name), slot, n, k});
  }

  void AddHyperConnection(const std::string& p, int64_t mixes, int64_t scales,
                          HyperConnectionWeights* hc) {
    Add(p, "_fn", &hc->fn, mixes, kStreams * c_.hidden_size);
    Add(p, "_base", &hc->base, mixes);
    Add(p, "_scale", &hc->scale, scales);
  }

  void AddCompressor(const std::string& p, int64_t ratio, int64_t dim, CompressorWeights* w) {
    const int64_t width = ratio == 4 ? 2 * dim : dim;
    Add(p, "ape", &w->ape, ratio, width);
    Add(p, "wkv.weight", &w->wkv, width, c_.hidden_size);
    Add(p, "wgate.weight", &w->wgate, width, c_.hidden_size);
    Add(p, "norm.weight", &w->norm, dim);
  }

  void AddAttention(const std::string& p, int64_t ratio, AttentionWeights* w) {
    const int64_t heads = c_.num_attention_heads, groups = c_.o_groups;
    Add(p, "attn_sink", &w->sink, heads);
    Add(p, "wq_a", &w->wq_a, c_.q_lora_rank, c_.hidden_size);
    Add(p, "q_norm.weight", &w->q_norm, c_.q_lora_rank);
    Add(p, "wq_b", &w->wq_b, heads * kHeadDim, c_.q_lora_rank);
    Add(p, "wkv", &w->wkv, kHeadDim, c_.hidden_size);
    Add(p, "kv_norm.weight", &w->kv_norm, kHeadDim);
    Add(p, "wo_a", &w->wo_a, groups * c_.o_lora_rank, heads * kHeadDim / groups);
    Add(p, "wo_b", &w->wo_b, c_.hidden_size, groups * c_.o_lora_rank);
    if (ratio != 0) AddCompressor(p + "compressor.", ratio, kHeadDim, &w->compressor);
    if (ratio != 4) return;
    const std::string i = p + "indexer.";
    Add(i, "wq_b", &w->indexer.wq_b, c_.index_n_heads * kIndexHeadDim, c_.q_lora_rank);
    Add(i, "weights_proj.weight", &w->indexer.weights_proj, c_.index_n_heads, c_.hidden_size);
    AddCompressor(i + "compressor.", ratio, kIndexHeadDim, &w->indexer.compressor);
  }

  void AddMoe(const std::string& p, bool hash_routed, MoeWeights* w) {
    const int64_t hidden = c_.hidden_size, inter = c_.moe_intermediate_size;
    Add(p, "gate.weight", &w->gate, c_.n_routed_experts, hidden);
    if (hash_routed) {
      Add(p, "gate.tid2eid", &w->tid2eid, c_.vocab_size, c_.num_experts_per_tok);
    } else {
      Add(p, "gate.bias", &w->bias, c_.n_routed_experts);
    }
    w->experts.resize(c_.n_routed_experts);
    for (int64_t e = 0; e < c_.n_routed_experts; ++e) {
      ExpertWeights& expert = w->experts[e];
      const std::string x = absl::StrCat(p, "experts.", e, ".");
      Add(x, "w1", &expert.w1, inter, hidden);
      Add(x, "w3", &expert.w3, inter, hidden);
      Add(x, "w2", &expert.w2, hidden, inter);
      w->expert_table.push_back(&expert);
    }
    w->table = w->expert_table.data();
    const std::string s = p + "shared_experts.";
    Add(s, "w1", &w->shared_w1, inter, hidden);
    Add(s, "w3", &w->shared_w3, inter, hidden);
    Add(s, "w2", &w->shared_w2, hidden, inter);
  }

  void AddBlock(const std::string& p, int64_t layer, BlockWeights* w) {
    constexpr int64_t kMixes = (2 + kStreams) * kStreams;
    w->compress_ratio = layer < c_.num_hidden_layers ? c_.compress_ratios[layer] : 0;
    Add(p, "attn_norm.weight", &w->attn_norm, c_.hidden_size);
    Add(p, "ffn_norm.weight", &w->ffn_norm, c_.hidden_size);
    AddHyperConnection(p + "hc_attn", kMixes, 3, &w->hc_attn);
    AddHyperConnection(p + "hc_ffn", kMixes, 3, &w->hc_ffn);
    AddAttention(p + "attn.", w->compress_ratio, &w->attn);
    AddMoe(p + "ffn.", layer < c_.num_hash_layers, &w->moe);
  }

  const ModelConfig& c_;
  std::vector<Row> rows_;
};

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// For messages; the file may have any text in its place.
std::string DTypeText(const TensorEntry& entry) {
  return entry.dtype == DType::kOther ? Quoted(entry.dtype_name())
                                      : std::string(entry.dtype_name());
}

// True when any of `count` elements is no number, or infinite where the format can say so. Plain
// loops without early exit: they run at memory speed.
bool HasNonFinite(const TensorEntry& entry, const uint8_t* data, int64_t bytes) {
  uint32_t bad = 0;
  switch (entry.dtype) {
    case DType::kF32:
      for (int64_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t bits;
        std::memcpy(&bits, data + i, 4);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
      }
      break;
    case DType::kBF16:
      for (int64_t i = 0; i + 2 <= bytes; i += 2) {
        uint16_t bits;
        std::memcpy(&bits, data + i, 2);
        bad |= (bits & 0x7f80u) == 0x7f80u;
      }
      break;
    case DType::kF8E4M3:
      for (int64_t i = 0; i < bytes; ++i) bad |= (data[i] & 0x7fu) == 0x7fu;
      break;
    case DType::kF8E8M0:
      for (int64_t i = 0; i < bytes; ++i) bad |= data[i] == 0xffu;
      break;
    default:
      break;
  }
  return bad != 0;
}

}  // namespace

// Fills the views of a Weights object from its checkpoint.
class WeightsLoader {
 public:
  WeightsLoader(const ModelConfig& config, const Checkpoint& checkpoint, Weights* weights)
      : config_(config), checkpoint_(checkpoint), weights_(weights) {}

  // Binds every view.
  absl::Status ResolveAll();
  absl::Status ResolveDrafter();
  size_t DrafterStages() const;

  // Counts what the target needs, and chooses the kernels that pack for it.
  absl::Status PlanTarget(const WeightTarget& target);

  // Reads every tensor, and brings it to the target.
  absl::Status ReadData(const WeightTarget& target,
                        const std::function<bool(int64_t, int64_t)>& progress);

 private:
  absl::Status Resolve(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const size_t first = pending_.size();
      DSV4_RETURN_IF_ERROR(std::visit([&](auto* slot) { return Bind(row, slot); }, row.slot));
      bound_.push_back({row.slot, row.n, row.k, first, pending_.size() - first});
    }
    return absl::OkStatus();
  }

  // The first name of `rows` that the checkpoint lacks; its first that it has. Empty when none.
  std::string FirstAbsent(const std::vector<Row>& rows) const { return First(rows, false); }
  std::string FirstPresent(const std::vector<Row>& rows) const { return First(rows, true); }

  // A tensor whose data is still to be read.
  struct Pending {
    const TensorEntry* entry;
    std::byte* copy;  // where its elements go, or null when the view is in the mapped file
  };

  // A view, and the tensors behind it.
  struct Bound {
    Slot slot;
    int64_t n, k;
    size_t first_pending, pending_count;
  };

  std::string First(const std::vector<Row>& rows, bool present) const {
    for (const Row& row : rows) {
      for (const char* part : PartsOf(row)) {
        std::string name = absl::StrCat(row.name, part);
        if ((checkpoint_.Find(name) != nullptr) == present) return name;
      }
    }
    return "";
  }

  std::string Where(const TensorEntry& entry) const {
    return absl::StrCat(checkpoint_.FileOf(entry), ": tensor ", entry.name);
  }

  absl::Status Missing(const std::string& name) const {
    const std::string foreign = ForeignLayout(checkpoint_);
    if (foreign.empty()) return NotFound(checkpoint_.folder(), ": tensor ", name, " is missing");
    return Unsupported(checkpoint_.folder(), ": tensor ", name, " is missing: the files are in ",
                       foreign, "; DeepSeek's own is supported");
  }

  absl::StatusOr<const TensorEntry*> Require(const std::string& name, DType dtype,
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

  std::byte* Own(int64_t bytes) {
    weights_->owned_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
    weights_->owned_bytes_ += bytes;
    return weights_->owned_.back().get();
  }

  void ReadLater(const TensorEntry& entry, std::byte* copy) {
    pending_.push_back({&entry, copy});
    weights_->mapped_bytes_ += entry.bytes;
  }

  // The elements of `entry`, aligned for T: in the file where they lie so, else in a copy.
  template <class T>
  const T* Aligned(const TensorEntry& entry) {
    std::byte* copy = nullptr;
    if (reinterpret_cast<uintptr_t>(entry.data) % alignof(T) != 0) copy = Own(entry.bytes);
    ReadLater(entry, copy);
    return reinterpret_cast<const T*>(copy != nullptr ? static_cast<const void*>(copy)
                                                      : entry.data);
  }

  absl::Status Bind(const Row& row, const float** slot) {
    const int64_t shape[2] = {row.n, row.k};
    DSV4_ASSIGN_OR_RETURN(
        const TensorEntry* entry,
        Require(row.name, DType::kF32, absl::MakeConstSpan(shape, row.k == 0 ? 1 : 2)));
    *slot = Aligned<float>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const Row& row, const uint16_t** slot) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, Require(row.name, DType::kBF16, {row.n}));
    *slot = Aligned<uint16_t>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const Row& row, Bf16Weight* slot) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                          Require(row.name, DType::kBF16, {row.n, row.k}));
    *slot = {Aligned<uint16_t>(*entry), row.n, row.k};
    return absl::OkStatus();
  }

  absl::Status Bind(const Row& row, const int32_t** slot) {
    const TensorEntry* stored = checkpoint_.Find(row.name);
    const bool narrow = stored != nullptr && stored->dtype == DType::kI32;
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                          Require(row.name, narrow ? DType::kI32 : DType::kI64, {row.n, row.k}));
    if (narrow) {
      *slot = Aligned<int32_t>(*entry);
    } else {
      std::byte* copy = Own(entry->bytes / 2);
      ReadLater(*entry, copy);
      *slot = reinterpret_cast<const int32_t*>(copy);
    }
    return absl::OkStatus();
  }

  absl::Status Bind(const Row& row, Fp8Weight* slot) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* weight,
                          Require(row.name + ".weight", DType::kF8E4M3, {row.n, row.k}));
    const std::string scale_name = row.name + ".scale";
    const TensorEntry* stored = checkpoint_.Find(scale_name);
    const bool f32 = stored != nullptr && stored->dtype == DType::kF32;
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* scale,
                          Require(scale_name, f32 ? DType::kF32 : DType::kF8E8M0,
                                  {CeilDiv(row.n, kFp8Block), CeilDiv(row.k, kFp8Block)}));
    *slot = {.data = Aligned<uint8_t>(*weight), .n = row.n, .k = row.k};
    if (f32) {
      slot->f32_scale = Aligned<float>(*scale);
    } else {
      slot->scale = Aligned<uint8_t>(*scale);
    }
    return absl::OkStatus();
  }

  absl::Status Bind(const Row& row, ExpertMatrix* slot) {
    const TensorEntry* weight = checkpoint_.Find(row.name + ".weight");
    if (weight == nullptr) return Missing(row.name + ".weight");
    const std::optional<ExpertFormat> format = ExpertFormatOf(weight->dtype);
    if (!format) {
      return Corrupt(Where(*weight), " is ", DTypeText(*weight),
                     "; expected I8 (MXFP4), U8 (NVFP4) or F8_E4M3 (FP8)");
    }
    if (absl::StartsWith(row.name, "layers.")) weights_->expert_formats_.insert(*format);
    if (*format == ExpertFormat::kFp8) {
      Fp8Weight fp8;
      DSV4_RETURN_IF_ERROR(Bind(row, &fp8));
      *slot = fp8;
      return absl::OkStatus();
    }
    DSV4_RETURN_IF_ERROR(Require(row.name + ".weight", weight->dtype, {row.n, row.k / 2}).status());
    if (*format == ExpertFormat::kMxfp4) {
      DSV4_ASSIGN_OR_RETURN(const TensorEntry* scale,
                            Require(row.name + ".scale", DType::kF8E8M0, {row.n, row.k / kFp4Run}));
      *slot = Fp4Weight{Aligned<uint8_t>(*weight), Aligned<uint8_t>(*scale), row.n, row.k};
      return absl::OkStatus();
    }
    DSV4_ASSIGN_OR_RETURN(
        const TensorEntry* scale,
        Require(row.name + ".weight_scale", DType::kF8E4M3, {row.n, row.k / kNvfp4Run}));
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* tensor_scale,
                          RequireScalar(row.name + ".weight_scale_2"));
    *slot = Nvfp4Weight{Aligned<uint8_t>(*weight), Aligned<uint8_t>(*scale), row.n, row.k};
    ReadLater(*tensor_scale, reinterpret_cast<std::byte*>(&slot->tensor_scale));
    foldable_bytes_ += row.n * row.k / kFp4Run;
    weights_->owned_bytes_ += row.n * row.k / kFp4Run;
    return absl::OkStatus();
  }

  // F32, without dimensions or with one element.
  absl::StatusOr<const TensorEntry*> RequireScalar(const std::string& name) const {
    const TensorEntry* entry = checkpoint_.Find(name);
    if (entry != nullptr && entry->shape.empty()) return Require(name, DType::kF32, {});
    return Require(name, DType::kF32, {1});
  }

  absl::Status ReadPart(const Pending& pending, int64_t begin, int64_t end);
  template <class T>
  absl::Status CheckExperts(const TensorEntry& entry, int64_t begin, int64_t end) const;

  absl::Status Settle(const Bound& bound, FormatChanges* changes) const;
  // Rows of the embedding are gathered, not multiplied, and a drafter's tables are read by a kernel
  // of their own: they keep their layout.
  bool IsPacked(const Bf16Weight* slot) const {
    if (slot == &weights_->embed) return false;
    if (weights_->drafter == nullptr) return true;
    const DsparkWeights& dspark = weights_->drafter->dspark;
    return slot != &dspark.markov_w1 && slot != &dspark.markov_w2 && slot != &dspark.confidence;
  }
  absl::Status Plan(const Bound& bound, WeightUpload* upload, int64_t* bytes) const;
  absl::Status Send(const Bound& bound, WeightUpload* upload) const;
  absl::Status SendExperts(MoeWeights* moe, WeightUpload* upload) const;
  std::vector<MoeWeights*> MoeLayers() const;

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  Weights* weights_;
  std::vector<Pending> pending_;
  std::vector<Bound> bound_;
  int64_t foldable_bytes_ = 0;  // of owned_bytes_: the scales of NVFP4 experts when all fold
};

template <class T>
absl::Status WeightsLoader::CheckExperts(const TensorEntry& entry, int64_t begin,
                                         int64_t end) const {
  for (int64_t at = begin; at < end; at += sizeof(T)) {
    T expert;
    std::memcpy(&expert, entry.data + at, sizeof expert);
    if (expert < 0 || expert >= config_.n_routed_experts) {
      const int64_t element = at / static_cast<int64_t>(sizeof(T));
      const int64_t width = config_.num_experts_per_tok;
      return Corrupt(Where(entry), " names expert ", expert, " for token ", element / width,
                     "; n_routed_experts is ", config_.n_routed_experts);
    }
  }
  return absl::OkStatus();
}

// Checks and, where asked, copies bytes [begin, end) of one tensor; both are multiples of 8 or the
// tensor's end.
absl::Status WeightsLoader::ReadPart(const Pending& pending, int64_t begin, int64_t end) {
  const TensorEntry& entry = *pending.entry;
  const uint8_t* data = entry.data + begin;
  switch (entry.dtype) {
    case DType::kI64:
      DSV4_RETURN_IF_ERROR(CheckExperts<int64_t>(entry, begin, end));
      for (int64_t at = begin; at < end; at += 8) {
        int64_t expert;
        std::memcpy(&expert, entry.data + at, 8);
        const auto narrow = static_cast<int32_t>(expert);
        std::memcpy(pending.copy + at / 2, &narrow, 4);
      }
      return absl::OkStatus();
    case DType::kI32:
      DSV4_RETURN_IF_ERROR(CheckExperts<int32_t>(entry, begin, end));
      break;
    case DType::kI8:
    case DType::kU8: {
      // Every nibble is a number: there is nothing to check, but the pages are brought in.
      constexpr int64_t kPageBytes = 4096;
      volatile uint8_t seen = 0;
      for (int64_t at = 0; at < end - begin; at += kPageBytes) seen = data[at];
      static_cast<void>(seen);
      break;
    }
    default:
      if (HasNonFinite(entry, data, end - begin)) {
        return Corrupt(Where(entry), entry.dtype == DType::kF8E8M0
                                         ? " has a scale byte of 255, which is not a number"
                                         : " has an element that is not a finite number");
      }
  }
  if (pending.copy != nullptr) std::memcpy(pending.copy + begin, data, end - begin);
  return absl::OkStatus();
}

absl::Status WeightsLoader::ReadData(const WeightTarget& target,
                                     const std::function<bool(int64_t, int64_t)>& progress) {
  // The disk sees one pass over each file.
  std::sort(bound_.begin(), bound_.end(), [this](const Bound& a, const Bound& b) {
    const TensorEntry& x = *pending_[a.first_pending].entry;
    const TensorEntry& y = *pending_[b.first_pending].entry;
    return std::pair(x.file, x.data) < std::pair(y.file, y.data);
  });
  std::optional<WeightUpload> upload;
  if (weights_->device_bytes_ > 0) {
    upload.emplace(target.device, target.dispatch);
    DSV4_RETURN_IF_ERROR(upload->Allocate(weights_->device_bytes_));
  }
  FormatChanges changes(checkpoint_, upload.has_value());
  const int64_t total = weights_->mapped_bytes_;
  constexpr int64_t kPartBytes = int64_t{16} << 20;  // between two calls of progress
  int64_t done = 0, unreported = 0;
  for (const Bound& bound : bound_) {
    for (size_t i = 0; i < bound.pending_count; ++i) {
      const Pending& pending = pending_[bound.first_pending + i];
      for (int64_t begin = 0; begin < pending.entry->bytes; begin += kPartBytes) {
        const int64_t end = std::min(begin + kPartBytes, pending.entry->bytes);
        DSV4_RETURN_IF_ERROR(ReadPart(pending, begin, end));
        done += end - begin;
        unreported += end - begin;
        if (progress && (unreported >= kPartBytes || done == total)) {
          unreported = 0;
          if (!progress(done, total)) {
            return Cancelled(checkpoint_.folder(), ": loading was cancelled after ", done, " of ",
                             total, " bytes");
          }
        }
      }
    }
    DSV4_RETURN_IF_ERROR(Settle(bound, &changes));
    if (upload) DSV4_RETURN_IF_ERROR(Send(bound, &*upload));
  }
  if (!upload) {
    weights_->owned_bytes_ += changes.bytes() - foldable_bytes_;
    for (auto& memory : changes.TakeMemory()) weights_->owned_.push_back(std::move(memory));
    return absl::OkStatus();
  }
  for (MoeWeights* moe : MoeLayers()) DSV4_RETURN_IF_ERROR(SendExperts(moe, &*upload));
  DSV4_ASSIGN_OR_RETURN(weights_->device_memory_, upload->Finish());
  weights_->owned_.clear();
  weights_->owned_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status WeightsLoader::Settle(const Bound& bound, FormatChanges* changes) const {
  absl::string_view name = pending_[bound.first_pending].entry->name;
  absl::ConsumeSuffix(&name, ".weight");
  if (Fp8Weight* const* weight = std::get_if<Fp8Weight*>(&bound.slot)) {
    return changes->Settle(std::string(name), *weight);
  }
  if (ExpertMatrix* const* expert = std::get_if<ExpertMatrix*>(&bound.slot)) {
    return changes->Settle(std::string(name), *expert);
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::PlanTarget(const WeightTarget& target) {
  if (target.device == nullptr || target.device->host_memory()) return absl::OkStatus();
  WeightUpload upload(target.device, target.dispatch);
  int64_t bytes = 0;
  for (const Bound& bound : bound_) DSV4_RETURN_IF_ERROR(Plan(bound, &upload, &bytes));
  for (const MoeWeights* moe : MoeLayers()) {
    const auto experts = static_cast<int64_t>(moe->experts.size());
    bytes += WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(ExpertWeights))) +
             WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(const ExpertWeights*)));
  }
  weights_->device_bytes_ = bytes;
  return absl::OkStatus();
}

std::vector<MoeWeights*> WeightsLoader::MoeLayers() const {
  std::vector<MoeWeights*> layers;
  for (BlockWeights& layer : weights_->layers) layers.push_back(&layer.moe);
  if (weights_->drafter != nullptr) {
    for (BlockWeights& block : weights_->drafter->blocks) layers.push_back(&block.moe);
  }
  return layers;
}

absl::Status WeightsLoader::Plan(const Bound& bound, WeightUpload* upload, int64_t* bytes) const {
  const int64_t n = bound.n, k = bound.k, elements = n * std::max<int64_t>(k, 1);
  const auto packed = [&](WeightFormat format) {
    *bytes += WeightUpload::PackedBytes(format, n, k);
    return upload->Prepare(format, n, k);
  };
  if (std::holds_alternative<Fp8Weight*>(bound.slot)) return packed(WeightFormat::kFp8);
  if (std::holds_alternative<ExpertMatrix*>(bound.slot)) return packed(WeightFormat::kFp4);
  if (const auto* slot = std::get_if<Bf16Weight*>(&bound.slot); slot && IsPacked(*slot)) {
    return packed(WeightFormat::kBf16);
  }
  const bool wide = std::holds_alternative<const float**>(bound.slot) ||
                    std::holds_alternative<const int32_t**>(bound.slot);
  *bytes += WeightUpload::RawBytes(elements * (wide ? 4 : 2));
  return absl::OkStatus();
}

absl::Status WeightsLoader::Send(const Bound& bound, WeightUpload* upload) const {
  const int64_t n = bound.n, k = bound.k, elements = n * std::max<int64_t>(k, 1);
  const std::byte* data = nullptr;
  const uint8_t* scale = nullptr;
  const auto raw = [&](auto* slot) {  // a pointer to plain elements
    const absl::Status status =
        upload->Raw(*slot, elements * static_cast<int64_t>(sizeof(**slot)), &data);
    *slot = reinterpret_cast<std::remove_reference_t<decltype(*slot)>>(data);
    return status;
  };
  const auto packed = [&](auto* slot, WeightFormat format, const uint8_t* host_scale) {
    const absl::Status status = upload->Packed(
        format, n, k, reinterpret_cast<const uint8_t*>(slot->data), host_scale, &data, &scale);
    slot->data = reinterpret_cast<decltype(slot->data)>(data);
    return status;
  };
  const auto quantised = [&](auto* slot, WeightFormat format) {
    const absl::Status status = packed(slot, format, slot->scale);
    slot->scale = scale;
    return status;
  };
  struct Sender {
    const WeightsLoader* loader;
    decltype(raw)& raw_;
    decltype(packed)& packed_;
    decltype(quantised)& quantised_;
    absl::Status operator()(const float** slot) { return raw_(slot); }
    absl::Status operator()(const uint16_t** slot) { return raw_(slot); }
    absl::Status operator()(const int32_t** slot) { return raw_(slot); }
    absl::Status operator()(Bf16Weight* slot) {
      return loader->IsPacked(slot) ? packed_(slot, WeightFormat::kBf16, nullptr)
                                    : raw_(&slot->data);
    }
    absl::Status operator()(Fp8Weight* slot) { return quantised_(slot, WeightFormat::kFp8); }
    absl::Status operator()(ExpertMatrix* slot) { return quantised_(slot, WeightFormat::kFp4); }
  };
  return std::visit(Sender{this, raw, packed, quantised}, bound.slot);
}

// The experts' views, and the table that kernels reach them through.
absl::Status WeightsLoader::SendExperts(MoeWeights* moe, WeightUpload* upload) const {
  const auto count = static_cast<int64_t>(moe->experts.size());
  const std::byte* data = nullptr;
  DSV4_RETURN_IF_ERROR(
      upload->Raw(moe->experts.data(), count * static_cast<int64_t>(sizeof(ExpertWeights)), &data));
  const auto* experts = reinterpret_cast<const ExpertWeights*>(data);
  for (int64_t e = 0; e < count; ++e) moe->expert_table[static_cast<size_t>(e)] = experts + e;
  DSV4_RETURN_IF_ERROR(upload->Raw(
      moe->expert_table.data(), count * static_cast<int64_t>(sizeof(const ExpertWeights*)), &data));
  moe->table = reinterpret_cast<const ExpertWeights* const*>(data);
  return absl::OkStatus();
}

absl::Status WeightsLoader::ResolveAll() {
  Table main(config_);
  main.AddMain(weights_);
  DSV4_RETURN_IF_ERROR(Resolve(main.rows()));
  // Layer by layer, so that a configuration with far more of them than the files have costs
  // nothing.
  weights_->layers.resize(config_.num_hidden_layers);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    Table table(config_);
    table.AddLayer(layer, &weights_->layers[layer]);
    DSV4_RETURN_IF_ERROR(Resolve(table.rows()));
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
  Table inputs(config_);
  inputs.AddDrafterInputs(drafter.get());
  if (FirstPresent(inputs.rows()).empty()) {
    drafter->kind = DrafterKind::kMtp;
    drafter->blocks.resize(1);
  } else if (config_.dspark.block_size == 0) {
    return Corrupt(checkpoint_.folder(), ": config.json has no dspark_block_size, though tensor ",
                   FirstPresent(inputs.rows()), " is there");
  }
  Table table(config_);
  table.AddDrafterBlocks(drafter.get());
  table.AddDrafterInputs(drafter.get());
  const std::string absent = FirstAbsent(table.rows());
  if (!absent.empty()) {
    return Corrupt(checkpoint_.folder(), ": tensor ", absent, " is missing, though the ",
                   DrafterName(drafter->kind), " drafter's ", FirstPresent(table.rows()),
                   " is there");
  }
  DSV4_RETURN_IF_ERROR(Resolve(table.rows()));
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

std::string Weights::weight_format() const {
  return absl::StrCat(
      "fp8+", absl::StrJoin(expert_formats_, ",", [](std::string* out, ExpertFormat format) {
        *out += ExpertFormatName(format);
      }));
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
  const auto add_rows = [&](const Table& table) {
    for (const Row& row : table.rows()) {
      const int64_t n = row.n, k = row.k;
      if (std::holds_alternative<const float**>(row.slot)) {
        add(row.name, DType::kF32, k == 0 ? std::vector<int64_t>{n} : std::vector<int64_t>{n, k});
      } else if (std::holds_alternative<const uint16_t**>(row.slot)) {
        add(row.name, DType::kBF16, {n});
      } else if (std::holds_alternative<Bf16Weight*>(row.slot)) {
        add(row.name, DType::kBF16, {n, k});
      } else if (std::holds_alternative<const int32_t**>(row.slot)) {
        add(row.name, DType::kI64, {n, k});
      } else if (std::holds_alternative<Fp8Weight*>(row.slot)) {
        add(row.name + ".weight", DType::kF8E4M3, {n, k});
        add(row.name + ".scale", DType::kF8E8M0, {CeilDiv(n, kFp8Block), CeilDiv(k, kFp8Block)});
      } else {
        add(row.name + ".weight", DType::kI8, {n, k / 2});
        add(row.name + ".scale", DType::kF8E8M0, {n, k / kFp4Run});
      }
    }
  };
  Table main(config);
  main.AddMain(&scratch);
  add_rows(main);
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    BlockWeights block;
    Table table(config);
    table.AddLayer(layer, &block);
    add_rows(table);
  }
  DrafterWeights drafter;
  drafter.kind = DrafterOf(config);
  if (drafter.kind == DrafterKind::kNone) return tensors;
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  drafter.blocks.resize(drafter.kind == DrafterKind::kMtp ? 1
                                                          : config.compress_ratios.size() - layers);
  Table table(config);
  table.AddDrafterBlocks(&drafter);
  table.AddDrafterInputs(&drafter);
  add_rows(table);
  return tensors;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Load(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint,
    const std::function<bool(int64_t, int64_t)>& progress, const WeightTarget& target) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->checkpoint_ = std::move(checkpoint);
  WeightsLoader loader(config, *weights->checkpoint_, weights.get());
  DSV4_RETURN_IF_ERROR(loader.ResolveAll());
  DSV4_RETURN_IF_ERROR(loader.PlanTarget(target));
  DSV4_RETURN_IF_ERROR(loader.ReadData(target, progress));
  return weights;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Describe(const ModelConfig& config,
                                                           std::unique_ptr<Checkpoint> checkpoint,
                                                           const WeightTarget& target) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->checkpoint_ = std::move(checkpoint);
  WeightsLoader loader(config, *weights->checkpoint_, weights.get());
  DSV4_RETURN_IF_ERROR(loader.ResolveAll());
  DSV4_RETURN_IF_ERROR(loader.PlanTarget(target));
  return weights;
}

}  // namespace dsv4
