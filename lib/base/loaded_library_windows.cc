// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "lib/base/loaded_library.h"

namespace dsv4 {

const char* const kNvmlName = "nvml.dll";
const char* const kCudaDriverName = "nvcuda.dll";

void* LoadLibraryNamed(const char* name, std::string* reason) {
  const HMODULE library = LoadLibraryExA(name, nullptr, LOAD_LIBRARY_SEARCH_SYSTEM32);
  if (library == nullptr && reason != nullptr) {
    *reason = std::string(name) + ": error " + std::to_string(GetLastError());
  }
  return library;
}

void* FunctionIn(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::string FileOfFunction(void* function) {
  HMODULE library = nullptr;
  char path[MAX_PATH] = "";
  if (!GetModuleHandleExA(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          static_cast<const char*>(function), &library)) {
    return "";
  }
  return std::string(path, GetModuleFileNameA(library, path, sizeof path));
}

}  // namespace dsv4
