// SPDX-License-Identifier: Apache-2.0
// Planted bugs: the reference backend without one of its rounding points or quantisers. The fp32
// rule of dsv4-verify must notice each quantiser; the distances of layers, each of them, by a limit
// that the cpu backend keeps (that of the published rule has room for sums in other orders).
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op/op.h"
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

// The layers of a case, of the reference backend with and without points.
class LayerProbe {
 public:
  LayerProbe(const std::string& name, int64_t prompt) : case_(name, {prompt}) {
    baseline_ = Open(Backend::kReference, 0);
  }

  double Worst(uint64_t omitted_points) { return Worst(Open(Backend::kReference, omitted_points)); }
  double WorstOfCpu() { return Worst(Open(Backend::kCpu, 0)); }

 private:
  double Worst(const std::shared_ptr<Engine>& tested) {
    const absl::StatusOr<std::vector<LayerDistance>> layers =
        CompareLayers(case_.oracle, *baseline_, *tested, NotInterrupted);
    REQUIRE_OK(layers);
    double worst = 0;
    for (const LayerDistance& layer : *layers) worst = std::max(worst, layer.distance);
    return worst;
  }

  std::shared_ptr<Engine> Open(Backend backend, uint64_t omitted_points) {
    EngineOptions options = OracleEngineOptions(case_.oracle, backend, Numerics::kPublished);
    options.omitted_points = omitted_points;
    const absl::StatusOr<std::shared_ptr<Engine>> engine =
        Engine::Open(case_.folder.path(), options);
    REQUIRE_OK(engine);
    return *engine;
  }

  ReducedCase case_;
  std::shared_ptr<Engine> baseline_;
};

constexpr double kLayerLimit = 5e-3;

// In case pro; its swiglu_limit leaves the FFN its size, while that of odd makes it small.
TEST_CASE("layers notice the roundings around the FFN") {
  LayerProbe probe("pro", 129);
  CHECK(probe.Worst(0) == 0);
  for (const Point point : {Point::kRoundSwiglu, Point::kRoundHcPost, Point::kQuantExpertHidden}) {
    INFO(PointName(point));
    CHECK(probe.Worst(PointBit(point)) > 2 * kLayerLimit);
  }
}

// Nothing in the layer quantises what these two round: dropped, they move the streams by one
// rounding to bf16 (2^-9 of the FFN's share), less than that limit. What notices them is a tighter
// one, which the cpu backend keeps in this case.
TEST_CASE("a tighter limit notices the roundings behind the experts") {
  constexpr double kOwnLimit = 1e-3;
  LayerProbe probe("mixed", 129);
  CHECK(probe.WorstOfCpu() < kOwnLimit);
  for (const Point point : {Point::kRoundExpertOutput, Point::kRoundFfnOutput}) {
    INFO(PointName(point));
    CHECK(probe.Worst(PointBit(point)) > 2 * kOwnLimit);
  }
}

// In case odd, where 300 tokens make more groups than the index selects.
TEST_CASE("layers notice every other rounding point and quantiser") {
  LayerProbe probe("odd", 300);
  CHECK(probe.Worst(0) == 0);
  for (const Point point : Points(false)) {
    if (point >= Point::kRoundSwiglu && point <= Point::kRoundHcPost) continue;
    if (point == Point::kQuantExpertHidden) continue;
    INFO(PointName(point));
    CHECK(probe.Worst(PointBit(point)) > 2 * kLayerLimit);
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
