// SPDX-License-Identifier: Apache-2.0
#include "examples/console/device_list.h"

#include "examples/console/amounts.h"
#include "examples/console/json_text.h"

namespace chat {
namespace {

std::string CapabilityText(int32_t capability) {
  return std::to_string(capability / 10) + "." + std::to_string(capability % 10);
}

std::string LineOf(const dsv4::Device& device) {
  std::string id = DeviceId(device);
  id.resize(8, ' ');
  if (device.index < 0) return id + device.reason + "\n";
  std::string line = id + device.name;
  if (device.compute_capability > 0)
    line += ", compute capability " + CapabilityText(device.compute_capability);
  if (device.usable && device.total_bytes > 0) {
    line += ", " + BytesText(static_cast<double>(device.free_bytes)) + " of " +
            BytesText(static_cast<double>(device.total_bytes)) + " free";
  }
  if (device.integrated) line += " (the system's memory)";
  return line + (device.usable ? "" : "; not usable: " + device.reason) + "\n";
}

}  // namespace

std::string DeviceId(const dsv4::Device& device) {
  if (device.backend != DSV4_BACKEND_CUDA) return "cpu";
  return device.index < 0 ? "cuda" : "cuda:" + std::to_string(device.index);
}

std::string DeviceTable(const std::vector<dsv4::Device>& devices) {
  std::string table;
  for (const dsv4::Device& device : devices) table += LineOf(device);
  return table;
}

std::string DevicesJson(const std::vector<dsv4::Device>& devices) {
  std::vector<std::string> each;
  for (const dsv4::Device& device : devices) {
    each.push_back(JsonObject()
                       .String("id", DeviceId(device))
                       .Number("index", int64_t{device.index})
                       .String("name", device.name)
                       .Bool("usable", device.usable)
                       .String("reason", device.reason)
                       .Number("compute_capability", int64_t{device.compute_capability})
                       .Bool("integrated", device.integrated)
                       .Number("total_bytes", static_cast<int64_t>(device.total_bytes))
                       .Number("free_bytes", static_cast<int64_t>(device.free_bytes))
                       .text());
  }
  return JsonObject().String("event", "devices").Json("devices", JsonArray(each)).text();
}

}  // namespace chat
