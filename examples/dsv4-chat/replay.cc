// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/replay.h"

#include "examples/console/failure.h"

namespace chat {

bool Replay::IsNew(int32_t token) {
  const bool is_new = next_ == shown_.size();
  if (is_new) shown_.push_back(token);
  if (shown_[next_++] == token) return is_new;
  throw Failure{kDeviceLost, "the device was lost, and the next one computes another answer",
                DSV4_ERR_DEVICE_LOST};
}

}  // namespace chat
