// SPDX-License-Identifier: Apache-2.0
// The page at /: a chat in the browser. It loads nothing but itself.
#pragma once

namespace server {

extern const char kPage[];

// What a browser may do for it: run what is in it, and ask this server.
extern const char kPagePolicy[];

}  // namespace server
