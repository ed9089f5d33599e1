// SPDX-License-Identifier: Apache-2.0
// Divides an operator's workspace into arrays. The same plan, made without memory, tells the
// workspace's size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/checked_math.h"

namespace dsv4::reference {

class Scratch {
 public:
  // `base` is 64-byte aligned; null only measures, and Take returns null.
  explicit Scratch(std::byte* base) : base_(base) {}

  // The next array of `count` elements, 64-byte aligned.
  template <class T>
  T* Take(int64_t count) {
    std::byte* array = base_ == nullptr ? nullptr : base_ + bytes_;
    bytes_ += RoundUp<int64_t>(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(array);
  }

  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

}  // namespace dsv4::reference
