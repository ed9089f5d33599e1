// SPDX-License-Identifier: Apache-2.0
// A model that several processes share.
#pragma once

#include <dsv4/engine.hpp>
#include <string>

namespace chat {

// Makes the id of a group of options->group_size processes and sets it. Returns what tells the user
// how to start the others.
std::string StartGroup(dsv4::EngineOptions* options);

}  // namespace chat
