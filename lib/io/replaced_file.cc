// SPDX-License-Identifier: Apache-2.0
#include "lib/io/replaced_file.h"

#include <utility>

namespace dsv4 {

ReplacedFile::ReplacedFile(ReplacedFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      handle_(std::exchange(other.handle_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

}  // namespace dsv4
