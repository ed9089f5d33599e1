// SPDX-License-Identifier: Apache-2.0
// The RDMA devices by which processes of a group on several machines exchange, as the kernel lists
// them, and what would make them slow.
#pragma once

#include <string>
#include <vector>

namespace dsv4 {

struct RdmaDevice {
  std::string name;       // "rocep1s0f0"
  std::string interface;  // its network interface; empty: none
  bool up = false;        // the interface
  int mtu = 0;            // of the interface
};

// In the order of their names. `root`: the folder that has sys/; tests give one.
std::vector<RdmaDevice> ListRdmaDevices(const std::string& root = "/");

// A line for each device, then lines of what is wrong with those that are up. `hca`: the value of
// NCCL_IB_HCA; null if it is not set.
std::vector<std::string> DescribeRdma(const std::vector<RdmaDevice>& devices, const char* hca);

}  // namespace dsv4
