// SPDX-License-Identifier: Apache-2.0
// Planted bugs: the reference backend without one of its rounding points or quantisers. Each must
// change some output of an operator that is fed with the right inputs by far more than the rule of
// published numerics allows; the fp32 rule of dsv4-verify must notice each quantiser.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/step_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"
#include "tools/verify/layer_compare.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/oracle_rules.h"

namespace dsv4 {
namespace {

const std::string kOracle = std::string(DSV4_SOURCE_DIR) + "/tests/oracle/";

bool NotInterrupted() { return false; }

std::vector<Point> Points(bool quantisers_only) {
  std::vector<Point> points;
  for (int32_t i = 0; i < static_cast<int32_t>(Point::kCount); ++i) {
    const Point point = static_cast<Point>(i);
    if (!quantisers_only || IsQuantiser(point)) points.push_back(point);
  }
  return points;
}

// A case with the prompts that a test needs, and its checkpoint.
class ReducedCase {
 public:
  ReducedCase(const std::string& name, std::vector<int64_t> prompts) {
    absl::StatusOr<OracleCase> loaded = LoadOracleCase(kOracle + "cases/" + name + ".json");
    REQUIRE_OK(loaded);
    oracle = *std::move(loaded);
    oracle.prompts = std::move(prompts);
    REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.path()));
  }

  OracleCase oracle;
  test::TempFolder folder;
};

// The operators of a case, of the reference backend with and without points.
class OperatorProbe {
 public:
  OperatorProbe(const std::string& name, int64_t prompt) : case_(name, {prompt}) {
    baseline_ = Open(0);
  }

  std::map<std::string, OperatorFlips> Flips(uint64_t omitted_points) {
    OperatorComparison operators;
    REQUIRE_OK(
        CompareLayers(case_.oracle, *baseline_, *Open(omitted_points), NotInterrupted, &operators));
    CHECK(operators.Holds() == (omitted_points == 0));
    return operators.flips();
  }

 private:
  std::shared_ptr<Engine> Open(uint64_t omitted_points) {
    EngineOptions options =
        OracleEngineOptions(case_.oracle, Backend::kReference, Numerics::kPublished);
    options.omitted_points = omitted_points;
    const absl::StatusOr<std::shared_ptr<Engine>> engine =
        Engine::Open(case_.folder.path(), options);
    REQUIRE_OK(engine);
    return *engine;
  }

  ReducedCase case_;
  std::shared_ptr<Engine> baseline_;
};

// The output with the most different elements.
std::pair<std::string, double> MostChanged(const std::map<std::string, OperatorFlips>& flips) {
  std::pair<std::string, double> most;
  for (const auto& [name, output] : flips) {
    if (output.share() > most.second) most = {name, output.share()};
  }
  return most;
}

constexpr double kNoticed = 0.05;

// The share of elements that differ without `point`, which is in force in published numerics.
template <class Run>
double ChangedWithout(Point point, const Run& run) {
  const std::vector<float> expected = run(0), changed = run(PointBit(point));
  size_t differing = 0;
  for (size_t i = 0; i < expected.size(); ++i) differing += expected[i] != changed[i];
  return static_cast<double>(differing) / static_cast<double>(expected.size());
}

// What these two points round is quantised at once: of any numbers, few lie where that shows. Here
// the quantiser sees numbers right above a tie, which rounding to bf16 makes one.
TEST_CASE("output_groups notices its rounding in front of the quantiser") {
  constexpr int64_t kRank = 128, kWidth = 512;
  // Row i of the weight adds elements i and i + 128.
  std::vector<uint8_t> weight(kRank * kWidth), scale(kWidth / 128, 127);
  std::vector<float> o(kWidth);
  for (int64_t i = 0; i < kRank; ++i) {
    weight[i * kWidth + i] = weight[i * kWidth + kRank + i] = 0x38;
    o[i] = 1.0625f;  // between 1 and 1.125
    o[kRank + i] = 0x1p-12f;
  }
  o[0] = 448;  // the scale is 1
  const double changed = ChangedWithout(Point::kRoundOutputGroups, [&](uint64_t omitted) {
    std::vector<float> y(kRank);
    OutputGroupsParams p;
    p.rows = 1;
    p.groups = 1;
    p.rank = kRank;
    p.group_width = kWidth;
    p.wo_a = {.data = weight.data(), .scale = scale.data(), .n = kRank, .k = kWidth};
    p.o = o.data();
    p.y = y.data();
    test::LaunchKernel(ReferenceManifest(), p,
                       {.numerics = Numerics::kPublished, .omitted_points = omitted});
    return y;
  });
  CHECK(changed >= kNoticed);
}

TEST_CASE("index queries notice the rounding of the Hadamard rotation") {
  test::TestStep step({{1, 0}}, 256, 1);
  const RowPool window = step.MakeWindowPool();
  std::vector<uint16_t> norm(kKvRowElements, 0x3f80);
  const double changed = ChangedWithout(Point::kRoundHadamard, [&](uint64_t omitted) {
    std::vector<float> q(kKvRowElements, 1), kv(kKvRowElements, 1);
    // Every second element becomes 56.625 / sqrt(128) = 5.005, 5 in bf16: between 4 and 6.
    std::vector<float> index_q(kIndexKeyElements);
    index_q[0] = 56.5f;
    index_q[1] = 0.125f;
    QkvPrepareParams p;
    p.step = &step.rows();
    p.heads = 1;
    p.q = q.data();
    p.kv = kv.data();
    p.kv_norm = norm.data();
    p.eps = 1e-6f;
    p.window = window;
    p.index_heads = 1;
    p.index_q = index_q.data();
    test::LaunchKernel(ReferenceManifest(), p,
                       {.numerics = Numerics::kPublished, .omitted_points = omitted});
    return index_q;
  });
  CHECK(changed >= kNoticed);
}

TEST_CASE("operators notice every other rounding point and quantiser") {
  OperatorProbe probe("odd", 129);
  CHECK(MostChanged(probe.Flips(0)).second == 0);
  for (const Point point : Points(false)) {
    if (point == Point::kRoundOutputGroups || point == Point::kRoundHadamard) continue;
    const auto [output, share] = MostChanged(probe.Flips(PointBit(point)));
    INFO(PointName(point) << ": " << 100 * share << " % of " << output);
    CHECK(share >= kNoticed);
  }
}

TEST_CASE("the fp32 rule notices every dropped quantiser") {
  const ReducedCase odd("odd", {1, 300});
  const absl::StatusOr<ExpectedTensors> expected =
      ExpectedTensors::Open(kOracle + "expected/odd.published.safetensors");
  REQUIRE_OK(expected);
  const auto passes = [&](uint64_t omitted_points) {
    OracleOptions options;
    options.mode = Numerics::kFp32;
    options.omitted_points = omitted_points;
    options.print = [](absl::string_view) {};
    options.interrupted = NotInterrupted;
    const absl::StatusOr<bool> passed =
        VerifyOracle(odd.oracle, odd.folder.path(), *expected, options);
    REQUIRE_OK(passed);
    return *passed;
  };
  CHECK(passes(0));
  for (const Point point : Points(true)) {
    INFO(PointName(point));
    CHECK_FALSE(passes(PointBit(point)));
  }
}

}  // namespace
}  // namespace dsv4
