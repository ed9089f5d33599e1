// SPDX-License-Identifier: Apache-2.0
#include "lib/device/kernel_image.h"

namespace dsv4 {
namespace {

constinit KernelImage* first = nullptr;

}  // namespace

KernelImage* KernelImages() { return first; }

bool AddKernelImage(KernelImage* image) {
  image->next = first;
  first = image;
  return true;
}

}  // namespace dsv4
