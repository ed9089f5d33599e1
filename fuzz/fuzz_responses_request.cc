// SPDX-License-Identifier: Apache-2.0
// Bodies of requests in the form of Responses.
#include "fuzz/server_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::SendTo('r', data, size);
  return 0;
}
