// SPDX-License-Identifier: Apache-2.0
#include "examples/console/hub_models.h"

#include <algorithm>
#include <cstdlib>
#include <dsv4/error.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

#include "examples/console/amounts.h"

namespace chat {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "models--";

// What their pages say.
constexpr struct {
  const char* name;
  double bytes;
} kPublished[] = {{"deepseek-ai/DeepSeek-V4-Flash", 159.6e9},
                  {"deepseek-ai/DeepSeek-V4-Flash-0731", 166.9e9}};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// A link whose target is missing, as of an unfinished download, does not exist.
bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string TextOf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<fs::path> FilesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->is_directory(error)) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The files that an index of shards or a name with a part's number asks for.
std::set<fs::path> Wanted(const fs::path& snapshot, const std::vector<fs::path>& files) {
  std::set<fs::path> wanted(files.begin(), files.end());
  const std::string index = TextOf(snapshot / "model.safetensors.index.json");
  static const std::regex shard("\"([A-Za-z0-9._-]+\\.safetensors)\"");
  for (std::sregex_iterator found(index.begin(), index.end(), shard), end; found != end; ++found) {
    wanted.insert(snapshot / (*found)[1].str());
  }
  static const std::regex part("(.*-)([0-9]{5})(-of-)([0-9]{5})(\\.gguf)");
  for (const fs::path& file : files) {
    std::smatch match;
    const std::string name = file.filename().string();
    if (!std::regex_match(name, match, part)) continue;
    const int parts = std::stoi(match[4]);
    for (int i = 1; i <= parts; ++i) {
      const std::string number = std::to_string(100000 + i).substr(1);
      wanted.insert(file.parent_path() /
                    (match[1].str() + number + match[3].str() + match[4].str() + match[5].str()));
    }
  }
  return wanted;
}

// Whether it is the first file of a GGUF model.
bool BeginsGguf(const fs::path& file) {
  const std::string name = file.filename().string();
  static const std::regex later_part(".*-[0-9]{5}-of-[0-9]{5}\\.gguf");
  return file.extension() == ".gguf" &&
         (!std::regex_match(name, later_part) || name.find("-00001-of-") != std::string::npos);
}

HubModel DescribeSnapshot(const std::string& name, const fs::path& snapshot) {
  HubModel model{.name = name};
  const std::vector<fs::path> files = FilesIn(snapshot);
  std::vector<fs::path> missing, ggufs;
  for (const fs::path& file : Wanted(snapshot, files)) {
    std::error_code error;
    if (!Exists(file)) {
      missing.push_back(file);
      continue;
    }
    model.bytes += static_cast<int64_t>(fs::file_size(file, error));
    if (BeginsGguf(file)) ggufs.push_back(file);
  }
  const bool has_config = Exists(snapshot / "config.json");
  const bool has_weights =
      Exists(snapshot / "model.safetensors") || Exists(snapshot / "model.safetensors.index.json");
  if (has_config) {
    model.known = TextOf(snapshot / "config.json").find("\"deepseek_v4\"") != std::string::npos;
  }
  if (!missing.empty()) {
    model.problem = std::to_string(missing.size()) + " of its files are missing, such as " +
                    missing.front().filename().string();
  } else if (has_config && has_weights) {
    model.path = snapshot.string();
  } else if (ggufs.size() == 1) {
    model.path = ggufs.front().string();
  } else if (ggufs.size() > 1) {
    model.problem = "it has " + std::to_string(ggufs.size()) +
                    " GGUF models; name one of the files, such as " + ggufs.front().string();
  } else {
    model.problem = "it has no weights";
  }
  return model;
}

// The newest snapshot that is complete, else the newest.
HubModel DescribeModel(const std::string& name, const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> snapshots;
  std::error_code error;
  for (fs::directory_iterator entry(folder / "snapshots", error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    snapshots.emplace_back(fs::last_write_time(entry->path(), ignored), entry->path());
  }
  std::sort(snapshots.rbegin(), snapshots.rend());
  std::optional<HubModel> newest;
  for (const auto& [time, snapshot] : snapshots) {
    HubModel model = DescribeSnapshot(name, snapshot);
    if (!model.path.empty()) return model;
    if (!newest) newest = std::move(model);
  }
  return newest.value_or(HubModel{.name = name, .problem = "it has no snapshot"});
}

// "OWNER/NAME" of "models--OWNER--NAME"; "" for another folder.
std::string NameOfCacheFolder(const fs::path& folder) {
  std::string name = folder.filename().string();
  if (name.rfind(kPrefix, 0) != 0) return "";
  name.erase(0, sizeof kPrefix - 1);
  if (const size_t end = name.find("--"); end != std::string::npos) name.replace(end, 2, "/");
  return name;
}

[[noreturn]] void ThrowMissing(const std::string& what) {
  throw dsv4::Error(DSV4_ERR_NOT_FOUND, what.c_str());
}

std::string PathOf(const HubModel& model) {
  if (!model.path.empty()) return model.path;
  ThrowMissing(model.name + " in the hub's cache cannot be opened: " + model.problem +
               ". To download what is missing: " + DownloadCommand(model.name));
}

}  // namespace

std::string HubCache() {
  if (const std::string cache = Variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = Variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const std::string cache = Variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/huggingface/hub";
  const std::string home = Variable("HOME");
  return home.empty() ? "" : home + "/.cache/huggingface/hub";
}

std::vector<HubModel> ListHubModels() {
  std::vector<HubModel> models;
  std::error_code error;
  for (fs::directory_iterator entry(HubCache(), error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = NameOfCacheFolder(entry->path());
    if (!name.empty()) models.push_back(DescribeModel(name, entry->path()));
  }
  std::sort(models.begin(), models.end(),
            [](const HubModel& a, const HubModel& b) { return a.name < b.name; });
  return models;
}

std::string DownloadCommand(const std::string& name) {
  for (const auto& published : kPublished) {
    if (name == published.name)
      return "hf download " + name + " (" + BytesText(published.bytes) + ")";
  }
  return "hf download " + name;
}

std::string FindModel(const std::string& given) {
  if (Exists(given)) {
    fs::path folder = fs::path(given).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();
    const std::string name = NameOfCacheFolder(folder);
    if (name.empty() || !Exists(folder / "snapshots")) return given;
    return PathOf(DescribeModel(name, folder));
  }
  static const std::regex hub_name("([A-Za-z0-9_-][A-Za-z0-9._-]*)/([A-Za-z0-9_-][A-Za-z0-9._-]*)");
  std::smatch match;
  if (!std::regex_match(given, match, hub_name)) return given;
  const std::string cache = HubCache();
  const fs::path folder = fs::path(cache) / (kPrefix + match[1].str() + "--" + match[2].str());
  if (!cache.empty() && Exists(folder)) return PathOf(DescribeModel(given, folder));
  ThrowMissing("\"" + given +
               "\" is no folder or file, and no model of that name is in the hub's cache (" +
               (cache.empty() ? "no folder: HOME is not set" : cache) +
               "). To download it: " + DownloadCommand(given));
}

}  // namespace chat
