// SPDX-License-Identifier: Apache-2.0
// Loading first resolves every row of the table against the file headers, then reads the data once,
// in file order.
#include "lib/model/weights.h"

#include <algorithm>
#include <cstddef>
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
#include "lib/model/weight_table.h"
#include "lib/model/weight_upload.h"

namespace dsv4 {
namespace {

// What follows a row's name in the names of its stored tensors.
absl::Span<const char* const> PartsOf(const WeightRow& row) {
  static constexpr const char* kPlain[] = {""};
  static constexpr const char* kQuantised[] = {".weight", ".scale"};
  static constexpr const char* kExpert[] = {".weight"};  // the others depend on its dtype
  if (std::holds_alternative<ExpertMatrix*>(row.slot)) return kExpert;
  if (std::holds_alternative<Fp8Weight*>(row.slot)) return kQuantised;
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
  // `reads`: ReadData follows, else copies take no memory and their views must not be read.
  WeightsLoader(const ModelConfig& config, const Checkpoint& checkpoint, bool reads,
                Weights* weights)
      : config_(config), checkpoint_(checkpoint), reads_(reads), weights_(weights) {}

  // Binds every view.
  absl::Status ResolveAll();
  absl::Status ResolveDrafter();
  size_t DrafterStages() const;

  // Gives the ranks their views, counts what they take, and chooses the kernels that pack for their
  // devices.
  absl::Status PlanRanks(const WeightTargets& targets);

  // Reads every tensor, and brings it to the targets.
  absl::Status ReadData(const WeightTargets& targets,
                        const std::function<bool(int64_t, int64_t)>& progress);

 private:
  absl::Status Resolve(const std::vector<WeightRow>& rows) {
    for (const WeightRow& row : rows) {
      const size_t first = pending_.size();
      DSV4_RETURN_IF_ERROR(std::visit([&](auto* slot) { return Bind(row, slot); }, row.slot));
      bound_.push_back({row, bound_.size(), first, pending_.size() - first});
    }
    return absl::OkStatus();
  }

  // The first name of `rows` that the checkpoint lacks; its first that it has. Empty when none.
  std::string FirstAbsent(const std::vector<WeightRow>& rows) const { return First(rows, false); }
  std::string FirstPresent(const std::vector<WeightRow>& rows) const { return First(rows, true); }

  // A tensor whose data is still to be read.
  struct Pending {
    const TensorEntry* entry;
    std::byte* copy;  // where its elements go, or null when the view is in the mapped file
  };

  // A view, and the tensors behind it.
  struct Bound {
    WeightRow row;
    size_t index;  // in the order of the table
    size_t first_pending, pending_count;
  };

  std::string First(const std::vector<WeightRow>& rows, bool present) const {
    for (const WeightRow& row : rows) {
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
    weights_->owned_bytes_ += bytes;
    alignas(std::max_align_t) static std::byte no_memory[1];
    if (!reads_) return no_memory;
    weights_->owned_.push_back(std::make_unique<std::byte[]>(static_cast<size_t>(bytes)));
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

  absl::Status Bind(const WeightRow& row, const float** slot) {
    const int64_t shape[2] = {row.n, row.k};
    DSV4_ASSIGN_OR_RETURN(
        const TensorEntry* entry,
        Require(row.name, DType::kF32, absl::MakeConstSpan(shape, row.k == 0 ? 1 : 2)));
    *slot = Aligned<float>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightRow& row, const uint16_t** slot) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, Require(row.name, DType::kBF16, {row.n}));
    *slot = Aligned<uint16_t>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightRow& row, Bf16Weight* slot) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                          Require(row.name, DType::kBF16, {row.n, row.k}));
    *slot = {Aligned<uint16_t>(*entry), row.n, row.k};
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightRow& row, const int32_t** slot) {
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

  absl::Status Bind(const WeightRow& row, Fp8Weight* slot) {
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

  absl::Status Bind(const WeightRow& row, ExpertMatrix* slot) {
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
  absl::Status Plan(const WeightRow& row, int64_t n, WeightUpload* upload, RankBytes* bytes) const;
  // Takes the memory for a rank's weights.
  absl::Status PlaceExperts(const WeightTarget& target, Weights::Rank* own,
                            WeightUpload* upload) const;
  // Places what counts the uses of a rank's experts, and makes what moves them.
  void AddMover(const ExpertBudgets& budgets, Device* device, Weights::Rank* own,
                WeightUpload* upload) const;
  int64_t CountsBytes(int64_t blocks) const {
    return blocks * config_.n_routed_experts * static_cast<int64_t>(sizeof(ExpertCounts));
  }
  absl::Status Send(const WeightRow& row, int64_t n, const ExpertSlots& experts,
                    const WeightSlot& slot, WeightUpload* upload) const;
  absl::Status SendExperts(MoeWeights* moe, WeightUpload* upload) const;
  static std::vector<MoeWeights*> MoeLayers(WeightViews* views);

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const bool reads_;
  Weights* weights_;
  std::vector<Pending> pending_;
  std::vector<Bound> bound_;
  std::vector<std::vector<WeightSlot>> slots_;  // [ranks][Bound::index], of devices with memory
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

absl::Status WeightsLoader::ReadData(const WeightTargets& targets,
                                     const std::function<bool(int64_t, int64_t)>& progress) {
  // The disk sees one pass over each file.
  std::sort(bound_.begin(), bound_.end(), [this](const Bound& a, const Bound& b) {
    const TensorEntry& x = *pending_[a.first_pending].entry;
    const TensorEntry& y = *pending_[b.first_pending].entry;
    return std::pair(x.file, x.data) < std::pair(y.file, y.data);
  });
  std::vector<WeightUpload> uploads;  // one for each device with memory of its own
  if (weights_->device_bytes_ > 0) {
    uploads.reserve(targets.ranks.size());
    for (size_t rank = 0; rank < targets.ranks.size(); ++rank) {
      uploads.emplace_back(targets.ranks[rank].device, targets.ranks[rank].dispatch);
      if (!targets.ranks[rank].here) continue;
      DSV4_RETURN_IF_ERROR(
          PlaceExperts(targets.ranks[rank], &weights_->ranks_[rank], &uploads[rank]));
    }
  }
  FormatChanges changes(checkpoint_, !uploads.empty());
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
    for (size_t rank = 0; rank < uploads.size(); ++rank) {
      if (!targets.ranks[rank].here) continue;
      const Slice rows = RowsOfRank(bound.row, targets.shards, static_cast<int>(rank));
      const WeightSlot& slot = slots_[rank][bound.index];
      CutRows(bound.row.slot, rows, slot);
      if (rows.empty()) continue;
      DSV4_RETURN_IF_ERROR(
          Send(bound.row, rows.size(), weights_->ranks_[rank].experts, slot, &uploads[rank]));
    }
  }
  if (uploads.empty()) {
    weights_->owned_bytes_ += changes.bytes() - foldable_bytes_;
    for (auto& memory : changes.TakeMemory()) weights_->owned_.push_back(std::move(memory));
    return PlanRanks(targets);  // formats have changed
  }
  for (size_t rank = 0; rank < uploads.size(); ++rank) {
    if (!targets.ranks[rank].here) continue;
    Weights::Rank& own = weights_->ranks_[rank];
    for (MoeWeights* moe : MoeLayers(&own.views)) {
      DSV4_RETURN_IF_ERROR(SendExperts(moe, &uploads[rank]));
    }
    AddMover(targets.budgets, targets.ranks[rank].device, &own, &uploads[rank]);
    DSV4_ASSIGN_OR_RETURN(own.memory, uploads[rank].Finish());
  }
  weights_->owned_.clear();
  weights_->owned_bytes_ = 0;
  return absl::OkStatus();
}

absl::Status WeightsLoader::Settle(const Bound& bound, FormatChanges* changes) const {
  absl::string_view name = pending_[bound.first_pending].entry->name;
  absl::ConsumeSuffix(&name, ".weight");
  if (Fp8Weight* const* weight = std::get_if<Fp8Weight*>(&bound.row.slot)) {
    return changes->Settle(std::string(name), *weight);
  }
  if (ExpertMatrix* const* expert = std::get_if<ExpertMatrix*>(&bound.row.slot)) {
    return changes->Settle(std::string(name), *expert);
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::PlanRanks(const WeightTargets& targets) {
  weights_->ranks_.clear();
  const bool host = targets.ranks.empty() || targets.ranks[0].device->host_memory();
  const int ranks = targets.shards.ranks;
  if (host && ranks == 1) return absl::OkStatus();
  const int64_t all = weights_->mapped_bytes_ + weights_->owned_bytes_;
  const int64_t shared_out = SharedOutBytes(config_, weights_);
  weights_->ranks_.resize(static_cast<size_t>(ranks));
  slots_.assign(static_cast<size_t>(ranks), {});
  weights_->device_bytes_ = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Weights::Rank& own = weights_->ranks_[static_cast<size_t>(rank)];
    own.views = ShardOf(*weights_, config_, targets.shards, rank);
    if (host) {
      own.bytes = all - shared_out + SharedOutBytes(config_, &own.views);
      continue;
    }
    WeightTable table(config_);
    table.AddAll(&own.views);
    for (const WeightRow& row : table.rows()) {
      slots_[static_cast<size_t>(rank)].push_back(row.slot);
    }
    const WeightTarget& target = targets.ranks[static_cast<size_t>(rank)];
    WeightUpload upload(target.device, target.dispatch);
    for (const Bound& bound : bound_) {
      const Slice rows = RowsOfRank(bound.row, targets.shards, rank);
      if (rows.empty()) continue;
      DSV4_RETURN_IF_ERROR(Plan(bound.row, rows.size(), &upload, &own.sizes));
    }
    const auto blocks = static_cast<int64_t>(MoeLayers(&own.views).size());
    own.sizes.counts = WeightUpload::RawBytes(CountsBytes(blocks)) +
                       WeightUpload::RawBytes(blocks * static_cast<int64_t>(sizeof(uint32_t)));
    for (const MoeWeights* moe : MoeLayers(&own.views)) {
      const auto experts = static_cast<int64_t>(moe->experts.size());
      own.sizes.other +=
          WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(ExpertWeights))) +
          WeightUpload::RawBytes(experts * static_cast<int64_t>(sizeof(const ExpertWeights*)));
    }
  }
  if (host) return absl::OkStatus();
  std::vector<RankBytes> sizes;
  for (const Weights::Rank& own : weights_->ranks_) sizes.push_back(own.sizes);
  const auto blocks = static_cast<int64_t>(MoeLayers(weights_).size());
  DSV4_ASSIGN_OR_RETURN(weights_->residency_,
                        PlanResidency(targets.budgets, blocks, config_.n_routed_experts, sizes));
  for (Weights::Rank& own : weights_->ranks_) {
    const ResidencyPlan& plan = weights_->residency_;
    own.bytes = own.sizes.other + (plan.on_host > 0 ? own.sizes.counts : 0) +
                (plan.on_device + plan.spare) * own.sizes.expert();
    weights_->device_bytes_ += own.bytes;
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::PlaceExperts(const WeightTarget& target, Weights::Rank* own,
                                         WeightUpload* upload) const {
  const ResidencyPlan& plan = weights_->residency_;
  DSV4_RETURN_IF_ERROR(upload->Allocate(own->bytes));
  DSV4_ASSIGN_OR_RETURN(own->host_memory,
                        target.device->AllocateHost(plan.on_host * own->sizes.expert(),
                                                    "experts beyond the device's budget"));
  own->experts = ExpertSlots(plan, own->sizes,
                             upload->Place((plan.on_device + plan.spare) * own->sizes.expert()),
                             own->host_memory.data());
  return absl::OkStatus();
}

void WeightsLoader::AddMover(const ExpertBudgets& budgets, Device* device, Weights::Rank* own,
                             WeightUpload* upload) const {
  const ResidencyPlan& plan = weights_->residency_;
  if (plan.on_host == 0) return;
  auto* const counts = reinterpret_cast<ExpertCounts*>(upload->Place(CountsBytes(plan.blocks)));
  auto* const calls = reinterpret_cast<uint32_t*>(
      upload->Place(plan.blocks * static_cast<int64_t>(sizeof(uint32_t))));
  std::vector<ExpertMover::Block> blocks;
  for (MoeWeights* moe : MoeLayers(&own->views)) {
    const auto block = static_cast<int64_t>(blocks.size());
    moe->counts = counts + block * plan.experts;
    moe->calls = calls + block;
    // The table's first entry.
    const auto* table = reinterpret_cast<const std::byte*>(moe->expert_table.front());
    blocks.push_back({moe->experts.data(), const_cast<std::byte*>(table)});
  }
  own->mover = std::make_unique<ExpertMover>(budgets, plan, device, &own->experts,
                                             std::move(blocks), counts);
}

std::vector<MoeWeights*> WeightsLoader::MoeLayers(WeightViews* views) {
  std::vector<MoeWeights*> layers;
  for (BlockWeights& layer : views->layers) layers.push_back(&layer.moe);
  if (views->drafter != nullptr) {
    for (BlockWeights& block : views->drafter->blocks) layers.push_back(&block.moe);
  }
  return layers;
}

absl::Status WeightsLoader::Plan(const WeightRow& row, int64_t n, WeightUpload* upload,
                                 RankBytes* bytes) const {
  const auto packed = [&](WeightFormat format) {
    const int64_t size = WeightUpload::PackedBytes(format, n, row.k);
    if (row.expert.expert < 0) {
      bytes->other += size;
    } else {
      bytes->matrices[static_cast<size_t>(row.matrix)] = size;  // of every expert
    }
    return upload->Prepare(format, n, row.k);
  };
  if (std::holds_alternative<Fp8Weight*>(row.slot)) return packed(WeightFormat::kFp8);
  if (std::holds_alternative<ExpertMatrix*>(row.slot)) return packed(WeightFormat::kFp4);
  if (const auto* slot = std::get_if<Bf16Weight*>(&row.slot); slot && IsPacked(*slot)) {
    return packed(WeightFormat::kBf16);
  }
  const bool wide = std::holds_alternative<const float**>(row.slot) ||
                    std::holds_alternative<const int32_t**>(row.slot);
  bytes->other += WeightUpload::RawBytes(n * std::max<int64_t>(row.k, 1) * (wide ? 4 : 2));
  return absl::OkStatus();
}

// The `n` rows that `slot` points to, whose place on the device it receives.
absl::Status WeightsLoader::Send(const WeightRow& row, int64_t n, const ExpertSlots& experts,
                                 const WeightSlot& slot, WeightUpload* upload) const {
  const int64_t k = row.k, elements = n * std::max<int64_t>(k, 1);
  const std::byte* data = nullptr;
  const uint8_t* scale = nullptr;
  const auto raw = [&](auto* slot) {  // a pointer to plain elements
    const absl::Status status =
        upload->Raw(*slot, elements * static_cast<int64_t>(sizeof(**slot)), &data);
    *slot = reinterpret_cast<std::remove_reference_t<decltype(*slot)>>(data);
    return status;
  };
  const auto packed = [&](auto* slot, WeightFormat format, const uint8_t* host_scale) {
    std::byte* const to = row.expert.expert < 0
                              ? upload->Place(WeightUpload::PackedBytes(format, n, k))
                              : experts.At(row.expert, row.matrix);
    const absl::Status status = upload->Packed(
        to, format, n, k, reinterpret_cast<const uint8_t*>(slot->data), host_scale, &data, &scale);
    slot->data = reinterpret_cast<decltype(slot->data)>(data);
    return status;
  };
  const auto quantised = [&](auto* slot, WeightFormat format) {
    const absl::Status status = packed(slot, format, slot->scale);
    slot->scale = scale;
    return status;
  };
  const auto* whole = std::get_if<Bf16Weight*>(&row.slot);
  struct Sender {
    bool packs;  // a bf16 matrix
    decltype(raw)& raw_;
    decltype(packed)& packed_;
    decltype(quantised)& quantised_;
    absl::Status operator()(const float** slot) { return raw_(slot); }
    absl::Status operator()(const uint16_t** slot) { return raw_(slot); }
    absl::Status operator()(const int32_t** slot) { return raw_(slot); }
    absl::Status operator()(Bf16Weight* slot) {
      return packs ? packed_(slot, WeightFormat::kBf16, nullptr) : raw_(&slot->data);
    }
    absl::Status operator()(Fp8Weight* slot) { return quantised_(slot, WeightFormat::kFp8); }
    absl::Status operator()(ExpertMatrix* slot) { return quantised_(slot, WeightFormat::kFp4); }
  };
  return std::visit(Sender{whole != nullptr && IsPacked(*whole), raw, packed, quantised}, slot);
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
  WeightTable main(config_);
  main.AddMain(weights_);
  DSV4_RETURN_IF_ERROR(Resolve(main.rows()));
  // Layer by layer, so that a configuration with far more of them than the files have costs
  // nothing.
  weights_->layers.resize(config_.num_hidden_layers);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    WeightTable table(config_);
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
  WeightTable inputs(config_);
  inputs.AddDrafterInputs(drafter.get());
  if (FirstPresent(inputs.rows()).empty()) {
    drafter->kind = DrafterKind::kMtp;
    drafter->blocks.resize(1);
  } else if (config_.dspark.block_size == 0) {
    return Corrupt(checkpoint_.folder(), ": config.json has no dspark_block_size, though tensor ",
                   FirstPresent(inputs.rows()), " is there");
  }
  WeightTable table(config_);
  table.AddDrafter(drafter.get());
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
    for (const WeightRow& row : table.rows()) {
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

absl::StatusOr<std::unique_ptr<Weights>> Weights::Load(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint,
    const std::function<bool(int64_t, int64_t)>& progress, const WeightTargets& targets) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->checkpoint_ = std::move(checkpoint);
  WeightsLoader loader(config, *weights->checkpoint_, true, weights.get());
  DSV4_RETURN_IF_ERROR(loader.ResolveAll());
  DSV4_RETURN_IF_ERROR(loader.PlanRanks(targets));
  DSV4_RETURN_IF_ERROR(loader.ReadData(targets, progress));
  return weights;
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Describe(const ModelConfig& config,
                                                           std::unique_ptr<Checkpoint> checkpoint,
                                                           const WeightTargets& targets) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->checkpoint_ = std::move(checkpoint);
  WeightsLoader loader(config, *weights->checkpoint_, false, weights.get());
  DSV4_RETURN_IF_ERROR(loader.ResolveAll());
  DSV4_RETURN_IF_ERROR(loader.PlanRanks(targets));
  return weights;
}

}  // namespace dsv4
