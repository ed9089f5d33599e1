// SPDX-License-Identifier: Apache-2.0
// Any bytes as a JSON document. What is read must be JSON by the grammar that text is passed on by.
#include <cstddef>
#include <cstdint>

#include "lib/io/json.h"
#include "lib/text/json_text.h"
#include "lib/text/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_json = dsv4::ValidUtf8Prefix(text) == size && dsv4::IsJson(text);
  const auto value = dsv4::ParseJson(text, "fuzz", int64_t{1} << 20);
  if (value.ok() && !is_json) __builtin_trap();
  return 0;
}
