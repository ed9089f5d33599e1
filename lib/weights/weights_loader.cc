// SPDX-License-Identifier: Apache-2.0
// Reading the data of weights, and Weights::Load and Weights::Describe.
#include "lib/weights/weights_loader.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <variant>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/page_advice.h"
#include "lib/packing/expert_format.h"
#include "lib/packing/finite.h"

namespace dsv4 {
namespace {

// Whether every byte of a tensor is a number, so that a check need not read it.
bool NeedsNoCheck(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

}  // namespace

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
  if (pending.change != Change::kNone || entry.dtype == DType::kBlocks ||
      entry.dtype == DType::kF16) {
    return ReadBlocks(pending, begin, end);
  }
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

// Reads the blocks of a tensor that begin in [begin, end).
absl::Status WeightsLoader::ReadBlocks(const Pending& pending, int64_t begin, int64_t end) {
  const TensorEntry& entry = *pending.entry;
  const BlockType type = BlockTypeOf(entry);
  const BlockInfo& info = InfoOf(type);
  const int64_t first = CeilDiv(begin, info.bytes), blocks = CeilDiv(end, info.bytes) - first;
  const uint8_t* const data = entry.data + first * info.bytes;
  if (HasNonFiniteBlocks(type, data, blocks * info.elements)) {
    return Corrupt(Where(entry), " has an element that is not a finite number");
  }
  std::vector<float> values(static_cast<size_t>(info.elements));
  for (int64_t block = 0; pending.change != Change::kNone && block < blocks; ++block) {
    LoadBlocks(type, data + block * info.bytes, info.elements, values.data());
    for (int64_t i = 0; i < info.elements; ++i) {
      const int64_t at = (first + block) * info.elements + i;
      if (pending.change == Change::kToF32) {
        reinterpret_cast<float*>(pending.copy)[at] = values[static_cast<size_t>(i)];
      } else {
        reinterpret_cast<uint16_t*>(pending.copy)[at] = FloatToBf16(values[static_cast<size_t>(i)]);
      }
    }
  }
  return absl::OkStatus();
}

// Reads the tensors of a weight that `accepts` returns true for. Reports bytes to `read`, which
// returns false to cancel.
absl::Status WeightsLoader::Read(const Bound& bound,
                                 const std::function<bool(const Pending&)>& accepts,
                                 const std::function<bool(int64_t)>& read) {
  constexpr int64_t kPartBytes = int64_t{16} << 20;  // between two calls of progress
  for (size_t i = 0; i < bound.pending_count; ++i) {
    const Pending& pending = pending_[bound.first_pending + i];
    const bool skips = !accepts(pending);
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
    ExpertPages* const pages =
        bound.spec.expert.expert >= 0 ? weights_->experts(0).pages() : nullptr;
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

// The views of copied weights have no data yet.
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
    MoeWeights& moe = *blocks[static_cast<size_t>(spec.expert.block)];
    const BlockType type = (*std::get_if<ExpertMatrix*>(&spec.view))->blocks;
    if (type != BlockType::kNone) {
      // A tensor has the matrices of all experts of the block.
      moe.format = ExpertFormat::kBlocks;
      (spec.matrix == 0 ? moe.blocks.w1 : spec.matrix == 1 ? moe.blocks.w3 : moe.blocks.w2) = type;
      continue;
    }
    if (!all_read && (spec.expert.expert != 0 || spec.matrix != 0)) continue;
    ExpertFormat& format = moe.format;
    if (format != ExpertFormat::kMxfp4) continue;
    const ExpertMatrix stored = StoredExpert(spec, &f32_scales);
    format = DeviceFormatOf(stored, all_read ? stored.n : SampleRows(stored));
  }
}

absl::Status WeightsLoader::PlanRanks(const WeightTargets& targets, bool all_read) {
  if (OnHost(targets)) {
    PlanHostRanks(targets.shards);
    weights_->experts_.clear();
    for (int rank = 0; rank < targets.shards.ranks; ++rank) {
      weights_->experts_.push_back(std::make_unique<ExpertStore>());
    }
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
    bytes.resize(std::max(bytes.size(), static_cast<size_t>((id.block + 1) * experts)));
    for (size_t i = 0; i < bound.pending_count; ++i) {
      bytes[index] += pending_[bound.first_pending + i].entry->bytes;
    }
  }
  const int64_t expert_bytes = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  weights_->mapped_expert_bytes_ = expert_bytes;
  const int64_t budget = targets.budgets.host_bytes;
  const int64_t all = weights_->mapped_bytes_ + weights_->owned_bytes_;
  if (bytes.empty() || (budget == 0 && (!targets.available || all <= *targets.available))) {
    return absl::OkStatus();
  }
  const int64_t others = all - expert_bytes;
  int64_t room = budget;
  if (targets.available) {
    const int64_t most = MappedExpertRoom(*targets.available, others);
    room = budget > 0 ? std::min(budget, most) : most;
  }
  std::vector<int64_t> largest;  // of each block
  for (auto first = bytes.begin(); first != bytes.end(); first += experts) {
    largest.push_back(*std::max_element(first, first + experts));
  }
  weights_->residency_ = PlanMappedExperts(room, experts, largest);
  DSV4_RETURN_IF_ERROR(weights_->CountUse(targets.profile));
  // The first rank's use, as ranks choose alike.
  weights_->experts_[0] =
      std::make_unique<ExpertStore>(weights_->residency_, budget > 0, weights_->use_.get());
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
