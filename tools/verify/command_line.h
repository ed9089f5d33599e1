// SPDX-License-Identifier: Apache-2.0
// Shared by the commands of dsv4-verify: arguments, exit codes, and the signals that end a command
// early. Each command prints its findings to stdout and its errors to stderr.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/op/kv_layout.h"
#include "kernels/registry/kernel_entry.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/device.h"
#include "lib/experts/expert_residency.h"

namespace dsv4 {

enum ExitCode : int {
  kExitPassed = 0,
  kExitFailed = 1,  // the command ran, and a check failed
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
  // Sets *value to the last value of the option, if it is given: a number from `low` to `high`.
  // InvalidArgument, for the user.
  template <class T>
  absl::Status Number(absl::string_view name, T low, T high, T* value) const {
    if (!Has(name)) return absl::OkStatus();
    const std::string text = Get(name, "");
    bool read = false;
    if constexpr (std::is_same_v<T, double>) {
      read = absl::SimpleAtod(text, value);
    } else {
      read = absl::SimpleAtoi(text, value);
    }
    if (read && *value >= low && *value <= high) return absl::OkStatus();
    return InvalidArgument("option ", name, " = ", text, " is not in ", low, "..", high);
  }
};

// InvalidArgument, for the user, for an unknown option, a missing value, or another number of files
// than `files`, of which the last `optional` may be missing. "--" ends the options.
absl::StatusOr<Arguments> ParseArguments(absl::Span<char* const> arguments,
                                         absl::Span<const OptionSpec> options, size_t files,
                                         size_t optional = 0);

// Values of options. InvalidArgument, for the user.
absl::StatusOr<Backend> ParseBackend(const std::string& name);
absl::StatusOr<std::vector<int32_t>> ParseDevices(const std::string& text);
// The value of --cache-format; nullopt for "auto" and without the option.
absl::StatusOr<std::optional<RowFormat>> ParseCacheFormat(const Arguments& arguments);
// The value of --device-weights: a number of bytes or "least".
absl::StatusOr<ExpertBudgets> ParseBudgets(const Arguments& arguments);

// --backend, --devices and --threads, which `options` has as fields.
template <class Options>
absl::Status ReadDevices(const Arguments& arguments, absl::string_view backend, Options* options) {
  DSV4_ASSIGN_OR_RETURN(options->backend, ParseBackend(arguments.Get("--backend", backend)));
  DSV4_ASSIGN_OR_RETURN(options->devices, ParseDevices(arguments.Get("--devices", "")));
  options->threads = 0;
  return arguments.Number<int32_t>("--threads", 0, kMaxCpuThreads, &options->threads);
}

// Prints "dsv4-verify: MESSAGE" to stderr and returns the exit code of the error's class.
int ReportError(const absl::Status& error);
// The same for a mistake in the arguments.
int ReportUsage(const absl::Status& error);
// The exit code of a command with this result.
int ExitCodeOf(const absl::StatusOr<bool>& passed);

// From now on SIGINT, SIGTERM and SIGHUP only make Interrupted true; a second one ends the process.
void CatchSignals();
bool InterruptedBySignal();

}  // namespace dsv4
