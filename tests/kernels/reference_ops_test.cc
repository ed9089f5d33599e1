// SPDX-License-Identifier: Apache-2.0
// The reference backend's pieces against the oracle's recorded operators (ops.safetensors).
#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/op/dense.h"
#include "kernels/op/rope.h"
#include "kernels/reference/hyper_connection.h"
#include "kernels/reference/manifest.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/moe_gate.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"
#include "kernels/reference/sparse_attention.h"
#include "lib/tensor/quant_format.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/support/tensor_file.h"
#include "tests/support/worst_element.h"

namespace dsv4 {
namespace {

using test::LaunchKernel;
using test::RelativeDistance;
using Floats = std::vector<float>;

const test::TensorFile& Ops() {
  static const test::TensorFile file(DSV4_SOURCE_DIR "/tests/oracle/expected/ops.safetensors");
  return file;
}

Floats F32(const char* name) { return Ops().Read<float>(name); }

double LargestDifference(const Floats& got, const Floats& expected) {
  REQUIRE(got.size() == expected.size());
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(double{got[i]} - expected[i]));
  }
  return largest;
}

TEST_CASE("act_quant is bit-exact") {
  for (const int64_t run : {128, 64}) {
    const std::string name = "act_quant" + std::to_string(run);
    const Floats x = F32((name + ".x").c_str());
    const std::vector<uint8_t> q = Ops().Read<uint8_t>(name + ".q");
    Floats scales;
    std::vector<uint8_t> codes;
    for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(run)) {
      scales.push_back(E4M3RunScale(x.data() + begin, run));
      for (size_t i = begin; i < begin + static_cast<size_t>(run); ++i) {
        codes.push_back(EncodeE4M3(x[i] / scales.back()));
      }
    }
    REQUIRE(test::DifferentBits(codes, q) == "");
    REQUIRE(test::DifferentBits(scales, F32((name + ".scale").c_str())) == "");
    Floats round_trip = x;
    ActQuant(round_trip.data(), static_cast<int64_t>(x.size()), run);
    REQUIRE(test::DifferentBits(round_trip, F32((name + ".round_trip").c_str())) == "");
  }
}

TEST_CASE("fp4_act_quant is bit-exact") {
  Floats x = F32("fp4_act_quant32.x");
  Fp4ActQuant(x.data(), static_cast<int64_t>(x.size()));
  REQUIRE(test::DifferentBits(x, F32("fp4_act_quant32.round_trip")) == "");
}

TEST_CASE("encodings give the nearest value, ties to the even code") {
  // Every code decodes to itself; midpoints go to the even neighbour; beyond the range saturates.
  for (int code = 0; code < 0x7e; ++code) {
    const float value = E4M3ToFloat(static_cast<uint8_t>(code));
    const float next = E4M3ToFloat(static_cast<uint8_t>(code + 1));
    const float middle = (value + next) / 2;
    CAPTURE(code, value);
    CHECK(EncodeE4M3(value) == code);
    CHECK(EncodeE4M3(-value) == (code | 0x80));
    CHECK(EncodeE4M3(middle) == (code % 2 == 0 ? code : code + 1));
    CHECK(EncodeE4M3(std::nextafter(middle, 0.0f)) == code);
    CHECK(EncodeE4M3(std::nextafter(middle, 1e9f)) == code + 1);
  }
  CHECK(EncodeE4M3(448) == 0x7e);
  CHECK(EncodeE4M3(1e30f) == 0x7e);
  CHECK(EncodeE4M3(-INFINITY) == 0xfe);
  CHECK(EncodeE4M3(NAN) == 0x7f);
  for (int code = 0; code < 7; ++code) {
    const float value = E2M1ToFloat(static_cast<uint8_t>(code));
    const float next = E2M1ToFloat(static_cast<uint8_t>(code + 1));
    const float middle = (value + next) / 2;
    CAPTURE(code, value);
    CHECK(EncodeE2M1(value) == code);
    CHECK(EncodeE2M1(-value) == (code | 8));
    CHECK(EncodeE2M1(middle) == (code % 2 == 0 ? code : code + 1));
    CHECK(EncodeE2M1(std::nextafter(middle, 0.0f)) == code);
    CHECK(EncodeE2M1(std::nextafter(middle, 1e9f)) == code + 1);
  }
  CHECK(EncodeE2M1(6) == 7);
  CHECK(EncodeE2M1(-1e30f) == 15);
}

TEST_CASE("run scales keep their floor") {
  const float zeros[128] = {};
  CHECK(E4M3RunScale(zeros, 128) == 0x1p-22f);  // 1e-4 / 448 = 2^-22.1
  CHECK(E2M1RunScale(zeros, 32) == 0x1p-126f);
}

TEST_CASE("Hadamard rotation") {
  Floats x = F32("hadamard.x");
  for (size_t i = 0; i < x.size(); i += 128) reference::Hadamard128(x.data() + i);
  CHECK(RelativeDistance(x, F32("hadamard.y")) < 3e-7);
}

TEST_CASE("hyper-connection weights") {
  const Floats mixes = F32("sinkhorn.mixes"), scale = F32("sinkhorn.scale");
  const Floats base = F32("sinkhorn.base");
  const size_t rows = mixes.size() / 24;
  Floats pre(rows * 4), post(rows * 4), comb(rows * 16);
  for (size_t t = 0; t < rows; ++t) {
    reference::HyperConnectionWeights(&mixes[t * 24], scale.data(), base.data(), 1e-6f, 20,
                                      &pre[t * 4], &post[t * 4], &comb[t * 16]);
  }
  CHECK(LargestDifference(pre, F32("sinkhorn.pre")) < 3e-7);
  CHECK(LargestDifference(post, F32("sinkhorn.post")) < 5e-7);
  CHECK(LargestDifference(comb, F32("sinkhorn.comb")) < 1e-6);
}

struct RopeCase {
  const char* name;
  double theta, factor;
  int64_t original;
};

TEST_CASE("rope tables") {
  const RopeCase rope =
      GENERATE(RopeCase{"window", 10000, 0, 0}, RopeCase{"yarn", 160000, 16, 1024},
               RopeCase{"flash_yarn", 160000, 16, 65536});
  const std::string prefix = std::string("rope.") + rope.name;
  const std::vector<int32_t> recorded = Ops().Read<int32_t>(prefix + ".positions");
  const Floats cosines = F32((prefix + ".cos").c_str()), sines = F32((prefix + ".sin").c_str());
  const std::vector<int64_t> positions(recorded.begin(), recorded.end());
  const size_t rows = positions.size();

  // The same frequencies in both lists: every table must then hold the recorded values.
  RopeTableParams params;
  params.rows = static_cast<int32_t>(rows);
  params.positions = positions.data();
  for (float* list : {params.frequencies.window, params.frequencies.compressed}) {
    FillRopeFrequencies(rope.theta, rope.factor, rope.original, 32, 1, list);
  }
  Floats window(rows * 64), compressed(rows * 64), ratio4(rows * 64), ratio128(rows * 64);
  params.out = {window.data(), compressed.data(), ratio4.data(), ratio128.data()};
  LaunchKernel(ReferenceManifest(), params, {});
  REQUIRE(test::DifferentBits(window, compressed) == "");
  Floats got_cosines, got_sines;
  for (size_t t = 0; t < rows; ++t) {
    const auto row = window.begin() + static_cast<std::ptrdiff_t>(t * 64);
    got_cosines.insert(got_cosines.end(), row, row + 32);
    got_sines.insert(got_sines.end(), row + 32, row + 64);
  }
  CHECK(RelativeDistance(got_cosines, cosines) <= 3e-8);
  CHECK(RelativeDistance(got_sines, sines) <= 3e-8);
  // No value is more than its last bit away.
  CHECK(LargestDifference(got_cosines, cosines) < 6e-8);
  CHECK(LargestDifference(got_sines, sines) < 6e-8);

  // Where a compressed block ends, its table is that of the block's first position.
  std::vector<int64_t> ends;
  for (const int64_t position : positions) ends.push_back(position + 3);
  for (const int64_t position : positions) ends.push_back(position + 127);
  params.rows = static_cast<int32_t>(ends.size());
  params.positions = ends.data();
  Floats all(ends.size() * 64), ratio4_ends(ends.size() * 64), ratio128_ends(ends.size() * 64);
  params.out = {all.data(), all.data(), ratio4_ends.data(), ratio128_ends.data()};
  LaunchKernel(ReferenceManifest(), params, {});
  for (size_t t = 0; t < rows; ++t) {
    const auto row_of = [](const Floats& table, size_t row) {
      return absl::MakeConstSpan(&table[row * 64], 64);
    };
    CAPTURE(positions[t]);
    if (positions[t] % 4 == 0) {
      REQUIRE(test::FarElements(row_of(ratio4_ends, t), row_of(window, t)) == "");
    }
    if (positions[t] % 128 == 0) {
      REQUIRE(test::FarElements(row_of(ratio128_ends, rows + t), row_of(window, t)) == "");
    }
  }
}

TEST_CASE("rotation by positions 5 to 12 and back") {
  RopeTableParams params;
  std::vector<int64_t> positions{5, 6, 7, 8, 9, 10, 11, 12};
  Floats table(8 * 64), others(8 * 64);
  params.rows = 8;
  params.positions = positions.data();
  for (float* list : {params.frequencies.window, params.frequencies.compressed}) {
    FillRopeFrequencies(160000, 16, 1024, 32, 1, list);
  }
  params.out = {table.data(), others.data(), others.data(), others.data()};
  LaunchKernel(ReferenceManifest(), params, {});

  Floats x = F32("apply_rope.x");
  for (size_t row = 0; row < 24; ++row) {
    reference::ApplyRope(&x[row * 512 + 448], &table[row / 3 * 64]);
  }
  CHECK(RelativeDistance(x, F32("apply_rope.positions_5_to_12")) < 3e-7);
  for (size_t row = 0; row < 24; ++row) {
    reference::ApplyInverseRope(&x[row * 512 + 448], &table[row / 3 * 64]);
  }
  CHECK(RelativeDistance(x, F32("apply_rope.inverse_of_it")) < 3e-7);
}

TEST_CASE("attention with sinks and empty slots") {
  const Floats kv = F32("sparse_attn.kv"), q = F32("sparse_attn.q"), sink = F32("sparse_attn.sink");
  const std::vector<int32_t> slots = Ops().Read<int32_t>("sparse_attn.idx");
  const size_t heads = sink.size(), tokens = q.size() / heads / 512;
  const size_t slots_per_token = slots.size() / tokens;
  Floats o(q.size());
  const auto max_rows = static_cast<int64_t>(slots_per_token);
  // A fresh NaN-filled workspace for each token: nothing of one may reach the next.
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<double> memory(
        static_cast<size_t>(reference::AttentionPlan(nullptr, max_rows).scratch.bytes()) / 8, NAN);
    const reference::AttentionPlan plan(reinterpret_cast<std::byte*>(memory.data()), max_rows);
    int64_t count = 0;
    for (size_t i = 0; i < slots_per_token; ++i) {
      const int32_t slot = slots[t * slots_per_token + i];
      if (slot >= 0)
        std::copy_n(&kv[static_cast<size_t>(slot) * 512], 512, plan.rows + count++ * 512);
    }
    reference::AttendRows(plan, count, &q[t * heads * 512], static_cast<int64_t>(heads),
                          sink.data(), 1 / std::sqrt(512.0f), &o[t * heads * 512]);
  }
  CHECK(RelativeDistance(o, F32("sparse_attn.o")) < 1e-6);
}

TEST_CASE("router") {
  Floats logits = F32("router.logits");
  const Floats bias = F32("router.bias");
  const std::vector<int32_t> experts = Ops().Read<int32_t>("router.experts");
  const size_t rows = logits.size() / 24;
  std::vector<int32_t> got(rows * 6);
  Floats weights(rows * 6);
  for (size_t t = 0; t < rows; ++t) {
    reference::SelectExperts(&logits[t * 24], 24, 6, bias.data(), nullptr, 1.5f, &got[t * 6],
                             &weights[t * 6]);
  }
  CHECK(got == experts);
  CHECK(RelativeDistance(weights, F32("router.weights")) < 3e-7);
}

TEST_CASE("router ties go to the lowest expert, fixed experts ignore the bias") {
  Floats logits(5, 1.0f);
  const Floats bias{0, 1, 1, 0, 1};
  int32_t experts[3];
  float weights[3];
  reference::SelectExperts(logits.data(), 5, 3, bias.data(), nullptr, 3.0f, experts, weights);
  CHECK(std::vector<int32_t>(experts, experts + 3) == std::vector<int32_t>{1, 2, 4});
  CHECK(weights[0] == 1.0f);

  // softplus(ln(e - 1)) = 1 and softplus(ln(e^4 - 1)) = 4: s = 1 and 2.
  logits = {0.541324854612918f, 3.98151f, -80.0f, 0.0f, 200.0f};
  const int32_t fixed[2] = {1, 0};
  reference::SelectExperts(logits.data(), 5, 2, nullptr, fixed, 1.5f, experts, weights);
  CHECK(experts[0] == 1);
  CHECK(experts[1] == 0);
  CHECK(weights[0] == Approx(1.0).epsilon(1e-6));
  CHECK(weights[1] == Approx(0.5).epsilon(1e-6));
  CHECK(logits[2] == Approx(std::exp(-40.0)).epsilon(1e-6));
  CHECK(logits[4] == Approx(std::sqrt(200.0)));
}

// The recorded activation bytes with their scales, one per 128.
Floats DequantizedActivation(const std::string& name) {
  const std::vector<uint8_t> bytes = Ops().Read<uint8_t>(name + ".a");
  const Floats scales = F32((name + ".a_scale").c_str());
  Floats x(bytes.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = E4M3ToFloat(bytes[i]) * scales[i / 128];
  return x;
}

TEST_CASE("FP8 linear") {
  const Floats x = DequantizedActivation("fp8_gemm");
  const std::vector<uint8_t> data = Ops().Read<uint8_t>("fp8_gemm.b");
  const std::vector<uint8_t> scale = Ops().Read<uint8_t>("fp8_gemm.b_scale");
  Floats y(5 * 200);
  LinearFp8Params params;
  params.rows = 5;
  params.k = 384;
  params.x = x.data();
  params.part_count = 1;
  params.parts[0] = {.w = {data.data(), scale.data(), 200, 384}, .y = y.data()};
  LaunchKernel(ReferenceManifest(), params, {.threads = 2});
  CHECK(RelativeDistance(y, F32("fp8_gemm.c")) < 1e-6);
}

TEST_CASE("FP4 linear") {
  const Floats x = DequantizedActivation("fp4_gemm");
  const std::vector<uint8_t> data = Ops().Read<uint8_t>("fp4_gemm.b");
  const std::vector<uint8_t> scale = Ops().Read<uint8_t>("fp4_gemm.b_scale");
  const Fp4Weight weight{data.data(), scale.data(), 96, 384};
  Floats y(5 * 96), workspace(static_cast<size_t>(reference::MatmulWorkspaceFloats(5, 384, 1)));
  CpuStream stream(1);
  LaunchContext context;
  context.stream = &stream;
  reference::MatmulParams params;
  params.rows = 5;
  params.k = params.x_stride = 384;
  params.x = x.data();
  params.n = params.y_stride = 96;
  params.y = y.data();
  reference::Matmul(
      context, params, [&](int64_t n, float* out) { reference::LoadRow(weight, n, out); },
      workspace.data());
  CHECK(RelativeDistance(y, F32("fp4_gemm.c")) < 1e-6);
}

}  // namespace
}  // namespace dsv4
