// SPDX-License-Identifier: Apache-2.0
#include "tests/support/checkpoint_files.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace dsv4::test {
namespace {

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Past the end of the JSON value that starts at `at`.
size_t SkipValue(absl::string_view json, size_t at) {
  int depth = 0;
  bool in_string = false;
  for (; at < json.size(); ++at) {
    const char c = json[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']' || c == '\n')) break;
    if (c == '"') in_string = true;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
  return at;
}

}  // namespace

TempFolder::TempFolder() {
  std::random_device random;
  const std::string stem = std::filesystem::temp_directory_path().generic_string() + "/dsv4_test_";
  do {
    path_ = absl::StrCat(stem, absl::Hex(random(), absl::kZeroPad8));
  } while (!std::filesystem::create_directory(path_));  // taken
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::File(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string TempFolder::Write(absl::string_view name, absl::string_view content) const {
  const std::string path = File(name);
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + path);
  return path;
}

std::string BundledModel() { return DSV4_SOURCE_DIR "/models/dsv4-tiny"; }

std::string BundledFile(absl::string_view name) {
  return Read(absl::StrCat(BundledModel(), "/", name));
}

std::string SafetensorsImage(absl::string_view header, absl::string_view data) {
  std::string image;
  for (int i = 0; i < 8; ++i) image.push_back(static_cast<char>(header.size() >> (8 * i)));
  return absl::StrCat(image, header, data);
}

std::string SafetensorsImage(const std::vector<StoredTensor>& tensors) {
  std::string header, data;
  for (const StoredTensor& t : tensors) {
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", t.name, "\":{\"dtype\":\"", t.dtype,
                    "\",\"shape\":[", absl::StrJoin(t.shape, ","), "],\"data_offsets\":[",
                    data.size(), ",", data.size() + t.bytes.size(), "]}");
    data += t.bytes;
  }
  return SafetensorsImage(header.empty() ? "{}" : header + "}", data);
}

std::string EditedJson(absl::string_view json, absl::string_view key, absl::string_view value) {
  const std::string quoted = absl::StrCat("\"", key, "\"");
  const size_t at = json.find(quoted);
  if (at == absl::string_view::npos) throw std::runtime_error("no member " + quoted);
  const size_t colon = json.find(':', at);
  const size_t end = SkipValue(json, colon + 1);
  if (!value.empty()) return absl::StrCat(json.substr(0, colon + 1), value, json.substr(end));
  // With the comma after the member, or before it when it is the last.
  const size_t next = json.find_first_not_of(" \n", end);
  if (json[next] == ',') return absl::StrCat(json.substr(0, at), json.substr(next + 1));
  return absl::StrCat(json.substr(0, json.rfind(',', at)), json.substr(end));
}

}  // namespace dsv4::test
