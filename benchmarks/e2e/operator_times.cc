// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/e2e/operator_times.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace dsv4 {

void OperatorTimes::Record(const KernelEntry& entry, const void* /*params*/, const Cost& cost,
                           absl::FunctionRef<void()> launch) {
  const double seconds = device_->SecondsOf(launch);
  for (Row* row : {&rows_[static_cast<size_t>(entry.op)], &all_}) {
    ++row->calls;
    row->cost.bytes += cost.bytes;
    row->cost.flops += cost.flops;
    row->seconds += seconds;
  }
}

void OperatorTimes::Print(int64_t steps) const {
  const auto per_step = static_cast<double>(steps);
  const auto print = [&](const char* name, const Row& row) {
    std::printf("  %-18s %7.1f %10.1f %9.3f %9.1f %6.1f%%\n", name,
                static_cast<double>(row.calls) / per_step, row.seconds * 1e6 / per_step,
                static_cast<double>(row.cost.flops) / row.seconds * 1e-12,
                static_cast<double>(row.cost.bytes) / row.seconds * 1e-9,
                100 * row.seconds / all_.seconds);
  };
  std::array<size_t, static_cast<size_t>(Op::kCount)> order;
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rows_[a].seconds > rows_[b].seconds; });
  std::printf("  %-18s %7s %10s %9s %9s %7s\n", "operator", "calls", "us", "TFLOP/s", "GB/s",
              "share");
  for (const size_t op : order) {
    if (rows_[op].calls > 0) print(OpName(static_cast<Op>(op)), rows_[op]);
  }
  print("all", all_);
}

}  // namespace dsv4
