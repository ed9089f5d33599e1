// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/command_line.h"

#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace dsv4 {

std::string Arguments::Get(absl::string_view name, absl::string_view fallback) const {
  const auto found = options.find(std::string(name));
  return found == options.end() ? std::string(fallback) : found->second.back();
}

absl::StatusOr<Arguments> ParseArguments(absl::Span<char* const> arguments,
                                         absl::Span<const OptionSpec> options, size_t files,
                                         size_t optional) {
  Arguments parsed;
  bool options_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const absl::string_view argument = arguments[i];
    if (options_ended || argument.size() < 2 || argument[0] != '-') {
      parsed.files.emplace_back(argument);
      continue;
    }
    if (argument == "--") {
      options_ended = true;
      continue;
    }
    const size_t equals = argument.find('=');
    const absl::string_view name = argument.substr(0, equals);
    const OptionSpec* spec = nullptr;
    for (const OptionSpec& option : options) {
      if (option.name == name) spec = &option;
    }
    if (spec == nullptr) return InvalidArgument("unknown option ", name);
    std::string value;
    if (equals != absl::string_view::npos) {
      if (!spec->takes_value) return InvalidArgument("option ", name, " takes no value");
      value = std::string(argument.substr(equals + 1));
    } else if (spec->takes_value) {
      if (i + 1 == arguments.size()) return InvalidArgument("option ", name, " needs a value");
      value = arguments[++i];
    }
    parsed.options[std::string(name)].push_back(value);
  }
  if (parsed.files.size() > files || parsed.files.size() + optional < files) {
    return InvalidArgument(files, " file arguments are needed, ", parsed.files.size(), " given");
  }
  return parsed;
}

absl::StatusOr<Backend> ParseBackend(const std::string& name) {
  for (const Backend backend : {Backend::kReference, Backend::kCpu, Backend::kCuda}) {
    if (name == BackendName(backend)) return backend;
  }
  return InvalidArgument("option --backend = ", name, " is not reference, cpu or cuda");
}

absl::StatusOr<std::vector<int32_t>> ParseDevices(const std::string& text) {
  std::vector<int32_t> devices;
  if (text.empty()) return devices;
  for (const absl::string_view index : absl::StrSplit(text, ',')) {
    int32_t device = 0;
    if (!absl::SimpleAtoi(index, &device) || device < 0) {
      return InvalidArgument("option --devices = ", text, " is not a list of indices like 0,1");
    }
    devices.push_back(device);
  }
  return devices;
}

absl::StatusOr<std::optional<RowFormat>> ParseCacheFormat(const Arguments& arguments) {
  const std::string text = arguments.Get("--cache-format", "auto");
  if (text == "auto") return std::nullopt;
  for (const RowFormat format :
       {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor, RowFormat::kF32}) {
    if (text == RowFormatName(format)) return format;
  }
  return InvalidArgument("option --cache-format = ", text,
                         " is not auto, packed, bf16, fp8_per_tensor or f32");
}

absl::StatusOr<ExpertBudgets> ParseBudgets(const Arguments& arguments) {
  ExpertBudgets budgets;
  const std::string text = arguments.Get("--device-weights", "0");
  if (text == "least") {
    budgets.least = true;
  } else if (!absl::SimpleAtoi(text, &budgets.device_bytes) || budgets.device_bytes < 0) {
    return InvalidArgument("option --device-weights = ", text,
                           " is not a number of bytes or \"least\"");
  }
  return budgets;
}

int ReportError(const absl::Status& error) {
  std::fprintf(stderr, "dsv4-verify: %s\n", std::string(error.message()).c_str());
  if (absl::IsCancelled(error)) return kExitInterrupted;
  if (IsOutOfHostMemory(error)) return kExitMemory;
  return kExitInput;
}

int ReportUsage(const absl::Status& error) {
  std::fprintf(stderr, "dsv4-verify: %s (see dsv4-verify --help)\n",
               std::string(error.message()).c_str());
  return kExitUsage;
}

int ExitCodeOf(const absl::StatusOr<bool>& passed) {
  if (!passed.ok()) return ReportError(passed.status());
  return *passed ? kExitPassed : kExitFailed;
}

}  // namespace dsv4
