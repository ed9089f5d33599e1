// SPDX-License-Identifier: Apache-2.0
// A GGUF model whose tensors can be changed, written as one file again.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "tests/support/catch.h"
#include "tests/support/gguf_image.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

struct EditedTensor {
  std::string name;
  uint32_t type = 0;           // as in the file
  std::vector<uint64_t> dims;  // the fastest first
  std::string data;
  size_t part = 0;           // of a split model
  uint64_t offset = 0;       // in its part's data
  BlockType block() const {  // kNone of integers
    return BlockTypeOfGguf(type).value_or(BlockType::kNone);
  }
  int64_t elements() const {
    int64_t count = 1;
    for (const uint64_t dim : dims) count *= static_cast<int64_t>(dim);
    return count;
  }
  int64_t row_elements() const { return static_cast<int64_t>(dims[0]); }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(data.data()); }
  void SetValues(const std::vector<float>& values) {
    type = InfoOf(BlockType::kF32).gguf_id;
    data.assign(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  std::vector<float> Values() const {
    std::vector<float> values(static_cast<size_t>(elements()));
    LoadBlocks(block(), bytes(), elements(), values.data());
    return values;
  }
};

class EditedGguf {
 public:
  explicit EditedGguf(const std::string& path) {
    const absl::StatusOr<GgufModel> model = OpenGguf(path);
    REQUIRE_OK(model);
    for (const GgufKey& key : model->parts.front().keys) {
      if (absl::StartsWith(key.name, "split.")) continue;
      std::string value;
      if (key.value.type == GgufType::kArray) {
        value = Bytes(static_cast<uint32_t>(key.value.element)) + Bytes(key.value.count);
      }
      value.append(reinterpret_cast<const char*>(key.value.bytes.data()), key.value.bytes.size());
      keys.push_back({std::string(key.name), {static_cast<uint32_t>(key.value.type), value}});
    }
    for (size_t part = 0; part < model->parts.size(); ++part) {
      const uint8_t* const begin =
          model->files[part].bytes().data() + model->parts[part].header_bytes;
      for (const GgufTensor& tensor : model->parts[part].tensors) {
        tensors.push_back({std::string(tensor.name), tensor.type,
                           std::vector<uint64_t>(tensor.dims.begin(), tensor.dims.end()),
                           std::string(reinterpret_cast<const char*>(tensor.data),
                                       static_cast<size_t>(tensor.bytes)),
                           part, static_cast<uint64_t>(tensor.data - begin)});
      }
    }
  }

  EditedTensor& Find(const std::string& name) {
    for (EditedTensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    FAIL("no tensor " << name);
    return tensors.front();
  }

  std::string Write() const {
    GgufImage image;
    for (const auto& [name, value] : keys) image.Key(name, value.first, value.second);
    for (const EditedTensor& tensor : tensors) {
      image.Tensor(tensor.name, tensor.type, tensor.dims, tensor.data);
    }
    return image.Write();
  }

  std::vector<std::pair<std::string, std::pair<uint32_t, std::string>>> keys;  // type and bytes
  std::vector<EditedTensor> tensors;
};

}  // namespace dsv4::test
