// SPDX-License-Identifier: Apache-2.0
#include "examples/console/user_cache.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

namespace chat {

std::string UserCache() {
  for (const auto& [variable, folder] :
       {std::pair("XDG_CACHE_HOME", "/dsv4"), std::pair("HOME", "/.cache/dsv4")}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && std::filesystem::path(value).is_absolute())
      return std::string(value) + folder;
  }
  return "";
}

void KeepProfiles(dsv4::EngineOptions* options) {
  for (const std::string& setting : options->settings)
    if (setting.starts_with("expert_profile")) return;
  const std::string cache = UserCache();
  if (cache.empty() || options->group.rank != 0) return;
  const std::string folder = cache + "/experts";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) options->settings.push_back("expert_profiles=" + folder);
}

}  // namespace chat
