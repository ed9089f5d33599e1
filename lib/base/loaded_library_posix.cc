// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "lib/base/loaded_library.h"

namespace dsv4 {

const char* const kNvmlName = "libnvidia-ml.so.1";
const char* const kCudaDriverName = "libcuda.so.1";

void* LoadLibraryNamed(const char* name, std::string* reason) {
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr || reason == nullptr) return library;
  const char* const text = dlerror();
  *reason = text == nullptr ? name : text;
  return nullptr;
}

void* FunctionIn(void* library, const char* name) { return dlsym(library, name); }

std::string FileOfFunction(void* function) {
  Dl_info place{};
  const bool found = dladdr(function, &place) != 0 && place.dli_fname != nullptr;
  return found ? place.dli_fname : "";
}

}  // namespace dsv4
