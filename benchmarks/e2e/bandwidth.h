// SPDX-License-Identifier: Apache-2.0
// Bytes a second of the memories that bench_decode compares a step with.
#pragma once

#include <string>

#include "lib/device/device.h"

namespace dsv4 {

// Bytes read and written a second by a copy that no cache holds.
double CopyBandwidth(Device& device);

// Bytes read a second by copies from pinned memory of the host.
double LinkBandwidth(Device& device);

// Writes the file of --disk-file past the page cache, if it is not there.
void WriteDiskFile(const std::string& path);

// Bytes read a second from that file, in pieces like those of experts.
double DiskBandwidth(const std::string& path);

}  // namespace dsv4
