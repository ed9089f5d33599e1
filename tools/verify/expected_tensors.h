// SPDX-License-Identifier: Apache-2.0
// The recorded tensors of the oracle by name, converted to float from F32, F16 or I32.
// oracle_rules.h compares them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"

namespace dsv4 {

class ExpectedTensors {
 public:
  // Errors: those of MappedFile::Open and ParseSafetensors.
  static absl::StatusOr<ExpectedTensors> Open(const std::string& path);

  bool Has(absl::string_view name) const { return entries_.count(std::string(name)) != 0; }
  // The elements of tensor `name`. NotFound when it is not in the file; Unsupported for another
  // dtype; with `elements` given, Corrupt for another number of them.
  absl::StatusOr<std::vector<float>> Read(absl::string_view name) const;
  absl::StatusOr<std::vector<float>> Read(absl::string_view name, int64_t elements) const;
  const std::string& path() const { return file_.path(); }

 private:
  explicit ExpectedTensors(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::map<std::string, TensorEntry> entries_;
};

}  // namespace dsv4
