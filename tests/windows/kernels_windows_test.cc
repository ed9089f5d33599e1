// SPDX-License-Identifier: Apache-2.0
// usage: kernels_windows_test: loads every kernel of the build through the driver (here
// fake_nvcuda.c), and launches it. Each must be in the image that its table names, and have a
// function of the host of its own.
#include <cstdio>
#include <set>
#include <utility>

#include "lib/device/cuda_runtime.h"
#include "lib/device/kernel_image.h"

int main() {
  int images = 0, kernels = 0, failures = 0;
  std::set<std::pair<const void*, const void*>> hosts;  // an inline kernel may be in two images
  for (dsv4::KernelImage* image = dsv4::KernelImages(); image != nullptr; image = image->next) {
    ++images;
    for (int64_t i = 0; i < image->count; ++i) {
      const dsv4::KernelImage::Kernel& kernel = image->kernels[i];
      ++kernels;
      hosts.insert({image, kernel.host});
      cudaLaunchConfig_t config{};
      config.gridDim = {1, 1, 1};
      config.blockDim = {32, 1, 1};
      const cudaError_t error = cudaLaunchKernelExC(&config, &kernel, nullptr);
      if (error == cudaSuccess) continue;
      std::fprintf(stderr, "%s: %s\n", kernel.symbol, cudaGetErrorString(error));
      ++failures;
    }
  }
  std::printf("%d images, %d kernels, %zu functions of the host, %d failures\n", images, kernels,
              hosts.size(), failures);
  return images > 20 && kernels > 200 && hosts.size() == static_cast<size_t>(kernels) &&
                 failures == 0
             ? 0
             : 1;
}
