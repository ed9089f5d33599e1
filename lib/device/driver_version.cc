// SPDX-License-Identifier: Apache-2.0
#include "lib/device/driver_version.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace dsv4 {
namespace {

std::string CudaName(int version) {
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string DriverTooOld(absl::string_view loaded, int driver_cuda, int cuda_runtime) {
  const absl::string_view version = absl::StripAsciiWhitespace(loaded);
  const std::string needed =
      absl::StrCat(LeastDriver(cuda_runtime), " or newer needed (", CudaName(cuda_runtime), ")");
  if (!version.empty()) return absl::StrCat("driver ", version, " found, ", needed);
  if (driver_cuda > 0) return absl::StrCat("driver of ", CudaName(driver_cuda), " found, ", needed);
  return absl::StrCat("no NVIDIA driver found, ", needed);
}

std::string LoadedDriver() {
  std::ifstream file("/sys/module/nvidia/version");
  std::string version;
  std::getline(file, version);
  return version;
}

}  // namespace dsv4
