// SPDX-License-Identifier: Apache-2.0
#include "lib/io/checkpoint.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/native_path.h"
#include "lib/io/simdjson_use.h"

namespace dsv4 {
namespace {

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;

absl::string_view RuntimeName(absl::string_view stored) {
  return absl::StripPrefix(stored, "model.");
}

// The index: which shard holds which tensor.
struct ShardMap {
  std::vector<std::string> files;                        // in order of first mention
  std::vector<std::pair<std::string, int32_t>> tensors;  // runtime name, index into files
};

absl::StatusOr<ShardMap> ReadIndex(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxIndexBytes));
  simdjson::dom::parser parser;
  DSV4_ASSIGN_OR_RETURN(const simdjson::dom::element root,
                        ParseDom(parser, text, absl::StrCat(path, ":")));
  simdjson::dom::object weight_map;
  if (root["weight_map"].get(weight_map)) {
    return Corrupt(path, ": has no object \"weight_map\"");
  }
  ShardMap map;
  HashMap<absl::string_view, int32_t> index_of_file;
  HashSet<absl::string_view> names;
  for (const auto [key, value] : weight_map) {
    const absl::string_view tensor(key.data(), key.size());
    std::string_view text_value;
    if (value.get(text_value)) {
      return Corrupt(path, ": the shard of tensor ", Quoted(tensor), " is not a string");
    }
    const absl::string_view file(text_value.data(), text_value.size());
    if (file.empty() || file == "." || file == ".." ||
        file.find_first_of(absl::string_view("/\\\0", 3)) != absl::string_view::npos) {
      return Corrupt(path, ": the shard of tensor ", Quoted(tensor), " is ", Quoted(file),
                     ", not a file name inside the folder");
    }
    const auto [known, is_new] =
        index_of_file.try_emplace(file, static_cast<int32_t>(map.files.size()));
    if (is_new) map.files.emplace_back(file);
    if (!names.insert(RuntimeName(tensor)).second) {
      return Corrupt(path, ": lists tensor ", Quoted(tensor), " twice");
    }
    map.tensors.emplace_back(RuntimeName(tensor), known->second);
  }
  if (map.files.empty()) return Corrupt(path, ": \"weight_map\" lists no tensor");
  return map;
}

}  // namespace

absl::Status Checkpoint::AddShard(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  DSV4_ASSIGN_OR_RETURN(std::vector<TensorEntry> entries, ParseSafetensors(file.bytes(), path));
  const auto index = static_cast<int32_t>(files_.size());
  header_bytes_.push_back(static_cast<int64_t>(SafetensorsHeader(file.bytes()).size()));
  files_.push_back(std::move(file));
  for (TensorEntry& entry : entries) {
    entry.file = index;
    entry.name = std::string(RuntimeName(entry.name));
    const auto [known, is_new] = tensors_.try_emplace(entry.name, entry);
    if (!is_new) {
      return Corrupt(
          path, ": tensor ", Quoted(entry.name), " is also in ",
          index == known->second.file ? "this file, under another prefix" : FileOf(known->second));
    }
    total_bytes_ += entry.bytes;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& folder) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = folder;
  const std::string single = absl::StrCat(folder, "/", kSingleFile);
  const absl::Status added = checkpoint->AddShard(single);
  if (added.ok()) return checkpoint;
  if (!absl::IsNotFound(added)) return added;

  const absl::StatusOr<ShardMap> map = ReadIndex(absl::StrCat(folder, "/", kIndexFile));
  if (absl::IsNotFound(map.status())) {
    if (!IsFolder(folder)) return NotFound(folder, ": no such folder");
    return NotFound(folder, ": holds neither ", kSingleFile, " nor ", kIndexFile);
  }
  DSV4_RETURN_IF_ERROR(map.status());
  for (const std::string& file : map->files) {
    const std::string path = absl::StrCat(folder, "/", file);
    const absl::Status shard = checkpoint->AddShard(path);
    if (absl::IsNotFound(shard)) {
      return NotFound(path, ": no such file, though ", kIndexFile, " names it as a shard");
    }
    DSV4_RETURN_IF_ERROR(shard);
  }
  for (const auto& [tensor, file] : map->tensors) {
    const TensorEntry* entry = checkpoint->Find(tensor);
    if (entry == nullptr || entry->file != file) {
      return Corrupt(folder, "/", map->files[file], ": lacks tensor ", Quoted(tensor), ", which ",
                     kIndexFile, " places there");
    }
  }
  return checkpoint;
}

bool Checkpoint::LiesIn(const std::string& folder) {
  return PathExists(absl::StrCat(folder, "/", kSingleFile)) ||
         PathExists(absl::StrCat(folder, "/", kIndexFile));
}

std::unique_ptr<Checkpoint> Checkpoint::FromMemory(std::vector<TensorEntry> tensors,
                                                   std::vector<std::vector<uint8_t>> memory,
                                                   std::vector<MappedFile> files) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = "memory";
  checkpoint->memory_ = std::move(memory);
  checkpoint->files_ = std::move(files);
  for (TensorEntry& entry : tensors) {
    checkpoint->total_bytes_ += entry.bytes;
    checkpoint->tensors_.insert_or_assign(entry.name, entry);
  }
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::FromGguf(
    const std::string& path, std::vector<TensorEntry> tensors, std::vector<MappedFile> files,
    std::vector<int64_t> header_bytes, std::vector<std::vector<uint8_t>> memory) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = path;
  checkpoint->is_gguf_ = true;
  checkpoint->files_ = std::move(files);
  checkpoint->header_bytes_ = std::move(header_bytes);
  checkpoint->memory_ = std::move(memory);
  for (TensorEntry& entry : tensors) {
    entry.in_gguf = true;
    checkpoint->total_bytes_ += entry.bytes;
    const auto [known, is_new] = checkpoint->tensors_.try_emplace(entry.name, entry);
    if (!is_new) {
      return Corrupt(checkpoint->FileOf(entry), ": tensor ", Quoted(entry.shown_name()),
                     " is also in ", checkpoint->FileOf(known->second));
    }
  }
  return checkpoint;
}

std::unique_ptr<Checkpoint> Checkpoint::WithTensorsOf(std::unique_ptr<Checkpoint> model,
                                                      std::unique_ptr<Checkpoint> other,
                                                      absl::string_view prefix) {
  for (auto it = model->tensors_.begin(); it != model->tensors_.end();) {
    const auto next = std::next(it);
    if (absl::StartsWith(it->first, prefix)) {
      model->total_bytes_ -= it->second.bytes;
      model->tensors_.erase(it);
    }
    it = next;
  }
  const auto first_file = static_cast<int32_t>(model->files_.size());
  for (const auto& [name, entry] : other->tensors_) {
    if (!absl::StartsWith(name, prefix)) continue;
    TensorEntry taken = entry;
    taken.file += first_file;
    model->total_bytes_ += taken.bytes;
    model->tensors_.insert_or_assign(name, std::move(taken));
  }
  const auto append = [](auto* to, auto* from) {
    to->insert(to->end(), std::make_move_iterator(from->begin()),
               std::make_move_iterator(from->end()));
  };
  append(&model->files_, &other->files_);
  append(&model->header_bytes_, &other->header_bytes_);
  append(&model->memory_, &other->memory_);
  return model;
}

const TensorEntry* Checkpoint::Find(absl::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::string_view Checkpoint::FileOf(const TensorEntry& entry) const {
  return files_.empty() ? folder_ : files_[entry.file].path();
}

Checkpoint::Place Checkpoint::PlaceOf(const uint8_t* data) const {
  for (size_t i = 0; i < files_.size(); ++i) {
    const absl::Span<const uint8_t> bytes = files_[i].bytes();
    if (std::less_equal<>()(bytes.data(), data) &&
        std::less<>()(data, bytes.data() + bytes.size())) {
      return {static_cast<int32_t>(i), data - bytes.data()};
    }
  }
  return {};
}

std::vector<std::string> Checkpoint::paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : files_) paths.push_back(file.path());
  return paths;
}

ContentHash Checkpoint::Fingerprint() const {
  std::vector<const TensorEntry*> in_order;
  in_order.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return std::tie(a->file, a->data, a->name) < std::tie(b->file, b->data, b->name);
  });
  ContentHasher hasher;
  for (size_t i = 0; i < header_bytes_.size(); ++i) {
    hasher.Add(files_[i].bytes().subspan(0, static_cast<size_t>(header_bytes_[i])));
    files_[i].AdviseRandomAccess(true);
  }
  for (const TensorEntry* entry : in_order) {
    const absl::Span<const uint8_t> data(entry->data, static_cast<size_t>(entry->bytes));
    hasher.Add(data.subspan(0, kFingerprintBytes));
    if (entry->bytes > kFingerprintBytes) {
      hasher.Add(data.subspan(
          static_cast<size_t>(std::max(kFingerprintBytes, entry->bytes - kFingerprintBytes))));
    }
  }
  for (const MappedFile& file : files_) file.AdviseRandomAccess(false);
  return hasher.hash();
}

ContentHash Checkpoint::FullHash() const {
  ContentHasher hasher;
  for (const MappedFile& file : files_) hasher.Add(file.bytes());
  return hasher.hash();
}

}  // namespace dsv4
