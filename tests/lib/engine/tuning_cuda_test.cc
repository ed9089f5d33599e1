// SPDX-License-Identifier: Apache-2.0
// Tuning tables of an engine on the cuda backend: those of a directory are used, and change no bit.
#include "lib/base/log.h"
#include "tests/support/bundled_model.h"
#include "tests/support/tuning_tables.h"

namespace dsv4::test {
namespace {

std::vector<float> Logits(const std::string& tuning_dir) {
  return LogitsOfSteps(OpenBundled({.context_tokens = 1024, .tuning_dir = tuning_dir}));
}

void Keep(void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; }

TEST_CASE("tables of a directory are used, and change no bit") {
  const auto device = Device::Open({.kind = DeviceKind::kCuda});
  REQUIRE_OK(device);
  const std::vector<float> own = Logits("");
  for (size_t index = 0; index < TuningTables::Configs(); ++index) {
    INFO("config " << index);
    const TuningTables tables((*device)->traits(), index);
    std::string log;
    SetLogCallback(&Keep, &log, LogLevel::kInfo);
    const std::vector<float> tuned = Logits(tables.path());
    SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
    REQUIRE(log.find(absl::StrCat("tuning tables of ", tables.count(), " kernels")) !=
            std::string::npos);
    REQUIRE(log.find("not used") == std::string::npos);
    REQUIRE(tuned == own);
  }
}

}  // namespace
}  // namespace dsv4::test
