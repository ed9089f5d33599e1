// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/hash_command.h"

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/config/model_files.h"
#include "lib/io/checkpoint.h"
#include "lib/io/content_hash.h"
#include "lib/io/model_path.h"
#include "lib/weights/gguf_tensors.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"

namespace dsv4 {
namespace {

bool IsHash(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenModel(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const ModelPath found, ModelPath::Find(path));
  if (found.gguf.empty()) return Checkpoint::Open(path);
  DSV4_ASSIGN_OR_RETURN(const ModelFiles files, ReadModelFiles(path));
  return OpenWeights(path, files.config);
}

}  // namespace

int RunHashCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, {{"--expect"}}, 1);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  const std::string expected = absl::AsciiStrToLower(parsed->Get("--expect", ""));
  if (parsed->Has("--expect") && !IsHash(expected)) {
    return ReportUsage(
        InvalidArgument("--expect = ", expected, " is not a hash of 32 hexadecimal digits"));
  }
  const absl::StatusOr<std::string> model = FoundModel(parsed->files[0]);
  if (!model.ok()) return ReportError(model.status());
  const absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = OpenModel(*model);
  if (!checkpoint.ok()) return ReportError(checkpoint.status());
  const std::string full = HexOf((*checkpoint)->FullHash());
  std::printf(
      "full         %s  all files, %lld bytes of tensors (as xxhsum -H2 of the shards in order)\n"
      "fingerprint  %s  headers and tensor ends: what saved sessions are checked with\n",
      full.c_str(), static_cast<long long>((*checkpoint)->total_bytes()),
      HexOf((*checkpoint)->Fingerprint()).c_str());
  if (expected.empty() || expected == full) return kExitPassed;
  std::printf("FAILED: expected %s\n", expected.c_str());
  return kExitFailed;
}

}  // namespace dsv4
