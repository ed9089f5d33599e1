// SPDX-License-Identifier: Apache-2.0
// Whole models with the cache in its formats: packed rows, bf16 rows and f32 rows give the same
// logits to the bit under published numerics, in prefill, in decode and of the MTP block.
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/worst_element.h"
#include "tools/verify/layer_compare.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/oracle_run.h"

namespace dsv4 {
namespace {

using Floats = std::vector<float>;

// Opens with rows of `format`; f32 only as a test can: a point that no kernel has is left out, so
// that the engine cannot rely on rows of bf16 numbers.
EngineOptions WithFormat(EngineOptions options, RowFormat format) {
  options.cache_format = format;
  if (format == RowFormat::kF32) options.omitted_points = PointBit(Point::kCount);
  return options;
}

// The logits behind a prompt, and behind each of the tokens that follow it one by one.
std::vector<Floats> BundledLogits(const EngineOptions& options, int64_t prompt, int64_t decode) {
  const std::shared_ptr<Engine> engine = test::OpenBundled(options);
  REQUIRE(engine->info().cache_format == options.cache_format);
  const std::unique_ptr<Session> session = test::OpenSession(engine);
  std::vector<int32_t> tokens = test::AnyTokens(prompt, 5);
  const std::vector<int32_t> following = test::AnyTokens(decode, 6);
  std::vector<Floats> logits;
  for (int64_t i = 0; i <= decode; ++i) {
    REQUIRE_OK(session->Sync(tokens));
    REQUIRE_OK(session->Prefill(0, nullptr));
    logits.emplace_back(session->logits().begin(), session->logits().end());
    if (i < decode) tokens.push_back(following[static_cast<size_t>(i)]);
  }
  return logits;
}

TEST_CASE("the bundled model's logits are the same from packed and from wider rows") {
  const Backend backend = GENERATE(Backend::kCpu, Backend::kReference);
  CAPTURE(BackendName(backend));
  EngineOptions options{.backend = backend, .context_tokens = 1024, .threads = 2};
  // Chunks of 100 end inside compressed blocks and KV blocks.
  options.prefill_chunk_tokens = 100;
  const int64_t prompt = backend == Backend::kCpu ? 700 : 296, decode = 16;
  const std::vector<Floats> packed =
      BundledLogits(WithFormat(options, RowFormat::kPacked), prompt, decode);
  std::vector<RowFormat> others = {RowFormat::kBf16};
  if (backend == Backend::kReference) others.push_back(RowFormat::kF32);
  for (const RowFormat format : others) {
    const std::vector<Floats> other = BundledLogits(WithFormat(options, format), prompt, decode);
    REQUIRE(other.size() == packed.size());
    for (size_t i = 0; i < packed.size(); ++i) {
      CAPTURE(RowFormatName(format), i);
      REQUIRE(test::DifferentBits(packed[i], other[i]) == "");
    }
  }
}

TEST_CASE("the mixed case's logits are the same from packed and from wider rows") {
  absl::StatusOr<OracleCase> loaded =
      LoadOracleCase(DSV4_SOURCE_DIR "/tests/oracle/cases/mixed.json");
  REQUIRE_OK(loaded);
  OracleCase oracle = *std::move(loaded);
  const Backend backend = GENERATE(Backend::kCpu, Backend::kReference);
  CAPTURE(BackendName(backend));
  oracle.prompts = backend == Backend::kCpu ? std::vector<int64_t>{5, 129, 300, 1100}
                                            : std::vector<int64_t>{129, 300};
  test::TempFolder folder;
  REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.path()));
  const auto run = [&](RowFormat format) {
    const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(
        folder.path(),
        WithFormat(OracleEngineOptions(oracle, backend, Numerics::kPublished), format));
    REQUIRE_OK(engine);
    absl::StatusOr<OracleTensors> tensors = RunOracleCase(oracle, **engine, [] { return false; });
    REQUIRE_OK(tensors);
    return *std::move(tensors);
  };
  const OracleTensors packed = run(RowFormat::kPacked);
  REQUIRE(packed.count("p300.decode.logits") == 1);
  std::vector<RowFormat> others = {RowFormat::kBf16};
  if (backend == Backend::kReference) others.push_back(RowFormat::kF32);
  for (const RowFormat format : others) {
    const OracleTensors other = run(format);
    REQUIRE(other.size() == packed.size());
    for (const auto& [name, values] : packed) {
      CAPTURE(RowFormatName(format), name);
      REQUIRE(test::DifferentBits(values, other.at(name)) == "");
    }
  }
}

// Operator by operator, with the reference's inputs: the rule of docs/adr/0022 with rows and
// queries in e4m3.
TEST_CASE("the cpu backend computes with fp8_per_tensor rows what the reference does") {
  absl::StatusOr<OracleCase> loaded =
      LoadOracleCase(DSV4_SOURCE_DIR "/tests/oracle/cases/mixed.json");
  REQUIRE_OK(loaded);
  OracleCase oracle = *std::move(loaded);
  oracle.prompts = {300};
  test::TempFolder folder;
  REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.path()));
  const auto open = [&](Backend backend) {
    return Engine::Open(folder.path(),
                        WithFormat(OracleEngineOptions(oracle, backend, Numerics::kPublished),
                                   RowFormat::kFp8PerTensor));
  };
  const absl::StatusOr<std::shared_ptr<Engine>> baseline = open(Backend::kReference),
                                                tested = open(Backend::kCpu);
  REQUIRE_OK(baseline);
  REQUIRE_OK(tested);
  OperatorComparison operators;
  const auto layers = CompareLayers(
      oracle, **baseline, **tested, [] { return false; }, &operators);
  REQUIRE_OK(layers);
  for (const LayerDistance& layer : *layers) {
    CAPTURE(layer.layer);
    REQUIRE(layer.distance <= 6e-2);
  }
  for (const auto& [name, flips] : operators.flips()) {
    INFO(name << ": " << flips.Describe());
    CHECK(flips.Holds());
  }
  REQUIRE(operators.flips().at("qkv_prepare.q").elements > 0);
  REQUIRE(operators.flips().at("compress_kv.rows").elements > 0);
  REQUIRE(operators.flips().count("qkv_prepare.window.rope") == 0);
}

// e4m3 with one scale moves the logits, though not far, and the same way on both backends.
TEST_CASE("rows in fp8_per_tensor are a format of their own") {
  struct Case {
    Backend backend;
    Numerics numerics;
    RowFormat other;
  };
  const Case c = GENERATE(Case{Backend::kReference, Numerics::kFp32, RowFormat::kF32},
                          Case{Backend::kReference, Numerics::kPublished, RowFormat::kPacked},
                          Case{Backend::kCpu, Numerics::kPublished, RowFormat::kPacked});
  EngineOptions options{.backend = c.backend,
                        .numerics = c.numerics,
                        .cache_format = c.other,
                        .context_tokens = 1024,
                        .threads = 2};
  const Floats wide = BundledLogits(options, 140, 0).front();
  options.cache_format = RowFormat::kFp8PerTensor;
  const Floats narrow = BundledLogits(options, 140, 0).front();
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wide.size(); ++i) {
    difference += (wide[i] - narrow[i]) * (wide[i] - narrow[i]);
    norm += wide[i] * wide[i];
  }
  REQUIRE(difference > 0);
  REQUIRE(difference < 0.01 * norm);
}

}  // namespace
}  // namespace dsv4
