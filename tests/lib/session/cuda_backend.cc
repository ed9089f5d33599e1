// SPDX-License-Identifier: Apache-2.0
// Linked into the sessions' tests, has them run on the cuda backend: with graphs, or without where
// DSV4_TEST_GRAPHS is "off"; with as few experts on the device as can be where DSV4_TEST_WEIGHTS is
// "least"; on DSV4_TEST_GPUS devices, which exchange by peer access, through host
// memory or by NCCL alone where DSV4_TEST_EXCHANGE is "direct", "host" or "nccl".
#include <chrono>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "tests/support/bundled_model.h"

namespace dsv4::test {
namespace {

absl::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int Gpus() {
  int gpus = 1;
  const absl::string_view value = Variable("DSV4_TEST_GPUS");
  return value.empty() || absl::SimpleAtoi(value, &gpus) ? gpus : 0;
}

}  // namespace

EngineOptions OnTestedBackend(const EngineOptions& options) {
  if (options.backend != Backend::kCpu) return options;
  EngineOptions cuda = options;
  cuda.backend = Backend::kCuda;
  cuda.threads = 0;
  cuda.graphs = Variable("DSV4_TEST_GRAPHS") != "off";
  if (cuda.devices.empty()) {
    for (int gpu = 0; gpu < Gpus(); ++gpu) cuda.devices.push_back(gpu);
  }
  cuda.step_limit = std::chrono::hours(1);  // kernels that are emulated take minutes
  const absl::string_view exchange = Variable("DSV4_TEST_EXCHANGE");
  if (exchange == "direct") cuda.exchange = ExchangePath::kDirect;
  if (exchange == "host") cuda.exchange = ExchangePath::kHost;
  if (exchange == "nccl") cuda.exchange = ExchangePath::kNccl;
  if (cuda.weight_budgets.device_bytes == 0 && Variable("DSV4_TEST_WEIGHTS") == "least") {
    cuda.weight_budgets.least = true;
  }
  return cuda;
}

TEST_CASE("the tests of this program open engines of the cuda backend") {
  const auto engine = OpenBundled({.context_tokens = 512});
  REQUIRE(engine->info().backend == Backend::kCuda);
  REQUIRE(engine->model().ranks() == Gpus());
}

}  // namespace dsv4::test
