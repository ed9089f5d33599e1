// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/start_group.h"

namespace chat {

std::string StartGroup(dsv4::EngineOptions* options) {
  options->group_id = dsv4::CreateGroupId(*options);
  std::string text =
      "Start within five minutes, on other machines or for other GPUs of this one:\n";
  for (int32_t rank = 1; rank < options->group_size; ++rank) {
    text += "  dsv4-worker --model DIR --rank " + std::to_string(rank) + " --group " +
            options->group_id + "\n";
  }
  return text;
}

}  // namespace chat
