// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/canary_command.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/engine/engine.h"
#include "lib/proof/canary.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"

namespace dsv4 {
namespace {

constexpr OptionSpec kOptions[] = {{"--backend"},        {"--threads"}, {"--devices"},
                                   {"--device-weights"}, {"--write"},   {"--text"},
                                   {"--tolerance"}};
constexpr char kText[] =
    "The quick brown fox jumps over the lazy dog. Water boils at 100 degrees Celsius, and 17 + 25 "
    "= "
    "42. La tour Eiffel est à Paris. int main() { return 0; } The first letters of the alphabet "
    "are "
    "A, B, C, D, E";
constexpr int64_t kRows = 4;
constexpr int32_t kLogits = 8;

struct CanaryArguments {
  std::string folder, file, text;
  double tolerance = 0.5;
  EngineOptions engine;
};

absl::StatusOr<CanaryArguments> ReadArguments(absl::Span<char* const> arguments) {
  DSV4_ASSIGN_OR_RETURN(const Arguments parsed, ParseArguments(arguments, kOptions, 1));
  CanaryArguments read;
  read.folder = parsed.files[0];
  read.file = parsed.Get("--write", "");
  if (read.file.empty() && (parsed.Has("--text") || parsed.Has("--tolerance"))) {
    return InvalidArgument("--text and --tolerance are of --write");
  }
  read.text = parsed.Get("--text", kText);
  DSV4_RETURN_IF_ERROR(parsed.Number<double>("--tolerance", 1e-6, 1000, &read.tolerance));
  DSV4_RETURN_IF_ERROR(ReadDevices(parsed, "cpu", &read.engine));
  DSV4_ASSIGN_OR_RETURN(read.engine.weight_budgets, ParseBudgets(parsed));
  read.engine.max_sessions = 1;
  read.engine.progress = [](int64_t, int64_t) { return !InterruptedBySignal(); };
  return read;
}

absl::Status Write(Engine& engine, const CanaryArguments& arguments) {
  DSV4_ASSIGN_OR_RETURN(const Tokenizer* tokenizer, engine.tokenizer());
  Canary canary;
  canary.tokens = {static_cast<int32_t>(engine.config().bos_token_id)};
  DSV4_ASSIGN_OR_RETURN(const std::vector<int32_t> text, tokenizer->Encode(arguments.text));
  canary.tokens.insert(canary.tokens.end(), text.begin(), text.end());
  canary.about = absl::StrCat("Logits of dsv4-verify ", DSV4_PROJECT_VERSION, " on backend ",
                              BackendName(engine.info().backend), " (", engine.device_name(), ").");
  canary.fingerprint = engine.fingerprint();
  canary.tolerance = static_cast<float>(arguments.tolerance);
  canary.tolerance_reason =
      "Devices add in other orders, which flips roundings to bf16 and fp8; given by --tolerance.";
  std::vector<int64_t> positions;
  const auto count = static_cast<int64_t>(canary.tokens.size());
  for (int64_t row = 1; row <= kRows; ++row) {
    const int64_t position = count * row / kRows - 1;
    if (position >= 0 && (positions.empty() || position > positions.back())) {
      positions.push_back(position);
    }
  }
  DSV4_RETURN_IF_ERROR(RecordCanary(engine, positions, kLogits, &canary));
  const std::string json = CanaryText(canary);
  // What engines would refuse is not written: a NaN, a prompt that is too long.
  DSV4_RETURN_IF_ERROR(ParseCanary(json, arguments.file, engine.config().vocab_size).status());
  std::ofstream file(arguments.file, std::ios::binary);
  if (!(file << json).flush()) return IoError(arguments.file, ": cannot be written");
  std::printf("%s: %zu tokens, %zu rows\n", arguments.file.c_str(), canary.tokens.size(),
              canary.rows.size());
  return absl::OkStatus();
}

absl::StatusOr<bool> Compute(Engine& engine, const CanaryArguments& arguments) {
  DSV4_ASSIGN_OR_RETURN(const std::optional<Canary> canary,
                        ReadCanary(arguments.folder, engine.config().vocab_size));
  if (!canary) return NotFound(arguments.folder, " has no ", kCanaryFile);
  DSV4_ASSIGN_OR_RETURN(const CanaryResult result, RunCanary(engine, *canary));
  std::printf("%zu tokens, %zu rows: distance %.3g of %.3g; %s\n", canary->tokens.size(),
              canary->rows.size(), result.distance, canary->tolerance, result.Describe().c_str());
  if (!canary->fingerprint.empty() && canary->fingerprint != engine.fingerprint()) {
    std::printf("recorded with checkpoint %s; this is %s\n", canary->fingerprint.c_str(),
                engine.fingerprint().c_str());
  }
  const bool passed = result.distance <= canary->tolerance;
  if (!passed) std::printf("FAILED: the logits are not the recorded ones\n");
  return passed;
}

}  // namespace

int RunCanaryCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<CanaryArguments> read = ReadArguments(arguments);
  if (!read.ok()) return ReportUsage(read.status());
  CatchSignals();
  const absl::StatusOr<std::string> model = FoundModel(read->folder);
  if (!model.ok()) return ReportError(model.status());
  const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(*model, read->engine);
  if (!engine.ok()) return ReportError(engine.status());
  if (!read->file.empty()) {
    const absl::Status written = Write(**engine, *read);
    return written.ok() ? kExitPassed : ReportError(written);
  }
  return ExitCodeOf(Compute(**engine, *read));
}

}  // namespace dsv4
