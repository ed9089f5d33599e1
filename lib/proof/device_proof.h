// SPDX-License-Identifier: Apache-2.0
// The known-answer test of a device: runs a small model of random weights with the kernels that
// engines use. Three checks must pass:
// - Known answers: each launch of a few short passes receives the inputs of the reference backend's
//   launch. Its outputs must be within the operators' tolerance of the recorded ones
//   (operator_compare.h).
// - The row rule: every output of a long prompt in one pass has the same bits as in short passes.
//   This covers the kernels of large calls without recording their outputs.
// - Several devices of one engine give the bits of one device.
// On a GPU the test takes well below a second.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/dispatch.h"
#include "lib/engine/engine.h"
#include "lib/proof/operator_compare.h"

namespace dsv4 {

struct ProofOptions {
  Backend backend = Backend::kCuda;
  std::vector<int32_t> devices{};  // EngineOptions::devices
  std::string tuning_dir{};        // EngineOptions::tuning_dir
  int32_t threads = 1;             // of the CPU backend
  int32_t long_rows = 264;         // of the long prompt
  // The number of the config to use, modulo the number of the kernel's configs; below 0: the config
  // of the tuning tables.
  int32_t config = -1;
  ExchangePath exchange = ExchangePath::kAuto;
  KernelSet kernel_set = KernelSet::kFirst;
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

// Runs the test. Errors: Unsupported if a check fails, naming the device, the operator and the
// shape; those of opening the devices; DeviceLost.
absl::StatusOr<DeviceProof> ProveDevices(const ProofOptions& options);

// The kernels with which GPUs passed.
struct ProvenKernels {
  KernelSet set = KernelSet::kFirst;
  std::string reason{};  // of the second set: what failed with the first
};

// ProveDevices, but only once in a process for each GPU that passed. GPUs that fail with the first
// set of kernels are tested with the second, which the log warns of, and are refused only if that
// fails, too.
absl::StatusOr<ProvenKernels> ProveOnce(absl::Span<const int32_t> devices,
                                        const std::string& tuning_dir);

// Why ProveOnce last refused the GPU alone, with this build's tuning files, in this process; empty
// if it passed or was not tested.
std::string ProofRefusal(int32_t device);

// The launches of the reference backend, for EncodeKnownAnswers.
absl::StatusOr<std::vector<LaunchRecord>> RecordKnownAnswers();

}  // namespace dsv4
