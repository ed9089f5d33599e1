// SPDX-License-Identifier: Apache-2.0
// Prints this machine's ceilings: f32 FMA rate and read rate by working set.
// Usage: bench_ceiling [threads]; without a number, one thread per processor.
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "benchmarks/ceiling.h"

int main(int argc, char** argv) {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = argc > 1 ? std::atoi(argv[1]) : processors;
  if (argc > 2 || threads < 1) {
    std::fprintf(stderr, "usage: bench_ceiling [threads]\n");
    return 2;
  }
  dsv4::CpuStream stream(threads);
  std::printf("threads %d\n", threads);
  std::printf("fma_f32 %.1f GFLOP/s\n", dsv4::FmaPeak(stream) / 1e9);
  for (const int64_t mib : {1, 4, 12, 20, 64, 512}) {
    std::printf("read %lld MiB %.1f GB/s\n", static_cast<long long>(mib),
                dsv4::ReadRate(stream, mib << 20) / 1e9);
  }
  return 0;
}
