// SPDX-License-Identifier: Apache-2.0
// The devices of the machine, as text.
#pragma once

#include <dsv4/dsv4.hpp>

#include <string>
#include <vector>

namespace chat {

// "cuda:0" or "cpu"; "cuda" for an entry that says why no GPU is listed.
std::string DeviceId(const dsv4::Device& device);

// One line for each device.
std::string DeviceTable(const std::vector<dsv4::Device>& devices);
// A JSON object with the event "devices".
std::string DevicesJson(const std::vector<dsv4::Device>& devices);

}  // namespace chat
