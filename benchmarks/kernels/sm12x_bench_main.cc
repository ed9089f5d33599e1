// SPDX-License-Identifier: Apache-2.0
// The programs bench_sm12x_*: print a CSV line for each case: microseconds of a launch, the
// shortest of several replays; bytes and flops a second; and the share of the floor, which is the
// bytes of Cost over the bandwidth of a device copy measured in the same run. DSV4_BENCH is the
// function that sets up the cases.
//   bench_sm12x_X [text]    only the operators whose name contains the text
#include "benchmarks/kernels/sm12x_bench.h"

namespace dsv4 {
namespace {

class PrintingBench final : public Bench {
 public:
  explicit PrintingBench(std::string only) : only_(std::move(only)) {
    std::printf("# device copy %.0f GB/s\noperator,rows,us,GB/s,TFLOP/s,floor_us,percent\n",
                copy_bandwidth() * 1e-9);
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
    constexpr int kReplays = 5;
    const double seconds = Replay(*entry, nullptr, one, kReplays)[0];
    const double floor = static_cast<double>(one.cost.bytes) / copy_bandwidth();
    std::printf("%s,%d,%.2f,%.0f,%.1f,%.2f,%.1f\n", one.name.c_str(),
                static_cast<int>(one.dims.all()[0].value), seconds * 1e6,
                static_cast<double>(one.cost.bytes) / seconds * 1e-9,
                static_cast<double>(one.cost.flops) / seconds * 1e-12, floor * 1e6,
                100 * floor / seconds);
    std::fflush(stdout);
  }

  const std::string only_;
};

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  dsv4::PrintingBench bench(argc > 1 ? argv[1] : "");
  dsv4::DSV4_BENCH(bench);
  return 0;
}
