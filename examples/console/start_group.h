// SPDX-License-Identifier: Apache-2.0
// A model that a group of processes splits.
#pragma once

#include <dsv4/engine.hpp>
#include <string>

namespace chat {

// Creates the id of a group of options->group.size processes and sets it in *options. Returns the
// text that tells the user how to start the other processes.
std::string StartGroup(dsv4::EngineOptions* options);

}  // namespace chat
