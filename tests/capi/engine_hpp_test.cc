// SPDX-License-Identifier: Apache-2.0
// <dsv4/engine.hpp>, <dsv4/error.hpp> and <dsv4/log.hpp>.
#include <cstdint>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/capi/hpp_expect.h"

namespace {

template <class Handle>
constexpr bool kMoveOnly =
    !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle> &&
    std::is_nothrow_move_constructible_v<Handle> && std::is_nothrow_move_assignable_v<Handle>;
static_assert(kMoveOnly<dsv4::Engine> && kMoveOnly<dsv4::Tokenizer> && kMoveOnly<dsv4::Parser>);
static_assert(std::is_nothrow_copy_constructible_v<dsv4::Error>);

// The C++ structs have a member for each field of these. Where a size changes, so must they.
static_assert(sizeof(dsv4_engine_options) == 112 && sizeof(dsv4_engine_identity) == 48);
static_assert(sizeof(dsv4_group_options) == 24 && sizeof(dsv4_sampling) == 168 &&
              sizeof(dsv4_session_options) == 24);
static_assert(sizeof(dsv4_sync_options) == 16 && sizeof(dsv4_step_result) == 24);
static_assert(sizeof(dsv4_message) == 128 && sizeof(dsv4_tool_call) == 56);
static_assert(sizeof(dsv4_chat_options) == 40 && sizeof(dsv4_parser_options) == 16);
static_assert(sizeof(dsv4_parser_event) == 72);

TEST_CASE("hpp: options reach the engine, and a plan is what it then takes") {
  dsv4::EngineOptions options;
  options.backend = DSV4_BACKEND_REFERENCE;
  options.devices = {0};
  options.context_tokens = 300;
  options.cache_tokens = 700;
  options.max_sessions = 3;
  options.prefill_chunk_tokens = 32;
  options.threads = 1;
  options.settings = {"numerics=fp32", "cache_format=f32"};
  options.max_draft_tokens = 2;
  options.drafter = DSV4_DRAFTER_NGRAM;
  const dsv4::EngineInfo plan = dsv4::Plan(kModel, options);
  const dsv4::Engine engine(kModel, options);
  const dsv4::EngineInfo info = engine.info();
  for (const dsv4::EngineInfo& found : {plan, info}) {
    CHECK(found.backend == DSV4_BACKEND_REFERENCE);
    CHECK(std::string(found.numerics) == "fp32");
    CHECK(found.context_tokens == 300);
    CHECK(found.cache_tokens >= 700);
    CHECK(found.max_sessions == 3);
    CHECK(found.prefill_chunk_tokens == 32);
    CHECK(found.threads == 1);
    CHECK(std::string(found.cache_format) == "f32");
    CHECK(found.max_draft_tokens == 2);
    CHECK(found.checkpoint_drafter == DSV4_DRAFTER_MTP);
    CHECK(found.drafter == DSV4_DRAFTER_NGRAM);
    CHECK(found.vocab_size == 2048);
  }
  options.settings.push_back("tuning_dir=tables");
  CHECK_THROWS_WITH(dsv4::Plan(kModel, options), Catch::Contains("tuning_dir = tables"));
  options.settings.pop_back();
  options.device_weight_bytes = -7;
  CHECK_THROWS_WITH(dsv4::Plan(kModel, options), Catch::Contains("device_weight_bytes = -7"));
  options.device_weight_bytes = 0;
  options.host_weight_bytes = -7;
  CHECK_THROWS_WITH(dsv4::Plan(kModel, options), Catch::Contains("host_weight_bytes = -7"));
  CHECK(plan.weight_bytes == info.weight_bytes);
  CHECK(plan.cache_bytes == info.cache_bytes);
  CHECK(plan.workspace_bytes == info.workspace_bytes);
  CHECK(engine.tokenizer().vocab_size() == 2048);
}

TEST_CASE("hpp: what a model is") {
  const dsv4::Engine engine = OpenBundled();
  const dsv4::EngineIdentity identity = engine.identity();
  CHECK(identity.fingerprint.size() == 32);
  CHECK(identity.weight_format == "fp8+fp4");
  CHECK_FALSE(identity.device.empty());
  CHECK(dsv4::Inspect(kModel).find(identity.fingerprint) != std::string::npos);
  // generation_config.json.
  CHECK(engine.default_sampling().temperature == DSV4_GREEDY);
  CHECK(engine.default_sampling().top_p == 1);
}

TEST_CASE("hpp: devices of the machine") {
  const std::vector<dsv4::Device> devices = dsv4::ListDevices();
  REQUIRE(devices.size() >= 2);
  CHECK(devices.front().backend == DSV4_BACKEND_CUDA);
  CHECK(devices.front().usable == devices.front().reason.empty());
  const dsv4::Device& cpu = devices.back();
  CHECK(cpu.backend == DSV4_BACKEND_CPU);
  CHECK(cpu.usable);
  CHECK_FALSE(cpu.name.empty());
  CHECK(cpu.free_bytes > 0);
  CHECK(cpu.free_bytes <= cpu.total_bytes);
}

TEST_CASE("hpp: devices of an engine, and groups") {
  dsv4::EngineOptions options;
  options.context_tokens = 512;
  options.devices = {0, 1};
  const std::vector<dsv4::DeviceInfo> devices = dsv4::PlanDevices(kModel, options);
  REQUIRE(devices.size() == 2);
  CHECK(devices[1].index == 1);
  CHECK(devices[1].weight_bytes > 0);
  options.devices = {};
  options.group.size = 2;
  REQUIRE_ERROR(dsv4::Plan(kModel, options), DSV4_ERR_UNSUPPORTED, "group_size = 2");
  options.group.rank = 2;
  REQUIRE_ERROR(dsv4::ServeGroup(kModel, options), DSV4_ERR_INVALID_ARGUMENT, "group_rank = 2");
  REQUIRE_ERROR(dsv4::CreateGroupId({}), DSV4_ERR_INVALID_ARGUMENT, "group_size = 0");
}

TEST_CASE("hpp: metrics of an engine") {
  const dsv4::Engine engine = OpenBundled();
  const dsv4::EngineMetrics metrics = engine.metrics();
  CHECK(metrics.sessions == 0);
  CHECK(metrics.compressed_kv_blocks > 0);
  engine.Suspend();
  CHECK(engine.metrics().suspended == 1);
  bool told = false;
  engine.Resume([&](const dsv4::ProgressReport& progress) {
    told = progress.phase == DSV4_PROGRESS_LOAD;
    return true;
  });
  CHECK(told);
  CHECK(engine.metrics().suspended == 0);
}

TEST_CASE("hpp: an error says what the C one says") {
  try {
    dsv4::Engine("/nonexistent");
    FAIL("opened a folder that is not there");
  } catch (const std::runtime_error& error) {
    CHECK(std::string(error.what()).find("/nonexistent") != std::string::npos);
    const auto& own = dynamic_cast<const dsv4::Error&>(error);
    CHECK(own.code() == DSV4_ERR_NOT_FOUND);
    CHECK(std::string(own.name()) == "NOT_FOUND");
  }
  dsv4::EngineOptions options;
  options.devices = {0, 0};
  REQUIRE_ERROR(dsv4::Engine(kModel, options), DSV4_ERR_INVALID_ARGUMENT, "devices names 0 twice");
  REQUIRE_ERROR(dsv4::Plan(kModel, options), DSV4_ERR_INVALID_ARGUMENT, "devices names 0 twice");
  options.devices = {0, 1};
  CHECK(dsv4::Plan(kModel, options).device_count == 2);
  REQUIRE_ERROR(dsv4::Inspect("/nonexistent"), DSV4_ERR_NOT_FOUND, "/nonexistent");
  options = {};
  options.backend = 9;
  try {
    OpenBundled(options);
    FAIL("opened with backend 9");
  } catch (const dsv4::Error& error) {
    CHECK(error.code() == DSV4_ERR_INVALID_ARGUMENT);
    CHECK(error.argument() == "options.backend");
    const dsv4::Error copy = error;
    CHECK(copy.argument() == "options.backend");
  }
}

TEST_CASE("hpp: progress of loading is reported, cancels and throws") {
  dsv4::EngineOptions options;
  std::vector<dsv4::ProgressReport> reports;
  options.progress = [&](const dsv4::ProgressReport& report) {
    reports.push_back(report);
    return true;
  };
  OpenBundled(options);
  REQUIRE_FALSE(reports.empty());
  CHECK(reports.back().phase == DSV4_PROGRESS_LOAD);
  CHECK(reports.back().unit == DSV4_UNIT_BYTES);
  CHECK(reports.back().total > 0);
  CHECK(reports.back().done == reports.back().total);

  options.progress = [](const dsv4::ProgressReport&) { return false; };
  REQUIRE_ERROR(OpenBundled(options), DSV4_ERR_CANCELLED, "");
  options.progress = [](const dsv4::ProgressReport&) -> bool { throw Surprise{7}; };
  try {
    OpenBundled(options);
    FAIL("opened though the callback threw");
  } catch (const Surprise& surprise) {
    CHECK(surprise.number == 7);
  }
}

TEST_CASE("hpp: handles move, and one that was moved from is refused") {
  dsv4::Engine first = OpenBundled();
  dsv4::Engine second = std::move(first);
  CHECK(second.info().context_tokens == 512);
  CHECK(first.get() == nullptr);
  REQUIRE_ERROR(first.info(), DSV4_ERR_INVALID_ARGUMENT, "engine is NULL");
  first = std::move(second);
  CHECK(first.info().context_tokens == 512);
}

TEST_CASE("hpp: the log ends with its object, and what it throws goes nowhere") {
  std::mutex mutex;
  std::vector<std::string> lines;
  {
    const dsv4::Log log([&](dsv4_log_level level, const std::string& message) {
      const std::lock_guard<std::mutex> lock(mutex);
      CHECK(level <= DSV4_LOG_INFO);
      lines.push_back(message);
      throw Surprise{1};
    });
    OpenBundled();
    REQUIRE_FALSE(lines.empty());
  }
  const std::size_t count = lines.size();
  OpenBundled();
  CHECK(lines.size() == count);
  {
    const dsv4::Log log(
        [&](dsv4_log_level, const std::string& message) { lines.push_back(message); },
        DSV4_LOG_WARNING);
    OpenBundled();
  }
  CHECK(lines.size() == count);
}

}  // namespace
