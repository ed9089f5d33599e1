// SPDX-License-Identifier: Apache-2.0
// Knobs never change bits: every config of every entry that has knobs leaves what the first leaves.
// That this is right is for the entries' own tests, which DSV4_TEST_CONFIG runs with any config.
#include <cmath>
#include <functional>
#include <numeric>

#include "kernels/op/dense.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/manifest.h"
#include "tests/kernels/cuda_config.h"
#include "tests/kernels/operator_step.h"
#include "tests/kernels/operator_weights.h"

namespace dsv4::test {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr On kOn = On::kTested;

// Of Acts, QuantizedActs and arrays.
template <class Tensor>
void Append(const Tensor& from, Bytes* to) {
  const auto values = from.Get();
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  to->insert(to->end(), bytes, bytes + values.size() * sizeof values[0]);
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
    const std::vector<float> x = RandomActs(1, 192, k);
    std::vector<SideWeight> weights;
    for (const int64_t n : widths) weights.emplace_back(kOn, Fp8Storage(2 + n, n, k));
    for (const int32_t rows : kRowCounts) {
      INFO("k " << k << ", rows " << rows);
      const QuantizedActs input(kOn, k, Slice(x, 0, rows * k));
      RequireConfigsAgree(kSm12xLinearFp8, [&] {
        LinearFp8Params p{.rows = rows, .k = k, .x = input.data()};
        std::vector<Acts> y;
        for (const SideWeight& w : weights) y.emplace_back(kOn, rows * w.n());
        for (size_t i = 0; i < y.size(); ++i) p.parts[i] = {weights[i].fp8(), y[i].data()};
        p.part_count = static_cast<int32_t>(y.size());
        Launch(kOn, p);
        Bytes left;
        for (const auto& part : y) Append(part, &left);
        return left;
      });
    }
  }
}

TEST_CASE("configs of linear_bf16 agree") {
  for (const auto& [k, n] : {std::pair{4096, 1024}, {512, 2056}, {128, 5}}) {
    const std::vector<float> x = RandomActs(3, 192, k);
    const SideWeight weight(kOn, Bf16Storage(4, n, k));
    for (const int32_t rows : kRowCounts) {
      INFO("k " << k << ", rows " << rows);
      const Acts input(kOn, Slice(x, 0, int64_t{rows} * k));
      RequireConfigsAgree(kSm12xLinearBf16, [&, n = n, k = k] {
        const Acts rounded(kOn, int64_t{rows} * n);
        const Array<float> plain(kOn, int64_t{rows} * n);
        LinearBf16Params p{.rows = rows, .k = k, .x = input.data(), .part_count = 2};
        p.parts[0] = {weight.bf16(), rounded.data(), true};
        p.parts[1] = {weight.bf16(), plain.data(), false};
        Launch(kOn, p);
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
  const std::vector<float> o = RandomActs(5, 192, kGroups * kWidth);
  const SideWeight weight(kOn, Fp8Storage(6, kGroups * kRank, kWidth));
  for (const int32_t rows : kRowCounts) {
    INFO(rows << " rows");
    const Acts input(kOn, Slice(o, 0, rows * kGroups * kWidth));
    RequireConfigsAgree(kSm12xOutputGroups, [&] {
      const QuantizedActs y(kOn, rows, kGroups * kRank);
      Launch(kOn, OutputGroupsParams{.rows = rows,
                                     .groups = kGroups,
                                     .rank = kRank,
                                     .group_width = kWidth,
                                     .wo_a = weight.fp8(),
                                     .o = input.data(),
                                     .y = y.data()});
      Bytes left;
      Append(y, &left);
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
      Step step(kOn, pieces, {});
      Pool window(step, 64, 512, RowFormat::kPacked);
      Pool compressed(step, ratio == 0 ? 1 : kCompressedKvBlockTokens / ratio, 512,
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
      const Acts q(kOn, StepValues(step, 43, kHeads * 512));
      const Array<float> sink(kOn, RandomFloats(44, kHeads));
      const Array<int32_t> selected(kOn, chosen);
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
        const Acts o(kOn, int64_t{step.rows()} * kHeads * 512);
        p.o = o.data();
        Launch(kOn, p);
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
    Step step(kOn, pieces, {});
    Pool keys(step, 64, kIndexKeyElements, RowFormat::kIndexFp4);
    for (size_t i = 0; i < pieces.size(); ++i) {
      const SequenceRows& s = step.host(i);
      keys.Fill(s.compressed_kv_blocks, 51, pieces[i].sequence, 0,
                VisibleCompressedBlocks(s.first_position + s.rows - 1, kCsaRatio));
    }
    const Acts q(kOn, StepValues(step, 52, kHeads * kIndexKeyElements)),
        weights(kOn, StepValues(step, 53, kHeads));
    IndexScoreTopkParams p;
    p.step = step.Rows();
    p.heads = kHeads;
    p.topk = 64;
    p.q = q.data();
    p.weights = weights.data();
    p.weight_scale = 0.01f;
    p.keys = keys.For(step);
    RequireConfigsAgree(kSm12xIndexScoreTopk, [&] {
      const Array<int32_t> selected(kOn, int64_t{step.rows()} * p.topk);
      p.selected = selected.data();
      Launch(kOn, p);
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
