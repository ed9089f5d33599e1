// SPDX-License-Identifier: Apache-2.0
// Knobs never change bits: every config of every entry that has knobs leaves what the first leaves.
// That this is right is for the entries' own tests, which DSV4_TEST_CONFIG runs with any config.
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/op/dense.h"
#include "tests/kernels/cuda_matrix.h"
#include "tests/kernels/cuda_step.h"

namespace dsv4::test {
namespace {

using Bytes = std::vector<unsigned char>;

template <class T>
void Append(const DeviceCopy<T>& from, Bytes* to) {
  REQUIRE(from.Intact());
  const std::vector<T> values = from.Download();
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  to->insert(to->end(), bytes, bytes + values.size() * sizeof(T));
}

// `run` launches the entry and gives what it leaves.
void RequireConfigsAgree(const KernelEntry& entry, const std::function<Bytes()>& run) {
  Bytes first;
  ForEachConfig(entry, [&](size_t config) {
    INFO(entry.name << ", config " << config);
    const Bytes left = run();
    if (config == 0) {
      first = left;
    } else {
      REQUIRE(left.size() == first.size());
      REQUIRE(std::memcmp(left.data(), first.data(), left.size()) == 0);
    }
  });
}

constexpr int32_t kRowCounts[] = {1, 2, 3, 6, 7, 8, 9, 17, 33, 48, 64, 65, 192};

TEST_CASE("configs of linear_fp8 agree") {
  for (const auto& [k, widths] :
       {std::pair{int64_t{4096}, std::vector<int64_t>{1024, 512}}, {1024, {2048}}, {640, {33}}}) {
    const QuantizedRows x(1, 192, k);
    std::vector<CudaFp8> weights;
    for (const int64_t n : widths) weights.emplace_back(Fp8Storage(2 + n, n, k));
    for (const int32_t rows : kRowCounts) {
      INFO("k " << k << ", rows " << rows);
      const DeviceCopy<uint8_t> input(x.Bytes(0, rows));
      RequireConfigsAgree(kSm12xLinearFp8, [&] {
        LinearFp8Params p{.rows = rows, .k = k, .x = input.data()};
        std::vector<DeviceCopy<uint16_t>> y;
        for (const CudaFp8& w : weights) y.emplace_back(rows * w.n);
        for (size_t i = 0; i < y.size(); ++i) p.parts[i] = {weights[i].view(), y[i].data()};
        p.part_count = static_cast<int32_t>(y.size());
        LaunchCuda(p);
        Bytes left;
        for (const auto& part : y) Append(part, &left);
        return left;
      });
    }
  }
}

TEST_CASE("configs of linear_bf16 agree") {
  for (const auto& [k, n] : {std::pair{4096, 1024}, {512, 2056}, {128, 5}}) {
    const Bf16Rows x(3, 192, k);
    const CudaBf16 weight(Bf16Storage(4, n, k));
    for (const int32_t rows : kRowCounts) {
      INFO("k " << k << ", rows " << rows);
      const DeviceCopy<uint16_t> input(x.Bits(0, rows));
      RequireConfigsAgree(kSm12xLinearBf16, [&, n = n, k = k] {
        DeviceCopy<uint16_t> rounded(int64_t{rows} * n);
        DeviceCopy<float> plain(int64_t{rows} * n);
        LinearBf16Params p{.rows = rows, .k = k, .x = input.data(), .part_count = 2};
        p.parts[0] = {weight.view(), rounded.data(), true};
        p.parts[1] = {weight.view(), plain.data(), false};
        LaunchCuda(p);
        Bytes left;
        Append(rounded, &left);
        Append(plain, &left);
        return left;
      });
    }
  }
}

TEST_CASE("configs of output_groups agree") {
  constexpr int32_t kGroups = 4;
  constexpr int64_t kRank = 256, kWidth = 2048;
  const Bf16Rows o(5, 192, kGroups * kWidth);
  const CudaFp8 weight(Fp8Storage(6, kGroups * kRank, kWidth));
  for (const int32_t rows : kRowCounts) {
    INFO(rows << " rows");
    const DeviceCopy<uint16_t> input(o.Bits(0, rows));
    RequireConfigsAgree(kSm12xOutputGroups, [&] {
      const int64_t stride = sm12x::QuantizedRowBytes(kGroups * kRank);
      DeviceCopy<uint8_t> y(rows * stride);
      LaunchCuda(OutputGroupsParams{.rows = rows,
                                    .groups = kGroups,
                                    .rank = kRank,
                                    .group_width = kWidth,
                                    .wo_a = weight.view(),
                                    .o = input.data(),
                                    .y = y.data()});
      REQUIRE(y.Intact());
      Bytes left;
      const std::vector<uint8_t> all = y.Download();
      for (int64_t r = 0; r < rows; ++r) {  // without what pads a row
        const auto row = all.begin() + r * stride;
        left.insert(left.end(), row, row + kGroups * kRank + kGroups * kRank / 128);
      }
      return left;
    });
  }
}

// Decode rows, a verify, and a prefill chunk, alone and together.
const std::vector<std::vector<Piece>> kSteps = {
    {{0, 2047, 1}},
    {{0, 2050, 3}, {1, 130, 1}, {2, 3, 1}},
    {{0, 2020, 48}},
    {{0, 1000, 65}},
    {{0, 700, 1}, {1, 513, 6}, {2, 0, 1}, {3, 200, 140}},
};

TEST_CASE("configs of sparse_attention agree") {
  constexpr int kHeads = 64, kTopk = 512;
  for (const int ratio : {0, 4, 128}) {
    for (const std::vector<Piece>& pieces : kSteps) {
      INFO("ratio " << ratio << ", " << pieces.size() << " sequences");
      CudaStep step(On::kCuda, pieces, {});
      CudaPool window(step, 64, 512, RowFormat::kPacked);
      CudaPool compressed(step, ratio == 0 ? 1 : kCompressedKvBlockTokens / ratio, 512,
                          RowFormat::kPacked);
      std::vector<int32_t> chosen;
      for (size_t i = 0; i < pieces.size(); ++i) {
        const SequenceRows& s = step.host(i);
        const int64_t end = s.first_position + s.rows;
        window.Fill(s.window_blocks, 41, pieces[i].sequence,
                    std::max<int64_t>(0, s.first_position - 127), end);
        if (ratio != 0) {
          compressed.Fill(s.compressed_kv_blocks, 42, pieces[i].sequence, 0,
                          VisibleCompressedBlocks(end - 1, ratio));
        }
        for (int64_t t = s.first_position; t < end; ++t) {
          const int64_t visible = VisibleCompressedBlocks(t, 4);
          for (int64_t g = 0; g < kTopk; ++g) {
            chosen.push_back(g < visible ? static_cast<int32_t>(g) : -1);
          }
        }
      }
      CudaTensor q(step, 43, kHeads * 512);
      CudaArray<float> sink(step, RandomFloats(44, kHeads));
      CudaArray<int32_t> selected(step, chosen);
      SparseAttentionParams p;
      p.step = step.Rows();
      p.heads = kHeads;
      p.ratio = ratio;
      p.q = q.data();
      p.window = window.For(step);
      if (ratio != 0) p.compressed = compressed.For(step);
      if (ratio == 4) p.selected = selected.data();
      p.topk = kTopk;
      p.sink = sink.data();
      p.softmax_scale = 1 / std::sqrt(512.0f);
      RequireConfigsAgree(kSm12xSparseAttention, [&] {
        DeviceCopy<uint16_t> o(int64_t{step.rows()} * kHeads * 512);
        p.o = o.data();
        ReplayOnCuda(kSm12xSparseAttention, p);
        Bytes left;
        Append(o, &left);
        return left;
      });
    }
  }
}

TEST_CASE("configs of index_score_topk agree") {
  constexpr int kHeads = 64;
  for (const std::vector<Piece>& pieces : kSteps) {
    INFO(pieces.size() << " sequences");
    CudaStep step(On::kCuda, pieces, {});
    CudaPool keys(step, 64, kIndexKeyElements, RowFormat::kIndexFp4);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const SequenceRows& s = step.host(i);
      keys.Fill(s.compressed_kv_blocks, 51, pieces[i].sequence, 0,
                VisibleCompressedBlocks(s.first_position + s.rows - 1, kCsaRatio));
    }
    CudaTensor q(step, 52, kHeads * kIndexKeyElements), weights(step, 53, kHeads);
    IndexScoreTopkParams p;
    p.step = step.Rows();
    p.heads = kHeads;
    p.topk = 64;
    p.q = q.data();
    p.weights = weights.data();
    p.weight_scale = 0.01f;
    p.keys = keys.For(step);
    RequireConfigsAgree(kSm12xIndexScoreTopk, [&] {
      DeviceCopy<int32_t> selected(int64_t{step.rows()} * p.topk);
      p.selected = selected.data();
      ReplayOnCuda(kSm12xIndexScoreTopk, p);
      Bytes left;
      Append(selected, &left);
      return left;
    });
  }
}

TEST_CASE("there is a case above for every entry with knobs") {
  const Op tried[] = {Op::kLinearFp8, Op::kLinearBf16, Op::kOutputGroups, Op::kSparseAttention,
                      Op::kIndexScoreTopk};
  for (const KernelEntry& entry : Sm12xManifest()) {
    INFO(entry.name);
    const bool is_tried =
        std::find(std::begin(tried), std::end(tried), entry.op) != std::end(tried);
    REQUIRE((entry.knobs.names.empty() || is_tried));
  }
}

}  // namespace
}  // namespace dsv4::test
