// SPDX-License-Identifier: Apache-2.0
#include "lib/io/page_advice.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

#include "lib/base/checked_math.h"

namespace dsv4 {
namespace {

struct Pages {
  void* begin = nullptr;
  size_t bytes = 0;
};

// From the page of the first byte to that of the last, or the whole pages between them.
Pages PagesOf(const uint8_t* data, int64_t bytes, bool whole) {
  static const auto page = static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const auto at =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(page));
  const int64_t begin = whole ? RoundUp(at, page) : 0;
  const int64_t end = whole ? (at + bytes) / page * page : RoundUp(at + bytes, page);
  if (begin >= end) return {};
  return {const_cast<uint8_t*>(data) - at + begin, static_cast<size_t>(end - begin)};
}

}  // namespace

void AdviseWillNeed(const uint8_t* data, int64_t bytes) {
  const Pages pages = PagesOf(data, bytes, false);
  madvise(pages.begin, pages.bytes, MADV_WILLNEED);
}

void AdviseUnneeded(const uint8_t* data, int64_t bytes) {
  const Pages pages = PagesOf(data, bytes, true);
  if (pages.bytes == 0) return;
#ifdef MADV_COLD
  // Without it, the system expects recently accessed pages to be accessed again.
  madvise(pages.begin, pages.bytes, MADV_COLD);
#endif
  madvise(pages.begin, pages.bytes, MADV_DONTNEED);
}

void DropCached(const std::string& path, int64_t offset, int64_t bytes) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  posix_fadvise(file, offset, bytes, POSIX_FADV_DONTNEED);
  close(file);
}

bool LockPages(const uint8_t* data, int64_t bytes) {
  const Pages pages = PagesOf(data, bytes, false);
  return mlock(pages.begin, pages.bytes) == 0;
}

}  // namespace dsv4
