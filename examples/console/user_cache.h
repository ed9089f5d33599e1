// SPDX-License-Identifier: Apache-2.0
// What programs keep between runs in the user's cache.
#pragma once

#include <dsv4/engine.hpp>
#include <string>

namespace chat {

// "dsv4" in XDG_CACHE_HOME, or in ".cache" of HOME. "" if neither variable is an absolute path.
std::string UserCache();

// Keeps profiles of experts there, unless the options have a profile or an empty one. Does nothing
// if the folder cannot be created.
void KeepProfiles(dsv4::EngineOptions* options);

}  // namespace chat
