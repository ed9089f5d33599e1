// SPDX-License-Identifier: Apache-2.0
// A case of the oracle on engines with several devices.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/oracle_run.h"

namespace dsv4::test {

// The first `count`.
inline std::vector<int32_t> Devices(int count) {
  std::vector<int32_t> devices;
  for (int32_t i = 0; i < count; ++i) devices.push_back(i);
  return devices;
}

class CaseOnDevices {
 public:
  CaseOnDevices(const std::string& name, std::vector<int64_t> prompts) {
    absl::StatusOr<OracleCase> loaded =
        LoadOracleCase(std::string(DSV4_SOURCE_DIR) + "/tests/oracle/cases/" + name + ".json");
    REQUIRE_OK(loaded);
    oracle_ = *std::move(loaded);
    oracle_.prompts = std::move(prompts);
    oracle_.record = oracle_.prompts;
    REQUIRE_OK(WriteOracleCheckpoint(oracle_, folder_.path()));
  }

  std::shared_ptr<Engine> Open(int devices, Backend backend = Backend::kCpu,
                               ExchangePath exchange = ExchangePath::kAuto) const {
    EngineOptions options = OracleEngineOptions(oracle_, backend, Numerics::kPublished);
    options.devices = Devices(devices);
    options.exchange = exchange;
    if (backend != Backend::kCuda) options.threads = 2;
    const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(folder_.path(), options);
    REQUIRE_OK(engine);
    return *engine;
  }

  const std::string& folder() const { return folder_.path(); }

  OracleTensors Run(Engine& engine) const {
    absl::StatusOr<OracleTensors> tensors = RunOracleCase(oracle_, engine, [] { return false; });
    REQUIRE_OK(tensors);
    return *std::move(tensors);
  }

 private:
  OracleCase oracle_;
  TempFolder folder_;
};

// The names of tensors that differ in a bit.
inline std::vector<std::string> Differences(const OracleTensors& got, const OracleTensors& want) {
  std::vector<std::string> names;
  for (const auto& [name, values] : want) {
    const auto other = got.find(name);
    if (other == got.end() || other->second.size() != values.size() ||
        std::memcmp(other->second.data(), values.data(), values.size() * sizeof(float)) != 0) {
      names.push_back(name);
    }
  }
  if (got.size() != want.size()) names.push_back("a tensor more");
  return names;
}

}  // namespace dsv4::test
