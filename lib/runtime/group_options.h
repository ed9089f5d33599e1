// SPDX-License-Identifier: Apache-2.0
// The options that the processes of a group have in common: the group's id carries them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/runtime/engine.h"

namespace dsv4 {

// Refuses by name what no group can have: of places, devices and backends.
absl::Status CheckGroup(const EngineOptions& options);

// The id of a new group with `options`. Errors: those of CheckGroup and of the other CreateGroupId;
// InvalidArgument without a group.
absl::StatusOr<std::string> CreateGroupId(const EngineOptions& options);

// Sets those of the common options that have their default to what options->group.id carries.
absl::Status TakeGroupOptions(EngineOptions* options);

}  // namespace dsv4
