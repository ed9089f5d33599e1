// SPDX-License-Identifier: Apache-2.0
// shard_without PREFIX SHARD OUT: writes the safetensors file SHARD to OUT without the tensors
// whose names begin with PREFIX. For putting models together that share their files.
#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"

namespace dsv4 {
namespace {

absl::Status Write(absl::string_view prefix, const std::string& shard, const std::string& out) {
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(shard));
  DSV4_ASSIGN_OR_RETURN(const std::vector<TensorEntry> entries,
                        ParseSafetensors(file.bytes(), shard));
  std::string header = R"({"__metadata__":{"format":"pt"})", data;
  for (const TensorEntry& entry : entries) {
    if (absl::StartsWith(entry.name, prefix)) continue;
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(entry.data), static_cast<size_t>(entry.bytes));
    absl::StrAppend(&header, ",\"", entry.name, R"(":{"dtype":")", entry.dtype_name(),
                    R"(","shape":[)", absl::StrJoin(entry.shape, ","), R"(],"data_offsets":[)",
                    begin, ",", data.size(), "]}");
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::ofstream stream(out, std::ios::binary);
  for (size_t i = 0; i < 8; ++i) stream.put(static_cast<char>(header.size() >> (8 * i)));
  stream << header << data;
  stream.close();
  return stream ? absl::OkStatus() : absl::UnknownError(absl::StrCat(out, ": cannot be written"));
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: shard_without PREFIX SHARD OUT\n");
    return 2;
  }
  const absl::Status status = dsv4::Write(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::fprintf(stderr, "shard_without: %s\n", std::string(status.message()).c_str());
  return 1;
}
