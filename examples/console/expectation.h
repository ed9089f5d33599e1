// SPDX-License-Identifier: Apache-2.0
// What a plan lets expect, in the words that programs show before they load a model.
#pragma once

#include <dsv4/engine.hpp>
#include <string>

namespace chat {

// Where the plan puts the weights: "GPU 24.0 GB, host memory 96.0 GB, disk 39.6 GB".
std::string PlaceText(const dsv4::EngineInfo& info);

// "about 9.1 tokens a second (predicted), prompts about 400"
std::string SpeedText(const dsv4::EngineInfo& info);

// "PLACE: SPEED" of an engine with these options; "" for a group of processes, and if the plan
// fails, because opening has the same error.
std::string ExpectationOf(const std::string& model, const dsv4::EngineOptions& options);

}  // namespace chat
