// SPDX-License-Identifier: Apache-2.0
// A checkpoint folder's tensors: model.safetensors, or the shards named by
// model.safetensors.index.json, memory-mapped read-only. Knows names, dtypes, shapes and bytes;
// lib/model knows the meaning of each tensor. Files are untrusted: every offset is checked before
// use.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/io/content_hash.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"

namespace dsv4 {

class Checkpoint {
 public:
  // Opens and checks all shards of `folder`. Errors: NotFound (no model.safetensors and no index,
  // or a shard that the index names), IoError, Corrupt (a damaged index or header: see
  // safetensors.h; a tensor in two shards; a tensor that the index places in a shard that lacks
  // it).
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& folder);

  // Whether `folder` holds model.safetensors or an index of shards.
  static bool LiesIn(const std::string& folder);

  // A checkpoint of tensors in memory, for measurements at a model's sizes without its files. Their
  // data is in `memory` or in `files`. Tensors may overlap.
  static std::unique_ptr<Checkpoint> FromMemory(std::vector<TensorEntry> tensors,
                                                std::vector<std::vector<uint8_t>> memory,
                                                std::vector<MappedFile> files = {});

  // The tensors of GGUF files, under the names that safetensors files have. `tensors` lie in
  // `files`, whose headers have `header_bytes`, or in `memory`. Corrupt for a name twice.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> FromGguf(
      const std::string& path, std::vector<TensorEntry> tensors, std::vector<MappedFile> files,
      std::vector<int64_t> header_bytes, std::vector<std::vector<uint8_t>> memory);
  bool is_gguf() const { return is_gguf_; }

  // The tensors of `model`, but of those whose names begin with `prefix` the ones that `other` has.
  static std::unique_ptr<Checkpoint> WithTensorsOf(std::unique_ptr<Checkpoint> model,
                                                   std::unique_ptr<Checkpoint> other,
                                                   absl::string_view prefix);

  // The tensor with this name, or null. Names are without the prefix `model.` that files may have.
  const TensorEntry* Find(absl::string_view name) const;

  // The file that holds the tensor, for messages; "memory" if there is none.
  absl::string_view FileOf(const TensorEntry& entry) const;

  // Where in its file a tensor's byte lies. file -1: the bytes are in memory.
  struct Place {
    int32_t file = -1;
    int64_t offset = 0;
  };
  Place PlaceOf(const uint8_t* data) const;
  std::vector<std::string> paths() const;  // of the files

  // Tells checkpoints apart without reading all of them: the hash of every shard's header and of
  // the first and last kFingerprintBytes of every tensor's data. One damaged weight in the middle
  // of a large tensor stays unnoticed.
  static constexpr int64_t kFingerprintBytes = 4096;
  ContentHash Fingerprint() const;
  // The hash of all bytes of all shards. Reads everything.
  ContentHash FullHash() const;

  const StringMap<TensorEntry>& tensors() const { return tensors_; }
  const std::string& folder() const { return folder_; }  // of GGUF files: the first's path
  int64_t total_bytes() const { return total_bytes_; }   // of all tensors

 private:
  Checkpoint() = default;
  absl::Status AddShard(const std::string& path);
  std::string folder_;
  bool is_gguf_ = false;
  std::vector<MappedFile> files_;
  std::vector<int64_t> header_bytes_;  // of each file
  std::vector<std::vector<uint8_t>> memory_;
  StringMap<TensorEntry> tensors_;
  int64_t total_bytes_ = 0;
};

}  // namespace dsv4
