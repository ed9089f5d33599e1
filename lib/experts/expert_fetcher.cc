// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_fetcher.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/packing/expert_format.h"
#include "lib/packing/finite.h"

namespace dsv4 {
namespace {

// While one half of the stage is read into, the device copies from the other.
constexpr int kHalves = 2;
static_assert(kHalves <= Device::kMarks);

constexpr int64_t kInSlot = -1, kNotChosen = -2;

}  // namespace

void ExpertFetcher::StagePlan::Add(int matrix, const ExpertMatrix& stored, ExpertFormat runs_as) {
  const StoredBytes bytes = StoredBytesOf(stored);
  int64_t& room = room_[static_cast<size_t>(matrix)];
  room = std::max(room, DirectReader::RoomFor(bytes.data) + DirectReader::RoomFor(bytes.scale));
  // Rows are packed in whole blocks.
  const WeightBytes packed = StoredWeightBytes(PackedFormatOf(runs_as, stored.blocks),
                                               RoundUp(stored.n, kPackRowBlock), stored.k);
  data_ = std::max(data_, packed.data);
  scale_ = std::max(scale_, packed.scale);
}

ExpertFetcher::StageBytes ExpertFetcher::StagePlan::bytes() const {
  const int64_t expert = room_[0] + room_[1] + room_[2];
  return {.host = kHalves * kWaveExperts * expert,
          .device = {.data_bytes = data_, .scale_bytes = scale_}};
}

ExpertFetcher::ExpertFetcher(Parts parts)
    : parts_(std::move(parts)),
      plan_(parts_.slots->plan()),
      device_(parts_.slots->device()),
      changes_(*parts_.checkpoint, true),
      guests_(static_cast<size_t>(plan_.guests)),
      guest_of_(static_cast<size_t>(plan_.all()), -1),
      place_(static_cast<size_t>(plan_.experts)) {}

absl::StatusOr<std::unique_ptr<ExpertFetcher>> ExpertFetcher::Open(Parts parts,
                                                                   absl::Span<std::byte> stage) {
  std::unique_ptr<ExpertFetcher> fetcher(new ExpertFetcher(std::move(parts)));
  fetcher->stage_ = stage;
  DSV4_ASSIGN_OR_RETURN(fetcher->reader_,
                        DirectReader::Open(fetcher->parts_.checkpoint->paths(),
                                           {.plain = fetcher->parts_.plain_reads}));
  return fetcher;
}

void ExpertFetcher::BeginPass() {
  if (std::exchange(failure_, absl::OkStatus()).ok()) return;
  for (Guest& guest : guests_) guest.index = -1;
  std::fill(guest_of_.begin(), guest_of_.end(), -1);
}

absl::StatusOr<bool> ExpertFetcher::Begin(int32_t block, const int32_t* experts, int64_t pairs) {
  experts_.resize(static_cast<size_t>(pairs));
  DSV4_RETURN_IF_ERROR(device_->Download(reinterpret_cast<std::byte*>(experts_.data()),
                                         reinterpret_cast<const std::byte*>(experts),
                                         pairs * static_cast<int64_t>(sizeof(int32_t))));
  std::fill(place_.begin(), place_.end(), kNotChosen);
  missing_.clear();
  next_ = 0;
  ++clock_;
  if (parts_.use != nullptr && block == 0) parts_.use->AddPasses(1);
  const int64_t bytes = plan_.ExpertBytes(block);
  for (const int32_t expert : experts_) {
    if (expert < 0 || expert >= plan_.experts) continue;  // padding
    int64_t& place = place_[static_cast<size_t>(expert)];
    if (place != kNotChosen) continue;
    place = kInSlot;
    const ExpertId id{block, expert};
    if (parts_.use != nullptr) parts_.use->Add(parts_.slots->IndexOf(id), 1);
    const int32_t guest = guest_of_[parts_.slots->IndexOf(id)];
    if (guest >= 0) guests_[static_cast<size_t>(guest)].used = clock_;
    switch (parts_.slots->TierOf(id)) {
      case ExpertTier::kHost:
        ++host_reads_;
        host_bytes_ += bytes;
        break;
      case ExpertTier::kDisk:
        if (guest < 0) {
          place = static_cast<int64_t>(missing_.size());
          missing_.push_back(id);
          break;
        }
        [[fallthrough]];
      case ExpertTier::kDevice:
        ++device_reads_;
        device_bytes_ += bytes;
        break;
    }
  }
  SetWave(kInSlot, kInSlot + 1);
  return missing_.empty();
}

void ExpertFetcher::SetWave(int64_t begin, int64_t end) {
  wave_ = experts_;
  for (int32_t& expert : wave_) {
    if (expert < 0 || expert >= plan_.experts) continue;
    const int64_t place = place_[static_cast<size_t>(expert)];
    if (place < begin || place >= end) expert = -1;
  }
}

size_t ExpertFetcher::LeastUsed(int64_t block) const {
  const int32_t own = plan_.ClassOf(block);
  const auto first = guests_.begin() + (plan_.guest_slot(own) - plan_.guest_slot(0));
  const auto least =
      std::min_element(first, first + plan_.ClassAt(own).guests,
                       [](const Guest& a, const Guest& b) { return a.used < b.used; });
  return static_cast<size_t>(least - guests_.begin());
}

absl::Status ExpertFetcher::Prefetch(absl::Span<const int32_t> tokens) {
  missing_.clear();
  ++clock_;
  room_.clear();
  for (int32_t i = 0; i < plan_.class_count(); ++i) room_.push_back(plan_.ClassAt(i).guests / 2);
  for (size_t block = 0; block < parts_.by_token.size(); ++block) {
    int64_t& own = room_[static_cast<size_t>(plan_.ClassOf(static_cast<int64_t>(block)))];
    std::fill(place_.begin(), place_.end(), kNotChosen);
    for (const int32_t token : tokens) {
      const int32_t* const experts = parts_.by_token[block] + token * parts_.experts_per_token;
      for (int64_t i = 0; i < parts_.experts_per_token && own > 0; ++i) {
        const ExpertId id{static_cast<int32_t>(block), experts[i]};
        if (std::exchange(place_[static_cast<size_t>(id.expert)], kInSlot) == kInSlot) continue;
        const int32_t guest = guest_of_[parts_.slots->IndexOf(id)];
        if (guest >= 0) {
          guests_[static_cast<size_t>(guest)].used = clock_;
        } else if (parts_.slots->TierOf(id) == ExpertTier::kDisk) {
          missing_.push_back(id);
          --own;
        }
      }
    }
  }
  prefetched_ += static_cast<int64_t>(missing_.size());
  constexpr size_t kAtOnce = kWaveExperts;
  for (size_t begin = 0; begin < missing_.size(); begin += kAtOnce) {
    DSV4_RETURN_IF_ERROR(Bring(begin, std::min(begin + kAtOnce, missing_.size())));
  }
  return absl::OkStatus();
}

absl::Status ExpertFetcher::Next() {
  const size_t begin = next_, end = std::min<size_t>(begin + kWaveExperts, missing_.size());
  next_ = end;
  DSV4_RETURN_IF_ERROR(Bring(begin, end));
  SetWave(static_cast<int64_t>(begin), static_cast<int64_t>(end));
  return absl::OkStatus();
}

absl::Status ExpertFetcher::Bring(size_t begin, size_t end) {
  stage_half_ = (stage_half_ + 1) % kHalves;
  // The device has copied what this half held before.
  DSV4_RETURN_IF_ERROR(device_->Await(stage_half_));
  if (failure_.ok()) failure_ = Read(begin, end);
  for (size_t i = begin; i < end; ++i) {
    const ExpertId id = missing_[i];
    const size_t index = parts_.slots->IndexOf(id), at = LeastUsed(id.block);
    Guest& guest = guests_[at];
    if (guest.index >= 0) guest_of_[static_cast<size_t>(guest.index)] = -1;
    guest = {.index = static_cast<int64_t>(index), .used = ++clock_};
    guest_of_[index] = static_cast<int32_t>(at);
    const int64_t slot = plan_.guest_slot(0) + static_cast<int64_t>(at);
    DSV4_RETURN_IF_ERROR(parts_.slots->Point(id, slot));
    if (!failure_.ok()) continue;
    failure_ = PackInto(i - begin, id.block, slot);
    if (IsDeviceLost(failure_)) return failure_;
  }
  return device_->Mark(stage_half_);
}

// Reads each matrix to its own place in the stage, followed by its scales.
absl::Status ExpertFetcher::Read(size_t begin, size_t end) {
  pieces_.clear();
  read_.clear();
  std::byte* room = stage_.data() + stage_.size() / kHalves * static_cast<size_t>(stage_half_);
  for (size_t i = begin; i < end; ++i) {
    const size_t index = parts_.slots->IndexOf(missing_[i]);
    for (const ExpertSource& source : parts_.sources[index]) {
      const ExpertMatrix& stored = source.stored;
      const StoredBytes bytes = StoredBytesOf(stored);
      ReadMatrix read{&source, stored, false};
      // Sets `to` to the address of the bytes in the stage.
      const auto piece = [&](const uint8_t* from, int64_t count, const uint8_t** to) {
        const Checkpoint::Place place = parts_.checkpoint->PlaceOf(from);
        if (count == 0 || place.file < 0) return;
        pieces_.push_back({place.file, place.offset, count, room});
        *to = reinterpret_cast<const uint8_t*>(pieces_.back().data());
        room += DirectReader::RoomFor(count);
        read.in_stage = true;
      };
      piece(stored.data, bytes.data, &read.matrix.data);
      if (stored.f32_scale != nullptr) {
        const auto* scale = reinterpret_cast<const uint8_t*>(stored.f32_scale);
        piece(scale, bytes.scale, &scale);
        read.matrix.f32_scale = reinterpret_cast<const float*>(scale);
      } else {
        piece(stored.scale, bytes.scale, &read.matrix.scale);
      }
      disk_bytes_ += source.whole_bytes;
      read_.push_back(read);
    }
  }
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = reader_->Read(pieces_);
  disk_nanoseconds_ +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  disk_reads_ += static_cast<int64_t>(end - begin);
  return status;
}

// The loader's checks.
absl::Status ExpertFetcher::Check(const ReadMatrix& read) const {
  const ExpertMatrix& matrix = read.matrix;
  const StoredBytes bytes = StoredBytesOf(matrix);
  const auto refused = [&](const char* part, const char* what) {
    const std::string name = read.source->name + part;
    const TensorEntry* entry = parts_.checkpoint->Find(name);
    return Corrupt(entry == nullptr ? "" : parts_.checkpoint->FileOf(*entry), ": tensor ", name,
                   what);
  };
  constexpr char kNotFinite[] = " has an element that is not a finite number";
  switch (matrix.format) {
    case ExpertFormat::kFp8:
      if (HasNonFinite(DType::kF8E4M3, matrix.data, bytes.data)) {
        return refused(".weight", kNotFinite);
      }
      if (matrix.f32_scale == nullptr) break;
      return HasNonFinite(DType::kF32, reinterpret_cast<const uint8_t*>(matrix.f32_scale),
                          bytes.scale)
                 ? refused(".scale", kNotFinite)
                 : absl::OkStatus();
    case ExpertFormat::kNvfp4:
      return HasNonFinite(DType::kF8E4M3, matrix.scale, bytes.scale)
                 ? refused(".weight_scale", kNotFinite)
                 : absl::OkStatus();
    case ExpertFormat::kBlocks:
      return HasNonFiniteBlocks(matrix.blocks, matrix.data, matrix.n * matrix.k)
                 ? refused(".weight", kNotFinite)
                 : absl::OkStatus();
    case ExpertFormat::kMxfp4:
      break;
  }
  return HasNonFinite(DType::kF8E8M0, matrix.scale, bytes.scale)
             ? refused(".scale", " has a scale byte of 255, which is not a number")
             : absl::OkStatus();
}

absl::Status ExpertFetcher::PackInto(size_t index, int64_t block, int64_t slot) {
  for (int matrix = 0; matrix < 3; ++matrix) {
    const ReadMatrix& read = read_[3 * index + static_cast<size_t>(matrix)];
    if (read.matrix.n == 0) continue;  // the rank has no row of it
    DSV4_RETURN_IF_ERROR(Check(read));
    ExpertMatrix settled = read.matrix;
    DSV4_RETURN_IF_ERROR(changes_.Settle(read.source->name, read.source->runs_as, &settled));
    // Converted data lie in memory of `changes_`.
    const uint8_t* const scale = ScaleBytesOf(settled);
    const bool pinned =
        read.in_stage && settled.data == read.matrix.data && scale == ScaleBytesOf(read.matrix);
    DSV4_RETURN_IF_ERROR(parts_.packer
                             .Pack(parts_.pack_stage, parts_.slots->At(block, slot, matrix),
                                   PackedFormatOf(settled.format, settled.blocks), settled.n,
                                   settled.k, {settled.data, scale, pinned})
                             .status());
  }
  return absl::OkStatus();
}

ExpertTraffic ExpertFetcher::traffic() const {
  return {.device_reads = device_reads_.load(),
          .host_reads = host_reads_.load(),
          .device_bytes = device_bytes_.load(),
          .host_bytes = host_bytes_.load(),
          .disk_reads = disk_reads_.load(),
          .prefetched = prefetched_.load(),
          .disk_bytes = disk_bytes_.load(),
          .disk_seconds = static_cast<double>(disk_nanoseconds_.load()) * 1e-9};
}

}  // namespace dsv4
