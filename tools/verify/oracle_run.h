// SPDX-License-Identifier: Apache-2.0
// Runs an oracle case through the library's forward pass, as a server would: every prompt in
// prefill chunks with the MTP block, then the forced tokens of all prompts together, one row each
// per step. oracle_rules.h compares the results.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/engine/engine.h"
#include "tools/verify/oracle_case.h"

namespace dsv4 {

// Tensors by the oracle's names (tests/oracle/README.md) without the mode: "p5.prefill.logits",
// "p5.decode3.layer0.streams". Indices and experts are stored as floats.
using OracleTensors = std::map<std::string, std::vector<float>>;

// Asked between steps; true ends the work with Cancelled.
using Interrupted = std::function<bool()>;

// Engine options that hold every prompt of the case at once.
EngineOptions OracleEngineOptions(const OracleCase& oracle, Backend backend, Numerics numerics);

// All logits of the case, and the tensors between the operators for the prompts it records.
// `engine` was opened with OracleEngineOptions and has no sequence open.
absl::StatusOr<OracleTensors> RunOracleCase(const OracleCase& oracle, Engine& engine,
                                            const Interrupted& interrupted);

// The MTP block behind a forward pass whose rows are those of `sequence` from `first_position` on,
// reserved with an extra slot: each row's next token predicts the one after it.
absl::Status ForwardMtpAfter(ModelRanks& model, const KvSequence& sequence, int64_t first_position,
                             absl::Span<const int32_t> next_tokens);

// `count` elements of `data`, f32, bf16 or i32, as floats.
std::vector<float> ElementsToFloat(const void* data, DType dtype, int64_t count);

}  // namespace dsv4
