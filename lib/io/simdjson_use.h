// SPDX-License-Identifier: Apache-2.0
// Which instructions simdjson parses with. Left to itself it asks the environment the first time it
// parses, which a library inside somebody's program must not do.
#pragma once

namespace dsv4 {

// Has simdjson take the best that this processor can, unless the program has chosen already (its
// choice is one for the whole process). Before anything is parsed. Any thread, cheap.
void ChooseJsonInstructions();

}  // namespace dsv4
