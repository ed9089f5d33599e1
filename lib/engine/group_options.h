// SPDX-License-Identifier: Apache-2.0
// The options that must be the same in all processes of a group. The group's id carries them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/engine/engine_options.h"

namespace dsv4 {

// Errors for options that a group cannot have: of places, devices and backends.
absl::Status CheckGroup(const EngineOptions& options);

// The id of a new group with `options`. Errors: those of CheckGroup and of the other CreateGroupId;
// InvalidArgument without a group.
absl::StatusOr<std::string> CreateGroupId(const EngineOptions& options);

// Sets common options that have their default to the values that options->group.id carries.
absl::Status TakeGroupOptions(EngineOptions* options);

}  // namespace dsv4
