// SPDX-License-Identifier: Apache-2.0
// Writes GGUF files for tests from keys and tensors, good ones and damaged ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace dsv4::test {

// The bytes of a number, as GGUF stores it.
template <class T>
std::string Bytes(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string GgufString(const std::string& text) {
  return Bytes(uint64_t{text.size()}) + text;
}

class GgufImage {
 public:
  enum Type : uint32_t {
    kU8,
    kI8,
    kU16,
    kI16,
    kU32,
    kI32,
    kF32,
    kBool,
    kString,
    kArray,
    kU64,
    kI64,
    kF64,
  };

  // Adds a key; `value`: its bytes.
  void Key(const std::string& name, uint32_t type, const std::string& value) {
    keys_.push_back({name, Bytes(type) + value});
  }
  void Key(const std::string& name, uint32_t value) { Key(name, kU32, Bytes(value)); }
  void Key(const std::string& name, float value) { Key(name, kF32, Bytes(value)); }
  void Key(const std::string& name, bool value) {
    Key(name, kBool, std::string(1, static_cast<char>(value)));
  }
  void Key(const std::string& name, const char* value) { Key(name, kString, GgufString(value)); }
  template <class T>
  void Array(const std::string& name, uint32_t type, const std::vector<T>& values) {
    std::string bytes = Bytes(type) + Bytes(uint64_t{values.size()});
    for (const T& value : values) {
      if constexpr (std::is_same_v<T, std::string>) {
        bytes += GgufString(value);
      } else {
        bytes += Bytes(value);
      }
    }
    Key(name, kArray, bytes);
  }
  // Adds, replaces or removes a key.
  void Set(const std::string& name, uint32_t type, const std::string& value) {
    Remove(name);
    Key(name, type, value);
  }
  void Remove(const std::string& name) {
    std::erase_if(keys_, [&](const auto& key) { return key.first == name; });
  }

  // `dims`: the fastest first.
  void Tensor(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
              const std::string& data) {
    data_.resize((data_.size() + 31) / 32 * 32, '\0');
    TensorAt(name, type, dims, data_.size());
    data_ += data;
  }
  // The same without data.
  void TensorAt(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
                uint64_t offset) {
    infos_ += GgufString(name) + Bytes(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos_ += Bytes(dim);
    infos_ += Bytes(type) + Bytes(offset);
    ++tensor_count_;
  }

  std::string Write(uint32_t version = 3) const {
    std::string image =
        "GGUF" + Bytes(version) + Bytes(tensor_count_) + Bytes(static_cast<uint64_t>(keys_.size()));
    for (const auto& [name, value] : keys_) image += GgufString(name) + value;
    image += infos_;
    image.resize((image.size() + 31) / 32 * 32, '\0');
    return image + data_;
  }

  uint64_t tensor_count() const { return tensor_count_; }

 private:
  std::vector<std::pair<std::string, std::string>> keys_;
  uint64_t tensor_count_ = 0;
  std::string infos_, data_;
};

}  // namespace dsv4::test
