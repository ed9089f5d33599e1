// SPDX-License-Identifier: Apache-2.0
#include "examples/console/expectation.h"

#include <cstdio>
#include <vector>

#include "examples/console/amounts.h"

namespace chat {

std::string PlaceText(const dsv4::EngineInfo& info) {
  const auto text = [](double amount) { return BytesText(amount); };
  if (info.backend == DSV4_BACKEND_CUDA) {
    std::string place =
        (info.device_count > 1 ? std::to_string(info.device_count) + " GPUs " : "GPU ") +
        text(static_cast<double>(info.weight_bytes));
    const auto host = static_cast<double>(info.host_weight_bytes);
    if (info.host_experts > 0) place += ", host memory " + text(host);
    if (info.disk_experts > 0 && info.host_experts > 0) {
      place += ", disk " + text(host / static_cast<double>(info.host_experts) *
                                static_cast<double>(info.disk_experts));
    } else if (info.disk_experts > 0) {
      place += ", " + std::to_string(info.disk_experts) + " routed experts on disk";
    }
    return place;
  }
  const std::vector<dsv4::Device> devices = dsv4::ListDevices();
  const auto free = static_cast<double>(devices.back().free_bytes);
  const auto needed =
      static_cast<double>(info.weight_bytes + info.cache_bytes + info.workspace_bytes);
  if (needed <= free) return "CPU, host memory " + text(needed);
  return "CPU, host memory " + text(free) + ", disk " + text(needed - free);
}

std::string SpeedText(const dsv4::EngineInfo& info) {
  const auto text = [](double rate) {
    char number[32];
    std::snprintf(number, sizeof number, rate < 10 ? "%.1f" : "%.0f", rate);
    return std::string(number);
  };
  std::string speed =
      "about " + text(info.predicted_decode_tokens_per_second) + " tokens a second (predicted)";
  if (info.predicted_prefill_tokens_per_second > 0)
    speed += ", prompts about " + text(info.predicted_prefill_tokens_per_second);
  return speed;
}

std::string ExpectationOf(const std::string& model, const dsv4::EngineOptions& options) {
  if (options.group.size > 0) return {};
  try {
    const dsv4::EngineInfo plan = dsv4::Plan(model, options);
    return PlaceText(plan) + ": " + SpeedText(plan);
  } catch (const dsv4::Error&) {
    return {};
  }
}

}  // namespace chat
