// SPDX-License-Identifier: Apache-2.0
// Compares two engines of one checkpoint layer by layer. Each layer of both receives the streams of
// the baseline's previous layer, so differences do not accumulate.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/engine/engine.h"
#include "lib/proof/operator_compare.h"
#include "tools/verify/oracle_case.h"
#include "tools/verify/oracle_run.h"

namespace dsv4 {

struct LayerDistance {
  int64_t prompt = 0;   // length in tokens
  int64_t layer = 0;    // from num_hidden_layers on: blocks of the drafter
  double distance = 0;  // relative L2 of the output streams: of all rows of the prompt; of a DSpark
                        // drafter, of the rows of a draft behind it
};

// The prompts to compare: those of 5, 129 and 300 tokens and the recorded ones up to 300 tokens. If
// the case has none of these, its shortest prompt.
std::vector<int64_t> LayerPrompts(const OracleCase& oracle);

// For every prompt of LayerPrompts and every layer. Both engines were opened with
// OracleEngineOptions and have no sequence open. `operators`, where there is one, compares the
// launches of the layers, too.
absl::StatusOr<std::vector<LayerDistance>> CompareLayers(const OracleCase& oracle, Engine& baseline,
                                                         Engine& tested,
                                                         const Interrupted& interrupted,
                                                         OperatorComparison* operators = nullptr);

}  // namespace dsv4
