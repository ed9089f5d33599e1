// SPDX-License-Identifier: Apache-2.0
// The machine code of one source file's kernels, as the build made it (cmake/Dsv4Image.cmake), and
// which function of the host stands for which of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace dsv4 {

struct KernelImage {
  struct Kernel {
    // The function of the host that has the kernel's name. Only its address is used.
    const void* host;
    const char* symbol;  // of the machine code
    KernelImage* image;
    std::atomic<void*> function{};  // a CUkernel, once it was asked for
  };
  const std::byte* data;  // a fat binary
  Kernel* kernels;
  int64_t count;
  void* library = nullptr;      // a CUlibrary, once a kernel was asked for
  KernelImage* next = nullptr;  // of KernelImages

  // What cudaLaunchKernelExC takes as a kernel; null if the image has none of this function.
  template <class... Params>
  Kernel* Find(void (*function)(Params...)) {
    for (int64_t i = 0; i < count; ++i) {
      if (kernels[i].host == reinterpret_cast<const void*>(function)) return kernels + i;
    }
    return nullptr;
  }
};

// The first of all images in the program, or null.
KernelImage* KernelImages();

// Adds an image to them. While the program or library is loaded, by one thread.
bool AddKernelImage(KernelImage* image);

}  // namespace dsv4
