// SPDX-License-Identifier: Apache-2.0
// How a host opens an engine: it chooses the backend, has GPUs prove themselves, opens the engine
// on it and computes the model folder's canary. The engine itself opens what it is told.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/engine/engine.h"

namespace dsv4 {

struct OpenOptions : EngineOptions {
  // Uses the cuda backend instead of `backend` if `devices` are SM12x GPUs that pass the
  // known-answer test and have room for the engine. Otherwise Engine::backend_reason gives the
  // reason.
  bool prefer_gpu = false;
  // Run the known-answer test on GPUs before weights are loaded (ProveOnce). Unsupported if it
  // fails.
  bool prove = false;
  // Compute the folder's canary after loading. EngineInfo::canary has the result.
  bool canary = false;
};

// Engine::Open on the chosen backend. Errors: those of Engine::Open, ProveOnce and ReadCanary.
absl::StatusOr<std::shared_ptr<Engine>> OpenBest(const std::string& folder,
                                                 const OpenOptions& options);
// Engine::Plan of what OpenBest would open. Without prefer_gpu it does not look at free memory.
absl::StatusOr<EnginePlan> PlanBest(const std::string& folder, const OpenOptions& options);
// Engine::Serve on the chosen backend.
absl::Status ServeBest(const std::string& folder, const OpenOptions& options,
                       absl::FunctionRef<bool(int64_t rows)> keep_serving);

}  // namespace dsv4
