// SPDX-License-Identifier: Apache-2.0
// dsv4_list_devices of include/dsv4/engine.h.
#include "lib/proof/list_devices.h"

#include <dsv4/engine.h>

#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/static_text.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {
namespace {

dsv4_device DeviceFrom(const DeviceListing& device) {
  dsv4_device out = DSV4_DEVICE_INIT;
  out.backend = device.kind == DeviceKind::kCuda ? DSV4_BACKEND_CUDA : DSV4_BACKEND_CPU;
  out.index = device.index;
  out.usable = device.reason.empty();
  out.compute_capability = device.compute_capability;
  out.integrated = device.integrated;
  out.total_bytes = static_cast<uint64_t>(device.total_bytes);
  out.free_bytes = static_cast<uint64_t>(device.free_bytes);
  // Names and reasons are few: they have no changing numbers.
  out.name = StaticText(device.name);
  out.reason = StaticText(device.reason);
  return out;
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_list_devices(dsv4_device* devices, size_t capacity, size_t* needed,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArrayOut(devices, capacity, needed, "devices"));
    const std::vector<dsv4::DeviceListing> found = dsv4::ListDevices();
    DSV4_RETURN_IF_ERROR(CopyStructsOut(found, &DeviceFrom, devices, capacity, "devices"));
    *needed = found.size();
    return absl::OkStatus();
  });
}
