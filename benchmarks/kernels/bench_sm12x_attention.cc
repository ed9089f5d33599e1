// SPDX-License-Identifier: Apache-2.0
// The CUDA backend's attention operators at the model's shapes (sm12x_bench.h): decode rows of as
// many sequences at several contexts, and a prefill chunk of 4,096 tokens. Caches are warm:
// sequences share one another's blocks.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/op/attention.h"
#include "kernels/op/rope.h"

namespace dsv4 {
namespace {

constexpr int kCalls = 20;  // of a graph
constexpr int32_t kHeads = 64, kIndexHeads = 64, kTopk = 512;
constexpr int64_t kMaxPosition = int64_t{1} << 17;

// A step with host and device pointers: the first for Cost, the second for launches.
struct BenchStep {
  // `rows` sequences of one row each at position `context` - 1; or, `prefill`, one of so many rows
  // that end there, `apart`: no two neighbouring positions one behind the other.
  BenchStep(int32_t rows, int64_t context, bool prefill, bool apart = false) {
    const int32_t count = prefill ? 1 : rows;
    for (int64_t i = 0; i < kMaxPosition / kWindowBlockTokens; ++i) {
      blocks.push_back(static_cast<int32_t>(i));
    }
    const int32_t* device_blocks = Uploaded(blocks);
    constexpr int64_t kStateBytes = 3 * 3 * 512 * 4;
    auto* states = Filled<std::byte>(2 * rows * kStateBytes, 0x3a);
    std::vector<SequenceRows> device_sequences;
    saves.resize(static_cast<size_t>(count));
    for (int32_t i = 0; i < count; ++i) {
      SequenceRows s;
      s.first_row = i;
      s.rows = prefill ? rows : 1;
      s.first_position = context - s.rows;
      s.window_blocks = s.group_blocks = blocks.data();
      s.state_in = states + 2 * i * kStateBytes;
      saves[i] = {s.rows, states + (2 * i + 1) * kStateBytes};
      s.saves = &saves[i];
      s.save_count = 1;
      sequences.push_back(s);
      for (int32_t r = 0; r < s.rows; ++r) {
        sequence_of.push_back(i);
        positions.push_back(s.first_position + (apart ? r % 2 * (s.rows / 2) + r / 2 : r));
      }
    }
    device_sequences = sequences;
    const StateSave* device_saves = Uploaded(saves);
    for (int32_t i = 0; i < count; ++i) {
      device_sequences[i].window_blocks = device_sequences[i].group_blocks = device_blocks;
      device_sequences[i].saves = device_saves + i;
    }
    host.rows = rows;
    host.sequence_count = count;
    host.max_position = kMaxPosition;
    host.sequences = sequences.data();
    host.sequence_of = sequence_of.data();
    host.positions = positions.data();
    device = host;
    device.sequences = Uploaded(device_sequences);
    device.sequence_of = Uploaded(sequence_of);
    device.positions = Uploaded(positions);
    auto* tables = Filled<float>(int64_t{rows} * 64 * 4 * 4, 0x3c);
    device.rope = {tables, tables + rows * 64, tables + 2 * rows * 64, tables + 3 * rows * 64};
  }
  BenchStep(const BenchStep&) = delete;

  StepRows host, device;
  std::vector<int32_t> blocks, sequence_of;
  std::vector<int64_t> positions;
  std::vector<SequenceRows> sequences;
  std::vector<StateSave> saves;
};

RowPool NewPool(RowFormat format, int64_t elements, int64_t slots) {
  RowPool pool = RowPool::Of(nullptr, format, elements, slots);
  const int64_t blocks = kMaxPosition / (slots == 64 && elements == 512 ? 64 : 256) + 1;
  std::vector<unsigned char> bytes(static_cast<size_t>(blocks * pool.block_stride_bytes));
  std::mt19937 random(1);
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(random() & 0xb7);
  pool.base = reinterpret_cast<std::byte*>(bytes.data());
  for (int64_t b = 0; b < blocks; ++b) {
    std::memset(pool.Scales(static_cast<int32_t>(b), 0), 127,
                static_cast<size_t>(slots * RowScaleBytes(format)));
  }
  pool.base = reinterpret_cast<std::byte*>(Uploaded(bytes));
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
  explicit AttentionBench(Bench& bench) : bench_(bench) {}

  void Run(int32_t rows, int64_t context, bool prefill) {
    const BenchStep step(rows, context, prefill);
    step_ = &step;
    const std::string at = " " + std::to_string(context / 1024) + "K";
    if (context == 2048 || prefill) {
      RopeTableParams rope;
      rope.rows = rows;
      rope.positions = step.device.positions;
      rope.out = step.device.rope;
      if (bench_.Wants("rope_table")) {
        bench_.Run("rope_table", std::vector<RopeTableParams>(kCalls, rope), CostOf(rope));
      }
      QkvPrepareParams qkv;
      qkv.heads = kHeads;
      qkv.q = q_;
      qkv.kv = kv_;
      qkv.kv_norm = static_cast<const uint16_t*>(kv_);
      qkv.window = window_;
      Time("qkv_prepare", qkv);
      IndexQueryParams query;
      query.heads = kIndexHeads;
      query.q = index_q_;
      Time("index_query", query);
      for (const auto& [ratio, keys] : {std::pair{4, false}, {4, true}, {128, false}}) {
        CompressKvParams compress;
        compress.ratio = ratio;
        compress.index_keys = keys;
        compress.k = compress.z = compress.ape = static_cast<const float*>(kv_);
        compress.norm = static_cast<const uint16_t*>(kv_);
        compress.rows = keys ? keys_ : ratio == 4 ? groups4_ : groups128_;
        Time("compress_kv " + std::to_string(ratio) + (keys ? " keys" : ""), compress);
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
    Time("index_score_topk" + at, score);
    for (const int ratio : {0, 4, 128}) {
      if (ratio == 0 && context != 2048) continue;
      Time("sparse_attention " + std::to_string(ratio) + at, Attend(ratio));
    }
  }

  // What neighbouring queries' sharing of rows is worth, where there are several tiles of 16 heads
  // and where there is one.
  void RunSharing(int64_t context) {
    for (const bool apart : {false, true}) {
      const BenchStep step(kMostRows, context, true, apart);
      step_ = &step;
      for (const int32_t heads : {kHeads, kHeads / 4}) {
        for (const int ratio : {0, 128}) {
          SparseAttentionParams attend = Attend(ratio);
          attend.heads = heads;
          Time("sparse_attention " + std::to_string(ratio) + " " + std::to_string(heads) +
                   " heads " + (apart ? "apart" : "shared"),
               attend);
        }
      }
    }
  }

 private:
  SparseAttentionParams Attend(int ratio) const {
    SparseAttentionParams attend;
    attend.heads = kHeads;
    attend.ratio = ratio;
    attend.q = q_;
    attend.window = window_;
    attend.groups = ratio == 4 ? groups4_ : groups128_;
    // As index_score_topk left them.
    attend.selected = selected_;
    attend.topk = kTopk;
    attend.sink = sink_;
    attend.softmax_scale = 1 / std::sqrt(512.0f);
    attend.o = o_;
    return attend;
  }

  template <class Params>
  void Time(const std::string& name, Params params) {
    if (!bench_.Wants(name)) return;
    params.step = &step_->host;
    const Cost cost = CostOf(params);
    params.step = &step_->device;
    const int calls = step_->host.rows > 64 ? 2 : kCalls;
    bench_.Run(name, std::vector<Params>(static_cast<size_t>(calls), params), cost);
  }

  static constexpr int64_t kMostRows = 4096;
  Bench& bench_;
  const BenchStep* step_ = nullptr;
  void* q_ = NewActs(kMostRows * kHeads * 512);
  void* o_ = NewActs(kMostRows * kHeads * 512);
  void* kv_ = NewActs(kMostRows * 1024 * 2);
  void* index_q_ = NewActs(kMostRows * kIndexHeads * 128);
  float* sink_ = Filled<float>(kHeads * 4, 0);
  int32_t* selected_ = Filled<int32_t>(kMostRows * kTopk * 4, 0xff);
  RowPool window_ = NewPool(RowFormat::kPacked, 512, 64);
  RowPool groups4_ = NewPool(RowFormat::kPacked, 512, 64);
  RowPool groups128_ = NewPool(RowFormat::kPacked, 512, 2);
  RowPool keys_ = NewPool(RowFormat::kIndexFp4, 128, 64);
};

}  // namespace

void BenchAttentionOperators(Bench& bench) {
  AttentionBench attention(bench);
  for (const int32_t rows : {1, 8, 64}) {
    for (const int64_t context : {2048, 32768, 131072}) attention.Run(rows, context, false);
  }
  for (const int64_t context : {4096, 32768, 131072}) attention.Run(4096, context, true);
  attention.RunSharing(32768);
}

}  // namespace dsv4
