// SPDX-License-Identifier: Apache-2.0
// Computes a canary's prompt on an engine, to compare its logits or to record them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/runtime/canary.h"
#include "lib/runtime/engine.h"

namespace dsv4 {

// Computes the prompt in the engine's prefill chunks and compares its logits.
// - Cost: the prefill, and the head for each recorded row.
// - Errors: those of the passes; ContextFull or OutOfBlocks if the engine has no room.
// - REQUIRES: no session computes.
absl::StatusOr<CanaryResult> RunCanary(Engine& engine, const Canary& canary);

// Records `canary->rows`: the `count` largest logits after each of `positions`, which ascend. The
// other members of `canary` are set by the caller.
absl::Status RecordCanary(Engine& engine, absl::Span<const int64_t> positions, int32_t count,
                          Canary* canary);

}  // namespace dsv4
