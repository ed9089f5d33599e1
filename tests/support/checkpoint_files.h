// SPDX-License-Identifier: Apache-2.0
// Small model folders for tests: a temporary folder, safetensors files from tensors or from any
// header text, and edits of the bundled model's JSON files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace dsv4::test {

// A new empty folder, removed with all it holds at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(absl::string_view name) const;
  // Writes a file of this folder and returns its path.
  std::string Write(absl::string_view name, absl::string_view content) const;

 private:
  std::string path_;
};

// The bundled model's folder, and the content of one of its files.
std::string BundledModel();
std::string BundledFile(absl::string_view name);

struct StoredTensor {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<int64_t> shape;
  std::string bytes;
};

// The file of these tensors, one after the other.
std::string SafetensorsImage(const std::vector<StoredTensor>& tensors);
// The file of this header text (its length added) and this data, whatever they hold.
std::string SafetensorsImage(absl::string_view header, absl::string_view data);

// `json` with the value of the first member called `key` replaced by the text `value`. An empty
// `value` removes the member. REQUIRES: there is such a member.
std::string EditedJson(absl::string_view json, absl::string_view key, absl::string_view value);

}  // namespace dsv4::test
