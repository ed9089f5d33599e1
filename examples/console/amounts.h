// SPDX-License-Identifier: Apache-2.0
// Amounts in a readable form.
#pragma once

#include <string>

namespace chat {

// "584.0 kB", "1.2 GB".
std::string BytesText(double bytes);

// "12 s", "5 min".
std::string DurationText(double seconds);

}  // namespace chat
