// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/measure.h"

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "benchmarks/kernels/sm12x_bench.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/device.h"

namespace dsv4 {
namespace {

class MeasuringBench final : public Bench {
 public:
  explicit MeasuringBench(std::vector<const KernelEntry*> entries) : entries_(std::move(entries)) {}

  // A case's name begins with its operator's.
  bool Wants(const std::string& name) const override {
    return absl::c_any_of(entries_, [&](const KernelEntry* entry) {
      return absl::StartsWith(name, OpName(entry->op));
    });
  }
  std::map<const KernelEntry*, std::vector<Timing>> timings;

 private:
  void Take(const BenchCase& one) override {
    for (const KernelEntry* entry : entries_) {
      if (entry->op != one.op || !entry->supports(one.calls[0]).ok()) continue;
      Timing timing{one.dims, static_cast<double>(one.cost.bytes) / copy_bandwidth() * 1e6, {}};
      std::fprintf(stderr, "%s, %s:", entry->name, one.name.c_str());
      for (const CallDim& dim : one.dims.all()) {
        std::fprintf(stderr, " %s %lld", dim.name, static_cast<long long>(dim.value));
      }
      for (const KernelConfig& config : entry->knobs.configs) {
        constexpr int kReplays = 7;
        timing.median_us.push_back(1e6 * Replay(*entry, &config, one, kReplays)[kReplays / 2]);
        std::fprintf(stderr, "  %.2f", timing.median_us.back());
      }
      std::fprintf(stderr, "  floor %.2f us\n", timing.floor_us);
      timings[entry].push_back(std::move(timing));
    }
  }

  const std::vector<const KernelEntry*> entries_;
};

}  // namespace

absl::StatusOr<Measured> MeasureConfigs(const std::vector<std::string>& operators) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                        Device::Open({.kind = DeviceKind::kCuda}));
  Measured measured{.device = device->traits(),
                    .cuda = absl::StrCat(CUDART_VERSION / 1000, ".", CUDART_VERSION % 1000 / 10),
                    .timings = {}};
  std::vector<const KernelEntry*> entries;
  for (const KernelEntry& entry : Sm12xManifest()) {
    if (entry.knobs.names.empty()) continue;
    if (!operators.empty() && !absl::c_linear_search(operators, OpName(entry.op))) continue;
    DSV4_RETURN_IF_ERROR(ExpectTraits(entry.needs, measured.device));
    entries.push_back(&entry);
  }
  for (const std::string& name : operators) {
    if (absl::c_none_of(entries, [&](const KernelEntry* e) { return OpName(e->op) == name; })) {
      return InvalidArgument("operator ", name, " has no kernel with knobs");
    }
  }
  MeasuringBench bench(entries);
  BenchMatrixOperators(bench);
  BenchAttentionOperators(bench);
  BenchStreamsOperators(bench);
  for (const KernelEntry* entry : entries) {
    if (bench.timings.count(entry) == 0) {
      return NotFound("the benchmarks have no case for ", entry->name);
    }
  }
  measured.timings = std::move(bench.timings);
  return measured;
}

}  // namespace dsv4
