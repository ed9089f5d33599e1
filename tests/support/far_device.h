// SPDX-License-Identifier: Apache-2.0
// A device whose memory is not the host's, as far as the library can see: really it is.
#pragma once

#include <string>

#include "lib/device/cpu_device.h"

namespace dsv4::test {

class FarDevice : public Device {
 public:
  std::string name() const override { return "far"; }
  Stream& stream() override { return cpu_.stream(); }
  int threads() const override { return 1; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) override {
    return cpu_.Allocate(bytes, purpose);
  }
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose) override {
    return cpu_.Allocate(bytes, purpose);
  }
  bool host_memory() const override { return false; }
  absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    return cpu_.Copy(to, from, bytes);
  }
  absl::Status Download(std::byte* to, const std::byte* from, int64_t bytes) override {
    return cpu_.Copy(to, from, bytes);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    return cpu_.Copy(to, from, bytes);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  CpuDevice cpu_{1};
};

}  // namespace dsv4::test
