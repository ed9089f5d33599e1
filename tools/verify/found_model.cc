// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/found_model.h"

#include <stdexcept>

#include "examples/console/hub_models.h"
#include "lib/base/error.h"

namespace dsv4 {

absl::StatusOr<std::string> FoundModel(const std::string& given) {
  try {
    return chat::FindModel(given);
  } catch (const std::runtime_error& missing) {
    return NotFound(missing.what());
  }
}

}  // namespace dsv4
