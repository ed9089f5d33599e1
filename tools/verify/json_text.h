// SPDX-License-Identifier: Apache-2.0
// JSON values as text, as Python's json.dumps(value, ensure_ascii=False) writes them, and their
// equality. For the chats of gates.json.
#pragma once

#include <string>

#include "lib/io/json.h"

namespace dsv4 {

// Numbers keep the text of their document, which Python's own writer made.
std::string PythonJson(const JsonValue& value);

// Objects are equal whatever the order of their members, numbers by value.
bool JsonEqual(const JsonValue& a, const JsonValue& b);

}  // namespace dsv4
