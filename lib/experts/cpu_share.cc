// SPDX-License-Identifier: Apache-2.0
#include "lib/experts/cpu_share.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/device/stream.h"
#include "lib/packing/expert_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;  // of the parts of one allocation
// Pairs of a call: few transfers for their outputs, and an expert's weights are read once for its
// rows of a long prompt.
constexpr int64_t kMostPairs = 2048;

constexpr int64_t Aligned(int64_t bytes) { return RoundUp<int64_t>(bytes, kAlignment); }

}  // namespace

absl::StatusOr<CpuExperts> CpuExperts::Allocate(const ResidencyPlan& plan) {
  CpuExperts experts;
  experts.plan_ = plan;
  DSV4_ASSIGN_OR_RETURN(experts.memory_,
                        Buffer::AllocateHost(plan.cpu_bytes, "experts that the CPU computes"));
  experts.bytes_.resize(static_cast<size_t>(plan.blocks));
  experts.experts_.resize(static_cast<size_t>(plan.on_cpu()));
  for (const ExpertWeights& expert : experts.experts_) experts.table_.push_back(&expert);
  return experts;
}

int64_t CpuExperts::BytesOf(ExpertFormat format, BlockType blocks, int64_t n, int64_t k) {
  const float scale = 1;
  ExpertMatrix matrix;
  matrix.format = format;
  matrix.blocks = blocks;
  matrix.n = n;
  matrix.k = k;
  if (format == ExpertFormat::kFp8) matrix.f32_scale = &scale;  // as devices' experts have it
  const StoredBytes bytes = StoredBytesOf(matrix);
  return Aligned(bytes.data) + Aligned(bytes.scale);
}

const uint8_t* CpuExperts::Copy(const uint8_t* from, int64_t bytes) {
  std::byte* const to = memory_.data() + end_;
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  end_ += Aligned(bytes);
  return reinterpret_cast<const uint8_t*>(to);
}

void CpuExperts::Keep(ExpertId id, int matrix, const ExpertMatrix& from) {
  const int64_t index =
      id.block * plan_.cpu_experts + id.expert - (plan_.experts - plan_.cpu_experts);
  ExpertWeights& expert = experts_[static_cast<size_t>(index)];
  ExpertMatrix& to = matrix == 0 ? expert.w1 : matrix == 1 ? expert.w3 : expert.w2;
  const StoredBytes bytes = StoredBytesOf(from);
  const int64_t before = end_;
  to = from;
  to.data = Copy(from.data, bytes.data);
  const uint8_t* const scale = Copy(ScaleBytesOf(from), bytes.scale);
  bytes_[static_cast<size_t>(id.block)] += end_ - before;
  if (from.f32_scale != nullptr) {
    to.f32_scale = reinterpret_cast<const float*>(scale);
  } else {
    to.scale = scale;
  }
}

CpuShare::CpuShare(Parts parts)
    : parts_(std::move(parts)),
      plain_rows_(parts_.experts.table(0)[0]->w1.format == ExpertFormat::kBlocks),
      row_bytes_(plain_rows_ ? parts_.config->hidden_size * static_cast<int64_t>(sizeof(uint16_t))
                             : parts_.rows.quantized_bytes(parts_.config->hidden_size)),
      seen_(static_cast<size_t>(parts_.plan.cpu_experts)) {}

absl::StatusOr<std::unique_ptr<CpuShare>> CpuShare::Open(Parts parts) {
  std::unique_ptr<CpuShare> share(new CpuShare(std::move(parts)));
  Dispatch& dispatch = *share->parts_.dispatch;
  DSV4_RETURN_IF_ERROR(dispatch.Prepare(share->Params(0, kMostPairs)));
  DSV4_ASSIGN_OR_RETURN(share->workspace_, Buffer::AllocateHost(dispatch.workspace_bytes(),
                                                                "workspace of the CPU's experts"));
  if (share->parts_.plan.on_disk > 0) {
    DSV4_ASSIGN_OR_RETURN(share->threads_, RankThreads::Start(2, "the CPU's experts"));
  }
  return share;
}

absl::Status CpuShare::Reserve(int32_t rows) {
  const int64_t pairs = int64_t{rows} * parts_.config->num_experts_per_tok;
  const int64_t call = std::min(pairs, kMostPairs);
  const int64_t call_bytes =
      call * parts_.config->hidden_size * static_cast<int64_t>(sizeof(uint16_t));
  DSV4_ASSIGN_OR_RETURN(staged_,
                        parts_.device->AllocateHost(
                            2 * pairs * static_cast<int64_t>(sizeof(int32_t)) + rows * row_bytes_,
                            "inputs of the CPU's experts"));
  DSV4_ASSIGN_OR_RETURN(inputs_, Buffer::AllocateHost(call_bytes, "inputs of the CPU's experts"));
  DSV4_ASSIGN_OR_RETURN(outputs_, Buffer::AllocateHost(call_bytes, "outputs of the CPU's experts"));
  own_.reserve(static_cast<size_t>(pairs));
  pairs_.reserve(static_cast<size_t>(pairs));
  pair_experts_.reserve(static_cast<size_t>(call));
  pair_weights_.reserve(static_cast<size_t>(call));
  pieces_.reserve(static_cast<size_t>(call));
  return absl::OkStatus();
}

ExpertFfnParams CpuShare::Params(int32_t block, int32_t rows) const {
  const ModelConfig& config = *parts_.config;
  return {.rows = rows,
          .hidden = config.hidden_size,
          .inter = config.moe_intermediate_size,
          .expert_count = static_cast<int32_t>(parts_.plan.cpu_experts),
          .experts_per_token = 1,
          .experts_table = parts_.experts.table(block),
          .experts = pair_experts_.data(),
          .weights = pair_weights_.data(),
          .limit = static_cast<float>(config.swiglu_limit),
          .x = inputs_.data(),
          .wave = ExpertWave::kNext,
          .outputs = outputs_.data()};
}

absl::StatusOr<bool> CpuShare::Begin(int32_t block, const ExpertFfnParams& ffn) {
  ffn_ = ffn;
  block_ = block;
  const int64_t pairs = int64_t{ffn.rows} * ffn.experts_per_token;
  const int64_t pair_bytes = pairs * static_cast<int64_t>(sizeof(int32_t));
  const auto on_device = [](const void* data, int64_t bytes) {
    return MemoryPiece{static_cast<std::byte*>(const_cast<void*>(data)), bytes};
  };
  // One wait for the device.
  const MemoryPiece from[] = {on_device(ffn.experts, pair_bytes),
                              on_device(ffn.weights, pair_bytes),
                              on_device(ffn.x, ffn.rows * row_bytes_)};
  std::byte* const to = staged_.data();
  DSV4_RETURN_IF_ERROR(parts_.device->Gather(to, from));
  chosen_ = reinterpret_cast<const int32_t*>(to);
  weights_ = reinterpret_cast<const float*>(to + pair_bytes);
  codes_ = to + 2 * pair_bytes;
  own_.assign(chosen_, chosen_ + pairs);
  pairs_.clear();
  std::fill(seen_.begin(), seen_.end(), false);
  for (int32_t pair = 0; pair < static_cast<int32_t>(pairs); ++pair) {
    int32_t& expert = own_[static_cast<size_t>(pair)];
    if (expert < 0 || expert >= parts_.plan.experts) continue;  // padding
    const ExpertId id{block, expert};
    if (!parts_.plan.IsCpus(id)) continue;
    const auto place =
        static_cast<size_t>(expert - (parts_.plan.experts - parts_.plan.cpu_experts));
    if (!seen_[place]) {
      seen_[place] = true;
      ++reads_;
      bytes_ += parts_.experts.ExpertBytes(block);
      if (parts_.use != nullptr) {
        parts_.use->Add(static_cast<size_t>(block * parts_.plan.experts + expert), 1);
      }
    }
    expert = -1;
    pairs_.push_back(pair);
  }
  std::stable_sort(pairs_.begin(), pairs_.end(),
                   [this](int32_t a, int32_t b) { return chosen_[a] < chosen_[b]; });
  return !pairs_.empty();
}

void CpuShare::Collect(size_t first, size_t count) {
  const int64_t width = ffn_.hidden;
  const auto before = static_cast<int32_t>(parts_.plan.experts - parts_.plan.cpu_experts);
  pair_experts_.clear();
  pair_weights_.clear();
  pieces_.clear();
  for (size_t i = first; i < first + count; ++i) {
    pair_experts_.push_back(chosen_[pairs_[i]] - before);
    pair_weights_.push_back(weights_[pairs_[i]]);
  }
  auto* const inputs = reinterpret_cast<uint16_t*>(inputs_.data());
  static_cast<CpuStream&>(parts_.cpu->stream())
      .ParallelFor(static_cast<int64_t>(count), [&](int64_t i, int) {
        const int32_t row = pairs_[first + static_cast<size_t>(i)] / ffn_.experts_per_token;
        const std::byte* const input = codes_ + row * row_bytes_;
        if (plain_rows_) {
          std::memcpy(inputs + i * width, input, static_cast<size_t>(row_bytes_));
        } else {
          parts_.rows.decode(input, width, inputs + i * width);
        }
      });
}

absl::Status CpuShare::Compute(void* outputs) {
  const auto start = std::chrono::steady_clock::now();
  const absl::Status status = ComputeAll(outputs);
  nanoseconds_ +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start)
          .count();
  return status;
}

absl::Status CpuShare::Compute(void* outputs, absl::FunctionRef<absl::Status()> others) {
  return threads_->Run([&](int thread) { return thread == 0 ? others() : Compute(outputs); });
}

absl::Status CpuShare::ComputeAll(void* outputs) {
  const int64_t bytes = ffn_.hidden * static_cast<int64_t>(sizeof(uint16_t));
  for (size_t first = 0; first < pairs_.size(); first += kMostPairs) {
    const size_t count = std::min<size_t>(kMostPairs, pairs_.size() - first);
    Collect(first, count);
    DSV4_RETURN_IF_ERROR(parts_.dispatch->Run(
        LaunchContext{.stream = &parts_.cpu->stream(), .workspace = workspace_.data()},
        Params(block_, static_cast<int32_t>(count))));
    for (size_t i = first; i < first + count; ++i) {
      pieces_.push_back({static_cast<std::byte*>(outputs) + pairs_[i] * bytes, bytes});
    }
    DSV4_RETURN_IF_ERROR(parts_.device->Scatter(pieces_, outputs_.data()));
  }
  return absl::OkStatus();
}

}  // namespace dsv4
