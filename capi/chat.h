// SPDX-License-Identifier: Apache-2.0
// The thinking mode as it comes in through the C interface.
#pragma once

#include <dsv4/chat.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/text/chat_message.h"

namespace dsv4::capi {

struct Thinking {
  ThinkingMode mode;
  ReasoningEffort effort;
};

// `name` is the argument's.
absl::StatusOr<Thinking> ThinkingFrom(dsv4_thinking_mode given, absl::string_view name);

}  // namespace dsv4::capi
