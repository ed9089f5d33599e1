// SPDX-License-Identifier: Apache-2.0
// Known answers: the outputs of the reference backend's launches in the passes of device_proof.cc,
// embedded in the library. `dsv4-verify device --write FILE` makes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/proof/operator_compare.h"

namespace dsv4 {

// lib/proof/known_answers.bin
absl::Span<const uint8_t> BuiltinKnownAnswers();

// Encodes the outputs. Elements take two bytes if all elements of an output are bf16 numbers.
std::string EncodeKnownAnswers(absl::Span<const LaunchRecord> launches);
// Errors: Corrupt if EncodeKnownAnswers did not write the bytes.
absl::StatusOr<std::vector<LaunchRecord>> DecodeKnownAnswers(absl::Span<const uint8_t> bytes);

}  // namespace dsv4
