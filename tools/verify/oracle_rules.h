// SPDX-License-Identifier: Apache-2.0
// The oracle's rules (tests/oracle/README.md, "How close is close"): opens engines on a case's
// checkpoint, runs it, and compares the results with the recorded tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/engine/engine.h"
#include "tools/verify/expected_tensors.h"
#include "tools/verify/oracle_case.h"
#include "tools/verify/oracle_run.h"

namespace dsv4 {

struct OracleOptions {
  Numerics mode = Numerics::kPublished;  // kExact and kFp32 are the reference backend's
  Backend backend = Backend::kReference;
  uint64_t omitted_points = 0;     // of the tested engine; reference backend only
  int32_t threads = 0;             // 0 = one per usable core
  std::vector<int32_t> devices{};  // of the backend; empty: its first
  // Of both engines. kFp8PerTensor: only the comparison with the reference can fail. Distances from
  // recorded tensors are printed.
  std::optional<RowFormat> cache_format{};
  ExpertBudgets weight_budgets{};  // of them
  bool all_tensors = false;        // also print the recorded tensors that no rule reads
  std::function<void(absl::string_view)> print;  // one line, without its end
  Interrupted interrupted;
};

// Prints a line for each figure and a closing line. Returns true if the mode's rule holds. `folder`
// has the case's checkpoint. Errors: those of opening and running the engine; Corrupt if `expected`
// does not fit the case; NotFound if it has no figure of the case and mode. Exception: if only
// exact figures are recorded, kPublished on a backend other than the reference compares layers
// instead.
absl::StatusOr<bool> VerifyOracle(const OracleCase& oracle, const std::string& folder,
                                  const ExpectedTensors& expected, const OracleOptions& options);

}  // namespace dsv4
