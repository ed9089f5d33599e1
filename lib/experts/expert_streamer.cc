// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_streamer.h"

#include <algorithm>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLaneExperts = kMostStreamSlots / Device::kLanes;  // at most

int64_t StagedBytes() {
  return RoundUp<int64_t>(kMostStreamSlots * static_cast<int64_t>(sizeof(ExpertWeights)),
                          kAlignment);
}

}  // namespace

int64_t ExpertStreamer::DeviceBytes(int64_t experts) {
  return StagedBytes() + experts * static_cast<int64_t>(sizeof(const ExpertWeights*));
}

ExpertStreamer::ExpertStreamer(Parts parts)
    : parts_(std::move(parts)),
      plan_(parts_.slots->plan()),
      device_(parts_.slots->device()),
      seconds_before_(device_->LaneSeconds()),
      staged_(reinterpret_cast<ExpertWeights*>(parts_.memory)),
      table_(reinterpret_cast<const ExpertWeights**>(parts_.memory + StagedBytes())),
      host_table_(static_cast<size_t>(plan_.experts)) {}

absl::Status ExpertStreamer::Run(int32_t block, ExpertFfnParams part,
                                 absl::FunctionRef<absl::Status(const ExpertFfnParams&)> launch) {
  part.experts_table = table_;
  DSV4_RETURN_IF_ERROR(Begin(block, part.part));
  while (more_) {
    DSV4_ASSIGN_OR_RETURN(const Wave wave, Next());
    part.first_expert = wave.first;
    part.end_expert = wave.end;
    DSV4_RETURN_IF_ERROR(launch(part));
    DSV4_RETURN_IF_ERROR(Done());
    part.wave = ExpertWave::kNext;
  }
  return absl::OkStatus();
}

// As many experts as a lane has room for, counting only those on the host.
ExpertStreamer::Wave ExpertStreamer::WaveFrom(const Wave& next) const {
  Wave wave = next;
  int64_t room = RoomFor(next.block);
  for (; wave.end < plan_.experts; ++wave.end) {
    if (OnHost({wave.block, wave.end}) && room-- == 0) break;
  }
  return wave;
}

absl::Status ExpertStreamer::Begin(int32_t block, ExpertPart half) {
  more_ = true;
  const auto part = static_cast<size_t>(std::find(parts_.parts.begin(), parts_.parts.end(), half) -
                                        parts_.parts.begin());
  const Wave& ahead = waves_[LaneOf(computed_)];
  if (copied_ > computed_ && ahead.block == block && ahead.part == part && ahead.first == 0) {
    return CopyAhead();
  }
  // Experts that were copied ahead belong to a cancelled pass.
  computed_ = copied_;
  next_ = {.block = block, .part = part};
  return CopyAhead();
}

MemoryCopy ExpertStreamer::CopyOf(ExpertId id, std::byte* to, ExpertPart part) const {
  const ExpertSlots& slots = *parts_.slots;
  const int64_t middle = slots.Offset(id.block, 2);  // w1 and w3, then w2
  const int64_t begin = part == ExpertPart::kOutputs ? middle : 0;
  const int64_t end = part == ExpertPart::kProducts ? middle : slots.ExpertBytes(id.block);
  return {to + begin, slots.Slot(slots.SlotOf(id)) + begin, end - begin};
}

int64_t ExpertStreamer::RoomFor(int64_t block) const {
  const int64_t bytes = parts_.slots->ExpertBytes(block);
  const int64_t lane = plan_.streams / Device::kLanes * parts_.slots->largest();
  return bytes == 0 ? kLaneExperts : std::min(kLaneExperts, lane / bytes);
}

std::byte* ExpertStreamer::Staged(size_t lane, int64_t block, int64_t index) const {
  const int64_t first =
      plan_.stream_slot() + static_cast<int64_t>(lane) * (plan_.streams / Device::kLanes);
  return parts_.slots->Slot(first) + index * parts_.slots->ExpertBytes(block);
}

absl::Status ExpertStreamer::CopyAhead() {
  while (copied_ - computed_ < Device::kLanes && next_.block >= 0) {
    const size_t lane = LaneOf(copied_);
    const Wave wave = WaveFrom(next_);
    copies_.clear();
    for (int32_t expert = wave.first; expert < wave.end; ++expert) {
      const ExpertId id{wave.block, expert};
      if (!OnHost(id)) continue;
      copies_.push_back(CopyOf(id, Staged(lane, wave.block, static_cast<int64_t>(copies_.size())),
                               parts_.parts[wave.part]));
    }
    DSV4_RETURN_IF_ERROR(device_->StartLane(static_cast<int>(lane), copies_));
    const bool last_part = wave.part + 1 == parts_.parts.size();
    if (last_part) {
      bytes_ += static_cast<int64_t>(copies_.size()) * plan_.ExpertBytes(wave.block);
    }
    waves_[lane] = wave;
    ++copied_;
    if (wave.end < plan_.experts) {
      next_ = {wave.block, wave.end, wave.end, wave.part};
    } else if (!last_part) {
      next_ = {.block = wave.block, .part = wave.part + 1};
    } else {
      next_ = wave.block + 1 < parts_.main_blocks ? Wave{.block = wave.block + 1} : Wave{};
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ExpertStreamer::Wave> ExpertStreamer::Next() {
  const size_t lane = LaneOf(computed_);
  const Wave wave = waves_[lane];
  const ExpertSlots::Block& block = parts_.slots->block(wave.block);
  const auto* const experts = reinterpret_cast<const ExpertWeights*>(block.table);
  ExpertWeights* const staged = staged_ + static_cast<int64_t>(lane) * kLaneExperts;
  host_staged_.clear();
  for (int32_t expert = wave.first; expert < wave.end; ++expert) {
    const ExpertWeights*& entry = host_table_[static_cast<size_t>(expert)];
    entry = experts + expert;
    if (!OnHost({wave.block, expert})) continue;
    const auto index = static_cast<int64_t>(host_staged_.size());
    host_staged_.push_back(block.experts[expert]);
    parts_.slots->Rebase(wave.block, Staged(lane, wave.block, index), &host_staged_.back());
    entry = staged + index;
  }
  more_ = wave.end < plan_.experts;
  DSV4_RETURN_IF_ERROR(device_->AwaitLane(static_cast<int>(lane)));
  const auto upload = [&](auto* to, const auto* from, int64_t count) {
    return device_->Upload(reinterpret_cast<std::byte*>(to),
                           reinterpret_cast<const std::byte*>(from),
                           count * static_cast<int64_t>(sizeof *from));
  };
  DSV4_RETURN_IF_ERROR(
      upload(staged, host_staged_.data(), static_cast<int64_t>(host_staged_.size())));
  DSV4_RETURN_IF_ERROR(
      upload(table_ + wave.first, host_table_.data() + wave.first, wave.end - wave.first));
  return wave;
}

absl::Status ExpertStreamer::Done() {
  DSV4_RETURN_IF_ERROR(device_->FreeLane(static_cast<int>(LaneOf(computed_))));
  ++computed_;
  return CopyAhead();
}

}  // namespace dsv4
