// SPDX-License-Identifier: Apache-2.0
// Memory with one owner, on a device or its host. On the cpu device it is page-mapped
// host memory: zero-filled, 64-byte aligned, and resident only where it has been touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  // Host memory of `bytes`; OutOfHostMemory names `purpose` and the size.
  static absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose);

  // Takes ownership of memory. `free(data, bytes)` frees it.
  using Free = void (*)(std::byte* data, int64_t bytes);
  Buffer(std::byte* data, int64_t bytes, Free free) : data_(data), size_(bytes), free_(free) {}

  std::byte* data() const { return data_; }
  int64_t size_bytes() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  Free free_ = nullptr;
};

}  // namespace dsv4
