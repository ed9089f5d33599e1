// SPDX-License-Identifier: Apache-2.0
// The page at /: a chat in the browser. It loads no other resources.
#pragma once

namespace server {

extern const char kPage[];

// The content security policy: the page may run its own script and call this server.
extern const char kPagePolicy[];

}  // namespace server
