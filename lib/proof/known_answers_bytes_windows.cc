// SPDX-License-Identifier: Apache-2.0
// The bytes of known_answers.bin, between two symbols that are local to this object.
#include "lib/proof/known_answers.h"

asm(".section .rdata,\"dr\"\n"
    ".balign 16\n"
    "dsv4_known_answers_begin:\n"
    ".incbin \"" DSV4_KNOWN_ANSWERS
    "\"\n"
    "dsv4_known_answers_end:\n"
    ".text\n");
extern "C" {
extern const uint8_t dsv4_known_answers_begin[];
extern const uint8_t dsv4_known_answers_end[];
}

namespace dsv4 {

absl::Span<const uint8_t> BuiltinKnownAnswers() {
  return {dsv4_known_answers_begin,
          static_cast<size_t>(dsv4_known_answers_end - dsv4_known_answers_begin)};
}

}  // namespace dsv4
