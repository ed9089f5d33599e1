// SPDX-License-Identifier: Apache-2.0
// A new empty folder in $TMPDIR (or /tmp), removed with all it holds at the end of its life.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace dsv4 {

class TemporaryFolder {
 public:
  static absl::StatusOr<TemporaryFolder> Create();

  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty when moved from
};

}  // namespace dsv4
