// SPDX-License-Identifier: Apache-2.0
// How a host opens an engine: chooses the backend and devices, has GPUs prove themselves, opens the
// engine on them and computes the model folder's canary. The engine itself opens what it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/engine/engine.h"
#include "lib/proof/plan_choice.h"

namespace dsv4 {

// Engine::Open of what PlanChoice chooses, or, if that fails for want of memory or of a feature, of
// its next choice. Errors: those of Engine::Open, ProveOnce and ReadCanary.
absl::StatusOr<std::shared_ptr<Engine>> OpenBest(const std::string& folder,
                                                 const OpenOptions& options);
// The plan of what OpenBest would open. Without prefer_gpu it may need more memory than is free.
absl::StatusOr<EnginePlan> PlanBest(const std::string& folder, const OpenOptions& options);
// Engine::Serve on the chosen backend.
absl::Status ServeBest(const std::string& folder, const OpenOptions& options,
                       absl::FunctionRef<bool(int64_t rows)> keep_serving);

}  // namespace dsv4
