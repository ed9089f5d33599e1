// SPDX-License-Identifier: Apache-2.0
#include "lib/io/simdjson_use.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/io/git_lfs.h"

namespace dsv4 {

void ChooseJsonInstructions() {
  static const bool chosen = [] {
    const auto& available = simdjson::get_available_implementations();
    const simdjson::implementation* active = simdjson::get_active_implementation();
    // Before a choice, the active implementation is a special one that reads the environment.
    if (std::find(available.begin(), available.end(), active) == available.end()) {
      simdjson::get_active_implementation() = available.detect_best_supported();
    }
    return true;
  }();
  (void)chosen;
}

absl::StatusOr<simdjson::dom::element> ParseDom(simdjson::dom::parser& parser,
                                                absl::string_view text, absl::string_view what) {
  ChooseJsonInstructions();
  simdjson::dom::element root;
  const simdjson::error_code error = parser.parse(text.data(), text.size()).get(root);
  if (error == simdjson::MEMALLOC) return OutOfHostMemory(what, " not read: no memory to parse it");
  if (error && IsGitLfsPointer(text)) return Corrupt(what, " is ", kGitLfsPointer);
  if (error) return Corrupt(what, " not valid JSON: ", simdjson::error_message(error));
  return root;
}

}  // namespace dsv4
