// SPDX-License-Identifier: Apache-2.0
// A device proves itself before it is trusted: a small model of random weights runs on it, with the
// kernels that engines run there, and three things must hold.
// - Known answers: each launch of a few short passes gets the inputs that the reference backend had
//   when the answers were recorded, and its outputs are held by the rule of the operators
//   (operator_compare.h).
// - The row rule: a long prompt in one pass gives the bits that it gives in short ones, output by
//   output. So the kernels of large calls are held, too, without an answer for each row.
// - Several devices of one engine give the bits of one.
// On a GPU it takes well below a second.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/runtime/engine.h"
#include "lib/runtime/operator_compare.h"

namespace dsv4 {

struct ProofOptions {
  Backend backend = Backend::kCuda;
  std::vector<int32_t> devices{};  // of the backend, as EngineOptions::devices
  std::string tuning_dir{};        // as EngineOptions'
  int32_t threads = 1;             // of the CPU backend
  int32_t long_rows = 264;         // of the long prompt
  // Of kernels that have knobs: the config of this number, modulo their count; below 0: that of the
  // tuning tables.
  int32_t config = -1;
  ExchangePath exchange = ExchangePath::kAuto;
  // For tests, to plant faults that no input causes: called with each engine once it is open, and
  // after each launch of the first device, before its outputs are read.
  std::function<void(Engine&)> opened{};
  std::function<void(const KernelEntry&, const void* params)> launched{};
};

struct DeviceProof {
  std::map<std::string, OperatorFlips> flips;  // by operator and output, of all devices
  int64_t long_launches = 0;                   // compared by the row rule
  double seconds = 0;
};

// Unsupported, for what does not hold: names the device, the operator and the shape. Errors of
// opening the devices; DeviceLost.
absl::StatusOr<DeviceProof> ProveDevices(const ProofOptions& options);

// The same once in a process for each of the GPUs: a device that passed is not asked again.
absl::Status ProveOnce(absl::Span<const int32_t> devices, const std::string& tuning_dir);

// The launches of the reference backend, for EncodeKnownAnswers.
absl::StatusOr<std::vector<LaunchRecord>> RecordKnownAnswers();

}  // namespace dsv4
