// SPDX-License-Identifier: Apache-2.0
// Where the server makes way for others: the time of threads, and memory.
#pragma once

namespace server {

// Of this thread, as nice(2) counts it: 0 to 19.
void SetNiceness(int niceness);

// Memory that one large request took goes back to the system after it.
void LimitKeptMemory();

}  // namespace server
