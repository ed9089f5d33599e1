// SPDX-License-Identifier: Apache-2.0
// The files of a GGUF model: the parts of a split one, and the one model of a folder.
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/gguf.h"
#include "lib/io/native_path.h"

namespace dsv4 {
namespace {

constexpr char kSuffix[] = ".gguf";
constexpr int64_t kMostParts = 65535;  // split.no is 16 bits wide

// A path PREFIX-00002-of-00003.gguf: part 2 of 3. count 0: the name is not of this kind.
struct PartName {
  std::string prefix;
  int64_t part = 0, count = 0;

  std::string Path(int64_t which) const {
    return absl::StrFormat("%s-%05d-of-%05d%s", prefix, which, count, kSuffix);
  }
};

PartName ParsePartName(absl::string_view path) {
  constexpr size_t kDigits = 5, kEnd = 2 * kDigits + 5;  // "-00002-of-00003"
  PartName name;
  if (!IsGgufPath(path)) return name;
  path.remove_suffix(sizeof kSuffix - 1);
  if (path.size() <= kEnd) return name;
  const absl::string_view end = path.substr(path.size() - kEnd);
  const absl::string_view part = end.substr(1, kDigits), count = end.substr(kEnd - kDigits);
  const auto digits = [](absl::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c); });
  };
  if (end[0] != '-' || end.substr(1 + kDigits, 4) != "-of-" || !digits(part) || !digits(count)) {
    return name;
  }
  if (absl::SimpleAtoi(part, &name.part) && absl::SimpleAtoi(count, &name.count)) {
    name.prefix = std::string(path.substr(0, path.size() - kEnd));
  }
  return name;
}

absl::StatusOr<int64_t> SplitKey(const GgufFile& file, absl::string_view key,
                                 const std::string& path) {
  const GgufValue* value = file.Find(key);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : value->AsInt64();
  if (number && *number >= 0) return *number;
  return Corrupt(path, ": key ", key, value == nullptr ? " is missing" : " is no count",
                 ", though the file is a part of a split model");
}

absl::Status Add(GgufModel* model, const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  DSV4_ASSIGN_OR_RETURN(GgufFile part, ParseGguf(file.bytes(), path));
  model->files.push_back(std::move(file));
  model->parts.push_back(std::move(part));
  return absl::OkStatus();
}

}  // namespace

bool IsGgufPath(absl::string_view path) { return absl::EndsWith(path, kSuffix); }

absl::StatusOr<GgufModel> OpenGguf(const std::string& path) {
  GgufModel any;
  DSV4_RETURN_IF_ERROR(Add(&any, path));
  if (any.Find("split.count") == nullptr) return any;
  DSV4_ASSIGN_OR_RETURN(const int64_t count, SplitKey(any.parts[0], "split.count", path));
  if (count == 0 || count > kMostParts) {
    return Corrupt(path, ": key split.count is ", count, "; expected 1 to ", kMostParts);
  }
  if (count == 1) return any;
  const PartName name = ParsePartName(path);
  if (name.count != count) {
    return Corrupt(path, ": is one of ", count,
                   " parts by its key split.count; its name must end in -0000N-of-",
                   absl::StrFormat("%05d", count), kSuffix, ", so that the others are found");
  }
  GgufModel model;
  int64_t tensors = 0;
  for (int64_t part = 1; part <= count; ++part) {
    const std::string sibling = name.Path(part);
    const absl::Status added = Add(&model, sibling);
    if (absl::IsNotFound(added)) {
      return NotFound(sibling, ": no such file; it is part ", part, " of the ", count, " of ",
                      path);
    }
    DSV4_RETURN_IF_ERROR(added);
    const GgufFile& file = model.parts.back();
    DSV4_ASSIGN_OR_RETURN(const int64_t number, SplitKey(file, "split.no", sibling));
    DSV4_ASSIGN_OR_RETURN(const int64_t of, SplitKey(file, "split.count", sibling));
    if (number != part - 1 || of != count) {
      return Corrupt(sibling, ": is part ", number + 1, " of ", of,
                     " by its keys split.no and "
                     "split.count; its name says part ",
                     part, " of ", count);
    }
    tensors += static_cast<int64_t>(file.tensors.size());
  }
  DSV4_ASSIGN_OR_RETURN(const int64_t expected,
                        SplitKey(model.parts[0], "split.tensors.count", model.path()));
  if (tensors != expected) {
    return Corrupt(model.path(), ": the ", count, " parts have ", tensors,
                   " tensors; key split.tensors.count says ", expected);
  }
  return model;
}

GgufRole GgufRoleOf(const GgufFile& file) {
  const GgufValue* value = file.Find("general.architecture");
  const absl::string_view architecture =
      value == nullptr ? absl::string_view() : value->AsString().value_or(absl::string_view());
  if (architecture == "dflash") return GgufRole::kDrafter;
  if (architecture == "clip") return GgufRole::kOther;
  // A drafter of llama.cpp has its blocks past those of the model, one of ds4 names mtp.*; neither
  // has the model's own. The first part of a split model may have no tensor at all.
  bool drafts = false;
  for (const GgufTensor& tensor : file.tensors) {
    if (absl::StartsWith(tensor.name, "blk.0.")) return GgufRole::kModel;
    drafts = drafts || absl::StartsWith(tensor.name, "mtp.") ||
             absl::StrContains(tensor.name, ".nextn.");
  }
  return drafts ? GgufRole::kDrafter : GgufRole::kModel;
}

absl::StatusOr<std::string> GgufIn(const std::string& folder) {
  std::vector<std::string> models;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(NativePath(folder), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string name = TextOf(entry->path().filename());
    if (!IsGgufPath(name) || ParsePartName(name).part > 1) continue;
    const std::string path = absl::StrCat(folder, "/", name);
    // Another part's keys or damage are for the caller that opens the model.
    const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
    if (file.ok()) {
      const absl::StatusOr<GgufFile> parsed = ParseGguf(file->bytes(), path);
      if (parsed.ok() && GgufRoleOf(*parsed) != GgufRole::kModel) continue;
    }
    models.push_back(path);
  }
  std::sort(models.begin(), models.end());
  if (models.size() > 1) {
    return InvalidArgument(folder, ": holds several models; open one of ",
                           absl::StrJoin(models, ", "));
  }
  return models.empty() ? "" : models.front();
}

}  // namespace dsv4
