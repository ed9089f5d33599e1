// SPDX-License-Identifier: Apache-2.0
// Weights::Load and Weights::Describe. Loading first resolves every weight of the table against the
// file headers, then reads the data once, in file order.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <numeric>
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
#include "lib/io/page_advice.h"
#include "lib/model/expert_format.h"
#include "lib/model/finite.h"
#include "lib/model/foreign_layout.h"
#include "lib/model/format_changes.h"
#include "lib/model/weight_placement.h"
#include "lib/model/weight_table.h"
#include "lib/model/weights.h"

namespace dsv4 {
namespace {

// The suffixes of the names of a weight's stored tensors.
absl::Span<const char* const> PartsOf(const WeightSpec& spec) {
  static constexpr const char* kPlain[] = {""};
  static constexpr const char* kQuantised[] = {".weight", ".scale"};
  static constexpr const char* kExpert[] = {".weight"};  // the others depend on its dtype
  if (std::holds_alternative<ExpertMatrix*>(spec.view)) return kExpert;
  if (std::holds_alternative<Fp8Weight*>(spec.view)) return kQuantised;
  return kPlain;
}

// Whether every byte of a tensor is a number, so that a check need not read it.
bool NeedsNoCheck(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

std::string ShapeText(absl::Span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// For messages; the file may have any text in its place.
std::string DTypeText(const TensorEntry& entry) {
  return entry.dtype == DType::kOther ? Quoted(entry.dtype_name())
                                      : std::string(entry.dtype_name());
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

  // Gives the ranks their views, and counts what they take. Devices run blocks in formats that a
  // sample tells, or, with `all_read`, all of the experts.
  absl::Status PlanRanks(const WeightTargets& targets, bool all_read);

  // Reads every tensor, and brings it to the targets.
  absl::Status ReadData(const WeightTargets& targets,
                        const std::function<bool(int64_t, int64_t)>& progress);
  // Whether that failed because a sample had misled PlanRanks.
  bool misled() const { return misled_; }

 private:
  absl::Status Resolve(const std::vector<WeightSpec>& specs) {
    for (const WeightSpec& spec : specs) {
      const size_t first = pending_.size();
      DSV4_RETURN_IF_ERROR(std::visit([&](auto* view) { return Bind(spec, view); }, spec.view));
      bound_.push_back({spec, bound_.size(), first, pending_.size() - first});
    }
    return absl::OkStatus();
  }

  // The first name of `specs` that the checkpoint lacks; its first that it has. Empty when none.
  std::string FirstAbsent(const std::vector<WeightSpec>& specs) const {
    return First(specs, false);
  }
  std::string FirstPresent(const std::vector<WeightSpec>& specs) const {
    return First(specs, true);
  }

  // A tensor whose data is still to be read.
  struct Pending {
    const TensorEntry* entry;
    std::byte* copy;  // where its elements go, or null when the view is in the mapped file
  };

  // A view, and the tensors behind it.
  struct Bound {
    WeightSpec spec;
    size_t index;  // in the order of the table
    size_t first_pending, pending_count;
  };

  std::string First(const std::vector<WeightSpec>& specs, bool present) const {
    for (const WeightSpec& spec : specs) {
      for (const char* part : PartsOf(spec)) {
        std::string name = absl::StrCat(spec.name, part);
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

  absl::Status Bind(const WeightSpec& spec, const float** view) {
    const int64_t shape[2] = {spec.n, spec.k};
    DSV4_ASSIGN_OR_RETURN(
        const TensorEntry* entry,
        Require(spec.name, DType::kF32, absl::MakeConstSpan(shape, spec.k == 0 ? 1 : 2)));
    *view = Aligned<float>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightSpec& spec, const uint16_t** view) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry, Require(spec.name, DType::kBF16, {spec.n}));
    *view = Aligned<uint16_t>(*entry);
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightSpec& spec, Bf16Weight* view) {
    DSV4_ASSIGN_OR_RETURN(const TensorEntry* entry,
                          Require(spec.name, DType::kBF16, {spec.n, spec.k}));
    *view = {Aligned<uint16_t>(*entry), spec.n, spec.k};
    return absl::OkStatus();
  }

  absl::Status Bind(const WeightSpec& spec, const int32_t** view) {
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

  absl::Status Bind(const WeightSpec& spec, Fp8Weight* view) {
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

  absl::Status Bind(const WeightSpec& spec, ExpertMatrix* view) {
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

  // F32, without dimensions or with one element.
  absl::StatusOr<const TensorEntry*> RequireScalar(const std::string& name) const {
    const TensorEntry* entry = checkpoint_.Find(name);
    if (entry != nullptr && entry->shape.empty()) return Require(name, DType::kF32, {});
    return Require(name, DType::kF32, {1});
  }

  absl::Status ReadPart(const Pending& pending, int64_t begin, int64_t end);
  template <class T>
  absl::Status CheckExperts(const TensorEntry& entry, int64_t begin, int64_t end) const;

  absl::Status Read(const Bound& bound, const std::function<bool(const Pending&)>& wants,
                    const std::function<bool(int64_t)>& read);
  absl::Status Settle(const Bound& bound, FormatChanges* changes) const;
  // What of Settle an expert that stays on disk needs now: NVFP4 scales, which tell its format.
  absl::Status CheckOnDisk(const Bound& bound, FormatChanges* changes) const;
  // Drops a weight's tensors from the page cache. `paths`: of the files.
  void DropPages(const Bound& bound, const std::vector<std::string>& paths) const;
  // Chooses the formats in which devices run the blocks' routed experts.
  void ChooseDeviceFormats(bool all_read);
  // A routed expert's matrix as its file has it.
  ExpertMatrix StoredExpert(const WeightSpec& spec, std::vector<float>* f32_scales) const;
  void PlanHostRanks(const Shards& shards);
  absl::Status PlanMapped(const WeightTargets& targets);
  static bool OnHost(const WeightTargets& targets) {
    return targets.ranks.empty() || targets.ranks[0].device->host_memory();
  }

  const ModelConfig& config_;
  const Checkpoint& checkpoint_;
  const bool reads_;
  Weights* weights_;
  std::vector<Pending> pending_;
  std::vector<Bound> bound_;
  std::unique_ptr<WeightPlacement> placement_;  // of devices with memory of their own
  bool misled_ = false;
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
      if (HasNonFinite(entry.dtype, data, end - begin)) {
        return Corrupt(Where(entry), entry.dtype == DType::kF8E8M0
                                         ? " has a scale byte of 255, which is not a number"
                                         : " has an element that is not a finite number");
      }
  }
  if (pending.copy != nullptr) std::memcpy(pending.copy + begin, data, end - begin);
  return absl::OkStatus();
}

// Reads those tensors of a weight that `wants` accepts. Reports bytes to `read`, which returns
// false to cancel.
absl::Status WeightsLoader::Read(const Bound& bound,
                                 const std::function<bool(const Pending&)>& wants,
                                 const std::function<bool(int64_t)>& read) {
  constexpr int64_t kPartBytes = int64_t{16} << 20;  // between two calls of progress
  for (size_t i = 0; i < bound.pending_count; ++i) {
    const Pending& pending = pending_[bound.first_pending + i];
    const bool skips = !wants(pending);
    for (int64_t begin = 0; begin < pending.entry->bytes; begin += kPartBytes) {
      const int64_t end = std::min(begin + kPartBytes, pending.entry->bytes);
      if (!skips) DSV4_RETURN_IF_ERROR(ReadPart(pending, begin, end));
      if (!read(end - begin)) return Cancelled(checkpoint_.folder(), ": loading was cancelled");
    }
  }
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
  if (placement_ != nullptr) DSV4_RETURN_IF_ERROR(placement_->Begin());
  FormatChanges changes(checkpoint_, placement_ != nullptr);
  const int64_t total = weights_->mapped_bytes_;
  constexpr int64_t kReportBytes = int64_t{16} << 20;
  int64_t done = 0, unreported = 0;
  const auto read = [&](int64_t bytes) {
    done += bytes;
    unreported += bytes;
    if (!progress || (unreported < kReportBytes && done != total)) return true;
    unreported = 0;
    return progress(done, total);
  };
  // A tensor and its copy would share one memory.
  const bool drops = placement_ != nullptr && targets.ranks.front().device->integrated();
  const std::vector<std::string> paths = checkpoint_.paths();
  for (const Bound& bound : bound_) {
    const bool stays = placement_ != nullptr && placement_->StaysOnDisk(bound.spec);
    ExpertPages* const pages = bound.spec.expert.expert >= 0 ? weights_->pages_.get() : nullptr;
    const bool may_leave = pages != nullptr && !pages->Stays(bound.spec.expert);
    const absl::Status status = Read(
        bound,
        [&](const Pending& pending) {
          if (stays) return pending.copy != nullptr;
          return !may_leave || pending.copy != nullptr || !NeedsNoCheck(pending.entry->dtype);
        },
        read);
    if (absl::IsCancelled(status)) {
      return Cancelled(status.message(), " after ", done, " of ", total, " bytes");
    }
    DSV4_RETURN_IF_ERROR(status);
    const absl::Status settled = stays ? CheckOnDisk(bound, &changes) : Settle(bound, &changes);
    misled_ = changes.found_no_mxfp4();
    DSV4_RETURN_IF_ERROR(settled);
    for (size_t i = 0; pages != nullptr && i < bound.pending_count; ++i) {
      const Pending& pending = pending_[bound.first_pending + i];
      if (pending.copy == nullptr && checkpoint_.PlaceOf(pending.entry->data).file >= 0) {
        pages->Add(bound.spec.expert, pending.entry->data, pending.entry->bytes);
      }
    }
    if (placement_ != nullptr) DSV4_RETURN_IF_ERROR(placement_->Send(bound.spec, bound.index));
    if (drops) DropPages(bound, paths);
  }
  if (placement_ == nullptr) {
    weights_->owned_bytes_ += changes.bytes() - foldable_bytes_;
    for (auto& memory : changes.TakeMemory()) weights_->owned_.push_back(std::move(memory));
    PlanHostRanks(targets.shards);  // formats have changed
    return absl::OkStatus();
  }
  DSV4_RETURN_IF_ERROR(placement_->Complete());
  // Scales of experts on disk may be among the copies.
  if (weights_->residency_.on_disk == 0) weights_->owned_.clear();
  weights_->owned_bytes_ = 0;
  return absl::OkStatus();
}

void WeightsLoader::DropPages(const Bound& bound, const std::vector<std::string>& paths) const {
  for (size_t i = 0; i < bound.pending_count; ++i) {
    const TensorEntry& entry = *pending_[bound.first_pending + i].entry;
    const Checkpoint::Place place = checkpoint_.PlaceOf(entry.data);
    if (place.file < 0) continue;
    AdviseUnneeded(entry.data, entry.bytes);
    DropCached(paths[static_cast<size_t>(place.file)], place.offset, entry.bytes);
  }
}

absl::Status WeightsLoader::Settle(const Bound& bound, FormatChanges* changes) const {
  absl::string_view name = pending_[bound.first_pending].entry->name;
  absl::ConsumeSuffix(&name, ".weight");
  const std::vector<MoeWeights*> blocks = MoeLayersOf(weights_);
  if (Fp8Weight* const* weight = std::get_if<Fp8Weight*>(&bound.spec.view)) {
    for (const MoeWeights* moe : blocks) {
      if (*weight != &moe->shared_w1 && *weight != &moe->shared_w3 && *weight != &moe->shared_w2) {
        continue;
      }
      return changes->SettleShared(std::string(name), moe->format, *weight);
    }
    changes->Settle(*weight);
    return absl::OkStatus();
  }
  if (ExpertMatrix* const* expert = std::get_if<ExpertMatrix*>(&bound.spec.view)) {
    const auto block = static_cast<size_t>(bound.spec.expert.block);
    return changes->Settle(std::string(name), blocks[block]->format, *expert);
  }
  return absl::OkStatus();
}

absl::Status WeightsLoader::CheckOnDisk(const Bound& bound, FormatChanges* changes) const {
  ExpertMatrix stored = **std::get_if<ExpertMatrix*>(&bound.spec.view);
  if (stored.format != ExpertFormat::kNvfp4) return absl::OkStatus();
  const auto block = static_cast<size_t>(bound.spec.expert.block);
  return changes->Settle(bound.spec.name, MoeLayersOf(weights_)[block]->format, &stored);
}

// Views of what is copied have nothing to read yet.
ExpertMatrix WeightsLoader::StoredExpert(const WeightSpec& spec,
                                         std::vector<float>* f32_scales) const {
  ExpertMatrix stored = **std::get_if<ExpertMatrix*>(&spec.view);
  if (stored.format == ExpertFormat::kNvfp4) {
    std::memcpy(&stored.tensor_scale, checkpoint_.Find(spec.name + ".weight_scale_2")->data,
                sizeof stored.tensor_scale);
  }
  if (stored.f32_scale != nullptr) {
    const TensorEntry& scale = *checkpoint_.Find(spec.name + ".scale");
    f32_scales->resize(static_cast<size_t>(scale.bytes) / sizeof(float));
    std::memcpy(f32_scales->data(), scale.data, static_cast<size_t>(scale.bytes));
    stored.f32_scale = f32_scales->data();
  }
  return stored;
}

void WeightsLoader::ChooseDeviceFormats(bool all_read) {
  const std::vector<MoeWeights*> blocks = MoeLayersOf(weights_);
  std::vector<float> f32_scales;
  for (const Bound& bound : bound_) {
    const WeightSpec& spec = bound.spec;
    if (spec.expert.expert < 0) continue;
    if (!all_read && (spec.expert.expert != 0 || spec.matrix != 0)) continue;
    ExpertFormat& format = blocks[static_cast<size_t>(spec.expert.block)]->format;
    if (format != ExpertFormat::kMxfp4) continue;
    const ExpertMatrix stored = StoredExpert(spec, &f32_scales);
    format = DeviceFormatOf(stored, all_read ? stored.n : SampleRows(stored));
  }
}

absl::Status WeightsLoader::PlanRanks(const WeightTargets& targets, bool all_read) {
  if (OnHost(targets)) {
    PlanHostRanks(targets.shards);
    return PlanMapped(targets);
  }
  ChooseDeviceFormats(all_read);
  placement_ = std::make_unique<WeightPlacement>(config_, targets, weights_);
  std::vector<WeightSpec> specs;
  for (const Bound& bound : bound_) specs.push_back(bound.spec);
  return placement_->Plan(specs);
}

// Decides which experts of mapped files stay in memory: all, unless a budget or the machine's
// memory is too small.
absl::Status WeightsLoader::PlanMapped(const WeightTargets& targets) {
  const int64_t experts = config_.n_routed_experts;
  std::vector<int64_t> bytes;  // of each expert
  for (const Bound& bound : bound_) {
    const ExpertId id = bound.spec.expert;
    if (id.expert < 0) continue;
    const auto index = static_cast<size_t>(id.block * experts + id.expert);
    bytes.resize(std::max(bytes.size(), index + 1));
    for (size_t i = 0; i < bound.pending_count; ++i) {
      bytes[index] += pending_[bound.first_pending + i].entry->bytes;
    }
  }
  const int64_t budget = targets.budgets.host_bytes;
  const int64_t all = weights_->mapped_bytes_ + weights_->owned_bytes_;
  if (bytes.empty() || (budget == 0 && (!targets.available || all <= *targets.available))) {
    return absl::OkStatus();
  }
  const int64_t others = all - std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  weights_->residency_ =
      PlanMappedExperts(budget > 0 ? budget : MappedExpertRoom(*targets.available, others),
                        static_cast<int64_t>(bytes.size()) / experts, experts,
                        *std::max_element(bytes.begin(), bytes.end()));
  DSV4_RETURN_IF_ERROR(weights_->CountUse(targets.profile));
  weights_->pages_ =
      std::make_unique<ExpertPages>(weights_->residency_, budget > 0, weights_->use_.get());
  return absl::OkStatus();
}

void WeightsLoader::PlanHostRanks(const Shards& shards) {
  weights_->ranks_.clear();
  if (shards.ranks == 1) return;
  const int64_t all = weights_->mapped_bytes_ + weights_->owned_bytes_;
  const int64_t shared_out = SharedOutBytes(config_, weights_);
  weights_->ranks_.resize(static_cast<size_t>(shards.ranks));
  for (int rank = 0; rank < shards.ranks; ++rank) {
    Weights::Rank& own = weights_->ranks_[static_cast<size_t>(rank)];
    own.views = ShardOf(*weights_, config_, shards, rank);
    own.bytes = all - shared_out + SharedOutBytes(config_, &own.views);
  }
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

absl::StatusOr<std::unique_ptr<Weights>> Weights::Load(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint,
    const std::function<bool(int64_t, int64_t)>& progress, const WeightTargets& targets) {
  int64_t shown = 0;
  const auto forward = [&](int64_t done, int64_t total) {
    shown = std::max(shown, done);
    return !progress || progress(shown, total);
  };
  for (bool all_read = false;; all_read = true) {
    std::unique_ptr<Weights> weights(new Weights);
    weights->checkpoint_ = std::move(checkpoint);
    WeightsLoader loader(config, *weights->checkpoint_, true, weights.get());
    DSV4_RETURN_IF_ERROR(loader.ResolveAll());
    DSV4_RETURN_IF_ERROR(loader.PlanRanks(targets, all_read));
    const absl::Status read = loader.ReadData(targets, forward);
    if (read.ok()) return weights;
    if (all_read || !loader.misled()) return read;
    checkpoint = std::move(weights->checkpoint_);
  }
}

absl::StatusOr<std::unique_ptr<Weights>> Weights::Describe(const ModelConfig& config,
                                                           std::unique_ptr<Checkpoint> checkpoint,
                                                           const WeightTargets& targets) {
  std::unique_ptr<Weights> weights(new Weights);
  weights->checkpoint_ = std::move(checkpoint);
  WeightsLoader loader(config, *weights->checkpoint_, false, weights.get());
  DSV4_RETURN_IF_ERROR(loader.ResolveAll());
  DSV4_RETURN_IF_ERROR(loader.PlanRanks(targets, false));
  return weights;
}

}  // namespace dsv4
