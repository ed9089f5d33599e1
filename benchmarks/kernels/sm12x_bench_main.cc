// SPDX-License-Identifier: Apache-2.0
// The programs bench_sm12x_*: print a CSV line for each case, run with the config that the engine
// would choose: microseconds of a launch, the shortest of several replays; bytes and flops a
// second; the share of the floor, which is the bytes of Cost over the bandwidth of a device copy;
// and where the operator multiplies by MMA, the flops of Cost a second in percent of what MMAs of
// its type come to. Both ceilings are measured in the same run. The last line has clocks, power
// and throttling during the run. DSV4_BENCH is the function that
// sets up the cases.
//   bench_sm12x_X [--tuning DIR | --all-configs] [text]
//     --tuning DIR   the tables of a folder instead of this build's for the same kernels
//     --all-configs  a line for each config of each operator with knobs, which is in the column
//                    config, as the values of its knobs
//     text           only the operators whose name contains it
#include "absl/strings/str_join.h"
#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/kernels/sm12x_bench.h"
#include "kernels/builtin.h"
#include "lib/base/status_macros.h"
#include "lib/device/device.h"

namespace dsv4 {
namespace {

class PrintingBench final : public Bench {
 public:
  PrintingBench(std::string only, std::vector<TuningTable> tables, bool all_configs)
      : only_(std::move(only)), tables_(std::move(tables)), all_configs_(all_configs) {
    std::printf("# device copy %.0f GB/s, fp8 MMA %.0f TFLOP/s, bf16 MMA %.0f TFLOP/s\n",
                copy_bandwidth() * 1e-9, ceilings_.fp8 * 1e-12, ceilings_.bf16 * 1e-12);
    std::printf("operator,rows,%sus,GB/s,TFLOP/s,floor_us,percent,percent_compute\n",
                all_configs_ ? "config," : "");
  }
  bool Wants(const std::string& name) const override {
    return name.find(only_) != std::string::npos;
  }

 private:
  void Take(const BenchCase& one) override {
    const KernelEntry* entry = nullptr;
    for (const KernelEntry& e : Sm12xManifest()) {
      if (e.op == one.op) entry = &e;
    }
    const KernelConfig* config = nullptr;
    for (const TuningTable& table : tables_) {
      if (table.entry == entry) config = &table.For(one.dims);
    }
    if (!all_configs_) return Print(*entry, config, "", one);
    for (const KernelConfig& each : entry->knobs.configs) {
      Print(*entry, &each,
            absl::StrJoin(absl::MakeConstSpan(each.values).first(entry->knobs.names.size()), " ") +
                ",",
            one);
    }
  }

  void Print(const KernelEntry& entry, const KernelConfig* config, const std::string& column,
             const BenchCase& one) {
    constexpr int kReplays = 5;
    const double seconds = Replay(entry, config, one, kReplays)[0];
    const double floor = static_cast<double>(one.cost.bytes) / copy_bandwidth();
    const double flops = static_cast<double>(one.cost.flops) / seconds;
    std::printf("%s,%d,%s%.2f,%.0f,%.1f,%.2f,%.1f,", one.name.c_str(),
                static_cast<int>(one.dims.all()[0].value), column.c_str(), seconds * 1e6,
                static_cast<double>(one.cost.bytes) / seconds * 1e-9, flops * 1e-12, floor * 1e6,
                100 * floor / seconds);
    if (const double ceiling = CeilingOf(one.op); ceiling > 0) {
      std::printf("%.1f", 100 * flops / ceiling);
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  // Of the MMAs that may bound an operator; 0 where none do.
  double CeilingOf(Op op) const {
    switch (op) {
      case Op::kLinearFp8:
      case Op::kExpertFfn:
        return ceilings_.fp8;
      case Op::kLinearBf16:
      case Op::kOutputGroups:
      case Op::kMoeGate:
      case Op::kIndexScoreTopk:
      case Op::kSparseAttention:
        return ceilings_.bf16;
      default:
        return 0;
    }
  }

  const std::string only_;
  const std::vector<TuningTable> tables_;
  const bool all_configs_;
  const MmaCeilings ceilings_ = MeasureMmaCeilings();
};

// As Engine::OpenDevice has them. An empty folder: none.
absl::StatusOr<std::vector<TuningTable>> Tables(const std::string& folder) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                        Device::Open({.kind = DeviceKind::kCuda}));
  std::vector<TuningFile> files;
  if (!folder.empty()) {
    DSV4_ASSIGN_OR_RETURN(files, ReadTuningDirectory(folder, BuiltinManifests()));
  }
  return TablesOf(device->traits(), files, BuiltinTuningFiles(), BuiltinManifests());
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  std::string folder, only;
  bool all_configs = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--tuning" && i + 1 < argc) {
      folder = argv[++i];
    } else if (argument == "--all-configs") {
      all_configs = true;
    } else if (argument[0] != '-' && only.empty()) {
      only = argument;
    } else {
      std::fprintf(stderr, "usage: %s [--tuning DIR | --all-configs] [text]\n", argv[0]);
      return 2;
    }
  }
  if (all_configs && !folder.empty()) {
    std::fputs("error: --all-configs runs no config that --tuning chooses\n", stderr);
    return 2;
  }
  absl::StatusOr<std::vector<dsv4::TuningTable>> tables = dsv4::Tables(folder);
  if (!tables.ok()) {
    std::fprintf(stderr, "error: %s\n", std::string(tables.status().message()).c_str());
    return 1;
  }
  bench::GpuSampler clocks({0});
  dsv4::PrintingBench bench(only, *std::move(tables), all_configs);
  dsv4::DSV4_BENCH(bench);
  clocks.StopAndPrint();
  return 0;
}
