// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/rdma_devices.h"

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4::test {
namespace {

using Lines = std::vector<std::string>;

// The sysfs of a GB10 with one cable: each port of its network card is two devices.
class Gb10 {
 public:
  void Add(const std::string& device, const std::string& interface, const std::string& state,
           int mtu) {
    const std::string net = "sys/class/infiniband/" + device + "/device/net/" + interface;
    std::filesystem::create_directories(root_.path() + "/" + net);
    root_.Write(net + "/operstate", state + "\n");
    root_.Write(net + "/mtu", std::to_string(mtu) + "\n");
  }
  Lines Describe(const char* hca) const { return DescribeRdma(ListRdmaDevices(root_.path()), hca); }

 private:
  TempFolder root_;
};

TEST_CASE("RDMA devices that are up are told with what makes them slow") {
  Gb10 machine;
  machine.Add("roceP2p1s0f0", "enP2p1s0f0np0", "up", 1500);
  machine.Add("rocep1s0f0", "enp1s0f0np0", "up", 9000);
  machine.Add("rocep1s0f1", "enp1s0f1np1", "down", 1500);
  const Lines listed = {"roceP2p1s0f0 of enP2p1s0f0np0, up, MTU 1500",
                        "rocep1s0f0 of enp1s0f0np0, up, MTU 9000",
                        "rocep1s0f1 of enp1s0f1np1, down, MTU 1500",
                        "slow: enP2p1s0f0np0 has an MTU of 1500: ip link set dev enP2p1s0f0np0 "
                        "mtu 9000"};
  const auto with = [&](const std::string& line) {
    Lines lines = listed;
    if (!line.empty()) lines.push_back(line);
    return lines;
  };
  const std::string both = "NCCL_IB_HCA=roceP2p1s0f0,rocep1s0f0";
  CHECK(machine.Describe(nullptr) == with("NCCL_IB_HCA is not set; to use all: " + both));
  for (const char* hca :
       {"roceP2p1s0f0,rocep1s0f0", "roce", "=rocep1s0f0:1,roceP2p1s0f0:1", "^rocep1s0f1"}) {
    INFO(hca);
    CHECK(machine.Describe(hca) == with(""));
  }
  for (const char* hca : {"rocep1s0f0", "=rocep1s0f0:1", "^roceP2", "=rocep1s0f0,roceP2"}) {
    INFO(hca);
    CHECK(machine.Describe(hca) == with("slow: NCCL_IB_HCA=" + std::string(hca) +
                                        " leaves out roceP2p1s0f0; to use all: " + both));
  }
}

TEST_CASE("a machine without RDMA devices has nothing to tell") {
  CHECK(Gb10().Describe(nullptr).empty());
  Gb10 one;
  one.Add("mlx5_0", "eth0", "up", 9000);
  CHECK(one.Describe(nullptr) == Lines{"mlx5_0 of eth0, up, MTU 9000"});
}

}  // namespace
}  // namespace dsv4::test
