// SPDX-License-Identifier: Apache-2.0
// Exchanges between GPUs of a process, by kernels and by NCCL: microseconds of one, in graphs of
// many that follow each other, each rank with an equal part of the bytes. And the time to connect
// the GPUs, which has the check of their peer access. NCCL goes through the host's memory where
// NCCL_P2P_DISABLE=1 is set.
//
// usage: bench_exchange [DEVICE DEVICE ...]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/clock.h"
#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/must.h"
#include "kernels/builtin.h"
#include "lib/base/status_macros.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/rank_threads.h"

namespace dsv4 {
namespace {

constexpr int64_t kLeastBytes = 1024, kMostBytes = int64_t{64} << 20;
constexpr int64_t kBytesOfGraph = int64_t{1} << 30;  // at most, so that long ones are fewer
constexpr int kMostOfGraph = 172, kRuns = 5;

struct Rank {
  std::unique_ptr<Device> device;
  std::unique_ptr<Dispatch> dispatch;
  Buffer slices, whole;  // two slices
  std::unique_ptr<Graph> graph;
};

// Of one exchange of a tensor of `bytes`, in rows of `row_bytes`.
double Seconds(std::vector<Rank>& ranks, DeviceCommunicators& connected, RankThreads& threads,
               int64_t bytes, int64_t row_bytes) {
  const auto count = static_cast<int64_t>(ranks.size());
  const int in_graph =
      static_cast<int>(std::clamp<int64_t>(kBytesOfGraph / bytes, 4, kMostOfGraph));
  ColumnShares shares;
  std::fill_n(shares.widths.begin(), ranks.size(), row_bytes / count);
  const auto enqueue = [&](int r, int exchanges) -> absl::Status {
    const Rank& rank = ranks[static_cast<size_t>(r)];
    for (int i = 0; i < exchanges; ++i) {
      DSV4_RETURN_IF_ERROR(connected.ranks[static_cast<size_t>(r)]->AllGather(
          {.rows = bytes / row_bytes,
           .shares = shares,
           .slice = rank.slices.data() + i % 2 * kMostBytes,
           .whole = rank.whole.data()}));
    }
    return absl::OkStatus();
  };
  const auto on_all = [&](auto&& f) { Must(threads.Run(f)); };
  on_all([&](int r) -> absl::Status {  // an even number, so that slices alternate on
    DSV4_RETURN_IF_ERROR(enqueue(r, 2));
    return connected.ranks[static_cast<size_t>(r)]->Synchronize();
  });
  on_all([&](int r) -> absl::Status {
    Rank& rank = ranks[static_cast<size_t>(r)];
    DSV4_ASSIGN_OR_RETURN(rank.graph,
                          rank.device->Record([&] { return enqueue(r, in_graph / 2 * 2); }));
    return absl::OkStatus();
  });
  double least = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    on_all([&](int r) -> absl::Status {
      ranks[static_cast<size_t>(r)].graph->Launch();
      return connected.ranks[static_cast<size_t>(r)]->Synchronize();
    });
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    least = std::min(least, taken.count() / (in_graph / 2 * 2));
  }
  for (Rank& rank : ranks) rank.graph.reset();
  return least;
}

void Run(const std::vector<int32_t>& devices, ExchangePath path, const char* name) {
  std::vector<Rank> ranks;
  std::vector<DeviceRank> to_connect;
  for (const int32_t index : devices) {
    Rank rank;
    rank.device = Must(Device::Open({.kind = DeviceKind::kCuda, .index = index}));
    rank.dispatch = std::make_unique<Dispatch>(BuiltinManifests(), Backend::kCuda,
                                               Numerics::kPublished, rank.device->traits());
    rank.slices = Must(rank.device->Allocate(2 * kMostBytes, "slices"));
    rank.whole = Must(rank.device->Allocate(kMostBytes, "whole"));
    to_connect.push_back({rank.device.get(), rank.dispatch.get()});
    ranks.push_back(std::move(rank));
  }
  const Clock::time_point start = Clock::now();
  absl::StatusOr<DeviceCommunicators> connected = ConnectDevices(to_connect, path);
  if (!connected.ok()) {
    std::printf("%s: %s\n", name, std::string(connected.status().message()).c_str());
    return;
  }
  const std::unique_ptr<RankThreads> threads =
      Must(RankThreads::Start(static_cast<int>(ranks.size())));
  Must(threads->Run([&](int r) { return connected->ranks[static_cast<size_t>(r)]->Start(); }));
  std::printf("%s: %s, connected in %.1f ms\n%12s %12s %12s %12s\n", name,
              connected->ways->Describe().c_str(), SecondsSince(start) * 1e3, "bytes", "us",
              "us, rows", "GB/s");
  for (int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 2) {
    const double one_row = Seconds(ranks, *connected, *threads, bytes, bytes);
    // As activations are: rows of 8 KiB.
    const double rows = Seconds(ranks, *connected, *threads, bytes, std::min<int64_t>(bytes, 8192));
    const auto count = static_cast<double>(ranks.size());
    std::printf("%12lld %12.2f %12.2f %12.1f\n", static_cast<long long>(bytes), one_row * 1e6,
                rows * 1e6, static_cast<double>(bytes) * (count - 1) / count / one_row * 1e-9);
  }
  std::fflush(stdout);
  connected->ranks.clear();
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  std::vector<int32_t> devices;
  for (int i = 1; i < argc; ++i) devices.push_back(static_cast<int32_t>(std::atoi(argv[i])));
  if (devices.empty()) devices = {0, 1};
  bench::GpuSampler clocks(devices);
  dsv4::Run(devices, dsv4::ExchangePath::kDirect, "direct");
  dsv4::Run(devices, dsv4::ExchangePath::kHost, "host");
  dsv4::Run(devices, dsv4::ExchangePath::kNccl, "nccl");
  dsv4::Run(devices, dsv4::ExchangePath::kAuto, "auto");
  clocks.StopAndPrint();
  return 0;
}
