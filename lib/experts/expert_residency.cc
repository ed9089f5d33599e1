// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_residency.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kSpareSlots = 8;
constexpr int64_t kLeastGuests = 8;
// The part of a device's slots for experts from disk, which stay in them while they are used.
constexpr int64_t kGuestShare = 4;
// The part of a device's slots through which experts are streamed.
constexpr int64_t kStreamShare = 8;

constexpr int64_t kMostCopies = 16;  // to measure reads: milliseconds over a slow link
constexpr int kLane = 0;             // of these copies

int64_t SumOf(const std::array<int64_t, 3>& matrices) {
  return matrices[0] + matrices[1] + matrices[2];
}

// Sets the plan's classes, less their spare slots and guests. `sizes`: of a block's experts on each
// rank; blocks of equal sizes are one class. `totals`: of all ranks together.
template <typename Sizes>
void SetClasses(const std::vector<Sizes>& sizes, absl::Span<const int64_t> totals,
                ResidencyPlan* plan) {
  if (std::all_of(sizes.begin(), sizes.end(), [&](const Sizes& s) { return s == sizes.front(); })) {
    return;
  }
  std::vector<Sizes> of_class;
  for (size_t block = 0; block < sizes.size(); ++block) {
    const auto at = std::find(of_class.begin(), of_class.end(), sizes[block]) - of_class.begin();
    if (at == static_cast<std::ptrdiff_t>(of_class.size())) {
      of_class.push_back(sizes[block]);
      plan->classes.push_back({.bytes = totals[block]});
    }
    ++plan->classes[static_cast<size_t>(at)].blocks;
    plan->class_of.push_back(static_cast<int32_t>(at));
  }
}

// Plans experts for devices with memory of their own, or integrated ones.
class Planner {
 public:
  Planner(const ExpertBudgets& budgets, int64_t blocks, int64_t experts,
          absl::Span<const RankBytes> ranks, bool integrated);
  absl::StatusOr<ResidencyPlan> Plan();

 private:
  using Counts = std::vector<int64_t>;  // of slots, by class
  struct Rank {
    int64_t fixed = 0;  // bytes that no expert's slot takes
    BytesByPlace experts;
    std::vector<int64_t> of_class;  // bytes of a slot
    int64_t largest = 0, mean = 0;  // of an expert
    int64_t BytesOf(const Counts& slots) const {
      int64_t bytes = 0;
      for (size_t i = 0; i < slots.size(); ++i) bytes += slots[i] * of_class[i];
      return bytes;
    }
  };

  // `count` slots by the classes' shares of the experts, and at least `least` of each.
  Counts Shared(int64_t count, int64_t least) const;
  // Bytes of a device for one expert of each block and these slots.
  int64_t BytesWith(const Counts& spare, const Counts& guests) const;
  // What a device's bytes leave for experts, and for other slots.
  int64_t RoomOf(const Rank& rank, int64_t device_bytes) const {
    return device_bytes - pack_ - rank.fixed - rank.BytesOf(spare_);
  }
  // The most guests that are the part kGuestShare of the slots.
  Counts GuestsIn(int64_t device_bytes) const;
  // The most slots through which experts are streamed, in two lanes of equal size.
  int64_t StreamsIn(int64_t device_bytes) const;
  // The experts that fit with guests_ and plan_.streams.
  int64_t OnDevice(int64_t device_bytes) const;
  void Take(const Counts& spare, const Counts& guests);
  absl::StatusOr<ResidencyPlan> PlanIntegrated(int64_t limit) const;
  absl::StatusOr<ResidencyPlan> PlanDisk(int64_t device_bytes);

  const ExpertBudgets& budgets_;
  const absl::Span<const RankBytes> bytes_;
  const bool integrated_;
  std::vector<Rank> ranks_;
  BytesByPlace all_;  // of all ranks together
  int64_t pack_ = 0;  // on each device; 0: no expert is on disk
  Counts spare_, guests_;
  ResidencyPlan plan_;
};

// Sets the address of a matrix that moved.
void RebaseMatrix(ExpertMatrix* matrix, const std::byte* to) {
  if (matrix->n == 0) return;  // the rank has no row of it
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  const auto moved = [&](const auto* part) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(part);
    return reinterpret_cast<decltype(part)>(data + (bytes - matrix->data));
  };
  if (matrix->scale != nullptr) matrix->scale = moved(matrix->scale);
  if (matrix->f32_scale != nullptr) matrix->f32_scale = moved(matrix->f32_scale);
  matrix->data = data;
}

// Seconds to copy a byte from the slots [first, first + count) to the slots from `to` on, of each
// as much as the smallest expert has.
absl::StatusOr<double> CopySeconds(const ExpertSlots& slots, int64_t first, int64_t count,
                                   int64_t to) {
  const int64_t bytes = slots.smallest();
  if (count <= 0 || bytes == 0) return 0;
  std::vector<MemoryCopy> copies;
  for (int64_t i = 0; i < count; ++i) {
    copies.push_back({slots.Slot(to + i), slots.Slot(first + i), bytes});
  }
  Device* const device = slots.device();
  constexpr int kRuns = 2;  // pages are mapped in the first
  double before = 0;
  for (int run = 0; run < kRuns; ++run) {
    before = device->LaneSeconds();
    DSV4_RETURN_IF_ERROR(device->StartLane(kLane, copies));
    DSV4_RETURN_IF_ERROR(device->AwaitLane(kLane));
    DSV4_RETURN_IF_ERROR(device->Synchronize());
  }
  return (device->LaneSeconds() - before) / static_cast<double>(count * bytes);
}

std::vector<int64_t> ExpertsOf(const RankBytes& rank, int64_t blocks) {
  std::vector<int64_t> bytes;
  for (int64_t block = 0; block < blocks; ++block) bytes.push_back(rank.Expert(block));
  return bytes;
}

// Of all ranks together.
std::vector<int64_t> ExpertsOf(absl::Span<const RankBytes> ranks, int64_t blocks) {
  std::vector<int64_t> bytes(static_cast<size_t>(blocks));
  for (const RankBytes& rank : ranks) {
    for (int64_t block = 0; block < blocks; ++block) {
      bytes[static_cast<size_t>(block)] += rank.Expert(block);
    }
  }
  return bytes;
}

Planner::Planner(const ExpertBudgets& budgets, int64_t blocks, int64_t experts,
                 absl::Span<const RankBytes> ranks, bool integrated)
    : budgets_(budgets),
      bytes_(ranks),
      integrated_(integrated),
      all_(ExpertsOf(ranks, blocks)),
      plan_{.blocks = blocks, .experts = experts} {
  std::vector<std::vector<int64_t>> sizes(static_cast<size_t>(blocks));
  for (const RankBytes& rank : ranks) {
    for (int64_t block = 0; block < blocks; ++block) {
      const std::array<int64_t, 3>& own = rank.Matrices(block);
      std::vector<int64_t>& size = sizes[static_cast<size_t>(block)];
      size.insert(size.end(), own.begin(), own.end());
    }
  }
  SetClasses(sizes, ExpertsOf(ranks, blocks), &plan_);
  if (plan_.all() > 0) plan_.expert_bytes = all_.First(plan_.all()) / plan_.all();
  for (const RankBytes& rank : ranks) {
    Rank own{.fixed = rank.other + rank.counts + (integrated ? rank.stage : 0),
             .experts = BytesByPlace(ExpertsOf(rank, blocks)),
             .of_class = std::vector<int64_t>(static_cast<size_t>(plan_.class_count()))};
    for (int64_t block = 0; block < blocks; ++block) {
      own.of_class[static_cast<size_t>(plan_.ClassOf(block))] = rank.Expert(block);
      own.largest = std::max(own.largest, rank.Expert(block));
    }
    own.mean = blocks == 0 ? 0 : own.experts.one_of_each() / blocks;
    ranks_.push_back(std::move(own));
  }
  spare_ = guests_ = Shared(0, 0);
}

Planner::Counts Planner::Shared(int64_t count, int64_t least) const {
  Counts counts;
  size_t most = 0;
  int64_t left = count;
  for (int32_t i = 0; i < plan_.class_count(); ++i) {
    const int64_t blocks = plan_.ClassAt(i).blocks;
    counts.push_back(std::max(least, count * blocks / std::max<int64_t>(plan_.blocks, 1)));
    left -= counts.back();
    if (blocks > plan_.ClassAt(static_cast<int32_t>(most)).blocks) most = counts.size() - 1;
  }
  counts[most] += std::max<int64_t>(left, 0);
  return counts;
}

int64_t Planner::BytesWith(const Counts& spare, const Counts& guests) const {
  int64_t bytes = 0;
  for (const Rank& rank : ranks_) {
    bytes = std::max(bytes, rank.fixed + rank.experts.one_of_each() + rank.BytesOf(spare) +
                                rank.BytesOf(guests));
  }
  return bytes + pack_;
}

Planner::Counts Planner::GuestsIn(int64_t device_bytes) const {
  int64_t count = plan_.all();
  for (const Rank& rank : ranks_) {
    if (rank.mean == 0) continue;
    count = std::min(count, RoomOf(rank, device_bytes) / kGuestShare / rank.mean);
  }
  const auto fits = [&](const Counts& guests) {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return rank.BytesOf(guests) <= RoomOf(rank, device_bytes) - rank.experts.one_of_each();
    });
  };
  for (count = std::max(count, kLeastGuests); count > kLeastGuests; --count) {
    Counts guests = Shared(count, kWaveExperts);
    if (fits(guests)) return guests;
  }
  return Shared(kLeastGuests, kWaveExperts);
}

int64_t Planner::StreamsIn(int64_t device_bytes) const {
  int64_t streams = kMostStreamSlots;
  for (const Rank& rank : ranks_) {
    if (rank.largest == 0) continue;
    const int64_t room = RoomOf(rank, device_bytes);
    const int64_t bytes = std::min({kMostStreamSlots * rank.mean, room / kStreamShare,
                                    room - rank.experts.one_of_each() - rank.BytesOf(guests_)});
    streams = std::min(streams, bytes / rank.largest);
  }
  return std::max<int64_t>(streams, 0) / 2 * 2;
}

int64_t Planner::OnDevice(int64_t device_bytes) const {
  int64_t experts = plan_.all();
  for (const Rank& rank : ranks_) {
    const int64_t room = RoomOf(rank, device_bytes) - rank.BytesOf(guests_);
    experts = std::min(experts, rank.experts.CountIn(room - plan_.streams * rank.largest));
  }
  return experts;
}

void Planner::Take(const Counts& spare, const Counts& guests) {
  spare_ = spare;
  guests_ = guests;
  plan_.spare = std::accumulate(spare.begin(), spare.end(), int64_t{0});
  plan_.guests = std::accumulate(guests.begin(), guests.end(), int64_t{0});
  for (size_t i = 0; i < plan_.classes.size(); ++i) {
    plan_.classes[i].spare = spare[i];
    plan_.classes[i].guests = guests[i];
  }
}

// `limit`: what a limit of the experts in host memory leaves of the device for all weights.
absl::StatusOr<ResidencyPlan> Planner::PlanIntegrated(int64_t limit) const {
  ExpertBudgets budgets = budgets_;
  budgets.device_bytes = limit;
  budgets.host_bytes = 0;
  absl::StatusOr<ResidencyPlan> limited =
      PlanResidency(budgets, plan_.blocks, plan_.experts, bytes_, integrated_);
  if (limited.ok()) return limited;
  return WithArgument(InvalidArgument("option host_weight_bytes = ", budgets_.host_bytes,
                                      " on an integrated GPU leaves ", limit,
                                      " bytes for all weights: ", limited.status().message()),
                      "host_weight_bytes");
}

absl::StatusOr<ResidencyPlan> Planner::Plan() {
  int64_t most = 0, others = 0;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankBytes& rank = bytes_[i];
    most = std::max(most, rank.other + ranks_[i].experts.First(plan_.all()));
    others = std::max(others, rank.other + rank.counts);
  }
  if (integrated_ && budgets_.host_bytes != 0) {
    const int64_t limit = others + budgets_.host_bytes;
    if (!budgets_.limited() || limit < budgets_.device_bytes) return PlanIntegrated(limit);
  }
  plan_.on_device = plan_.all();
  if (!budgets_.limited() || budgets_.device_bytes >= most) return plan_;

  // Without experts on disk. An integrated GPU has these in place of any on the host.
  if (integrated_) return PlanDisk(budgets_.device_bytes);
  Take(Shared(kSpareSlots, 1), guests_);
  const int64_t least = BytesWith(spare_, guests_);
  const int64_t device_bytes = budgets_.least ? least : budgets_.device_bytes;
  if (device_bytes < least) {
    return WithArgument(
        InvalidArgument(
            "option device_weight_bytes = ", device_bytes, "; at least ", std::min(least, most),
            " are needed on each device: all weights except routed experts, one "
            "routed expert for each of ",
            plan_.blocks, " layers, and room for ", plan_.spare, " more to exchange them"),
        "device_weight_bytes");
  }
  const auto fits = [&](int64_t streams) {
    plan_.streams = streams;
    plan_.on_device = OnDevice(device_bytes);
    plan_.on_host = plan_.all() - plan_.on_device;
    return budgets_.host_bytes == 0 || budgets_.host_bytes >= plan_.host_bytes();
  };
  if (fits(StreamsIn(device_bytes)) || fits(0)) return plan_;
  return PlanDisk(device_bytes);
}

absl::StatusOr<ResidencyPlan> Planner::PlanDisk(int64_t device_bytes) {
  int64_t stage = 0;
  for (const RankBytes& rank : bytes_) {
    stage += rank.stage;
    pack_ = std::max(pack_, rank.pack);
  }
  int64_t host = 0;  // bytes of experts there
  if (!integrated_) {
    host = budgets_.host_bytes - stage;
    if (host < 0) {
      return WithArgument(
          InvalidArgument("option host_weight_bytes = ", budgets_.host_bytes, "; at least ", stage,
                          " are needed to read experts from disk, or ", plan_.host_bytes(),
                          " for all experts that do not fit "
                          "device_weight_bytes = ",
                          device_bytes),
          "host_weight_bytes");
    }
  }
  plan_.stage_bytes = stage;
  plan_.streams = 0;
  const int64_t largest = plan_.largest_bytes();
  const bool uses_host = largest > 0 && host >= largest;
  Take(uses_host ? Shared(kSpareSlots, 1) : Shared(0, 0), Shared(kLeastGuests, kWaveExperts));
  const int64_t least = BytesWith(spare_, guests_);
  if (budgets_.least) device_bytes = least;
  if (device_bytes < least) {
    return WithArgument(
        InvalidArgument("option device_weight_bytes = ", device_bytes, "; at least ", least,
                        " are needed on each device with experts on disk: all weights except "
                        "routed experts, one routed expert for each of ",
                        plan_.blocks, " layers, and room for ", plan_.spare + plan_.guests,
                        " more"),
        "device_weight_bytes");
  }
  Take(spare_, GuestsIn(device_bytes));
  if (uses_host) plan_.streams = StreamsIn(device_bytes);
  plan_.on_device = OnDevice(device_bytes);
  plan_.on_host = uses_host
                      ? std::min(all_.CountIn(all_.First(plan_.on_device) + host), plan_.all()) -
                            plan_.on_device
                      : 0;
  plan_.on_disk = plan_.all() - plan_.on_device - plan_.on_host;
  return plan_;
}

}  // namespace

BytesByPlace::BytesByPlace(absl::Span<const int64_t> expert_of_block) {
  for (const int64_t bytes : expert_of_block) ends_.push_back(ends_.back() + bytes);
}

int64_t BytesByPlace::First(int64_t count) const {
  const auto blocks = static_cast<int64_t>(ends_.size()) - 1;
  if (blocks == 0) return 0;
  return count / blocks * one_of_each() + ends_[static_cast<size_t>(count % blocks)];
}

int64_t BytesByPlace::CountIn(int64_t bytes) const {
  if (bytes < 0) return 0;
  if (one_of_each() == 0) return std::numeric_limits<int64_t>::max();
  const auto first_above = std::upper_bound(ends_.begin(), ends_.end(), bytes % one_of_each());
  return bytes / one_of_each() * (static_cast<int64_t>(ends_.size()) - 1) +
         (first_above - ends_.begin() - 1);
}

int64_t ResidencyPlan::spare_slot(int32_t of_class) const {
  int64_t slot = on_device;
  for (int32_t i = 0; i < of_class; ++i) slot += ClassAt(i).spare;
  return slot;
}

int64_t ResidencyPlan::guest_slot(int32_t of_class) const {
  int64_t slot = on_device + spare;
  for (int32_t i = 0; i < of_class; ++i) slot += ClassAt(i).guests;
  return slot;
}

int64_t ResidencyPlan::largest_bytes() const {
  int64_t bytes = 0;
  for (int32_t i = 0; i < class_count(); ++i) bytes = std::max(bytes, ClassAt(i).bytes);
  return bytes;
}

int64_t ResidencyPlan::guest_bytes() const {
  int64_t bytes = 0;
  for (int32_t i = 0; i < class_count(); ++i) bytes += ClassAt(i).guests * ClassAt(i).bytes;
  return bytes;
}

int64_t ResidencyPlan::device_bytes() const {
  int64_t bytes = BytesOf(0, on_device) + guest_bytes() + streams * largest_bytes();
  for (int32_t i = 0; i < class_count(); ++i) bytes += ClassAt(i).spare * ClassAt(i).bytes;
  return bytes;
}

int64_t ResidencyPlan::BytesOf(int64_t first, int64_t count) const {
  if (class_of.empty()) return count * expert_bytes;
  std::vector<int64_t> sizes;
  for (int64_t block = 0; block < blocks; ++block) sizes.push_back(ExpertBytes(block));
  const BytesByPlace bytes(sizes);
  return bytes.First(first + count) - bytes.First(first);
}

absl::StatusOr<ResidencyPlan> PlanResidency(const ExpertBudgets& budgets, int64_t blocks,
                                            int64_t experts, absl::Span<const RankBytes> ranks,
                                            bool integrated) {
  absl::StatusOr<ResidencyPlan> plan = Planner(budgets, blocks, experts, ranks, integrated).Plan();
  if (!plan.ok()) return plan;
  plan->host_piece = budgets.host_piece;
  plan->least_host_bytes =
      std::accumulate(ranks.begin(), ranks.end(), int64_t{0},
                      [](int64_t sum, const RankBytes& rank) { return sum + rank.stage; });
  return plan;
}

ResidencyPlan PlanMappedExperts(int64_t host_bytes, int64_t experts,
                                absl::Span<const int64_t> expert_of_block) {
  ResidencyPlan plan{.blocks = static_cast<int64_t>(expert_of_block.size()), .experts = experts};
  SetClasses(std::vector<int64_t>(expert_of_block.begin(), expert_of_block.end()), expert_of_block,
             &plan);
  const BytesByPlace bytes(expert_of_block);
  plan.expert_bytes = plan.all() == 0 ? 0 : bytes.First(plan.all()) / plan.all();
  plan.on_host = std::min(plan.all(), bytes.CountIn(host_bytes));
  plan.on_disk = plan.all() - plan.on_host;
  return plan;
}

int64_t MappedExpertRoom(int64_t available, int64_t other_bytes) {
  constexpr int64_t kParts = 8;  // one part is for caches, workspaces and evictable experts
  return std::max<int64_t>(available / kParts * (kParts - 1) - other_bytes, 0);
}

absl::Status ExpectHostRoom(const ResidencyPlan& plan, int64_t here, int64_t ranks,
                            std::optional<int64_t> available) {
  const int64_t bytes = plan.host_bytes() * here / ranks;
  if (!available || bytes <= *available) return absl::OkStatus();
  return WithArgument(
      OutOfHostMemory("the machine has ", *available, " bytes of memory available; ", plan.on_host,
                      plan.on_device > 0 ? " experts beyond device_weight_bytes take "
                                         : " experts within host_weight_bytes take ",
                      bytes, ". With option host_weight_bytes below that, others stay on disk"),
      "host_weight_bytes");
}

int64_t ExpertSlots::DeviceBytes(const ResidencyPlan& plan, const RankBytes& bytes) {
  const std::vector<int64_t> experts = ExpertsOf(bytes, plan.blocks);
  int64_t sum = BytesByPlace(experts).First(plan.on_device);
  if (plan.streams > 0) sum += plan.streams * *std::max_element(experts.begin(), experts.end());
  for (int32_t i = 0; i < plan.class_count(); ++i) {
    const SlotClass own = plan.ClassAt(i);
    sum += (own.spare + own.guests) * bytes.Expert(plan.BlockOf(i));
  }
  return sum;
}

int64_t ExpertSlots::HostBytes(const ResidencyPlan& plan, const RankBytes& bytes) {
  const BytesByPlace experts(ExpertsOf(bytes, plan.blocks));
  return experts.First(plan.on_device + plan.on_host) - experts.First(plan.on_device);
}

std::vector<int64_t> ExpertSlots::HostPieces(const ResidencyPlan& plan, const RankBytes& bytes) {
  std::vector<int64_t> pieces;
  for (int64_t place = plan.on_device; place < plan.on_device + plan.on_host; ++place) {
    const int64_t expert = bytes.Expert(place % plan.blocks);
    if (pieces.empty() || (plan.host_piece > 0 && pieces.back() + expert > plan.host_piece))
      pieces.push_back(0);
    pieces.back() += expert;
  }
  return pieces;
}

ExpertSlots::ExpertSlots(const ResidencyPlan& plan, const RankBytes& bytes, Device* device,
                         std::byte* device_memory, absl::Span<std::byte* const> host_memory)
    : plan_(plan), device_(device), slot_of_(static_cast<size_t>(plan.all())) {
  for (int64_t block = 0; block < plan.blocks; ++block) {
    const std::array<int64_t, 3>& own = bytes.Matrices(block);
    ends_.push_back({own[0], own[0] + own[1], SumOf(own)});
    largest_ = std::max(largest_, ends_.back()[2]);
    smallest_ = block == 0 ? largest_ : std::min(smallest_, ends_.back()[2]);
  }
  std::byte* at = device_memory;
  const auto add = [&](int64_t count, int64_t size) {
    for (int64_t i = 0; i < count; ++i, at += size) starts_.push_back(at);
  };
  for (int64_t place = 0; place < plan.on_device; ++place) add(1, ExpertBytes(place % plan.blocks));
  for (int32_t i = 0; i < plan.class_count(); ++i) {
    add(plan.ClassAt(i).spare, ExpertBytes(plan.BlockOf(i)));
  }
  for (int32_t i = 0; i < plan.class_count(); ++i) {
    add(plan.ClassAt(i).guests, ExpertBytes(plan.BlockOf(i)));
  }
  add(plan.streams, largest_);
  const std::vector<int64_t> pieces = HostPieces(plan, bytes);
  int64_t place = plan.on_device;
  for (size_t i = 0; i < pieces.size(); ++i) {
    at = host_memory[i];
    const std::byte* const end = at + pieces[i];
    while (at < end) add(1, ExpertBytes(place++ % plan.blocks));
  }
  for (size_t index = 0; index < slot_of_.size(); ++index) {
    const ExpertId id = IdOf(index);
    int64_t& slot = slot_of_[index];
    switch (plan.TierOf(id)) {
      case ExpertTier::kDevice:
        slot = plan.PlaceOf(id);
        break;
      case ExpertTier::kHost:
        slot = plan.PlaceOf(id) + plan.spare + plan.guests + plan.streams;
        break;
      case ExpertTier::kDisk:
        slot = kOnDisk;
        break;
    }
  }
}

void ExpertSlots::Rebase(int64_t block, std::byte* start, ExpertWeights* expert) const {
  RebaseMatrix(&expert->w1, start + Offset(block, 0));
  RebaseMatrix(&expert->w3, start + Offset(block, 1));
  RebaseMatrix(&expert->w2, start + Offset(block, 2));
}

absl::Status ExpertSlots::Point(ExpertId id, int64_t slot) const {
  const Block& own = block(id.block);
  ExpertWeights& expert = own.experts[id.expert];
  Rebase(id.block, Slot(slot), &expert);
  return device_->Upload(own.table + id.expert * static_cast<int64_t>(sizeof expert),
                         reinterpret_cast<const std::byte*>(&expert), sizeof expert);
}

absl::StatusOr<ExpertReadTimes> MeasureExpertReads(const ExpertSlots& slots) {
  const ResidencyPlan& plan = slots.plan();
  // No other copies run then.
  DSV4_RETURN_IF_ERROR(slots.device()->Synchronize());
  const int64_t empty = std::min(kMostCopies, plan.spare + plan.guests);
  ExpertReadTimes times;
  DSV4_ASSIGN_OR_RETURN(times.device,
                        CopySeconds(slots, 0, std::min(empty, plan.on_device), plan.on_device));
  times.device /= 2;  // a copy writes as much as it reads
  DSV4_ASSIGN_OR_RETURN(times.host, CopySeconds(slots, plan.device_slots(),
                                                std::min(empty, plan.on_host), plan.on_device));
  return times;
}

}  // namespace dsv4
