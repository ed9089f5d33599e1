// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/gpu_state.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "lib/base/loaded_library.h"

namespace bench {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(20);

// NVML's clocks-event reasons.
constexpr uint64_t kIdle = 0x1;
constexpr struct {
  uint64_t bits;
  const char* name;
} kThrottles[] = {{0x4, "power cap"}, {0x20 | 0x40, "thermal"}, {0x80, "power brake"}};
constexpr uint64_t kHardwareSlowdown = 0x8;  // thermal or power brake, or neither is told

std::string Whole(double value) { return std::to_string(std::llround(value)); }

// A function of a library; a null one is a call that fails.
template <class F>
bool Find(void* library, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dsv4::FunctionIn(library, name));
  return *function != nullptr;
}

}  // namespace

std::string GpuSummary::Text() const {
  return "SM " + Whole(sm_mhz) + " MHz (least " + Whole(least_sm_mhz) + "), memory " +
         Whole(memory_mhz) + " MHz, " + Whole(watts) + " W (most " + Whole(most_watts) +
         "), throttled: " + throttled;
}

GpuSummary Summarize(const std::vector<GpuSample>& samples) {
  std::vector<GpuSample> busy;
  for (const GpuSample& sample : samples) {
    if ((sample.reasons & kIdle) == 0) busy.push_back(sample);
  }
  if (busy.empty()) busy = samples;
  GpuSummary summary;
  if (busy.empty()) return summary;
  summary.samples = static_cast<int64_t>(busy.size());
  const auto count = static_cast<double>(busy.size());
  summary.least_sm_mhz = busy[0].sm_mhz;
  for (const GpuSample& sample : busy) {
    summary.sm_mhz += sample.sm_mhz / count;
    summary.memory_mhz += sample.memory_mhz / count;
    summary.watts += sample.watts / count;
    summary.least_sm_mhz = std::min(summary.least_sm_mhz, sample.sm_mhz);
    summary.most_watts = std::max(summary.most_watts, sample.watts);
  }
  const auto add = [&](const char* name, auto&& is_so) {
    const auto those = std::count_if(busy.begin(), busy.end(), is_so);
    if (those == 0) return;
    // A share that rounds to 0 is not none.
    const std::string share = Whole(std::max(1.0, 100 * static_cast<double>(those) / count));
    summary.throttled +=
        (summary.throttled.empty() ? "" : ", ") + std::string(name) + " " + share + " %";
  };
  uint64_t told = 0;
  for (const auto& throttle : kThrottles) {
    told |= throttle.bits;
    add(throttle.name, [&](const GpuSample& s) { return (s.reasons & throttle.bits) != 0; });
  }
  add("hardware slowdown", [&](const GpuSample& s) {
    return (s.reasons & kHardwareSlowdown) != 0 && (s.reasons & told) == 0;
  });
  if (summary.throttled.empty()) summary.throttled = "none";
  return summary;
}

// The parts of the driver's interface that are used, as its headers declare them.
struct GpuSampler::Nvml {
  using Device = void*;
  static constexpr unsigned kSmClock = 1, kMemoryClock = 2;

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle)(const char* pci, Device* device) = nullptr;
  int (*clock)(Device, unsigned kind, unsigned* mhz) = nullptr;
  int (*power)(Device, unsigned* milliwatts) = nullptr;
  int (*reasons)(Device, unsigned long long* bits) = nullptr;
  std::vector<Device> devices;
  bool open = false;

  ~Nvml() {
    if (open) shutdown();
  }

  // What is missing; empty if nothing is.
  std::string Open(const std::vector<int32_t>& indices) {
    void* const driver = dsv4::LoadLibraryNamed(dsv4::kCudaDriverName);
    void* const nvml = dsv4::LoadLibraryNamed(dsv4::kNvmlName);
    if (driver == nullptr) return std::string("no ") + dsv4::kCudaDriverName;
    if (nvml == nullptr) return std::string("no ") + dsv4::kNvmlName;
    int (*driver_init)(unsigned flags) = nullptr;
    int (*driver_pci)(char* text, int length, int device) = nullptr;
    if (!Find(driver, "cuInit", &driver_init) ||
        !Find(driver, "cuDeviceGetPCIBusId", &driver_pci) || !Find(nvml, "nvmlInit_v2", &init) ||
        !Find(nvml, "nvmlShutdown", &shutdown) ||
        !Find(nvml, "nvmlDeviceGetHandleByPciBusId_v2", &handle) ||
        !Find(nvml, "nvmlDeviceGetClockInfo", &clock) ||
        !Find(nvml, "nvmlDeviceGetPowerUsage", &power) ||
        !Find(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", &reasons)) {
      return "the driver lacks a function of NVML";
    }
    if (driver_init(0) != 0) return "no CUDA device";
    open = init() == 0;
    if (!open) return "NVML does not start";
    for (const int32_t index : indices) {
      char pci[64] = {};
      Device device = nullptr;
      if (driver_pci(pci, sizeof pci, index) != 0 || handle(pci, &device) != 0)
        return "NVML does not find CUDA device " + std::to_string(index);
      devices.push_back(device);
      GpuSample sample;
      if (!Read(device, &sample)) return "NVML does not tell clocks or power of this device";
    }
    return "";
  }

  bool Read(Device device, GpuSample* sample) const {
    unsigned sm = 0, memory = 0, milliwatts = 0;
    unsigned long long bits = 0;
    if (clock(device, kSmClock, &sm) != 0 || clock(device, kMemoryClock, &memory) != 0 ||
        power(device, &milliwatts) != 0 || reasons(device, &bits) != 0) {
      return false;
    }
    *sample = {.sm_mhz = static_cast<double>(sm),
               .memory_mhz = static_cast<double>(memory),
               .watts = milliwatts * 1e-3,
               .reasons = bits};
    return true;
  }
};

GpuSampler::GpuSampler(const std::vector<int32_t>& devices) : nvml_(std::make_unique<Nvml>()) {
  unavailable_ = devices.empty() ? "no GPU" : nvml_->Open(devices);
  if (!unavailable_.empty()) return;
  thread_ = std::thread([this] {
    do {
      for (Nvml::Device device : nvml_->devices) {
        GpuSample sample;
        if (nvml_->Read(device, &sample)) samples_.push_back(sample);
      }
      std::this_thread::sleep_for(kPeriod);
    } while (!stop_);
  });
}

GpuSampler::~GpuSampler() { Stop(); }

GpuSummary GpuSampler::Stop() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
  return Summarize(samples_);
}

void GpuSampler::StopAndPrint() {
  const GpuSummary summary = Stop();
  std::printf("# clocks: %s\n",
              summary.samples > 0 ? summary.Text().c_str() : ("unknown: " + unavailable_).c_str());
}

}  // namespace bench
