// SPDX-License-Identifier: Apache-2.0
// Tuning files: reading them (tuning_document.h) and choosing those of a device. A file is right or
// refused with its name and key; one for another device, or for another revision of its entry, is
// right but not used.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/registry/tuning_table.h"

namespace dsv4 {

struct TuningFile {
  std::string source;  // path
  int32_t compute_capability = 0, multiprocessors = 0;
  int32_t rev = 0;    // of the entry, when the file was written
  TuningTable table;  // without buckets where rev is not the entry's
};

// The text of a file in this build.
struct EmbeddedTuningFile {
  const char* source;
  const char* json;
};

// Corrupt, as "SOURCE: KEY ...", for text that breaks the schema; an operator or entry that
// `manifests` have not; times where they do not belong; a dimension or knob that the entry has not;
// a config that is not among the entry's; ranges that are empty, overlap or do not ascend.
absl::StatusOr<TuningFile> ReadTuningFile(absl::string_view json, const std::string& source,
                                          absl::Span<const Manifest> manifests);

// All *.json of a directory. NotFound, or why it cannot be read, names the directory; one without
// such a file, or with two for one entry and device, is InvalidArgument.
absl::StatusOr<std::vector<TuningFile>> ReadTuningDirectory(const std::string& directory,
                                                            absl::Span<const Manifest> manifests);

// The tables of a device: of `embedded`, and of `files` instead where those have one for the same
// entry. A file for the device and another revision of its entry is passed over with a line in the
// log, as is one of `files` for another device.
absl::StatusOr<std::vector<TuningTable>> TablesOf(const DeviceTraits& device,
                                                  std::vector<TuningFile> files,
                                                  absl::Span<const EmbeddedTuningFile> embedded,
                                                  absl::Span<const Manifest> manifests);

}  // namespace dsv4
