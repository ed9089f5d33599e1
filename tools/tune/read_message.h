// SPDX-License-Identifier: Apache-2.0
// Reads a JSON value into a protobuf message by the message's descriptor. Protobuf's own reader is
// not used: its errors name no key, and it accepts more than JSON (docs/adr/0015-tuning-tables.md).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"
#include "lib/io/json.h"

namespace dsv4 {

// Fills `message` from an object with its fields' names for keys, or from an array with its fields
// in order. Fields: strings, 32 and 64 bit signed integers, doubles, enums by name, messages,
// repeated messages, and maps from strings. Corrupt names `source`, the key
// ("entries[2].when.rows") and the reason: an unknown key, a missing required one, another type, a
// number out of range.
absl::Status ReadMessage(const JsonValue& value, const std::string& source,
                         google::protobuf::Message* message);

}  // namespace dsv4
