// SPDX-License-Identifier: Apache-2.0
// The cpu backend's row, attention and hyper-connection operators on the shapes of the bundled
// model (hidden 256, 4 heads, 8 index heads, top-k 64) and of Flash (hidden 4096, 64 heads, 64
// index heads, top-k 512). Arguments: rows of the step, then threads. Rows end at position 1023.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/entries.h"
#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/rope.h"

namespace dsv4 {
namespace {

struct Shape {
  const char* name;
  int64_t hidden;
  int32_t heads, index_heads, topk;
};
constexpr Shape kTiny = {"tiny", 256, 4, 8, 64};
constexpr Shape kFlash = {"flash", 4096, 64, 64, 512};

constexpr int64_t kEnd = 1024;

class Memory {
 public:
  // Random values around 1: bf16 [count] or f32 [count].
  template <class T>
  T* Random(int64_t count) {
    T* out = Zeros<T>(count);
    for (int64_t i = 0; i < count; ++i) {
      seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
      const float v = static_cast<float>(static_cast<int32_t>(seed_ >> 32)) * 0x1p-30f;
      if constexpr (sizeof(T) == 2) {
        out[i] = FloatToBf16(v);
      } else {
        out[i] = v;
      }
    }
    return out;
  }
  template <class T>
  T* Zeros(int64_t count) {
    const size_t bytes = static_cast<size_t>(count) * sizeof(T) + 64;
    blocks_.push_back(std::make_unique<std::byte[]>(bytes));
    std::byte* base = blocks_.back().get();
    return reinterpret_cast<T*>(base + (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64);
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  uint64_t seed_ = 1;
};

// One sequence of kEnd tokens whose last `rows` are the step.
struct BenchStep {
  BenchStep(Memory& memory, int32_t rows)
      : positions(static_cast<size_t>(rows)), of(static_cast<size_t>(rows)) {
    for (int32_t i = 0; i < 16; ++i) blocks[static_cast<size_t>(i)] = (i * 7 + 3) % 16;
    sequence.rows = rows;
    sequence.first_position = kEnd - rows;
    sequence.window_blocks = sequence.compressed_kv_blocks = blocks.data();
    states = {memory.Zeros<std::byte>(2 << 16), 1 << 16};
    sequence.state_slot = 0;
    write = {.row = rows, .slot = 1};
    sequence.state_writes = &write;
    sequence.state_write_count = 1;
    for (int32_t r = 0; r < rows; ++r) positions[static_cast<size_t>(r)] = kEnd - rows + r;
    step.rows = rows;
    step.sequence_count = 1;
    step.sequences = &sequence;
    step.sequence_of = of.data();
    step.positions = positions.data();
    step.max_position = 16384;
    step.rope = {memory.Random<float>(rows * 64), memory.Random<float>(rows * 64),
                 memory.Random<float>(rows * 64), memory.Random<float>(rows * 64)};
  }
  RowPool Pool(Memory& memory, int64_t slots, int64_t dim) {
    const RowFormat format = dim == kIndexKeyElements ? RowFormat::kIndexFp4 : RowFormat::kPacked;
    RowPool pool = RowPool::Of(nullptr, format, dim, slots);
    pool.base =
        reinterpret_cast<std::byte*>(memory.Random<uint16_t>(16 * pool.block_stride_bytes / 2));
    for (int32_t block = 0; block < 16; ++block) {
      std::memset(pool.Scales(block, 0), 120, static_cast<size_t>(slots * RowScaleBytes(format)));
    }
    return pool;
  }
  std::array<int32_t, 16> blocks;
  std::vector<int64_t> positions;
  std::vector<int32_t> of;
  StatePool states;
  StateWrite write;
  SequenceRows sequence;
  StepRows step;
};

template <class Params>
void Measure(benchmark::State& state, Memory& memory, const KernelEntry& entry,
             const Params& params) {
  const auto threads = static_cast<int>(state.range(1));
  if (!Validate(params).ok()) {
    state.SkipWithError("bad parameters");
    return;
  }
  CpuStream stream(threads);
  LaunchContext context;
  context.stream = &stream;
  context.workspace = memory.Zeros<std::byte>(entry.workspace_bytes(&params, threads));
  for (auto _ : state) entry.launch(context, &params);
  const Cost cost = CostOf(params);
  const auto rate = [](int64_t n) {
    return benchmark::Counter(static_cast<double>(n),
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["flop/s"] = rate(cost.flops);
  state.counters["bytes/s"] = rate(cost.bytes);
}

void RopeTable(benchmark::State& state, Shape) {
  Memory memory;
  BenchStep step(memory, static_cast<int32_t>(state.range(0)));
  RopeTableParams p;
  p.rows = step.step.rows;
  p.positions = step.step.positions;
  FillRopeFrequencies(10000, 0, 0, 0, 0, p.frequencies.window);
  FillRopeFrequencies(160000, 16, 1024, 32, 1, p.frequencies.compressed);
  p.out = step.step.rope;
  Measure(state, memory, kCpuRopeTable, p);
}

void HcPre(benchmark::State& state, Shape shape) {
  Memory memory;
  const int64_t rows = state.range(0), dim = shape.hidden;
  HcPreParams p;
  p.rows = static_cast<int32_t>(rows);
  p.hidden = dim;
  p.streams = memory.Random<uint16_t>(rows * 4 * dim);
  p.fn = memory.Random<float>(24 * 4 * dim);
  p.base = memory.Random<float>(24);
  p.scale = memory.Random<float>(3);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.sinkhorn_iters = 20;
  p.norm = memory.Random<uint16_t>(dim);
  p.normed = memory.Zeros<uint16_t>(rows * dim);
  p.quantized = memory.Zeros<uint16_t>(rows * dim);
  p.post = memory.Zeros<float>(rows * 4);
  p.comb = memory.Zeros<float>(rows * 16);
  Measure(state, memory, kCpuHcPre, p);
}

void HcPost(benchmark::State& state, Shape shape) {
  Memory memory;
  const int64_t rows = state.range(0), dim = shape.hidden;
  HcPostParams p;
  p.rows = static_cast<int32_t>(rows);
  p.hidden = dim;
  p.y = memory.Random<uint16_t>(rows * dim);
  p.post = memory.Random<float>(rows * 4);
  p.comb = memory.Zeros<float>(rows * 16);
  p.streams = memory.Random<uint16_t>(rows * 4 * dim);
  p.out = memory.Zeros<uint16_t>(rows * 4 * dim);
  Measure(state, memory, kCpuHcPost, p);
}

void HcHead(benchmark::State& state, Shape shape) {
  Memory memory;
  const int64_t rows = state.range(0), dim = shape.hidden;
  HcHeadParams p;
  p.rows = static_cast<int32_t>(rows);
  p.hidden = dim;
  p.streams = memory.Random<uint16_t>(rows * 4 * dim);
  p.fn = memory.Random<float>(4 * 4 * dim);
  p.base = memory.Random<float>(4);
  p.scale = memory.Random<float>(1);
  p.hc_eps = p.norm_eps = 1e-6f;
  p.norm = memory.Random<uint16_t>(dim);
  p.normed = memory.Zeros<uint16_t>(rows * dim);
  Measure(state, memory, kCpuHcHead, p);
}

void RmsNorm(benchmark::State& state, Shape shape) {
  Memory memory;
  const int64_t rows = state.range(0), dim = shape.hidden;
  RmsNormParams p;
  p.rows = static_cast<int32_t>(rows);
  p.dim = dim;
  p.x = memory.Random<uint16_t>(rows * dim);
  p.weight = memory.Random<uint16_t>(dim);
  p.eps = 1e-6f;
  p.quantized = memory.Zeros<uint16_t>(rows * dim);
  Measure(state, memory, kCpuRmsNorm, p);
}

void QkvPrepare(benchmark::State& state, Shape shape) {
  Memory memory;
  BenchStep step(memory, static_cast<int32_t>(state.range(0)));
  QkvPrepareParams p;
  p.step = &step.step;
  p.heads = shape.heads;
  p.q = memory.Random<uint16_t>(step.step.rows * p.heads * 512);
  p.kv = memory.Random<uint16_t>(step.step.rows * 512);
  p.kv_norm = memory.Random<uint16_t>(512);
  p.eps = 1e-6f;
  p.window = step.Pool(memory, 64, 512);
  p.index_heads = shape.index_heads;
  p.index_q = memory.Random<uint16_t>(step.step.rows * p.index_heads * 128);
  Measure(state, memory, kCpuQkvPrepare, p);
}

void CompressKv(benchmark::State& state, Shape, int ratio, bool index_keys) {
  Memory memory;
  BenchStep step(memory, static_cast<int32_t>(state.range(0)));
  CompressKvParams p;
  p.step = &step.step;
  p.ratio = ratio;
  p.index_keys = index_keys;
  p.k = memory.Random<float>(step.step.rows * p.width());
  p.z = memory.Random<float>(step.step.rows * p.width());
  p.ape = memory.Random<float>(ratio * p.width());
  p.norm = memory.Random<uint16_t>(p.dim());
  p.eps = 1e-6f;
  p.states = step.states;
  p.rows = step.Pool(memory, 256 / ratio, p.dim());
  Measure(state, memory, kCpuCompressKv, p);
}

void IndexScoreTopk(benchmark::State& state, Shape shape) {
  Memory memory;
  BenchStep step(memory, static_cast<int32_t>(state.range(0)));
  IndexScoreTopkParams p;
  p.step = &step.step;
  p.heads = shape.index_heads;
  p.topk = std::min<int32_t>(shape.topk, 64);  // fewer than the 256 compressed blocks
  p.q = memory.Random<uint16_t>(step.step.rows * p.heads * 128);
  p.weights = memory.Random<uint16_t>(step.step.rows * p.heads);
  p.weight_scale = 0.01f;
  p.keys = step.Pool(memory, 64, 128);
  p.selected = memory.Zeros<int32_t>(step.step.rows * p.topk);
  Measure(state, memory, kCpuIndexScoreTopk, p);
}

void SparseAttention(benchmark::State& state, Shape shape, int ratio) {
  Memory memory;
  BenchStep step(memory, static_cast<int32_t>(state.range(0)));
  SparseAttentionParams p;
  p.step = &step.step;
  p.heads = shape.heads;
  p.ratio = ratio;
  p.topk = std::min<int32_t>(shape.topk, 64);
  p.q = memory.Random<uint16_t>(step.step.rows * p.heads * 512);
  p.window = step.Pool(memory, 64, 512);
  if (ratio != 0) p.compressed = step.Pool(memory, 256 / ratio, 512);
  auto* selected = memory.Zeros<int32_t>(step.step.rows * p.topk);
  for (int32_t r = 0; r < step.step.rows; ++r) {
    const int64_t visible = VisibleCompressedBlocks(step.step.positions[r], 4);
    for (int32_t i = 0; i < p.topk; ++i) {
      selected[r * p.topk + i] = static_cast<int32_t>((i * visible + r % 3) / p.topk);
    }
  }
  p.selected = selected;
  p.sink = memory.Random<float>(p.heads);
  p.softmax_scale = 0.04419417f;
  p.o = memory.Zeros<uint16_t>(step.step.rows * p.heads * 512);
  Measure(state, memory, kCpuSparseAttention, p);
}

void Sizes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 1})->Args({1, 2})->Args({256, 1})->Args({256, 2})->UseRealTime();
}
void FlashSizes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 2})->Args({256, 2})->UseRealTime();
}

#define DSV4_BENCH(function)                              \
  BENCHMARK_CAPTURE(function, tiny, kTiny)->Apply(Sizes); \
  BENCHMARK_CAPTURE(function, flash, kFlash)->Apply(FlashSizes)

BENCHMARK_CAPTURE(RopeTable, tiny, kTiny)->Apply(Sizes);
DSV4_BENCH(HcPre);
DSV4_BENCH(HcPost);
DSV4_BENCH(HcHead);
DSV4_BENCH(RmsNorm);
DSV4_BENCH(QkvPrepare);
BENCHMARK_CAPTURE(CompressKv, csa, kTiny, 4, false)->Apply(Sizes);
BENCHMARK_CAPTURE(CompressKv, index, kTiny, 4, true)->Apply(Sizes);
BENCHMARK_CAPTURE(CompressKv, hca, kTiny, 128, false)->Apply(Sizes);
DSV4_BENCH(IndexScoreTopk);
BENCHMARK_CAPTURE(SparseAttention, tiny_window, kTiny, 0)->Apply(Sizes);
BENCHMARK_CAPTURE(SparseAttention, tiny_csa, kTiny, 4)->Apply(Sizes);
BENCHMARK_CAPTURE(SparseAttention, tiny_hca, kTiny, 128)->Apply(Sizes);
BENCHMARK_CAPTURE(SparseAttention, flash_csa, kFlash, 4)->Apply(FlashSizes);

}  // namespace
}  // namespace dsv4

BENCHMARK_MAIN();
