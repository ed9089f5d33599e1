// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_mover.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int kPassesBetweenChoices = 16;
constexpr float kKept = 0.995f;  // of heat, from one pass to the next
// An expert moves to the device only if it is hotter by these (factor and difference) than the one
// that leaves, so that random differences move none.
constexpr float kHotter = 1.5f, kHotterBy = 2;

}  // namespace

ExpertMover::ExpertMover(uint64_t shuffle, ExpertSlots* slots, const ExpertCounts* counts,
                         ExpertUse* use, bool adds)
    : slots_(slots),
      device_(slots->device()),
      device_counts_(counts),
      use_(adds ? use : nullptr),
      counts_(static_cast<size_t>(slots->plan().all())),
      before_(counts_.size()),
      heat_(counts_.size()),
      order_(counts_.size()),
      shuffles_(shuffle != 0),
      chooses_at_once_(shuffles_),
      random_(shuffle) {
  const ResidencyPlan& plan = slots->plan();
  for (int64_t i = 0; i < plan.spare; ++i) spare_.push_back(plan.on_device + i);
  std::iota(order_.begin(), order_.end(), size_t{0});
  // As if the passes of the profile had been this engine's.
  for (size_t i = 0; i < heat_.size(); ++i) heat_[i] = use->ShareBefore(i) / (1 - kKept);
}

absl::Status ExpertMover::BetweenPasses() {
  ++cooling_passes_;
  if (use_ != nullptr) use_->AddPasses(1);
  if (phase_ != Phase::kIdle) {
    DSV4_ASSIGN_OR_RETURN(const bool done, device_->CopiesDone());
    if (!done) return absl::OkStatus();
    // By the places of the experts until now.
    DSV4_RETURN_IF_ERROR(Count());
    return phase_ == Phase::kUp ? BeginDown() : End();
  }
  if (++passes_ < kPassesBetweenChoices && !chooses_at_once_) return absl::OkStatus();
  passes_ = 0;
  DSV4_RETURN_IF_ERROR(Count());
  swaps_.clear();
  shuffles_ ? ChooseAny() : ChooseHottest();
  // There may be more pairs to exchange than slots.
  chooses_at_once_ = shuffles_ || swaps_.size() == spare_.size();
  return swaps_.empty() ? absl::OkStatus() : BeginUp();
}

absl::Status ExpertMover::Count() {
  DSV4_RETURN_IF_ERROR(
      device_->Download(reinterpret_cast<std::byte*>(counts_.data()),
                        reinterpret_cast<const std::byte*>(device_counts_),
                        static_cast<int64_t>(counts_.size() * sizeof(ExpertCounts))));
  int64_t device_reads = 0, host_reads = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const uint32_t calls = counts_[i].calls - before_[i].calls;
    heat_[i] += static_cast<float>(calls);
    if (use_ == nullptr) continue;
    use_->Add(i, calls);
    const ExpertTier tier = slots_->TierOf(slots_->IdOf(i));
    if (tier == ExpertTier::kDevice) device_reads += calls;
    if (tier == ExpertTier::kHost) host_reads += calls;
  }
  std::swap(counts_, before_);
  device_reads_ += device_reads;
  host_reads_ += host_reads;
  return absl::OkStatus();
}

void ExpertMover::OrderByTier() {
  const auto in = [&](ExpertTier tier) {
    return [this, tier](size_t i) { return slots_->TierOf(slots_->IdOf(i)) == tier; };
  };
  device_end_ = std::partition(order_.begin(), order_.end(), in(ExpertTier::kDevice));
  host_end_ = std::partition(device_end_, order_.end(), in(ExpertTier::kHost));
}

std::ptrdiff_t ExpertMover::Pairs() const {
  return std::min<std::ptrdiff_t>({static_cast<std::ptrdiff_t>(spare_.size()),
                                   device_end_ - order_.begin(), host_end_ - device_end_});
}

// The hottest of the host and the coldest of the device, in pairs.
void ExpertMover::ChooseHottest() {
  OrderByTier();
  const std::ptrdiff_t pairs = Pairs();
  std::partial_sort(order_.begin(), order_.begin() + pairs, device_end_,
                    [&](size_t a, size_t b) { return heat_[a] < heat_[b]; });
  std::partial_sort(device_end_, device_end_ + pairs, host_end_,
                    [&](size_t a, size_t b) { return heat_[a] > heat_[b]; });
  for (std::ptrdiff_t i = 0; i < pairs; ++i) {
    const size_t up = device_end_[i], down = order_[static_cast<size_t>(i)];
    if (heat_[up] < kHotter * heat_[down] + kHotterBy) break;
    swaps_.push_back({.up = slots_->IdOf(up), .down = slots_->IdOf(down)});
  }
  const float kept = std::pow(kKept, static_cast<float>(std::exchange(cooling_passes_, 0)));
  for (float& heat : heat_) heat *= kept;
}

void ExpertMover::ChooseAny() {
  std::shuffle(order_.begin(), order_.end(), random_);
  OrderByTier();
  for (std::ptrdiff_t i = 0; i < Pairs(); ++i) {
    swaps_.push_back(
        {.up = slots_->IdOf(device_end_[i]), .down = slots_->IdOf(order_[static_cast<size_t>(i)])});
  }
}

absl::Status ExpertMover::BeginUp() {
  copies_.clear();
  for (Swap& swap : swaps_) {
    swap.spare = spare_.back();
    spare_.pop_back();
    copies_.push_back(
        {slots_->Slot(swap.spare), slots_->Slot(slots_->SlotOf(swap.up)), slots_->slot_bytes()});
  }
  phase_ = Phase::kUp;
  return device_->StartCopies(copies_);
}

absl::Status ExpertMover::BeginDown() {
  copies_.clear();
  for (Swap& swap : swaps_) {
    DSV4_ASSIGN_OR_RETURN(swap.host_slot, Publish(swap.up, swap.spare));
    copies_.push_back({slots_->Slot(swap.host_slot), slots_->Slot(slots_->SlotOf(swap.down)),
                       slots_->slot_bytes()});
  }
  moved_ += static_cast<int64_t>(swaps_.size());
  phase_ = Phase::kDown;
  return device_->StartCopies(copies_);
}

absl::Status ExpertMover::End() {
  for (const Swap& swap : swaps_) {
    DSV4_ASSIGN_OR_RETURN(const int64_t freed, Publish(swap.down, swap.host_slot));
    spare_.push_back(freed);
  }
  phase_ = Phase::kIdle;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ExpertMover::Publish(ExpertId id, int64_t slot) {
  const int64_t before = slots_->Move(id, slot);
  DSV4_RETURN_IF_ERROR(slots_->Point(id, slot));
  return before;
}

}  // namespace dsv4
