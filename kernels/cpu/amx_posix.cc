// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dot.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/cpu/dot_amx.h"

namespace dsv4 {

const DotKernels* AmxDotKernels() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl, since Linux 5.16
  static const bool permitted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return permitted ? &kDotAmx : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace dsv4
