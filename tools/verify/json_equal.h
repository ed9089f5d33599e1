// SPDX-License-Identifier: Apache-2.0
// Whether two JSON values mean the same. For the answers of gates.json.
#pragma once

#include "lib/io/json.h"

namespace dsv4 {

// Objects are equal whatever the order of their members, numbers by value.
bool JsonEqual(const JsonValue& a, const JsonValue& b);

}  // namespace dsv4
