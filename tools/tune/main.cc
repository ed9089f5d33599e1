// SPDX-License-Identifier: Apache-2.0
// dsv4-tune: writes the tuning tables of kernels/sm12x/tuning.
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "kernels/sm12x/manifest.h"
#include "kernels/tuning/tuning_file.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/replaced_file.h"
#include "tools/tune/measure.h"
#include "tools/tune/tables.h"

namespace dsv4 {
namespace {

constexpr char kHelp[] =
    R"(usage: dsv4-tune [--operators A,B,...] [--commit REVISION] OUT_DIR

Measures all configs of the CUDA kernels that have knobs on device 0, at the model's shapes, by
graph replay with weights and cached rows beyond L2, and writes OUT_DIR/OPERATOR.json for each that
has faster configs than its default.
Takes minutes, and 21 GB of the device's memory.
  --operators A,B  only these
  --commit REV     the commit of this build, for the files' provenance; default: unknown

Exit codes: 0 written, 1 failed, 2 usage.
)";

struct Options {
  std::vector<std::string> operators, folders;
  std::string commit = "unknown";
};

absl::Status Write(const std::string& folder, const tuning::File& file) {
  const std::string path = absl::StrCat(folder, "/", file.operator_(), ".json");
  const std::string text = TextOf(file);
  // Never writes a file that the library would refuse.
  const Manifest manifests[] = {Sm12xManifest()};
  DSV4_RETURN_IF_ERROR(ReadTuningFile(text, path, manifests).status());
  DSV4_ASSIGN_OR_RETURN(ReplacedFile written,
                        ReplacedFile::Create(path, static_cast<int64_t>(text.size())));
  std::copy(text.begin(), text.end(), written.bytes().begin());
  DSV4_RETURN_IF_ERROR(written.Commit());
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  std::printf("%s\n", path.c_str());
  return absl::OkStatus();
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

absl::Status Measure(const Options& options) {
  DSV4_ASSIGN_OR_RETURN(const Measured measured, MeasureConfigs(options.operators));
  const TuningOrigin origin{measured.device, measured.cuda, options.commit, Today()};
  for (const auto& [entry, timings] : measured.timings) {
    const tuning::File table = MakeTable(*entry, timings, origin);
    if (!IsDefault(*entry, table)) DSV4_RETURN_IF_ERROR(Write(options.folders[0], table));
  }
  return absl::OkStatus();
}

// False where the arguments are not those of the usage.
bool Parse(const std::vector<std::string>& arguments, Options* options) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name.empty() || name[0] != '-') {
      options->folders.push_back(name);
      continue;
    }
    if (i + 1 == arguments.size()) return false;
    const std::string& value = arguments[++i];
    if (name == "--operators") {
      options->operators = absl::StrSplit(value, ',');
    } else if (name == "--commit") {
      options->commit = value;
    } else {
      return false;
    }
  }
  return options->folders.size() == 1;
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 1 && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::fputs(dsv4::kHelp, stdout);
    return 0;
  }
  dsv4::Options options;
  if (!dsv4::Parse(arguments, &options)) {
    std::fputs(dsv4::kHelp, stderr);
    return 2;
  }
  std::error_code error;
  std::filesystem::create_directories(options.folders[0], error);
  const absl::Status status = dsv4::Measure(options);
  if (!status.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
