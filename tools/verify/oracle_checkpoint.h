// SPDX-License-Identifier: Apache-2.0
// Generates the checkpoint of an oracle case, byte for byte like the oracle's own generator. Shares
// no code with the library's loader: the two check each other.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/verify/oracle_case.h"

namespace dsv4 {

// Writes the case's checkpoint (config.json, shards, index; no tokenizer) into `folder`, which is
// created when it is not there; files of the same names are replaced. Holds a small part of one
// tensor in memory at a time. Errors: IoError.
absl::Status WriteOracleCheckpoint(const OracleCase& oracle, const std::string& folder);

}  // namespace dsv4
