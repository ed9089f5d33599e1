// SPDX-License-Identifier: Apache-2.0
// Libraries of others that are used where the machine has them. They stay loaded, because threads
// of their own may run until the process ends.
#pragma once

#include <string>

namespace dsv4 {

// Null if there is none; then `reason`, unless null, is the system's. Windows looks in the system's
// own folder only.
void* LoadLibraryNamed(const char* name, std::string* reason = nullptr);
// Null if the library has no such function.
void* FunctionIn(void* library, const char* name);
// The file that holds a function; "" if unknown.
std::string FileOfFunction(void* function);

// The library of NVIDIA's driver for management (NVML), and the driver's own.
extern const char* const kNvmlName;
extern const char* const kCudaDriverName;

}  // namespace dsv4
