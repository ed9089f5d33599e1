// SPDX-License-Identifier: Apache-2.0
// The command line of dsv4-gates.
#pragma once

#include <string>

#include "tools/gates/options.h"

namespace gates {

// Throws a chat::Failure that names the option and the value.
Options ParseOptions(int argc, const char* const* argv);

std::string HelpText();

}  // namespace gates
