// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's attention operators at the model's shapes (sm12x_bench.h): decode rows of as
// many sequences at several contexts, and a prefill chunk of 4,096 tokens. Each sequence has rows
// and states of its own, and launches go from one sequence to the next: what comes round again has
// left L2. At 128K of context there are 256 sequences, so that 512 launches of one row read each of
// them twice, of ratio 4 other compressed blocks each time.
#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/op/attention.h"
#include "kernels/op/rope.h"

namespace dsv4 {
namespace {

constexpr size_t kCalls = 20;  // of a graph, where nothing of a sequence's is read
constexpr int32_t kHeads = 64, kIndexHeads = 64, kTopk = 512;
constexpr int64_t kMaxPosition = int64_t{1} << 17;
// Of the cache, 6.2 GB with the window rows; as many sequences as have room in it, up to a limit.
constexpr int64_t kCompressedKvBlocks = 256 * kMaxPosition / kCompressedKvBlockTokens;
constexpr int64_t kMostSequences = 4096, kWindowBlocks = 3 * kMostSequences;
constexpr int64_t kDecodeRows = 512;  // of all launches of a graph together, at least

// Steps of one shape, a launch of a graph each.
struct BenchSteps {
  // `rows` sequences of one row each at position `context` - 1; or, `prefill`, one of so many rows
  // that end there, `apart`: no two neighbouring positions one behind the other.
  BenchSteps(int32_t rows, int64_t context, bool prefill, bool apart = false) {
    const int32_t count = prefill ? 1 : rows, rows_each = rows / count;
    const int64_t windows = context / kWindowBlockTokens,
                  compressed_blocks = context / kCompressedKvBlockTokens;
    const int64_t room = std::min(kMostSequences, kCompressedKvBlocks / compressed_blocks);
    const int64_t launches = prefill ? 2 : std::max(room, kDecodeRows) / rows;
    const int64_t known = std::min(room, launches * count);

    // Of a sequence's window the blocks that a step can reach are its own.
    const int64_t live = (rows_each + kWindowTokens) / kWindowBlockTokens + 1;
    std::vector<int32_t> window_blocks, compressed_kv_blocks;
    std::vector<StateWrite> state_writes;
    constexpr int64_t kStateBytes = 3 * 3 * 512 * 4;
    states = {Random<std::byte>(2 * known * kStateBytes, kF32Numbers), kStateBytes};
    for (int64_t s = 0; s < known; ++s) {
      for (int64_t i = 0; i < windows; ++i) {
        window_blocks.push_back(static_cast<int32_t>(s * live + i % live));
      }
      for (int64_t i = 0; i < compressed_blocks; ++i) {
        compressed_kv_blocks.push_back(static_cast<int32_t>(s * compressed_blocks + i));
      }
      state_writes.push_back({rows_each, static_cast<int32_t>(2 * s + 1)});
    }
    const int32_t* device_windows = Uploaded(window_blocks);
    const int32_t* device_compressed = Uploaded(compressed_kv_blocks);
    const StateWrite* device_writes = Uploaded(state_writes);
    for (int64_t i = 0; i < launches * count; ++i) {
      const int64_t s = i % known;
      SequenceRows sequence;
      sequence.first_row = static_cast<int32_t>(i % count);
      sequence.rows = rows_each;
      sequence.first_position = context - rows_each;
      sequence.window_blocks = device_windows + s * windows;
      sequence.compressed_kv_blocks = device_compressed + s * compressed_blocks;
      sequence.state_slot = static_cast<int32_t>(2 * s);
      sequence.state_writes = device_writes + s;
      sequence.state_write_count = 1;
      sequences.push_back(sequence);
    }

    std::vector<int32_t> sequence_of;
    std::vector<int64_t> positions;
    for (int32_t r = 0; r < rows; ++r) {
      const int32_t row = r % rows_each;
      sequence_of.push_back(r / rows_each);
      positions.push_back(context - rows_each +
                          (apart ? row % 2 * (rows_each / 2) + row / 2 : row));
    }
    StepRows step;
    step.rows = rows;
    step.sequence_count = count;
    step.max_position = kMaxPosition;
    step.sequence_of = Uploaded(sequence_of);
    step.positions = Uploaded(positions);
    auto* tables = Random<float>(int64_t{rows} * 64 * 4 * 4, kF32Numbers);
    step.rope = {tables, tables + rows * 64, tables + 2 * rows * 64, tables + 3 * rows * 64};
    const SequenceRows* device_sequences = Uploaded(sequences);
    for (int64_t i = 0; i < launches; ++i) {
      step.sequences = device_sequences + i * count;
      step.host_sequences = sequences.data() + i * count;  // for Cost
      steps.push_back(step);
    }
    selected = Uploaded(Selections(positions, launches));
  }
  BenchSteps(const BenchSteps&) = delete;

  const int32_t* SelectedOf(size_t launch) const {
    return selected + static_cast<int64_t>(launch) * steps[0].rows * kTopk;
  }

  std::vector<SequenceRows> sequences;
  std::vector<StepRows> steps;
  StatePool states;

 private:
  // Of each row of each launch: one compressed block of each kTopk-th part of those that it sees,
  // or all.
  static std::vector<int32_t> Selections(const std::vector<int64_t>& positions, int64_t launches) {
    std::mt19937 random(3);
    std::vector<int32_t> selections;
    for (int64_t i = 0; i < launches; ++i) {
      for (const int64_t position : positions) {
        const int64_t visible = VisibleCompressedBlocks(position, kCsaRatio);
        for (int64_t k = 0; k < kTopk; ++k) {
          const int64_t first = k * visible / kTopk, end = (k + 1) * visible / kTopk;
          int64_t compressed_block = first + random() % std::max<int64_t>(end - first, 1);
          if (visible <= kTopk) compressed_block = k < visible ? k : -1;
          selections.push_back(static_cast<int32_t>(compressed_block));
        }
      }
    }
    return selections;
  }

  const int32_t* selected = nullptr;
};

// Random rows, the same for each so many blocks.
RowPool NewPool(RowFormat format, int64_t elements, int64_t slots, int64_t blocks) {
  constexpr int64_t kRandomBlocks = 1024;
  RowPool pool = RowPool::Of(nullptr, format, elements, slots);
  std::vector<unsigned char> bytes(static_cast<size_t>(kRandomBlocks * pool.block_stride_bytes));
  std::mt19937 random(1);
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(random() & 0xb7);
  pool.base = reinterpret_cast<std::byte*>(bytes.data());
  for (int64_t b = 0; b < kRandomBlocks; ++b) {
    // From 2^-3 to 1.
    auto* const scales = reinterpret_cast<uint8_t*>(pool.Scales(static_cast<int32_t>(b), 0));
    for (int64_t i = 0; i < slots * RowScaleBytes(format); ++i) {
      scales[i] = static_cast<uint8_t>(124 + random() % 4);
    }
  }
  pool.base = Filled<std::byte>(blocks * pool.block_stride_bytes, 0);
  for (int64_t b = 0; b < blocks; b += kRandomBlocks) {
    Check(cudaMemcpy(pool.base + b * pool.block_stride_bytes, bytes.data(), bytes.size(),
                     cudaMemcpyHostToDevice),
          "upload");
  }
  return pool;
}

// bf16 numbers of both signs, at most 4.
void* NewActs(int64_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  std::mt19937 random(2);
  for (uint16_t& b : bits) b = static_cast<uint16_t>((random() & 0x80ff) | 0x3f00);
  return Uploaded(bits);
}

class AttentionBench {
 public:
  AttentionBench(Bench& bench, RowFormat format) : bench_(bench), format_(format) {}

  void Run(int32_t rows, int64_t context, bool prefill) {
    const BenchSteps steps(rows, context, prefill);
    steps_ = &steps;
    const bool fp8 = format_ == RowFormat::kFp8PerTensor;
    const std::string at = " " + std::to_string(context / 1024) + "K" + (fp8 ? " fp8 rows" : "");
    const char* const rows_of = fp8 ? " fp8 rows" : "";
    // Of ranks of two and of four there are cases at the shortest contexts alone.
    std::vector<std::pair<int32_t, const char*>> ranks = {{kHeads, ""}};
    if (context <= kMostRows) {
      ranks.push_back({kHeads / 2, " TP2"});
      ranks.push_back({kHeads / 4, " TP4"});
    }
    if (context == 2048 || prefill) {
      const StepRows& step = steps.steps[0];
      RopeTableParams rope;
      rope.rows = rows;
      rope.positions = step.positions;
      rope.out = step.rope;
      if (!fp8 && bench_.Wants("rope_table")) {
        bench_.Run("rope_table", std::vector<RopeTableParams>(kCalls, rope), CostOf(rope));
      }
      QkvPrepareParams qkv;
      qkv.q = q_;
      qkv.kv = kv_;
      qkv.kv_norm = static_cast<const uint16_t*>(kv_);
      qkv.window = window_;
      for (const auto& [heads, rank] : ranks) {
        qkv.heads = heads;
        Time(std::string("qkv_prepare") + rows_of + rank, qkv, kCalls);
      }
      qkv.heads = kHeads;
      qkv.index_heads = kIndexHeads;
      qkv.index_q = index_q_;
      Time(std::string("qkv_prepare 4") + rows_of, qkv, kCalls);
      for (const auto& [ratio, keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
        if (fp8 && keys) continue;
        CompressKvParams compress;
        compress.ratio = ratio;
        compress.index_keys = keys;
        compress.k = compress.z = compress.ape = static_cast<const float*>(kv_);
        compress.norm = static_cast<const uint16_t*>(kv_);
        compress.states = steps.states;
        compress.rows = keys ? keys_ : ratio == 4 ? rows4_ : rows128_;
        Time("compress_kv " + std::to_string(ratio) + (keys ? " keys" : rows_of), compress);
      }
    }
    IndexScoreTopkParams score;
    score.heads = kIndexHeads;
    score.topk = kTopk;
    score.q = index_q_;
    score.weights = kv_;
    score.weight_scale = 0.01f;
    score.keys = keys_;
    score.selected = selected_;
    if (!fp8) Time("index_score_topk" + at, score);
    for (const auto& [heads, rank] : ranks) {
      for (const int ratio : {0, 4, 128}) {
        if (ratio == 0 && context > kMostRows) continue;
        Time("sparse_attention " + std::to_string(ratio) + at + rank, Attend(ratio, heads));
      }
    }
  }

  // What neighbouring queries' sharing of rows is worth, where there are several tiles of 16 heads
  // and where there is one.
  void RunSharing(int64_t context) {
    for (const bool apart : {false, true}) {
      const BenchSteps steps(kMostRows, context, true, apart);
      steps_ = &steps;
      for (const int32_t heads : {kHeads, kHeads / 4}) {
        for (const int ratio : {0, 128}) {
          Time("sparse_attention " + std::to_string(ratio) + " " + std::to_string(heads) +
                   " heads " + (apart ? "apart" : "shared"),
               Attend(ratio, heads));
        }
      }
    }
  }

 private:
  SparseAttentionParams Attend(int ratio, int32_t heads) const {
    SparseAttentionParams attend;
    attend.heads = heads;
    attend.ratio = ratio;
    attend.q = q_;
    attend.window = window_;
    attend.compressed = ratio == 4 ? rows4_ : rows128_;
    attend.topk = kTopk;
    attend.sink = sink_;
    attend.softmax_scale = 1 / std::sqrt(512.0f);
    attend.o = o_;
    return attend;
  }

  // A launch for each step, or so many of them at most.
  template <class Params>
  void Time(const std::string& name, const Params& params, size_t most = kMostSequences) {
    if (!bench_.Wants(name)) return;
    std::vector<Params> calls(std::min(steps_->steps.size(), most), params);
    for (size_t i = 0; i < calls.size(); ++i) {
      calls[i].step = &steps_->steps[i];
      if constexpr (std::is_same_v<Params, SparseAttentionParams>) {
        calls[i].selected = steps_->SelectedOf(i);
      }
    }
    bench_.Run(name, calls, CostOf(calls[0]));
  }

  static constexpr int64_t kMostRows = 4096;
  Bench& bench_;
  const RowFormat format_;
  const BenchSteps* steps_ = nullptr;
  void* q_ = NewActs(kMostRows * kHeads * 512);
  void* o_ = NewActs(kMostRows * kHeads * 512);
  void* kv_ = NewActs(kMostRows * 1024 * 2);
  void* index_q_ = NewActs(kMostRows * kIndexHeads * 128);
  float* sink_ = Random<float>(kHeads * 4, kF32Numbers);
  int32_t* selected_ = Filled<int32_t>(kMostRows * kTopk * 4, 0xff);
  RowPool window_ = NewPool(format_, 512, 64, kWindowBlocks);
  RowPool rows4_ = NewPool(format_, 512, 64, kCompressedKvBlocks);
  RowPool rows128_ = NewPool(format_, 512, 2, kCompressedKvBlocks);
  RowPool keys_ = NewPool(RowFormat::kIndexFp4, 128, 64, kCompressedKvBlocks);
};

}  // namespace

namespace {

void RunContexts(AttentionBench& attention) {
  for (const int32_t rows : {1, 8, 64}) {
    for (const int64_t context : {2048, 32768, 131072}) attention.Run(rows, context, false);
  }
  for (const int32_t rows : {16, 32, 128}) attention.Run(rows, 2048, false);
  for (const int64_t context : {4096, 32768, 131072}) attention.Run(4096, context, true);
}

}  // namespace

void BenchAttentionOperators(Bench& bench) {
  AttentionBench attention(bench, RowFormat::kPacked);
  RunContexts(attention);
  attention.RunSharing(32768);
}

void BenchAttentionFormats(Bench& bench) {
  BenchAttentionOperators(bench);
  AttentionBench fp8(bench, RowFormat::kFp8PerTensor);
  RunContexts(fp8);
}

}  // namespace dsv4
