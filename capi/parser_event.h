// SPDX-License-Identifier: Apache-2.0
// The events of a completion as they go out through the C interface.
#pragma once

#include <dsv4/parser.h>

#include "lib/text/streaming_parser.h"

namespace dsv4::capi {

// The views are those of `event`.
dsv4_parser_event EventOf(const ParserEvent& event);

}  // namespace dsv4::capi
