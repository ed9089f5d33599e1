// SPDX-License-Identifier: Apache-2.0
// Texts that the C interface returns without an owner.
#pragma once

#include <string>

namespace dsv4::capi {

// A copy of `text` that lives as long as the library. For texts of which there are few.
const char* StaticText(const std::string& text);

}  // namespace dsv4::capi
