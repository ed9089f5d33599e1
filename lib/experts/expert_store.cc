// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/expert_store.h"

#include <algorithm>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/packing/expert_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 256;  // of the parts of device memory

constexpr int64_t Aligned(int64_t bytes) { return RoundUp<int64_t>(bytes, kAlignment); }

int64_t CounterBytes(int64_t blocks, int64_t experts) {
  return Aligned(blocks * experts * static_cast<int64_t>(sizeof(ExpertCounts)));
}

int64_t CallBytes(int64_t blocks) {
  return Aligned(blocks * static_cast<int64_t>(sizeof(uint32_t)));
}

// The parts of the operator that a rank computes.
std::vector<ExpertPart> PartsOf(const Shards& shards, int rank) {
  if (shards.ranks == 1) return {ExpertPart::kWhole};
  std::vector<ExpertPart> parts;
  if (!shards.inter[rank].empty()) parts.push_back(ExpertPart::kProducts);
  if (!shards.hidden[rank].empty()) parts.push_back(ExpertPart::kOutputs);
  return parts;
}

// A rank's part of the bytes of all experts.
double ShareOf(const ResidencyPlan& plan, const RankBytes& rank) {
  int64_t own = 0, all = 0;  // of one expert of each block
  for (int64_t block = 0; block < plan.blocks; ++block) {
    own += rank.Expert(block);
    all += plan.ExpertBytes(block);
  }
  return all == 0 ? 0 : static_cast<double>(own) / static_cast<double>(all);
}

}  // namespace

int64_t ExpertStore::CountBytes(int64_t blocks, int64_t experts) {
  return CounterBytes(blocks, experts) + CallBytes(blocks) +
         Aligned(ExpertStreamer::DeviceBytes(experts));
}

int64_t ExpertStore::PackBytes(const WeightPacker::Stage& stage) {
  return Aligned(stage.data_bytes) + Aligned(stage.scale_bytes);
}

int64_t ExpertStore::device_bytes() const {
  return ExpertSlots::DeviceBytes(plan_, sizes_) +
         (plan_.on_device < plan_.all() ? sizes_.counts : 0) +
         (plan_.on_disk > 0 ? sizes_.pack : 0);
}

absl::Status ExpertStore::Allocate(Device* device, PinnedBlocks* pinned, Place place) {
  const int64_t stage = plan_.on_disk > 0 ? sizes_.stage : 0;
  const auto take = [&](int64_t bytes, absl::string_view purpose) -> absl::StatusOr<std::byte*> {
    absl::StatusOr<std::byte*> block = pinned->Take(device, bytes, purpose);
    if (!IsOutOfHostMemory(block.status())) return block;
    return WithArgument(
        OutOfHostMemory(block.status().message(), ", of ",
                        ExpertSlots::HostBytes(plan_, sizes_) + stage,
                        ". With a lower option host_weight_bytes, others stay on disk"),
        "host_weight_bytes");
  };
  // First, so that experts leave room for it.
  if (stage > 0) {
    DSV4_ASSIGN_OR_RETURN(std::byte* const data, take(stage, "reads of experts from disk"));
    stage_ = {data, static_cast<size_t>(stage)};
  }
  std::vector<std::byte*> host_memory;
  for (const int64_t bytes : ExpertSlots::HostPieces(plan_, sizes_)) {
    DSV4_ASSIGN_OR_RETURN(std::byte* const data, take(bytes, "experts beyond the device's budget"));
    host_memory.push_back(data);
  }
  slots_ = ExpertSlots(plan_, sizes_, device, place(ExpertSlots::DeviceBytes(plan_, sizes_)),
                       host_memory);
  if (plan_.on_disk > 0) sources_.resize(static_cast<size_t>(plan_.all()));
  return absl::OkStatus();
}

void ExpertStore::Keep(ExpertId id, int matrix, ExpertSource source, ExpertMatrix* view) {
  view->format = source.runs_as;
  WeightPacker::Point(
      WeightPacker::At(slots_.At(id.block, plan_.guest_slot(plan_.ClassOf(id.block)), matrix),
                       PackedFormatOf(source.runs_as, view->blocks), view->n, view->k),
      view);
  sources_[slots_.IndexOf(id)][static_cast<size_t>(matrix)] = std::move(source);
}

absl::Status ExpertStore::Open(Parts parts, Place place) {
  experts_per_token_ = static_cast<int32_t>(parts.config->num_experts_per_tok);
  const bool first = parts.rank == 0;
  if (plan_.on_device < plan_.all()) {
    if (first) {
      DSV4_ASSIGN_OR_RETURN(read_times_, MeasureExpertReads(slots_));
      share_of_bytes_ = ShareOf(plan_, sizes_);
    }
    std::byte* const memory = place(sizes_.counts);
    auto* const counts = reinterpret_cast<ExpertCounts*>(memory);
    std::byte* const after_counts = memory + CounterBytes(plan_.blocks, plan_.experts);
    auto* const calls = reinterpret_cast<uint32_t*>(after_counts);
    std::vector<ExpertSlots::Block> blocks;
    for (MoeWeights* moe : parts.blocks) {
      moe->counts = counts + moe->block * plan_.experts;
      moe->calls = calls + moe->block;
      // The table's first entry.
      const auto* table = reinterpret_cast<const std::byte*>(moe->expert_table.front());
      blocks.push_back({moe->experts.data(), const_cast<std::byte*>(table)});
    }
    slots_.set_blocks(std::move(blocks));
    if (plan_.on_host > 0) {
      mover_ = std::make_unique<ExpertMover>(parts.budgets.shuffle, &slots_, counts, parts.use,
                                             first && plan_.on_disk == 0);
    }
    if (plan_.streams > 0) {
      streamer_ = std::make_unique<ExpertStreamer>(
          ExpertStreamer::Parts{.slots = &slots_,
                                .main_blocks = parts.config->num_hidden_layers,
                                .parts = PartsOf(*parts.shards, parts.rank),
                                .memory = after_counts + CallBytes(plan_.blocks)});
    }
  }
  if (plan_.on_disk > 0) {
    pack_stage_.data = place(sizes_.pack);
    pack_stage_.scale = pack_stage_.data + Aligned(pack_stage_.data_bytes);
    DSV4_ASSIGN_OR_RETURN(fetcher_, ExpertFetcher::Open({.checkpoint = parts.checkpoint,
                                                         .packer = parts.packer,
                                                         .pack_stage = pack_stage_,
                                                         .slots = &slots_,
                                                         .sources = std::move(sources_),
                                                         .plain_reads = parts.budgets.plain_reads,
                                                         .use = first ? parts.use : nullptr,
                                                         .by_token = std::move(parts.by_token),
                                                         .experts_per_token = experts_per_token_},
                                                        stage_));
  }
  return absl::OkStatus();
}

// From kChoices choices of each expert on, a pass chooses nearly all experts of a block, when all
// are chosen alike.
void ExpertStore::set_recorded_rows(int32_t recorded_rows) {
  constexpr int64_t kChoices = 2;  // 1 expert in e^2 is not chosen
  if (streamer_ == nullptr) return;
  stream_rows_ =
      std::max(static_cast<int32_t>(CeilDiv<int64_t>(kChoices * plan_.experts, experts_per_token_)),
               recorded_rows + 1);
}

double ExpertStore::LongestHostReads(int32_t rows) const {
  double bytes = 0;
  for (int64_t block = 0; block < plan_.blocks; ++block) {
    const int64_t there = plan_.experts - plan_.OnDevice(block) - plan_.OnDisk(block);
    const int64_t chosen = std::min(there, int64_t{rows} * experts_per_token_);
    bytes += static_cast<double>(chosen) * static_cast<double>(plan_.ExpertBytes(block));
  }
  return bytes * read_times_.host;
}

absl::Status ExpertStore::BeginStep() {
  return mover_ == nullptr ? absl::OkStatus() : mover_->BetweenPasses();
}

absl::Status ExpertStore::BeginPass(absl::Span<const int32_t> tokens) {
  if (fetcher_ == nullptr) return absl::OkStatus();
  fetcher_->BeginPass();
  return fetcher_->Prefetch(tokens);
}

absl::Status ExpertStore::EndPass(const absl::Status& status,
                                  absl::FunctionRef<absl::Status(const absl::Status&)> exchange) {
  if (fetcher_ == nullptr || !(status.ok() || absl::IsCancelled(status))) return status;
  const absl::Status failure = exchange(fetcher_->EndPass());
  fetcher_->Fail(failure);
  return failure.ok() ? status : failure;
}

ExpertStore::Wave ExpertStore::FirstWave(int32_t block, const ExpertFfnParams& ffn,
                                         const WaveBuffers& buffers) const {
  Wave wave{.ffn = ffn, .streamer = Streams(ffn.rows) ? streamer_.get() : nullptr, .block = block};
  wave.ffn.wave = ExpertWave::kFirst;
  wave.ffn.outputs = buffers.outputs;
  return wave;
}

// All experts are where kernels read them, or on the host.
absl::Status ExpertStore::RunAtOnce(int32_t block, const ExpertFfnParams& ffn,
                                    const WaveBuffers& buffers, RunWave run) const {
  if (!Streams(ffn.rows)) return run({.ffn = ffn});
  Wave wave = FirstWave(block, ffn, buffers);
  wave.sums = true;
  return run(wave);
}

absl::Status ExpertStore::ForEachKind(const ExpertFfnParams& ffn, const WaveBuffers& buffers,
                                      RunWave run) const {
  DSV4_RETURN_IF_ERROR(run({.ffn = ffn}));
  if (!takes_waves()) return absl::OkStatus();
  Wave wave = FirstWave(0, ffn, buffers);
  wave.streamer = nullptr;
  DSV4_RETURN_IF_ERROR(run(wave));
  wave.ffn.wave = ExpertWave::kNext;
  wave.sums = true;
  return run(wave);
}

absl::Status ExpertStore::ForEachWave(int32_t block, const ExpertFfnParams& ffn,
                                      const WaveBuffers& buffers, RunWave run) {
  const int64_t pairs = int64_t{ffn.rows} * ffn.experts_per_token;
  if (pages_ != nullptr) pages_->Choose(block, {ffn.experts, static_cast<size_t>(pairs)});
  bool in_slots = true;  // all of the chosen experts
  if (fetcher_ != nullptr) {
    DSV4_ASSIGN_OR_RETURN(in_slots, fetcher_->Begin(block, ffn.experts, pairs));
  }
  if (in_slots) return RunAtOnce(block, ffn, buffers, run);

  const auto choose = [&] {
    return slots_.device()->Upload(reinterpret_cast<std::byte*>(buffers.experts),
                                   reinterpret_cast<const std::byte*>(fetcher_->wave().data()),
                                   pairs * static_cast<int64_t>(sizeof(int32_t)));
  };
  Wave wave = FirstWave(block, ffn, buffers);
  wave.ffn.experts = buffers.experts;
  DSV4_RETURN_IF_ERROR(choose());
  DSV4_RETURN_IF_ERROR(run(wave));
  wave.streamer = nullptr;
  wave.ffn.wave = ExpertWave::kNext;
  while (fetcher_->more()) {
    DSV4_RETURN_IF_ERROR(fetcher_->Next());
    DSV4_RETURN_IF_ERROR(choose());
    wave.sums = !fetcher_->more();
    DSV4_RETURN_IF_ERROR(run(wave));
  }
  return absl::OkStatus();
}

ExpertTraffic ExpertStore::traffic() const {
  ExpertTraffic traffic;
  if (pages_ != nullptr) traffic = traffic + pages_->traffic();
  if (mover_ != nullptr) traffic = traffic + mover_->traffic();
  if (fetcher_ != nullptr) traffic = traffic + fetcher_->traffic();
  if (streamer_ != nullptr) traffic = traffic + streamer_->traffic();
  const auto own = [&](int64_t bytes) { return static_cast<double>(bytes) * share_of_bytes_; };
  traffic.device_seconds = own(traffic.device_bytes) * read_times_.device;
  traffic.host_seconds = own(traffic.host_bytes) * read_times_.host;
  return traffic;
}

}  // namespace dsv4
