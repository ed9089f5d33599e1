// SPDX-License-Identifier: Apache-2.0
// A device: where weights, cache and activations live and kernels run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/device/buffer.h"
#include "lib/device/stream.h"

namespace dsv4 {

enum class DeviceKind : int32_t { kCpu };

struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;    // which device of its kind; the cpu is always 0
  int32_t threads = 0;  // cpu: threads of the stream, the caller included; 0 = one per usable core
};

class Device {
 public:
  // InvalidArgument for an index or thread count out of range, naming it.
  static absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& options);

  virtual ~Device() = default;
  virtual std::string name() const = 0;  // by its maker
  virtual Stream& stream() = 0;
  virtual int threads() const = 0;
  virtual absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) = 0;
};

inline constexpr int32_t kMaxCpuThreads = 256;

}  // namespace dsv4
