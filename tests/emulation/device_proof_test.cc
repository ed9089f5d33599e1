// SPDX-License-Identifier: Apache-2.0
// A GPU that is not there proves itself, with the kernels of SM12x; faults that are planted in its
// memory are told by operator. An engine that names no backend takes it.
#include "lib/proof/device_proof.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "kernels/op/dense.h"
#include "kernels/op/moe.h"
#include "lib/base/log.h"
#include "lib/engine/metrics.h"
#include "lib/proof/open_best.h"
#include "tests/emulation/matrix_products.h"
#include "tests/support/bundled_model.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

ProofOptions Short() { return {.long_rows = 9}; }

// The bytes of a matrix as the kernels read it, in the GPU's memory, which is the host's here.
uint8_t* Packed(const Fp8Weight& weight) { return const_cast<uint8_t*>(weight.data); }

TEST_CASE("a flipped bit in a packed weight is told by operator and shape") {
  ProofOptions options = Short();
  // Of the engine with layers of all kinds; a DSpark drafter's has one.
  const auto flip_in = [](size_t layer, auto matrix, int64_t at) {
    return [=](Engine& engine) {
      const auto& layers = engine.views(0).layers;
      if (layer < layers.size()) Packed(layers[layer].attn.*matrix)[at] ^= 0x40;
    };
  };
  options.opened = flip_in(1, &AttentionWeights::wq_b, 1000);
  REQUIRE_FAILS(ProveDevices(options).status(), absl::StatusCode::kUnimplemented,
                "cuda:0 (emulated) is refused: it failed its known answers: linear_fp8.y (rows ");
  options.opened = flip_in(2, &AttentionWeights::wo_a, 40);
  REQUIRE_FAILS(ProveDevices(options).status(), absl::StatusCode::kUnimplemented,
                "known answers: output_groups.y (rows ");
}

TEST_CASE("a wrong kernel result and NaN in a row are told by operator") {
  for (const float value : {1.0f, NAN}) {
    ProofOptions options = Short();
    options.launched = [value](const KernelEntry& entry, const void* params) {
      if (entry.op != Op::kLinearBf16) return;
      const auto& linear = *static_cast<const LinearBf16Params*>(params);
      const auto device = Device::Open({.kind = DeviceKind::kCuda});
      REQUIRE_OK(device);
      REQUIRE_OK((*device)->Synchronize());
      if (!linear.parts[0].round_output) *static_cast<float*>(linear.parts[0].y) = value;
    };
    REQUIRE_FAILS(ProveDevices(options).status(), absl::StatusCode::kUnimplemented,
                  "known answers: linear_bf16.y_f32 (rows ");
  }
}

TEST_CASE("the known answers hold with the sums of an RTX Blackwell's tensor cores", "[.longest]") {
  emulation::SetMmaModel(emulation::kRtxBlackwell);
  const absl::StatusOr<DeviceProof> proof = ProveDevices(Short());
  emulation::SetMmaModel({});
  REQUIRE_OK(proof);
  REQUIRE(proof->flips.size() > 30);
}

// With both ways to sum, so that no difference of theirs tells it.
TEST_CASE("each misreading of the block-scaled products is refused by operator") {
  using emulation::MmaFault;
  using emulation::MmaModel;
  std::vector<MmaModel> models;
  for (const MmaModel& sums : {MmaModel(), emulation::kRtxBlackwell}) {
    for (const MmaFault fault :
         {MmaFault::kSwappedRowScales, MmaFault::kIgnoredScaleByte,
          MmaFault::kNeighboursColumnScales, MmaFault::kLowE2M1, MmaFault::kSwappedRegisters}) {
      models.push_back(sums);
      models.back().fault = fault;
    }
  }
  // The bits of an Ada.
  models.push_back({.fraction_bits = 25, .scaled_fraction_bits = 13});
  for (const MmaModel& model : models) {
    CAPTURE(model.scaled_fraction_bits);
    CAPTURE(static_cast<int>(model.fault));
    emulation::SetMmaModel(model);
    const absl::Status status = ProveDevices(Short()).status();
    emulation::SetMmaModel({});
    REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented,
                  "cuda:0 (emulated) is refused: it failed its known answers: ");
  }
}

// The other faults have no effect there: all weight scales of the MMA are byte 0, and 1.
TEST_CASE("misreadings in the products of NVFP4 experts alone are refused") {
  using emulation::MmaFault;
  for (const MmaFault fault :
       {MmaFault::kNeighboursColumnScales, MmaFault::kLowE2M1, MmaFault::kSwappedRegisters}) {
    CAPTURE(static_cast<int>(fault));
    ProofOptions options = Short();
    int launches = 0;
    // A kernel runs when its results are waited for, which is after this.
    options.launched = [&](const KernelEntry& entry, const void* params) {
      const bool planted =
          entry.op == Op::kExpertFfn &&
          static_cast<const ExpertFfnParams*>(params)->format == ExpertFormat::kNvfp4;
      emulation::SetMmaModel({.fault = planted ? fault : MmaFault::kNone});
      launches += planted;
    };
    const absl::Status status = ProveDevices(options).status();
    emulation::SetMmaModel({});
    REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented,
                  "it failed its known answers: expert_ffn.");
    REQUIRE(launches > 0);
  }
}

// A card whose block-scaled MMA is not what the first set of kernels takes it for.
TEST_CASE("a GPU that fails with the first set of kernels runs the second") {
  emulation::SetMmaModel({.fault = emulation::MmaFault::kNeighboursColumnScales});
  REQUIRE_FAILS(ProveDevices(Short()).status(), absl::StatusCode::kUnimplemented,
                "it failed its known answers: expert_ffn.y (rows ");
  std::string said;
  SetLogCallback(
      [](void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; },
      &said, LogLevel::kWarning);
  OpenOptions options{{.context_tokens = 512}};
  options.prefer_gpu = options.prove = true;
  const absl::StatusOr<EnginePlan> plan = PlanBest(kBundledModel, options);
  const absl::StatusOr<std::shared_ptr<Engine>> engine = OpenBest(kBundledModel, options);
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  emulation::SetMmaModel({});
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().backend == Backend::kCuda);
  const std::string told = "expert_ffn.y (rows ";
  REQUIRE(absl::StrContains((*engine)->info().backend_reason, told));
  REQUIRE(absl::StrContains((*engine)->info().backend_reason, "it runs the second set of kernels"));
  REQUIRE(absl::StrContains(said, "it runs the second set of kernels"));
  const std::vector<std::string> operators = {"linear_fp8", "expert_ffn", "pack_weight"};
  REQUIRE_OK(plan);
  REQUIRE(plan->info().second_set_operators == operators);
  REQUIRE((*engine)->info().second_set_operators == operators);
  REQUIRE(MetricsOf(**engine).second_set_operators == 3);
}

TEST_CASE("the second set has its own kernels where the first has block-scaled MMAs",
          "[.longest]") {
  ProofOptions second = Short();
  second.kernel_set = KernelSet::kSecond;
  std::map<std::string, std::string> names;
  second.launched = [&](const KernelEntry& entry, const void*) {
    names[OpName(entry.op)] = entry.name;
  };
  REQUIRE_OK(ProveDevices(second));
  REQUIRE(names["linear_fp8"] == "sm12x_second.linear_fp8");
  REQUIRE(names["expert_ffn"] == "sm12x_second.expert_ffn");
  REQUIRE(names["linear_bf16"] == "sm12x.linear_bf16");
}

TEST_CASE("an engine that prefers a GPU takes one that proves itself", "[.longest]") {
  OpenOptions options{{.context_tokens = 512}};
  options.prefer_gpu = options.prove = true;
  const absl::StatusOr<std::shared_ptr<Engine>> engine = OpenBest(kBundledModel, options);
  REQUIRE_OK(engine);
  REQUIRE((*engine)->info().backend == Backend::kCuda);
  REQUIRE((*engine)->info().second_set_operators.empty());
  REQUIRE(absl::StrContains((*engine)->info().backend_reason, "; not the CPU: about "));
  // A plan that it has no room for is the CPU's.
  OpenOptions large = options;
  large.cache_tokens = int64_t{1} << 33;
  const absl::StatusOr<EnginePlan> plan = PlanBest(kBundledModel, large);
  REQUIRE_OK(plan);
  REQUIRE(plan->info().backend == Backend::kCpu);
}

}  // namespace
}  // namespace dsv4::test
