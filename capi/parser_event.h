// SPDX-License-Identifier: Apache-2.0
// Converts parser events to the struct of the C interface.
#pragma once

#include <dsv4/parser.h>

#include "lib/text/streaming_parser.h"

namespace dsv4::capi {

// The result's texts are views into `event`.
dsv4_parser_event EventOf(const ParserEvent& event);

}  // namespace dsv4::capi
