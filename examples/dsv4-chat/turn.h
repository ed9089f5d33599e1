// SPDX-License-Identifier: Apache-2.0
// Computes a turn of the model, and measures its cost.
#pragma once

#include <dsv4/dsv4.hpp>
#include <functional>
#include <string>

#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// Computes the prompt, with a progress bar on a terminal. Then calls `step` until the turn has
// ended or Ctrl-C comes. `step` takes one step and returns the finish. If the device is lost, the
// model is loaded again and the turn continues, once.
TurnEnd RunTurn(const dsv4::Engine& engine, dsv4::Session* session, Screen* screen,
                const std::function<dsv4_finish()>& step);

// Lines of up to 80 columns. If experts are in several memories, with the bytes that were read from
// each.
std::string StatisticsOf(const dsv4::Engine& engine, const TurnEnd& end);

}  // namespace chat
