// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/rdma_devices.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;

constexpr int kFastMtu = 9000;

std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

template <class Value>
Value ValueIn(const fs::path& file) {
  Value value{};
  std::ifstream(file) >> value;
  return value;
}

// Whether NCCL uses the device with this value of NCCL_IB_HCA: names or their beginnings, perhaps
// with a port; "=" in front asks for whole names, "^" for all others.
bool IsNamed(absl::string_view hca, absl::string_view device) {
  const bool others = absl::ConsumePrefix(&hca, "^");
  const bool whole = absl::ConsumePrefix(&hca, "=");
  const bool listed = absl::c_any_of(absl::StrSplit(hca, ','), [&](absl::string_view item) {
    const absl::string_view name = item.substr(0, item.find(':'));
    return !name.empty() && (whole ? device == name : absl::StartsWith(device, name));
  });
  return listed != others;
}

}  // namespace

std::vector<RdmaDevice> ListRdmaDevices(const std::string& root) {
  const fs::path folder = fs::path(root) / "sys/class/infiniband";
  std::vector<RdmaDevice> devices;
  for (const std::string& name : NamesIn(folder)) {
    RdmaDevice device{.name = name, .interface = {}};
    const std::vector<std::string> interfaces = NamesIn(folder / name / "device/net");
    if (!interfaces.empty()) {
      const fs::path net = folder / name / "device/net" / interfaces.front();
      device.interface = interfaces.front();
      device.up = ValueIn<std::string>(net / "operstate") == "up";
      device.mtu = ValueIn<int>(net / "mtu");
    }
    devices.push_back(device);
  }
  return devices;
}

std::vector<std::string> DescribeRdma(const std::vector<RdmaDevice>& devices, const char* hca) {
  std::vector<std::string> lines, up, unnamed;
  for (const RdmaDevice& device : devices) {
    lines.push_back(device.interface.empty()
                        ? absl::StrCat(device.name, ", no network interface")
                        : absl::StrCat(device.name, " of ", device.interface,
                                       device.up ? ", up" : ", down", ", MTU ", device.mtu));
    if (!device.up) continue;
    up.push_back(device.name);
    if (hca != nullptr && !IsNamed(hca, device.name)) unnamed.push_back(device.name);
  }
  for (const RdmaDevice& device : devices) {
    if (!device.up || device.mtu >= kFastMtu) continue;
    lines.push_back(absl::StrCat("slow: ", device.interface, " has an MTU of ", device.mtu,
                                 ": ip link set dev ", device.interface, " mtu ", kFastMtu));
  }
  if (up.size() > 1 && hca == nullptr) {
    lines.push_back(
        absl::StrCat("NCCL_IB_HCA is not set; to use all: NCCL_IB_HCA=", absl::StrJoin(up, ",")));
  } else if (!unnamed.empty()) {
    lines.push_back(absl::StrCat("slow: NCCL_IB_HCA=", hca, " leaves out ",
                                 absl::StrJoin(unnamed, ", "),
                                 "; to use all: NCCL_IB_HCA=", absl::StrJoin(up, ",")));
  }
  return lines;
}

}  // namespace dsv4
