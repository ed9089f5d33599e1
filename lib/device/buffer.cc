// SPDX-License-Identifier: Apache-2.0
#include "lib/device/buffer.h"

#include <utility>

#include "lib/base/error.h"
#include "lib/device/host_pages.h"

namespace dsv4 {

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      free_(other.free_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(free_, other.free_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) free_(data_, size_);
}

absl::StatusOr<Buffer> Buffer::AllocateHost(int64_t bytes, absl::string_view purpose) {
  if (bytes <= 0) return Buffer();
  std::byte* const data = AllocatePages(bytes);
  if (data == nullptr) {
    return OutOfHostMemory("cannot allocate ", bytes, " bytes for the ", purpose);
  }
  return Buffer(data, bytes, FreePages);
}

}  // namespace dsv4
