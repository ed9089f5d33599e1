// SPDX-License-Identifier: Apache-2.0
// What terminal.cc and its source for the system need of each other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace chat {

// Of the system: waits for input. Bytes read; 0 at the end, or when standard input is closed; -1
// when Ctrl-C or TakeRedraw() must be checked. Throws a Failure.
int64_t ReadSome(char* buffer, size_t size);

// Of terminal.cc, for Ctrl-C; may be called in a signal handler. Returns false if it came before
// and was not cleared.
bool NoteInterrupt();
void ForgetInterrupt();

}  // namespace chat
