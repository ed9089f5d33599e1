// SPDX-License-Identifier: Apache-2.0
// Properties of every reference operator: the row rule (a row alone gives the bits it gives in a
// batch, whatever the block ids and the thread count), and each rounding point and quantiser that
// its contract names changes its published result when left out.
#include <functional>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/step_fixture.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using test::Bf16Storage;
using test::Fp4Storage;
using test::Fp8Storage;
using test::LaunchKernel;
using test::LaunchOptions;
using test::RandomFloats;
using test::RandomNorm;
using test::TestStep;
using Floats = std::vector<float>;
using Rows = std::vector<int>;

// An operator on chosen rows of a fixed input; the result has the same number of values for each
// row.
struct OperatorCase {
  const char* name;
  int rows;
  std::vector<Point> points;
  std::function<Floats(const LaunchOptions&, const Rows&)> run;
};

// Rows `chosen` of x [.., width], which in published numerics are bf16 values.
Floats Gather(const LaunchOptions& options, const Floats& x, int64_t width, const Rows& chosen) {
  Floats out;
  for (const int row : chosen) {
    const auto begin = x.begin() + row * width;
    out.insert(out.end(), begin, begin + width);
  }
  if (options.numerics == Numerics::kPublished) {
    for (float& value : out) value = RoundToBf16(value);
  }
  return out;
}

// Joins the per-row values of several outputs [rows, width_i].
Floats JoinRows(size_t rows, std::initializer_list<const Floats*> outputs) {
  Floats joined;
  for (size_t t = 0; t < rows; ++t) {
    for (const Floats* output : outputs) {
      const auto width = static_cast<std::ptrdiff_t>(output->size() / rows);
      const auto begin = output->begin() + static_cast<std::ptrdiff_t>(t) * width;
      joined.insert(joined.end(), begin, begin + width);
    }
  }
  return joined;
}

size_t Size(int64_t count) { return static_cast<size_t>(count); }

OperatorCase EmbedRows() {
  return {"embed_rows", 9, {}, [](const LaunchOptions& options, const Rows& chosen) {
            const Bf16Storage embed(1, 20, 96);
            std::vector<int32_t> tokens;
            for (const int row : chosen) tokens.push_back(row * 7 % 20);
            Floats out(chosen.size() * 4 * 96);
            EmbedRowsParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.copies = 4;
            params.tokens = tokens.data();
            params.embed = embed.view();
            params.out = out.data();
            LaunchKernel(ReferenceManifest(), params, options);
            Floats want;
            for (size_t i = 0; i < out.size(); ++i) {
              const size_t token = static_cast<size_t>(tokens[i / (4 * 96)]);
              want.push_back(Bf16ToFloat(embed.data[token * 96 + i % 96]));
            }
            REQUIRE(test::FarElements(out, want) == "");
            return out;
          }};
}

OperatorCase RmsNorm() {
  return {"rms_norm",
          9,
          {Point::kRoundRmsNorm, Point::kQuantLinearInput},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats x = Gather(options, RandomFloats(2, 9 * 384), 384, chosen);
            const std::vector<uint16_t> weight = RandomNorm(3, 384);
            Floats normed(x.size()), quantized(x.size());
            RmsNormParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.dim = 384;
            params.x = x.data();
            params.weight = weight.data();
            params.eps = 1e-6f;
            params.normed = normed.data();
            params.quantized = quantized.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return JoinRows(chosen.size(), {&normed, &quantized});
          }};
}

// 300 rows: more than one pass over the weights.
OperatorCase LinearFp8() {
  return {"linear_fp8",
          300,
          {Point::kRoundLinear},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats x = Gather(options, RandomFloats(4, 300 * 256), 256, chosen);
            const Fp8Storage first(5, 130, 256), second(6, 19, 256);
            Floats y1(chosen.size() * 130), y2(chosen.size() * 19);
            LinearFp8Params params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.k = 256;
            params.x = x.data();
            params.part_count = 2;
            params.parts[0] = {first.view(), y1.data()};
            params.parts[1] = {second.view(), y2.data()};
            LaunchKernel(ReferenceManifest(), params, options);
            return JoinRows(chosen.size(), {&y1, &y2});
          }};
}

OperatorCase LinearBf16() {
  return {"linear_bf16",
          21,
          {Point::kRoundLinear},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats x = Gather(options, RandomFloats(7, 21 * 384), 384, chosen);
            const Bf16Storage first(8, 8, 384), second(9, 33, 384);
            Floats y1(chosen.size() * 8), y2(chosen.size() * 33);
            LinearBf16Params params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.k = 384;
            params.x = x.data();
            params.part_count = 2;
            params.parts[0] = {first.view(), y1.data(), true};
            params.parts[1] = {second.view(), y2.data(), false};
            LaunchKernel(ReferenceManifest(), params, options);
            return JoinRows(chosen.size(), {&y1, &y2});
          }};
}

OperatorCase OutputGroups() {
  return {"output_groups",
          18,
          {Point::kRoundOutputGroups, Point::kQuantOutputGroups},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats o = Gather(options, RandomFloats(10, 18 * 1024), 1024, chosen);
            const Fp8Storage wo_a(11, 256, 512);
            Floats y(chosen.size() * 256);
            OutputGroupsParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.groups = 2;
            params.rank = 128;
            params.group_width = 512;
            params.wo_a = wo_a.view();
            params.o = o.data();
            params.y = y.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return y;
          }};
}

OperatorCase HcPre() {
  return {"hc_pre",
          19,
          {Point::kRoundHcPre, Point::kRoundRmsNorm, Point::kQuantLinearInput},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats streams = Gather(options, RandomFloats(12, 19 * 512), 512, chosen);
            const Floats fn = RandomFloats(13, 24 * 512, 0.1f), base = RandomFloats(14, 24);
            const float scale[3] = {0.7f, 1.1f, 0.9f};
            const std::vector<uint16_t> norm = RandomNorm(15, 128);
            Floats normed(chosen.size() * 128), quantized(normed), post(chosen.size() * 4);
            Floats comb(chosen.size() * 16);
            HcPreParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.hidden = 128;
            params.streams = streams.data();
            params.fn = fn.data();
            params.base = base.data();
            params.scale = scale;
            params.hc_eps = params.norm_eps = 1e-6f;
            params.sinkhorn_iters = 20;
            params.norm = norm.data();
            params.normed = normed.data();
            params.quantized = quantized.data();
            params.post = post.data();
            params.comb = comb.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return JoinRows(chosen.size(), {&normed, &quantized, &post, &comb});
          }};
}

OperatorCase HcPost() {
  return {
      "hc_post", 7, {Point::kRoundHcPost}, [](const LaunchOptions& options, const Rows& chosen) {
        Floats streams = Gather(options, RandomFloats(16, 7 * 512), 512, chosen);
        const Floats y = Gather(options, RandomFloats(17, 7 * 128), 128, chosen);
        const LaunchOptions exact;
        const Floats post = Gather(exact, RandomFloats(18, 7 * 4), 4, chosen);
        const Floats comb = Gather(exact, RandomFloats(19, 7 * 16), 16, chosen);
        HcPostParams params;
        params.rows = static_cast<int32_t>(chosen.size());
        params.hidden = 128;
        params.y = y.data();
        params.post = post.data();
        params.comb = comb.data();
        params.streams = streams.data();
        Floats out(streams.size());
        params.out = out.data();
        LaunchKernel(ReferenceManifest(), params, options);
        params.out = streams.data();  // in place
        LaunchKernel(ReferenceManifest(), params, options);
        REQUIRE(out == streams);
        return out;
      }};
}

OperatorCase HcHead() {
  return {"hc_head",
          5,
          {Point::kRoundHcPre, Point::kRoundRmsNorm},
          [](const LaunchOptions& options, const Rows& chosen) {
            Floats all(RandomFloats(20, 5 * 512));
            if (options.numerics == Numerics::kPublished) {
              for (float& value : all) value = RoundToBf16(value);
            }
            const Floats fn = RandomFloats(21, 4 * 512, 0.1f), base = RandomFloats(22, 4);
            const float scale = 0.8f;
            const std::vector<uint16_t> norm = RandomNorm(23, 128);
            const std::vector<int32_t> row_of(chosen.begin(), chosen.end());
            Floats normed(chosen.size() * 128);
            HcHeadParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.row_of = row_of.data();
            params.hidden = 128;
            params.streams = all.data();
            params.fn = fn.data();
            params.base = base.data();
            params.scale = &scale;
            params.hc_eps = params.norm_eps = 1e-6f;
            params.norm = norm.data();
            params.normed = normed.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return normed;
          }};
}

OperatorCase MtpCombine() {
  return {"mtp_combine",
          4,
          {Point::kRoundLinear},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats e = Gather(options, RandomFloats(24, 4 * 128), 128, chosen);
            const Floats h = Gather(options, RandomFloats(25, 4 * 512), 512, chosen);
            Floats out(h.size());
            MtpCombineParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.hidden = 128;
            params.e = e.data();
            params.h = h.data();
            params.streams = out.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return out;
          }};
}

OperatorCase MoeGate() {
  return {"moe_gate", 20, {}, [](const LaunchOptions& options, const Rows& chosen) {
            const Floats x = Gather(options, RandomFloats(26, 20 * 256), 256, chosen);
            const Bf16Storage gate(27, 18, 256);
            const Floats bias = RandomFloats(28, 18);
            std::vector<int32_t> experts(chosen.size() * 5);
            Floats weights(chosen.size() * 5);
            MoeGateParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.experts_per_token = 5;
            params.gate = gate.view();
            params.x = x.data();
            params.bias = bias.data();
            params.routed_scale = 1.5f;
            params.experts = experts.data();
            params.weights = weights.data();
            LaunchKernel(ReferenceManifest(), params, options);
            const Floats numbers(experts.begin(), experts.end());
            return JoinRows(chosen.size(), {&numbers, &weights});
          }};
}

// 150 rows with 3 experts each: one expert gets more rows than one pass serves.
OperatorCase ExpertFfn() {
  return {"expert_ffn",
          150,
          {Point::kRoundLinear, Point::kRoundSwiglu, Point::kQuantExpertHidden,
           Point::kRoundExpertOutput, Point::kRoundFfnOutput},
          [](const LaunchOptions& options, const Rows& chosen) {
            const Floats x = Gather(options, RandomFloats(29, 150 * 256), 256, chosen);
            std::vector<Fp4Storage> weights4;
            for (uint64_t e = 0; e < 4; ++e) {
              weights4.emplace_back(30 + e, 128, 256);
              weights4.emplace_back(40 + e, 128, 256);
              weights4.emplace_back(50 + e, 256, 128);
            }
            std::vector<ExpertWeights> experts;
            std::vector<const ExpertWeights*> table;
            for (size_t e = 0; e < 4; ++e) {
              experts.push_back(
                  {weights4[3 * e].view(), weights4[3 * e + 1].view(), weights4[3 * e + 2].view()});
            }
            for (const ExpertWeights& expert : experts) table.push_back(&expert);
            const Fp8Storage w1(60, 128, 256), w3(61, 128, 256), w2(62, 256, 128);
            std::vector<int32_t> routes;
            Floats route_weights;
            for (const int row : chosen) {
              for (int i = 0; i < 3; ++i) {
                routes.push_back(i == 1 ? 2 : (row + i) % 4);
                route_weights.push_back(0.3f + 0.1f * static_cast<float>(i));
              }
            }
            Floats y(x.size());
            ExpertFfnParams params;
            params.rows = static_cast<int32_t>(chosen.size());
            params.hidden = 256;
            params.inter = 128;
            params.expert_count = 4;
            params.experts_per_token = 3;
            params.experts_table = table.data();
            params.shared_w1 = w1.view();
            params.shared_w3 = w3.view();
            params.shared_w2 = w2.view();
            params.experts = routes.data();
            params.weights = route_weights.data();
            params.limit = 0.5f;
            params.x = x.data();
            params.y = y.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return y;
          }};
}

// Rows of three sequences: over a window block's edge, at a sequence's start, and far along.
const std::vector<test::StepRow> kStepRows = {{1, 126}, {1, 127}, {1, 128}, {1, 129}, {2, 0},
                                              {2, 1},   {3, 509}, {3, 510}, {3, 511}, {3, 512}};
constexpr int64_t kMaxPosition = 600;

std::vector<test::StepRow> ChosenRows(const Rows& chosen) {
  std::vector<test::StepRow> rows;
  for (const int row : chosen) rows.push_back(kStepRows[static_cast<size_t>(row)]);
  return rows;
}

OperatorCase QkvPrepare() {
  return {"qkv_prepare",
          static_cast<int>(kStepRows.size()),
          {Point::kRoundQNorm, Point::kRoundRope, Point::kRoundRmsNorm, Point::kQuantWindowRow,
           Point::kRoundHadamard, Point::kQuantIndexQuery},
          [](const LaunchOptions& options, const Rows& chosen) {
            TestStep step(ChosenRows(chosen), kMaxPosition, chosen.size());
            Floats q = Gather(options, RandomFloats(70, 10 * 3 * 512), 3 * 512, chosen);
            const Floats kv = Gather(options, RandomFloats(71, 10 * 512), 512, chosen);
            const std::vector<uint16_t> norm = RandomNorm(72, 512);
            Floats index_q = Gather(options, RandomFloats(73, 10 * 5 * 128), 5 * 128, chosen);
            QkvPrepareParams params;
            params.step = &step.rows();
            params.heads = 3;
            params.q = q.data();
            params.kv = kv.data();
            params.kv_norm = norm.data();
            params.eps = 1e-6f;
            params.compressed_rope = true;
            params.window = step.MakeWindowPool();
            params.index_heads = 5;
            params.index_q = index_q.data();
            LaunchKernel(ReferenceManifest(), params, options);
            Floats rows;
            for (int64_t t = 0; t < step.rows().rows; ++t) {
              const float* row = step.WindowRow(params.window, t, step.rows().positions[t]);
              rows.insert(rows.end(), row, row + 512);
            }
            return JoinRows(chosen.size(), {&q, &rows, &index_q});
          }};
}

OperatorCase IndexScoreTopk() {
  return {"index_score_topk",
          static_cast<int>(kStepRows.size()),
          {},
          [](const LaunchOptions& options, const Rows& chosen) {
            TestStep step(ChosenRows(chosen), kMaxPosition, chosen.size());
            const Floats q = Gather(options, RandomFloats(74, 10 * 18 * 128), 18 * 128, chosen);
            const Floats weights = Gather(options, RandomFloats(75, 10 * 18), 18, chosen);
            std::vector<int32_t> selected(chosen.size() * 33);
            IndexScoreTopkParams params;
            params.step = &step.rows();
            params.heads = 18;
            params.topk = 33;
            params.q = q.data();
            params.weights = weights.data();
            params.weight_scale = 0.02f;
            params.keys = step.MakeCompressedPool(4, 128);
            params.selected = selected.data();
            step.FillCompressedRows(params.keys, 4, 128, 76);
            LaunchKernel(ReferenceManifest(), params, options);
            return Floats(selected.begin(), selected.end());
          }};
}

template <int kRatio>
OperatorCase SparseAttention() {
  return {"sparse_attention",
          static_cast<int>(kStepRows.size()),
          {Point::kRoundAttention, Point::kRoundInverseRope},
          [](const LaunchOptions& options, const Rows& chosen) {
            TestStep step(ChosenRows(chosen), kMaxPosition, chosen.size());
            const Floats q = Gather(options, RandomFloats(77, 10 * 18 * 512), 18 * 512, chosen);
            const Floats sink = RandomFloats(78, 18);
            std::vector<int32_t> selected;
            for (const test::StepRow& row : ChosenRows(chosen)) {
              for (int32_t i = 0; i < 20; ++i) {
                selected.push_back(3 * i < VisibleCompressedBlocks(row.position, 4) ? 3 * i : -1);
              }
            }
            Floats o(q.size());
            SparseAttentionParams params;
            params.step = &step.rows();
            params.heads = 18;
            params.ratio = kRatio;
            params.q = q.data();
            params.window = step.MakeWindowPool();
            step.FillWindow(params.window, 79);
            if (kRatio != 0) {
              params.compressed = step.MakeCompressedPool(kRatio, 512);
              step.FillCompressedRows(params.compressed, kRatio, 512, 80);
            }
            params.selected = selected.data();
            params.topk = 20;
            params.sink = sink.data();
            params.softmax_scale = 0.05f;
            params.o = o.data();
            LaunchKernel(ReferenceManifest(), params, options);
            return o;
          }};
}

std::vector<OperatorCase> AllCases() {
  return {EmbedRows(),
          RmsNorm(),
          LinearFp8(),
          LinearBf16(),
          OutputGroups(),
          HcPre(),
          HcPost(),
          HcHead(),
          MtpCombine(),
          MoeGate(),
          ExpertFfn(),
          QkvPrepare(),
          IndexScoreTopk(),
          SparseAttention<0>(),
          SparseAttention<4>(),
          SparseAttention<128>()};
}

Rows Range(int count) {
  Rows rows;
  for (int row = 0; row < count; ++row) rows.push_back(row);
  return rows;
}

TEST_CASE("a row alone gives the bits it gives in a batch") {
  for (const OperatorCase& op : AllCases()) {
    for (const Numerics numerics : {Numerics::kPublished, Numerics::kExact}) {
      const Floats batch = op.run({.numerics = numerics, .threads = 3}, Range(op.rows));
      const size_t width = batch.size() / Size(op.rows);
      REQUIRE(width > 0);
      for (int row = 0; row<op.rows; row += op.rows> 100 ? 37 : 1) {
        CAPTURE(op.name, static_cast<int>(numerics), row);
        const Floats alone = op.run({.numerics = numerics, .threads = 1}, {row});
        REQUIRE(alone.size() == width);
        REQUIRE(std::memcmp(alone.data(), batch.data() + Size(row) * width, width * 4) == 0);
        REQUIRE(test::NotFinite(alone) == "");
      }
    }
  }
}

TEST_CASE("each point of an operator changes its published result, and only those") {
  for (const OperatorCase& op : AllCases()) {
    const Rows rows = Range(std::min(op.rows, 10));
    const Floats published = op.run({.numerics = Numerics::kPublished}, rows);
    for (int32_t i = 0; i < static_cast<int32_t>(Point::kCount); ++i) {
      const auto point = static_cast<Point>(i);
      const bool named = std::find(op.points.begin(), op.points.end(), point) != op.points.end();
      const Floats without =
          op.run({.numerics = Numerics::kPublished, .omitted_points = PointBit(point)}, rows);
      CAPTURE(op.name, PointName(point));
      CHECK((without != published) == named);
    }
  }
}

TEST_CASE("exact numerics ignore every point, fp32 numerics keep the quantisers") {
  uint64_t quantisers = 0, all = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(Point::kCount); ++i) {
    const auto point = static_cast<Point>(i);
    all |= PointBit(point);
    if (IsQuantiser(point)) quantisers |= PointBit(point);
  }
  for (const OperatorCase& op : AllCases()) {
    CAPTURE(op.name);
    const Rows rows = Range(std::min(op.rows, 10));
    const Floats exact = op.run({.numerics = Numerics::kExact}, rows);
    CHECK(op.run({.numerics = Numerics::kExact, .omitted_points = all}, rows) == exact);
    CHECK(op.run({.numerics = Numerics::kFp32, .omitted_points = quantisers}, rows) == exact);
    const bool quantises = std::any_of(op.points.begin(), op.points.end(), IsQuantiser);
    CHECK((op.run({.numerics = Numerics::kFp32}, rows) != exact) == quantises);
  }
}

}  // namespace
}  // namespace dsv4
