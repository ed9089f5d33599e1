// SPDX-License-Identifier: Apache-2.0
#include "lib/device/buffer.h"

#include <sys/mman.h>

#include <utility>

#include "lib/base/error.h"

namespace dsv4 {

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

absl::StatusOr<Buffer> Buffer::AllocateHost(int64_t bytes, absl::string_view purpose) {
  Buffer buffer;
  if (bytes <= 0) return buffer;
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return OutOfHostMemory("cannot allocate ", bytes, " bytes for the ", purpose);
  }
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace dsv4
