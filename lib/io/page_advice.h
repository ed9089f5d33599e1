// SPDX-License-Identifier: Apache-2.0
// Advice to the system about pages of mapped files. If the system ignores it, reads are slower or
// other memory is reclaimed first; nothing else changes.
#pragma once

#include <cstdint>
#include <string>

namespace dsv4 {

// Starts reading [data, data + bytes) into memory, without waiting.
void AdviseWillNeed(const uint8_t* data, int64_t bytes);
// Takes the whole pages in [data, data + bytes) out of this process's memory, so that the system
// reclaims them before others. The next access reads them again.
// REQUIRES: a mapped file; memory of other kinds loses its contents.
void AdviseUnneeded(const uint8_t* data, int64_t bytes);
// Takes the whole pages in [offset, offset + bytes) of a file out of the system's cache; bytes 0:
// up to its end. Pages that a process has in its memory stay there.
void DropCached(const std::string& path, int64_t offset, int64_t bytes);
// Keeps the pages of [data, data + bytes) in memory until they are unmapped. False where the system
// refuses (RLIMIT_MEMLOCK).
bool LockPages(const uint8_t* data, int64_t bytes);

}  // namespace dsv4
