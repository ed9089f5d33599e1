// SPDX-License-Identifier: Apache-2.0
// How a turn of the model is computed, whatever becomes of its text, and what it cost.
#pragma once

#include <dsv4/dsv4.hpp>
#include <functional>
#include <string>

#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// Reads the prompt, with a progress bar on a terminal, and then calls `step`, which takes one step
// and says how the turn ended, until it has or Ctrl-C comes.
TurnEnd RunTurn(dsv4::Session* session, const Screen& screen,
                const std::function<dsv4_finish()>& step);

// Lines of up to 80 columns, with what the engine has read of its experts where some are in host
// memory.
std::string StatisticsOf(const dsv4::Engine& engine, const TurnEnd& end);

}  // namespace chat
