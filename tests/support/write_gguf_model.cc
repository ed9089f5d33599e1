// SPDX-License-Identifier: Apache-2.0
// usage: write_gguf_model SHORT CHECKPOINT OUT
// Writes the GGUF file of which SHORT has the header and the tensors that cannot be derived from
// the folder CHECKPOINT, one after the other in the file's order (tests/gguf/README.md).
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/checkpoint.h"
#include "lib/io/gguf.h"
#include "lib/io/mapped_file.h"
#include "tests/support/gguf_tensor_bytes.h"

namespace dsv4::test {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 24;  // of a file of tests/gguf

absl::Status WriteGgufModel(const std::string& from, const std::string& folder,
                            const std::string& to) {
  DSV4_ASSIGN_OR_RETURN(const std::string kept, ReadFile(from, kMostBytes));
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(folder));
  // The header, in front of zeros that have room for all tensors.
  std::string image = kept;
  image.resize(static_cast<size_t>(kMostBytes), '\0');
  DSV4_ASSIGN_OR_RETURN(
      const GgufFile file,
      ParseGguf(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(image.data()), image.size()),
                from));
  size_t at = static_cast<size_t>(file.header_bytes);
  std::string made = kept.substr(0, at);
  for (const GgufTensor& tensor : file.tensors) {
    made.resize(static_cast<size_t>(tensor.data - reinterpret_cast<const uint8_t*>(image.data())),
                '\0');
    const auto bytes = static_cast<size_t>(tensor.bytes);
    if (const auto derived = GgufTensorBytes(*checkpoint, tensor.name, tensor.type)) {
      if (derived->size() != bytes) {
        return Corrupt(from, ": ", tensor.name, " has ", bytes, " bytes; ", derived->size(),
                       " are derived from ", folder);
      }
      made += *derived;
    } else {
      if (kept.size() - at < bytes) return Corrupt(from, " ends before ", tensor.name);
      made.append(kept, at, bytes);
      at += bytes;
    }
  }
  if (at != kept.size()) return Corrupt(from, " has more than its tensors");
  made.resize((made.size() + 31) / 32 * 32, '\0');
  std::FILE* const out = std::fopen(to.c_str(), "wb");
  if (out == nullptr) return IoError(to, ": cannot be written");
  const bool written = std::fwrite(made.data(), 1, made.size(), out) == made.size();
  if (std::fclose(out) != 0 || !written) return IoError(to, ": cannot be written");
  return absl::OkStatus();
}

}  // namespace
}  // namespace dsv4::test

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: write_gguf_model SHORT CHECKPOINT OUT\n");
    return 2;
  }
  const absl::Status written = dsv4::test::WriteGgufModel(argv[1], argv[2], argv[3]);
  if (written.ok()) return 0;
  std::fprintf(stderr, "write_gguf_model: %s\n", written.ToString().c_str());
  return 1;
}
