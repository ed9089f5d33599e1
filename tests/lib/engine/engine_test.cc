// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/engine.h"

#include <fstream>
#include <string>

#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4 {
namespace {

using test::kBundledModel;
using test::OpenBundled;
using test::OpenSession;

TEST_CASE("the bundled model opens with its configuration") {
  const std::shared_ptr<Engine> engine = OpenBundled({.threads = 2});
  REQUIRE(engine->config().num_hidden_layers == 6);
  const EngineInfo& info = engine->info();
  REQUIRE(info.backend == Backend::kCpu);
  REQUIRE(info.threads == 2);
  REQUIRE(info.context_tokens == 16384);
  REQUIRE(info.cache_tokens == 16384);
  REQUIRE(info.max_sessions == 4);
  REQUIRE(info.prefill_chunk_tokens == 256);
  REQUIRE(info.has_tokenizer);
  REQUIRE(info.checkpoint_drafter == DrafterKind::kMtp);
  REQUIRE(engine->eos_tokens().front() == 1);
  REQUIRE(engine->token_limit() == 2048);
  REQUIRE(engine->token_gaps().empty());
}

TEST_CASE("options outside their range, or not for this build, are refused by name") {
  const auto refused = [](const EngineOptions& options, absl::StatusCode code, const char* text) {
    REQUIRE_FAILS(Engine::Open(kBundledModel, options), code, text);
  };
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr absl::StatusCode kUnsupported = absl::StatusCode::kUnimplemented;
  refused({.context_tokens = 16385}, kInvalid, "context_tokens = 16385 is not in 1..16384");
  refused({.context_tokens = -1}, kInvalid, "context_tokens");
  refused({.cache_tokens = -1}, kInvalid, "cache_tokens");
  refused({.max_sessions = -1}, kInvalid, "max_sessions");
  refused({.prefill_chunk_tokens = -1}, kInvalid, "prefill_chunk_tokens");
  refused({.threads = 1000}, kInvalid, "threads 1000");
  refused({.devices = {1}}, kInvalid, "cpu:1");
  refused({.devices = {0, 0}}, kInvalid, "names 0 twice");
  refused({.numerics = Numerics::kExact}, kUnsupported, "reference");
  refused({.tuning_dir = "tables"}, kUnsupported,
          "tuning_dir = tables: backend cpu has no tuning tables");
  refused({.backend = Backend::kReference, .tuning_dir = "tables"}, kUnsupported, "tuning_dir");
  // Before the device is looked for, which this machine need not have.
  refused({.backend = Backend::kCuda, .tuning_dir = "/nowhere/tables"}, absl::StatusCode::kNotFound,
          "/nowhere/tables: no such directory of tuning files");
  refused({.backend = Backend::kCuda, .tuning_dir = kBundledModel}, absl::StatusCode::kDataLoss,
          ".json: \"");
}

TEST_CASE("each numerics has its formats of cache rows; others are refused by name") {
  const auto opened = [](Backend backend, Numerics numerics, std::optional<RowFormat> format) {
    return OpenBundled({.backend = backend,
                        .numerics = numerics,
                        .cache_format = format,
                        .context_tokens = 512,
                        .threads = 1})
        ->info();
  };
  const auto refused = [](Backend backend, Numerics numerics, RowFormat format, const char* text) {
    REQUIRE_FAILS(
        Engine::Open(
            kBundledModel,
            {.backend = backend, .numerics = numerics, .cache_format = format, .threads = 1}),
        absl::StatusCode::kUnimplemented, text);
  };
  for (const Backend backend : {Backend::kCpu, Backend::kReference}) {
    const EngineInfo packed = opened(backend, Numerics::kPublished, std::nullopt);
    REQUIRE(packed.cache_format == RowFormat::kPacked);
    const EngineInfo bf16 = opened(backend, Numerics::kPublished, RowFormat::kBf16);
    REQUIRE(bf16.cache_format == RowFormat::kBf16);
    REQUIRE(packed.cache_bytes < bf16.cache_bytes);
    const EngineInfo fp8 = opened(backend, Numerics::kPublished, RowFormat::kFp8PerTensor);
    REQUIRE(fp8.cache_format == RowFormat::kFp8PerTensor);
    REQUIRE(fp8.cache_bytes < packed.cache_bytes);
    refused(backend, Numerics::kPublished, RowFormat::kF32,
            "option cache_format = f32 with published numerics");
  }
  for (const Numerics numerics : {Numerics::kFp32, Numerics::kExact}) {
    const EngineInfo f32 = opened(Backend::kReference, numerics, std::nullopt);
    REQUIRE(f32.cache_format == RowFormat::kF32);
    const EngineInfo fp8 = opened(Backend::kReference, numerics, RowFormat::kFp8PerTensor);
    REQUIRE(fp8.cache_format == RowFormat::kFp8PerTensor);
    REQUIRE(fp8.cache_bytes < f32.cache_bytes);
    refused(Backend::kReference, numerics, RowFormat::kPacked, "option cache_format = packed with");
    refused(Backend::kReference, numerics, RowFormat::kBf16, "it would round their rows");
  }
  REQUIRE_FAILS(Engine::Open(kBundledModel, {.cache_format = RowFormat::kIndexFp4}),
                absl::StatusCode::kInvalidArgument, "index_fp4 is for index keys");
}

TEST_CASE("a folder that is not a model is refused by the file that is missing") {
  REQUIRE_FAILS(Engine::Open("/nonexistent", {}), absl::StatusCode::kNotFound,
                "/nonexistent/config.json");
}

TEST_CASE("random weights do not take the place of those in a folder") {
  const test::TempFolder folder;
  std::string text = test::BundledFile("config.json");
  text.insert(text.find('{') + 1, "\"dsv4_synthetic_layers\": 1, ");
  folder.Write("config.json", text);
  const EngineOptions options{.context_tokens = 512};
  REQUIRE_OK(Engine::Open(folder.path(), options));
  folder.Write("model.safetensors.index.json", "{}");
  const auto refused = Engine::Open(folder.path(), options);
  REQUIRE_FAILS(refused, absl::StatusCode::kDataLoss,
                "config.json: dsv4_synthetic_layers is for folders without weights");
}

TEST_CASE("loading reports its bytes and can be cancelled") {
  int64_t last = -1, total = 0;
  EngineOptions options{.threads = 1};
  options.progress = [&](int64_t done, int64_t all) {
    REQUIRE(done >= last);
    last = done;
    total = all;
    return true;
  };
  OpenBundled(options);
  REQUIRE(last == total);
  REQUIRE(total > 19'000'000);
  options.progress = [](int64_t, int64_t) { return false; };
  REQUIRE_FAILS(Engine::Open(kBundledModel, options), absl::StatusCode::kCancelled, "");
}

TEST_CASE("a session keeps its engine alive") {
  std::shared_ptr<Engine> engine = OpenBundled({.threads = 2});
  const std::unique_ptr<Session> session = OpenSession(engine);
  engine.reset();
  REQUIRE_OK(session->Sync(test::AnyTokens(10, 1)));
  REQUIRE_OK(session->Step());
}

// Sanitizers keep shadow memory and freed blocks of their own.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// Bytes of this process in memory, of all kinds.
int64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

TEST_CASE("peak memory is the checkpoint, the plan and 64 MiB") {
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the high-water mark
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 4096, .threads = 2});
  const std::unique_ptr<Session> session = OpenSession(engine);
  REQUIRE_OK(session->Sync(test::AnyTokens(3000, 1)));
  for (int i = 0; i < 20; ++i) REQUIRE_OK(session->Step());
  const EngineInfo& info = engine->info();
  const int64_t limit =
      info.weight_bytes + info.cache_bytes + info.workspace_bytes + (int64_t{64} << 20);
  CAPTURE(info.weight_bytes, info.cache_bytes, info.workspace_bytes, PeakResidentBytes());
  REQUIRE(PeakResidentBytes() > info.weight_bytes);
  REQUIRE(PeakResidentBytes() <= limit);
}

#endif

}  // namespace
}  // namespace dsv4
