// SPDX-License-Identifier: Apache-2.0
#include "examples/console/start_group.h"

namespace chat {

std::string StartGroup(dsv4::EngineOptions* options) {
  options->group.id = dsv4::CreateGroupId(*options);
  std::string text =
      "Start within five minutes, on other machines or for other GPUs of this one:\n";
  for (int32_t rank = 1; rank < options->group.size; ++rank) {
    text += "  dsv4-worker --model DIR --rank " + std::to_string(rank) + " --group " +
            options->group.id + "\n";
  }
  return text +
         "Other users of a machine can see its command lines: --group-file FILE reads the id from\n"
         "a file, and --group-file - from standard input.\n";
}

}  // namespace chat
