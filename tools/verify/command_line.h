// SPDX-License-Identifier: Apache-2.0
// What the commands of dsv4-verify share: reading of arguments, exit codes, and the signals that
// end a command early. Each command prints what it finds to stdout and its errors to stderr.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/op/kv_layout.h"
#include "kernels/registry/kernel_entry.h"
#include "lib/model/expert_residency.h"

namespace dsv4 {

enum ExitCode : int {
  kExitPassed = 0,
  kExitFailed = 1,  // it ran, and what it checks does not hold
  kExitUsage = 2,
  kExitInput = 3,  // a model, case or other file is missing, malformed or unsupported
  kExitMemory = 4,
  kExitInterrupted = 130,
};

// An option of a command: "--mode M" or "--mode=M", or a flag without a value.
struct OptionSpec {
  absl::string_view name;  // with its dashes
  bool takes_value = true;
};

struct Arguments {
  std::map<std::string, std::vector<std::string>> options;  // values in order; "" for flags
  std::vector<std::string> files;                           // the other arguments

  bool Has(absl::string_view name) const { return options.count(std::string(name)) != 0; }
  // The last value, or `fallback`.
  std::string Get(absl::string_view name, absl::string_view fallback) const;
};

// InvalidArgument, for the user, for an unknown option, a missing value, or another number of files
// than `files`. "--" ends the options.
absl::StatusOr<Arguments> ParseArguments(absl::Span<char* const> arguments,
                                         absl::Span<const OptionSpec> options, size_t files);

// Values of --backend, --threads (0 when it is not given) and --devices ("" when it is not).
// InvalidArgument, for the user.
absl::StatusOr<Backend> ParseBackend(const std::string& name);
absl::StatusOr<int32_t> ParseThreads(const std::string& text);
absl::StatusOr<std::vector<int32_t>> ParseDevices(const std::string& text);
// Of --cache-format: none for "auto".
absl::StatusOr<std::optional<RowFormat>> ParseCacheFormat(const std::string& text);
// Of --device-weights, a number of bytes or "least", and --cpu-experts.
absl::StatusOr<ExpertBudgets> ParseBudgets(const Arguments& arguments);

// Prints "dsv4-verify: MESSAGE" to stderr and returns the exit code of the error's class.
int ReportError(const absl::Status& error);
// The same for a mistake in the arguments.
int ReportUsage(const absl::Status& error);

// From now on SIGINT, SIGTERM and SIGHUP only make Interrupted true; a second one ends the process.
void CatchSignals();
bool InterruptedBySignal();

}  // namespace dsv4
