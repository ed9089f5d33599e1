// SPDX-License-Identifier: Apache-2.0
#include "kernels/tuning/tuning_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "kernels/tuning/tuning_document.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/io/native_path.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 20;

using Knobs = std::map<std::string, int32_t>;
using Ranges = std::map<std::string, TuningRange>;

// "12.0" as 120; 0 for anything else.
int32_t CapabilityOf(const std::string& cc) {
  const size_t dot = cc.find('.');
  if (dot == std::string::npos || dot < 1 || dot > 2 || cc.size() != dot + 2) return 0;
  int32_t capability = 0;
  for (const char c : cc) {
    if (c == '.') continue;
    if (c < '0' || c > '9') return 0;
    capability = capability * 10 + (c - '0');
  }
  return capability;
}

// Holds one parsed file against the entry that it is for.
class FileReader {
 public:
  FileReader(const std::string& source, const TuningDocument& file)
      : source_(source), file_(file) {}

  absl::StatusOr<TuningFile> Read(absl::Span<const Manifest> manifests) {
    if (file_.schema != kTuningSchema) {
      return Fault("schema", " = ", Quoted(file_.schema), " is not ", Quoted(kTuningSchema));
    }
    DSV4_RETURN_IF_ERROR(FindEntry(manifests));
    TuningFile read{.source = source_,
                    .compute_capability = CapabilityOf(file_.device.cc),
                    .multiprocessors = file_.device.sm_count,
                    .rev = file_.impl_rev,
                    .table = {.entry = entry_}};
    if (read.compute_capability == 0) {
      return Fault("device.cc", " = ", Quoted(file_.device.cc),
                   " is not a compute capability, as in \"12.0\"");
    }
    if (read.multiprocessors < 1) {
      return Fault("device.sm_count", " = ", read.multiprocessors, " is less than 1");
    }
    // Knobs and dimensions of another revision are not known.
    if (read.rev != entry_->rev) return read;
    DSV4_RETURN_IF_ERROR(ReadConfig(file_.fallback, "default", &read.table.fallback));
    for (size_t i = 0; i < file_.entries.size(); ++i) {
      const TuningDocument::Entry& entry = file_.entries[i];
      const std::string path = absl::StrCat("entries[", i, "]");
      TuningBucket bucket;
      DSV4_RETURN_IF_ERROR(ReadWhen(entry.when, path + ".when", &bucket));
      DSV4_RETURN_IF_ERROR(ReadConfig(entry.config, path + ".config", &bucket.config));
      DSV4_RETURN_IF_ERROR(ExpectTimes(entry, path));
      DSV4_RETURN_IF_ERROR(ExpectBehind(read.table.buckets, bucket, path));
      read.table.buckets.push_back(bucket);
    }
    return read;
  }

 private:
  template <class... Args>
  absl::Status Fault(absl::string_view key, const Args&... reason) const {
    return Corrupt(source_, ": ", key, reason...);
  }

  absl::Status FindEntry(absl::Span<const Manifest> manifests) {
    for (const Manifest& manifest : manifests) {
      for (const KernelEntry& entry : manifest) {
        if (file_.impl == entry.name) entry_ = &entry;
      }
    }
    if (entry_ == nullptr) {
      return Fault("impl", " = ", Quoted(file_.impl), " is not a kernel of this build");
    }
    if (file_.op != OpName(entry_->op)) {
      return Fault("operator", " = ", Quoted(file_.op), " is not that of ", entry_->name,
                   ", which is ", OpName(entry_->op));
    }
    return absl::OkStatus();
  }

  absl::Status ReadConfig(const Knobs& knobs, const std::string& path, KernelConfig* config) const {
    const KernelKnobs& known = entry_->knobs;
    for (const auto& [name, value] : knobs) {
      const auto* at = std::find(known.names.begin(), known.names.end(), name);
      if (at == known.names.end()) {
        return Fault(path, ": ", Quoted(name), " is not a knob of ", entry_->name);
      }
      config->values[static_cast<size_t>(at - known.names.begin())] = value;
    }
    for (const char* name : known.names) {
      if (knobs.count(name) == 0) return Fault(path, ".", name, " is missing");
    }
    if (!known.names.empty() &&
        std::find(known.configs.begin(), known.configs.end(), *config) == known.configs.end()) {
      return Fault(path, " is not among the configs of ", entry_->name);
    }
    return absl::OkStatus();
  }

  absl::Status ReadWhen(const Ranges& ranges, const std::string& path, TuningBucket* bucket) const {
    const CallDims dims = entry_->dims(nullptr);
    for (const auto& [name, range] : ranges) {
      size_t at = 0;
      while (at < dims.all().size() && name != dims.all()[at].name) ++at;
      if (at == dims.all().size()) {
        return Fault(path, ": ", Quoted(name), " is not a dimension of ", OpName(entry_->op));
      }
      if (range.first < 0 || range.last < range.first) {
        return Fault(path, ".", name, " = [", range.first, ", ", range.last, "] is not a range");
      }
      bucket->when[at] = range;
    }
    return absl::OkStatus();
  }

  absl::Status ExpectTimes(const TuningDocument::Entry& entry, const std::string& path) const {
    for (const auto& [key, time] :
         {std::pair{".median_us", entry.median_us}, {".floor_us", entry.floor_us}}) {
      if (time < 0) return Fault(path, key, " = ", time, " is negative");
    }
    return absl::OkStatus();
  }

  absl::Status ExpectBehind(const std::vector<TuningBucket>& before, const TuningBucket& bucket,
                            const std::string& path) const {
    for (size_t i = 0; i < before.size(); ++i) {
      bool disjoint = false;
      for (size_t d = 0; d < bucket.when.size(); ++d) {
        disjoint = disjoint || bucket.when[d].last < before[i].when[d].first ||
                   before[i].when[d].last < bucket.when[d].first;
      }
      if (!disjoint) return Fault(path, ".when overlaps entries[", i, "].when");
    }
    const auto first_of = [](const TuningRange& a, const TuningRange& b) {
      return a.first < b.first;
    };
    if (!before.empty() && std::lexicographical_compare(bucket.when.begin(), bucket.when.end(),
                                                        before.back().when.begin(),
                                                        before.back().when.end(), first_of)) {
      return Fault(path, ".when is not sorted: it begins before entries[", before.size() - 1,
                   "].when");
    }
    return absl::OkStatus();
  }

  const std::string& source_;
  const TuningDocument& file_;
  const KernelEntry* entry_ = nullptr;
};

bool IsFor(const TuningFile& file, const DeviceTraits& device) {
  return file.compute_capability == device.compute_capability &&
         file.multiprocessors == device.multiprocessors;
}

// Whether the file is of the entry's present revision; a line in the log where it is not.
bool IsCurrent(const TuningFile& file) {
  const KernelEntry& entry = *file.table.entry;
  if (file.rev == entry.rev) return true;
  Log(LogLevel::kWarning, file.source, ": not used: it is for revision ", file.rev, " of ",
      entry.name, ", which is at ", entry.rev);
  return false;
}

}  // namespace

absl::StatusOr<TuningFile> ReadTuningFile(absl::string_view json, const std::string& source,
                                          absl::Span<const Manifest> manifests) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue document, ParseJson(json, source, kMaxBytes));
  DSV4_ASSIGN_OR_RETURN(const TuningDocument file, ReadTuningDocument(document, source));
  return FileReader(source, file).Read(manifests);
}

absl::StatusOr<std::vector<TuningFile>> ReadTuningDirectory(const std::string& directory,
                                                            absl::Span<const Manifest> manifests) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator at(NativePath(directory), error);
  std::vector<std::string> paths;
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (at->path().extension() == ".json") paths.push_back(TextOf(at->path()));
  }
  if (error == std::errc::no_such_file_or_directory) {
    return NotFound(directory, ": no such directory of tuning files");
  }
  if (error) return IoError(directory, ": ", error.message());
  if (paths.empty()) return InvalidArgument(directory, ": there is no tuning file (*.json) in it");
  std::sort(paths.begin(), paths.end());
  std::vector<TuningFile> files;
  for (const std::string& path : paths) {
    DSV4_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxBytes));
    DSV4_ASSIGN_OR_RETURN(TuningFile file, ReadTuningFile(json, path, manifests));
    for (const TuningFile& other : files) {
      if (other.table.entry == file.table.entry && other.rev == file.rev &&
          other.compute_capability == file.compute_capability &&
          other.multiprocessors == file.multiprocessors) {
        return InvalidArgument(path, ": impl = ", Quoted(file.table.entry->name), ", for which ",
                               other.source, " is there");
      }
    }
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<std::vector<TuningTable>> TablesOf(const DeviceTraits& device,
                                                  std::vector<TuningFile> files,
                                                  absl::Span<const EmbeddedTuningFile> embedded,
                                                  absl::Span<const Manifest> manifests) {
  std::vector<TuningTable> tables;
  for (TuningFile& file : files) {
    if (!IsFor(file, device)) {
      Log(LogLevel::kWarning, file.source, ": not used: it is for compute capability ",
          ComputeCapabilityName(file.compute_capability), " with ", file.multiprocessors,
          " multiprocessors, and ", device.name, " has ",
          ComputeCapabilityName(device.compute_capability), " with ", device.multiprocessors);
    } else if (IsCurrent(file)) {
      tables.push_back(std::move(file.table));
    }
  }
  for (const EmbeddedTuningFile& text : embedded) {
    DSV4_ASSIGN_OR_RETURN(TuningFile file, ReadTuningFile(text.json, text.source, manifests));
    const bool replaced = std::any_of(tables.begin(), tables.end(), [&](const TuningTable& table) {
      return table.entry == file.table.entry;
    });
    if (IsFor(file, device) && !replaced && IsCurrent(file)) {
      tables.push_back(std::move(file.table));
    }
  }
  return tables;
}

}  // namespace dsv4
