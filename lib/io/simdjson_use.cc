// SPDX-License-Identifier: Apache-2.0
#include "lib/io/json_instructions.h"

#include <algorithm>

#include "simdjson.h"

namespace dsv4 {

void ChooseJsonInstructions() {
  static const bool chosen = [] {
    const auto& available = simdjson::get_available_implementations();
    const simdjson::implementation* active = simdjson::get_active_implementation();
    // Before a choice it is none of these, but one that asks the environment when it is used.
    if (std::find(available.begin(), available.end(), active) == available.end()) {
      simdjson::get_active_implementation() = available.detect_best_supported();
    }
    return true;
  }();
  (void)chosen;
}

}  // namespace dsv4
