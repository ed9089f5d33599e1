// SPDX-License-Identifier: Apache-2.0
// Opens or describes the model that the options name.
#pragma once

#include <dsv4/dsv4.hpp>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {

// With a progress bar on a terminal. Throws an Error.
dsv4::Engine OpenEngine(const Options& options, const Screen& screen);

// Loads the model again after `loss`, a DEVICE_LOST, and reports it on the screen. Sessions
// continue where they were. Throws a Failure.
void Recover(const dsv4::Engine& engine, const dsv4::Error& loss, Screen* screen);

// The model's defaults, except where `given` sets a value. Without a seed: a random one.
dsv4::Sampling SamplingOf(const dsv4::Engine& engine, const SamplingOptions& given);

// Prints the output of --list-models: the models in the hub's cache that are of this family, and
// where they would run with these options.
void ListModels(const Options& options);

// Print the output of --inspect and --plan without loading the model.
void Describe(const Options& options);

}  // namespace chat
