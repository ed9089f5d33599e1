// SPDX-License-Identifier: Apache-2.0
// An engine computes a canary's prompt: to compare, or to record one.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/runtime/canary.h"
#include "lib/runtime/engine.h"

namespace dsv4 {

// Computes the prompt, in passes as long as the engine's, and compares. Cost: the prompt's prefill,
// and the head for each row. Errors of the passes; ContextFull or OutOfBlocks where the engine has
// no room for the prompt. Not while a session computes.
absl::StatusOr<CanaryResult> RunCanary(Engine& engine, const Canary& canary);

// `rows` of `canary`, whose other members are given, as this engine computes them: the `count`
// largest logits behind each of `positions`, which ascend.
absl::Status RecordCanary(Engine& engine, absl::Span<const int64_t> positions, int32_t count,
                          Canary* canary);

}  // namespace dsv4
