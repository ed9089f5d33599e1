// SPDX-License-Identifier: Apache-2.0
// What this machine can do at best, measured: the f32 FMA rate and the rate of reading a working
// set over and over, on all threads of a stream. Benchmarks print their results against these.
#pragma once

#include <cstdint>

#include "lib/device/stream.h"

namespace dsv4 {

// Floating-point operations per second (an FMA is two) of f32 SIMD FMAs on registers. The best of
// several short runs.
double FmaPeak(CpuStream& stream);

// Bytes per second of reading `working_set_bytes`, an equal share on each thread, again and again.
// The best of several short runs. Allocates the working set.
double ReadRate(CpuStream& stream, int64_t working_set_bytes);

}  // namespace dsv4
