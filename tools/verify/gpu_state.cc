// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gpu_state.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/loaded_library.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// nvmlClockType_t, nvmlTemperatureSensors_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t
constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0, kUncorrected = 1, kVolatile = 0;
constexpr uint64_t kPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                   kPowerBrake = 0x80;

// A clock below this share of its most, on a device that is busy, is stuck.
constexpr double kLeastClock = 0.5;
// Of the host's time that the device's events must show.
constexpr double kLeastTime = 0.2, kMostTime = 1.5;

struct NvmlMemory {
  unsigned long long total, free, used;  // NOLINT: NVML's type
};

class Nvml {
 public:
  using Device = void*;

  // The library stays loaded.
  static absl::StatusOr<Nvml> Load() {
    std::string reason;
    void* const library = LoadLibraryNamed(kNvmlName, &reason);
    if (library == nullptr) return Unsupported(kNvmlName, ": ", reason);
    Nvml nvml;
    for (const auto& [name, function] :
         {std::pair("nvmlInit_v2", reinterpret_cast<void**>(&nvml.Init)),
          std::pair("nvmlSystemGetDriverVersion", reinterpret_cast<void**>(&nvml.DriverVersion)),
          std::pair("nvmlSystemGetCudaDriverVersion", reinterpret_cast<void**>(&nvml.CudaVersion)),
          std::pair("nvmlDeviceGetHandleByPciBusId_v2", reinterpret_cast<void**>(&nvml.ByBusId)),
          std::pair("nvmlDeviceGetClockInfo", reinterpret_cast<void**>(&nvml.Clock)),
          std::pair("nvmlDeviceGetMaxClockInfo", reinterpret_cast<void**>(&nvml.MostClock)),
          std::pair("nvmlDeviceGetCurrentClocksThrottleReasons",
                    reinterpret_cast<void**>(&nvml.ThrottleReasons)),
          std::pair("nvmlDeviceGetTemperature", reinterpret_cast<void**>(&nvml.Temperature)),
          std::pair("nvmlDeviceGetPowerUsage", reinterpret_cast<void**>(&nvml.Power)),
          std::pair("nvmlDeviceGetEnforcedPowerLimit", reinterpret_cast<void**>(&nvml.MostPower)),
          std::pair("nvmlDeviceGetTotalEccErrors", reinterpret_cast<void**>(&nvml.EccErrors)),
          std::pair("nvmlDeviceGetMemoryInfo", reinterpret_cast<void**>(&nvml.Memory))}) {
      *function = FunctionIn(library, name);
      if (*function == nullptr) return Unsupported(kNvmlName, " has no ", name);
    }
    if (const int result = nvml.Init(); result != 0) {
      return Unsupported(kNvmlName, ": nvmlInit_v2 gives ", result);
    }
    return nvml;
  }

  int (*Init)() = nullptr;
  int (*DriverVersion)(char* version, unsigned length) = nullptr;
  int (*CudaVersion)(int* version) = nullptr;
  int (*ByBusId)(const char* id, Device* device) = nullptr;
  int (*Clock)(Device device, int type, unsigned* mhz) = nullptr;
  int (*MostClock)(Device device, int type, unsigned* mhz) = nullptr;
  int (*ThrottleReasons)(Device device, unsigned long long* reasons) = nullptr;  // NOLINT
  int (*Temperature)(Device device, int sensor, unsigned* celsius) = nullptr;
  int (*Power)(Device device, unsigned* milliwatts) = nullptr;
  int (*MostPower)(Device device, unsigned* milliwatts) = nullptr;
  int (*EccErrors)(Device device, int type, int counter,
                   unsigned long long* count) = nullptr;  // NOLINT
  int (*Memory)(Device device, NvmlMemory* memory) = nullptr;

 private:
  Nvml() = default;
};

}  // namespace

absl::StatusOr<GpuState> ReadGpuState(const std::string& bus_id) {
  static const absl::StatusOr<Nvml> nvml = Nvml::Load();
  DSV4_RETURN_IF_ERROR(nvml.status());
  Nvml::Device device = nullptr;
  if (const int result = nvml->ByBusId(bus_id.c_str(), &device); result != 0) {
    return Unsupported(kNvmlName, " does not know the device ", bus_id, " (", result, ")");
  }
  // What a GPU does not say stays 0.
  GpuState state;
  char driver[96] = {};
  if (nvml->DriverVersion(driver, sizeof driver) == 0) state.driver = driver;
  nvml->CudaVersion(&state.cuda_version);
  nvml->Clock(device, kSmClock, &state.sm_mhz);
  nvml->MostClock(device, kSmClock, &state.most_sm_mhz);
  nvml->Clock(device, kMemoryClock, &state.memory_mhz);
  nvml->MostClock(device, kMemoryClock, &state.most_memory_mhz);
  nvml->Temperature(device, kGpuSensor, &state.celsius);
  unsigned milliwatts = 0;
  if (nvml->Power(device, &milliwatts) == 0) state.watts = milliwatts / 1000.;
  if (nvml->MostPower(device, &milliwatts) == 0) state.most_watts = milliwatts / 1000.;
  unsigned long long count = 0;  // NOLINT
  if (nvml->ThrottleReasons(device, &count) == 0) state.throttle_reasons = count;
  if (nvml->EccErrors(device, kUncorrected, kVolatile, &count) == 0) {
    state.uncorrected_errors = count;
  }
  NvmlMemory memory{};
  if (nvml->Memory(device, &memory) == 0) state.memory_bytes = static_cast<int64_t>(memory.total);
  return state;
}

std::string ThrottleReasons(uint64_t reasons) {
  std::vector<std::string> names;
  for (const auto& [bit, name] :
       {std::pair(kPowerCap, "power cap"), std::pair(kHwSlowdown, "slowdown by the hardware"),
        std::pair(kSwThermal, "thermal, by the driver"),
        std::pair(kHwThermal, "thermal, by the hardware"), std::pair(kPowerBrake, "power brake")}) {
    if ((reasons & bit) != 0) names.push_back(name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::vector<std::string> GpuFindings(const GpuState* state, const DeviceTiming& timing) {
  std::vector<std::string> findings;
  if (!(timing.device_seconds >= kLeastTime * timing.host_seconds &&
        timing.device_seconds <= kMostTime * timing.host_seconds)) {
    findings.push_back(
        absl::StrFormat("the device's clock: %.3f s pass for the host, %.3f s for the device",
                        timing.host_seconds, timing.device_seconds));
  }
  if (state == nullptr) return findings;
  for (const auto& [name, now, most] :
       {std::tuple("SM", state->sm_mhz, state->most_sm_mhz),
        std::tuple("memory", state->memory_mhz, state->most_memory_mhz)}) {
    if (now < kLeastClock * most) {
      findings.push_back(absl::StrCat("the ", name, " clock is stuck at ", now, " of ", most,
                                      " MHz while the device is busy"));
    }
  }
  const uint64_t bad = state->throttle_reasons & (kHwSlowdown | kHwThermal | kPowerBrake);
  if (bad != 0) findings.push_back(absl::StrCat("throttled: ", ThrottleReasons(bad)));
  if (state->uncorrected_errors > 0) {
    findings.push_back(absl::StrCat(state->uncorrected_errors,
                                    " uncorrected memory errors since the driver was loaded"));
  }
  return findings;
}

}  // namespace dsv4
