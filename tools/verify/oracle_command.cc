// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/oracle_command.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/oracle_rules.h"
#include "tools/verify/temporary_folder.h"

namespace dsv4 {
namespace {

constexpr OptionSpec kOptions[] = {
    {"--mode"},           {"--backend"},      {"--prompt"}, {"--omit"},
    {"--layers", false},  {"--threads"},      {"--keep"},   {"--devices"},
    {"--device-weights"}, {"--cache-format"}, {"--model"},
};

absl::StatusOr<Numerics> ParseMode(const std::string& name) {
  if (name == "exact") return Numerics::kExact;
  if (name == "fp32") return Numerics::kFp32;
  if (name == "published") return Numerics::kPublished;
  if (name.empty()) return InvalidArgument("option --mode is needed: exact, fp32 or published");
  return InvalidArgument("option --mode = ", name, " is not exact, fp32 or published");
}

absl::StatusOr<uint64_t> ParsePoints(const Arguments& arguments) {
  uint64_t points = 0;
  if (!arguments.Has("--omit")) return points;
  for (const std::string& name : arguments.options.at("--omit")) {
    uint64_t bit = 0;
    std::string names;
    for (int32_t i = 0; i < static_cast<int32_t>(Point::kCount); ++i) {
      const Point point = static_cast<Point>(i);
      if (name == PointName(point)) bit = PointBit(point);
      absl::StrAppend(&names, i == 0 ? "" : ", ", PointName(point));
    }
    if (bit == 0) return InvalidArgument("option --omit = ", name, " is not one of ", names);
    points |= bit;
  }
  return points;
}

// Leaves the prompts of --prompt alone, where it is given.
absl::Status ChoosePrompts(const Arguments& arguments, OracleCase* oracle) {
  if (!arguments.Has("--prompt")) return absl::OkStatus();
  std::vector<int64_t> chosen;
  for (const std::string& text : arguments.options.at("--prompt")) {
    int64_t length = 0;
    if (!absl::SimpleAtoi(text, &length) ||
        std::count(oracle->prompts.begin(), oracle->prompts.end(), length) == 0) {
      return InvalidArgument("option --prompt = ", text, " is not one of the case's ",
                             absl::StrJoin(oracle->prompts, ", "));
    }
    chosen.push_back(length);
  }
  oracle->prompts = std::move(chosen);
  return absl::OkStatus();
}

absl::StatusOr<OracleOptions> ReadOptions(const Arguments& arguments) {
  OracleOptions options;
  DSV4_ASSIGN_OR_RETURN(options.mode, ParseMode(arguments.Get("--mode", "")));
  DSV4_RETURN_IF_ERROR(ReadDevices(arguments, "reference", &options));
  DSV4_ASSIGN_OR_RETURN(options.weight_budgets, ParseBudgets(arguments));
  DSV4_ASSIGN_OR_RETURN(options.omitted_points, ParsePoints(arguments));
  DSV4_ASSIGN_OR_RETURN(options.cache_format, ParseCacheFormat(arguments));
  options.all_tensors = arguments.Has("--layers");
  if (options.cache_format == RowFormat::kFp8PerTensor &&
      (options.mode != Numerics::kPublished || options.backend == Backend::kReference)) {
    return InvalidArgument(
        "option --cache-format = fp8_per_tensor: nothing recorded has such rows; --mode published "
        "compares --backend cpu or cuda with the reference's");
  }
  if (options.backend != Backend::kReference) {
    if (options.mode != Numerics::kPublished) {
      return InvalidArgument("modes exact and fp32 are the reference backend's");
    }
    if (options.omitted_points != 0) {
      return InvalidArgument("option --omit is the reference backend's");
    }
  }
  options.print = [](absl::string_view line) {
    std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
    std::fflush(stdout);
  };
  options.interrupted = &InterruptedBySignal;
  return options;
}

absl::StatusOr<bool> Verify(const OracleCase& oracle, const Arguments& arguments,
                            const OracleOptions& options) {
  DSV4_ASSIGN_OR_RETURN(const ExpectedTensors expected, ExpectedTensors::Open(arguments.files[1]));
  if (arguments.Has("--model")) {
    DSV4_ASSIGN_OR_RETURN(const std::string model, FoundModel(arguments.Get("--model", "")));
    return VerifyOracle(oracle, model, expected, options);
  }
  std::optional<TemporaryFolder> temporary;
  std::string folder = arguments.Get("--keep", "");
  if (folder.empty()) {
    DSV4_ASSIGN_OR_RETURN(TemporaryFolder created, TemporaryFolder::Create());
    temporary.emplace(std::move(created));
    folder = temporary->path();
  }
  DSV4_RETURN_IF_ERROR(WriteOracleCheckpoint(oracle, folder));
  return VerifyOracle(oracle, folder, expected, options);
}

}  // namespace

int RunOracleCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, kOptions, 2);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  const absl::StatusOr<OracleOptions> options = ReadOptions(*parsed);
  if (!options.ok()) return ReportUsage(options.status());
  absl::StatusOr<OracleCase> oracle = LoadOracleCase(parsed->files[0]);
  if (!oracle.ok()) return ReportError(oracle.status());
  if (parsed->Has("--model")) oracle->stages = 0;  // the model may have no drafter
  const absl::Status chosen = ChoosePrompts(*parsed, &*oracle);
  if (!chosen.ok()) return ReportUsage(chosen);
  CatchSignals();
  return ExitCodeOf(Verify(*oracle, *parsed, *options));
}

}  // namespace dsv4
