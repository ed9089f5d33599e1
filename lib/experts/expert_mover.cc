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
      classes_(static_cast<size_t>(slots->plan().class_count())),
      shuffles_(shuffle != 0),
      chooses_at_once_(shuffles_),
      random_(shuffle) {
  const ResidencyPlan& plan = slots->plan();
  for (int32_t i = 0; i < plan.class_count(); ++i) {
    std::vector<int64_t>& spare = classes_[static_cast<size_t>(i)].spare;
    spare.resize(static_cast<size_t>(plan.ClassAt(i).spare));
    std::iota(spare.begin(), spare.end(), plan.spare_slot(i));
  }
  for (size_t i = 0; i < counts_.size(); ++i) ClassOf(slots->IdOf(i)).order.push_back(i);
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
  chooses_at_once_ = shuffles_;
  for (Class& own : classes_) {
    const size_t before = swaps_.size();
    shuffles_ ? ChooseAny(&own) : ChooseHottest(&own);
    // There may be more pairs to exchange than slots.
    if (swaps_.size() - before == own.spare.size()) chooses_at_once_ = true;
  }
  const float kept = std::pow(kKept, static_cast<float>(std::exchange(cooling_passes_, 0)));
  for (float& heat : heat_) heat *= kept;
  return swaps_.empty() ? absl::OkStatus() : BeginUp();
}

absl::Status ExpertMover::Count() {
  DSV4_RETURN_IF_ERROR(
      device_->Download(reinterpret_cast<std::byte*>(counts_.data()),
                        reinterpret_cast<const std::byte*>(device_counts_),
                        static_cast<int64_t>(counts_.size() * sizeof(ExpertCounts))));
  int64_t device_reads = 0, host_reads = 0, device_bytes = 0, host_bytes = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const uint32_t calls = counts_[i].calls - before_[i].calls;
    heat_[i] += static_cast<float>(calls);
    if (use_ == nullptr) continue;
    use_->Add(i, calls);
    const ExpertId id = slots_->IdOf(i);
    const int64_t bytes = calls * slots_->plan().ExpertBytes(id.block);
    switch (slots_->TierOf(id)) {
      case ExpertTier::kDevice:
        device_reads += calls;
        device_bytes += bytes;
        break;
      case ExpertTier::kHost:
        host_reads += calls;
        host_bytes += bytes;
        break;
      case ExpertTier::kDisk:
        break;
    }
  }
  std::swap(counts_, before_);
  device_reads_ += device_reads;
  host_reads_ += host_reads;
  device_bytes_ += device_bytes;
  host_bytes_ += host_bytes;
  return absl::OkStatus();
}

void ExpertMover::OrderByTier(Class* own) const {
  const auto in = [&](ExpertTier tier) {
    return [this, tier](size_t i) { return slots_->TierOf(slots_->IdOf(i)) == tier; };
  };
  std::vector<size_t>& order = own->order;
  own->device_end = std::partition(order.begin(), order.end(), in(ExpertTier::kDevice));
  own->host_end = std::partition(own->device_end, order.end(), in(ExpertTier::kHost));
}

std::ptrdiff_t ExpertMover::Class::pairs() const {
  return std::min<std::ptrdiff_t>({static_cast<std::ptrdiff_t>(spare.size()),
                                   device_end - order.begin(), host_end - device_end});
}

// The hottest of the host and the coldest of the device, in pairs.
void ExpertMover::ChooseHottest(Class* own) {
  OrderByTier(own);
  const std::ptrdiff_t pairs = own->pairs();
  std::partial_sort(own->order.begin(), own->order.begin() + pairs, own->device_end,
                    [&](size_t a, size_t b) { return heat_[a] < heat_[b]; });
  std::partial_sort(own->device_end, own->device_end + pairs, own->host_end,
                    [&](size_t a, size_t b) { return heat_[a] > heat_[b]; });
  for (std::ptrdiff_t i = 0; i < pairs; ++i) {
    const size_t up = own->device_end[i], down = own->order[static_cast<size_t>(i)];
    if (heat_[up] < kHotter * heat_[down] + kHotterBy) break;
    swaps_.push_back({.up = slots_->IdOf(up), .down = slots_->IdOf(down)});
  }
}

void ExpertMover::ChooseAny(Class* own) {
  std::shuffle(own->order.begin(), own->order.end(), random_);
  OrderByTier(own);
  for (std::ptrdiff_t i = 0; i < own->pairs(); ++i) {
    swaps_.push_back({.up = slots_->IdOf(own->device_end[i]),
                      .down = slots_->IdOf(own->order[static_cast<size_t>(i)])});
  }
}

absl::Status ExpertMover::BeginUp() {
  copies_.clear();
  for (Swap& swap : swaps_) {
    std::vector<int64_t>& spare = ClassOf(swap.up).spare;
    swap.spare = spare.back();
    spare.pop_back();
    copies_.push_back({slots_->Slot(swap.spare), slots_->Slot(slots_->SlotOf(swap.up)),
                       slots_->ExpertBytes(swap.up.block)});
  }
  phase_ = Phase::kUp;
  return device_->StartCopies(copies_);
}

absl::Status ExpertMover::BeginDown() {
  copies_.clear();
  for (Swap& swap : swaps_) {
    DSV4_ASSIGN_OR_RETURN(swap.host_slot, Publish(swap.up, swap.spare));
    copies_.push_back({slots_->Slot(swap.host_slot), slots_->Slot(slots_->SlotOf(swap.down)),
                       slots_->ExpertBytes(swap.down.block)});
  }
  moved_ += static_cast<int64_t>(swaps_.size());
  phase_ = Phase::kDown;
  return device_->StartCopies(copies_);
}

absl::Status ExpertMover::End() {
  for (const Swap& swap : swaps_) {
    DSV4_ASSIGN_OR_RETURN(const int64_t freed, Publish(swap.down, swap.host_slot));
    ClassOf(swap.down).spare.push_back(freed);
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
