// SPDX-License-Identifier: Apache-2.0
// Alarms: what raises them, what does not, and that a step fails before a token is chosen from
// logits that are no numbers or do not change.
#include "lib/step/logit_watch.h"

#include <limits>
#include <string>
#include <vector>

#include "lib/base/log.h"
#include "lib/engine/metrics.h"
#include "lib/session/session.h"
#include "tests/support/bundled_model.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int32_t kBos = 0;

bool Has(int32_t alarms, Alarm alarm) { return (alarms & static_cast<int32_t>(alarm)) != 0; }

std::vector<float> Row(float first) { return {first, 1, 2, 3}; }

TEST_CASE("a row that is not all finite is refused, wherever the number stands") {
  for (const float odd :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < 37; ++at) {
      std::vector<float> row(37, 1.5f);
      CHECK_FALSE(SumOf(row).non_finite);
      row[at] = odd;
      LogitWatch watch(kBos);
      REQUIRE_FAILS(watch.See(5, row), absl::StatusCode::kInternal, "after token 4");
      CHECK(watch.alarms() == static_cast<int32_t>(Alarm::kNonFiniteLogits));
    }
  }
  std::vector<float> row(37, std::numeric_limits<float>::max());
  row[3] = std::numeric_limits<float>::denorm_min();
  CHECK_FALSE(SumOf(row).non_finite);
}

TEST_CASE("rows in another order are other rows") {
  CHECK(SumOf(std::vector<float>{1, 2}).hash != SumOf(std::vector<float>{2, 1}).hash);
  CHECK(SumOf(std::vector<float>{0.0f}).hash != SumOf(std::vector<float>{-0.0f}).hash);
}

TEST_CASE("the fourth equal row is refused, and again when it is asked for again") {
  LogitWatch watch(kBos);
  for (int64_t position = 10; position < 13; ++position) REQUIRE_OK(watch.See(position, Row(0)));
  for (int time = 0; time < 3; ++time) {
    REQUIRE_FAILS(watch.See(13, Row(0)), absl::StatusCode::kInternal, "rows before");
  }
  // All bits zero, from the first token on.
  LogitWatch zeros(kBos);
  const std::vector<float> zero(8);
  for (int64_t position = 0; position < 3; ++position) REQUIRE_OK(zeros.See(position, zero));
  REQUIRE_FAILS(zeros.See(3, zero), absl::StatusCode::kInternal, "rows before");
  CHECK(Has(watch.alarms(), Alarm::kFrozenLogits));
  REQUIRE_OK(watch.See(13, Row(7)));
  watch.Reset();
  CHECK(watch.alarms() == 0);
  REQUIRE_OK(watch.See(13, Row(0)));
}

TEST_CASE("equal rows at the same place, after a rewind and after a change are no alarm") {
  LogitWatch watch(kBos);
  for (int time = 0; time < 10; ++time) REQUIRE_OK(watch.See(10, Row(0)));
  for (int time = 0; time < 10; ++time) {
    REQUIRE_OK(watch.See(10, Row(0)));
    REQUIRE_OK(watch.See(11, Row(0)));
  }
  for (int64_t position = 20; position < 40; ++position) {
    REQUIRE_OK(watch.See(position, Row(position % 3 == 0 ? 1.0f : 2.0f)));
  }
  // Far apart: another turn.
  for (int64_t turn = 1; turn < 10; ++turn) REQUIRE_OK(watch.See(1000 * turn, Row(0)));
  CHECK(watch.alarms() == 0);
}

TEST_CASE("runs of one token are told, each once") {
  LogitWatch watch(kBos);
  int64_t position = 0;
  const auto see = [&](int32_t token, int32_t times) {
    for (int32_t i = 0; i < times; ++i) watch.SeeToken(position++, token);
  };
  see(kBos, LogitWatch::kBosRun - 1);
  see(7, LogitWatch::kTokenRun - 1);
  see(8, 1);
  see(7, LogitWatch::kTokenRun - 1);
  CHECK(watch.alarms() == 0);
  see(7, 1);
  CHECK(watch.TakeNew() == static_cast<int32_t>(Alarm::kTokenRun));
  see(7, 100);
  CHECK(watch.TakeNew() == 0);
  see(kBos, LogitWatch::kBosRun);
  CHECK(watch.TakeNew() == static_cast<int32_t>(Alarm::kBosRun));
  CHECK(Has(watch.alarms(), Alarm::kTokenRun));
}

std::shared_ptr<Engine> OpenEngine() {
  const auto engine = Engine::Open(test::kBundledModel, {.context_tokens = 512});
  REQUIRE_OK(engine);
  return *engine;
}

std::unique_ptr<Session> OpenSession(const std::shared_ptr<Engine>& engine,
                                     const SamplingParams& sampling = {}) {
  auto session = Session::Open(engine, sampling);
  REQUIRE_OK(session);
  REQUIRE_OK((*session)->Sync(std::vector<int32_t>{0, 300, 301, 302}));
  return *std::move(session);
}

int64_t Count(const Engine& engine, Alarm alarm) {
  const EngineMetrics metrics = MetricsOf(engine);
  for (size_t kind = 0; kind < metrics.alarms.size(); ++kind) {
    if (1 << kind == static_cast<int32_t>(alarm)) return metrics.alarms[kind];
  }
  return -1;
}

// Lines of the log while it lives.
class LogLines {
 public:
  LogLines() { SetLogCallback(&Collect, this, LogLevel::kWarning); }
  ~LogLines() { SetLogCallback(nullptr, nullptr, LogLevel::kInfo); }
  std::vector<std::string> lines;

 private:
  static void Collect(void* user, LogLevel, const char* message) {
    static_cast<LogLines*>(user)->lines.push_back(message);
  }
};

TEST_CASE("a NaN in one row of the head fails the step, with nothing chosen") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  Bf16Weight& head = engine->views(0).head;
  const std::vector<uint16_t> healthy(head.data, head.data + head.n * head.k);
  std::vector<uint16_t> damaged = healthy;
  damaged[static_cast<size_t>(1234 * head.k + 5)] = 0x7fc0;  // NaN
  head.data = damaged.data();
  LogLines log;
  const std::unique_ptr<Session> session = OpenSession(engine);
  for (int time = 0; time < 2; ++time) {
    REQUIRE_FAILS(session->Step(), absl::StatusCode::kInternal, "not all finite");
    REQUIRE(session->tokens().size() == 4);
  }
  CHECK(session->stats().alarms == static_cast<int32_t>(Alarm::kNonFiniteLogits));
  CHECK(Count(*engine, Alarm::kNonFiniteLogits) == 1);
  CHECK(log.lines == std::vector<std::string>{"alarm nonfinite_logits at token 4"});

  // The next prompt on sound weights.
  head.data = healthy.data();
  REQUIRE_OK(session->Sync(std::vector<int32_t>{0, 300, 301, 303}));
  REQUIRE_OK(session->Step());
  CHECK(session->stats().alarms == 0);
}

TEST_CASE("logits that stop to change fail the step") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  Bf16Weight& head = engine->views(0).head;
  const std::vector<uint16_t> zeros(static_cast<size_t>(head.n * head.k));
  head.data = zeros.data();
  const std::unique_ptr<Session> session = OpenSession(engine);
  for (int32_t i = 1; i < LogitWatch::kFrozenRows; ++i) REQUIRE_OK(session->Step());
  for (int time = 0; time < 2; ++time) {
    REQUIRE_FAILS(session->Step(), absl::StatusCode::kInternal, "rows before");
  }
  CHECK(Has(session->stats().alarms, Alarm::kFrozenLogits));
  CHECK(Count(*engine, Alarm::kFrozenLogits) == 1);
}

TEST_CASE("runs of tokens are alarms, and the text continues") {
  const std::shared_ptr<Engine> engine = OpenEngine();
  const auto bos = static_cast<int32_t>(engine->config().bos_token_id);
  SamplingParams sampling;
  sampling.forced_tokens.assign(LogitWatch::kTokenRun, 300);
  sampling.forced_tokens.insert(sampling.forced_tokens.end(), LogitWatch::kBosRun, bos);
  const std::unique_ptr<Session> session = OpenSession(engine, sampling);
  for (size_t i = 0; i < sampling.forced_tokens.size(); ++i) REQUIRE_OK(session->Step());
  CHECK(session->stats().alarms ==
        (static_cast<int32_t>(Alarm::kTokenRun) | static_cast<int32_t>(Alarm::kBosRun)));
  CHECK(Count(*engine, Alarm::kTokenRun) == 1);
  CHECK(Count(*engine, Alarm::kBosRun) == 1);
  CHECK(Count(*engine, Alarm::kFrozenLogits) == 0);
}

}  // namespace
}  // namespace dsv4
