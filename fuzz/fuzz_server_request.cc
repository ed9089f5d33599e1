// SPDX-License-Identifier: Apache-2.0
// Bodies of requests to any endpoint of dsv4-server. The input is a letter that chooses the
// endpoint, then the body. A capital letter: with strict fields.
#include "fuzz/server_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const char letter = static_cast<char>(data[0]);
  const bool strict = letter >= 'A' && letter <= 'Z';
  fuzz::Send(strict ? static_cast<char>(letter | 0x20) : letter, strict,
             {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
