// SPDX-License-Identifier: Apache-2.0
// Reads the recorded tensors of the oracle by name, as vectors of their element type.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

class TensorFile {
 public:
  explicit TensorFile(const std::string& path) : file_(OpenFile(path)) {
    auto tensors = ParseSafetensors(file_.bytes(), path);
    REQUIRE_OK(tensors);
    tensors_ = *std::move(tensors);
  }

  // Elements of tensor `name`; the test fails when it is missing or its elements are not T's size.
  template <class T>
  std::vector<T> Read(const std::string& name) const {
    for (const TensorEntry& tensor : tensors_) {
      if (tensor.name != name) continue;
      REQUIRE(DTypeBytes(tensor.dtype) == sizeof(T));
      std::vector<T> values(static_cast<size_t>(tensor.bytes) / sizeof(T));
      std::memcpy(values.data(), tensor.data, static_cast<size_t>(tensor.bytes));
      return values;
    }
    FAIL("no tensor " << name);
    return {};
  }

 private:
  static MappedFile OpenFile(const std::string& path) {
    auto file = MappedFile::Open(path);
    REQUIRE_OK(file);
    return *std::move(file);
  }

  MappedFile file_;
  std::vector<TensorEntry> tensors_;
};

}  // namespace dsv4::test
