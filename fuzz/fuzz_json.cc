// SPDX-License-Identifier: Apache-2.0
// Any bytes as a JSON document, in the strict dialect and in Python's. What the strict reader reads
// must be JSON by the grammar that text is passed on by, and Python's too; what Python's reader
// reads is written so that it reads the same again.
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/io/json.h"
#include "lib/text/python_json.h"

namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const bool is_json = dsv4::ValidUtf8Prefix(text) == size && dsv4::IsJson(text);
  const auto strict = dsv4::ParseJson(text, "fuzz", int64_t{1} << 20);
  if (strict.ok()) Require(is_json || absl::StartsWith(text, dsv4::kUtf8ByteOrderMark));

  const auto python = dsv4::ParsePythonJson(text, "fuzz");
  if (!python.ok()) {
    const bool may_be_limit = dsv4::IsUnsupported(python.status()) ||
                              size > static_cast<size_t>(dsv4::kMaxPythonIntegerDigits);
    Require(!strict.ok() || may_be_limit);
    return 0;
  }
  std::string written, again;
  dsv4::AppendPythonJson(*python, &written);
  const auto read = dsv4::ParsePythonJson(written, "fuzz");
  Require(read.ok());
  dsv4::AppendPythonJson(*read, &again);
  Require(again == written);
  return 0;
}
