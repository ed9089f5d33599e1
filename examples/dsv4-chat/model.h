// SPDX-License-Identifier: Apache-2.0
// The model that the options name, opened or described as they say.
#pragma once

#include <dsv4/dsv4.hpp>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {

// With a progress bar on a terminal. Throws an Error.
dsv4::Engine OpenEngine(const Options& options, const Screen& screen);

// The same after `loss`, which the screen is told: a DEVICE_LOST. Nothing of the engine that was
// lost may be open. Throws a Failure.
dsv4::Engine ReopenEngine(const Options& options, const dsv4::Error& loss, Screen* screen);

// The model's defaults, except where `given` sets a value. Without a seed: a random one.
dsv4::Sampling SamplingOf(const dsv4::Engine& engine, const SamplingOptions& given);

// What --inspect and --plan ask for, on standard output, without loading the model.
void Describe(const Options& options);

}  // namespace chat
