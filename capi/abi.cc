// SPDX-License-Identifier: Apache-2.0
// include/dsv4/abi.h. DSV4_VERSION and DSV4_COMMIT come from the build.
#include <dsv4/abi.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#ifdef DSV4_HAVE_CUDA
#include "lib/device/cuda_images.h"
#endif

namespace {

// The best instruction set that this processor has among those that the kernels are built for.
const char* InstructionSet() {
  const int64_t usable = hwy::SupportedTargets() & HWY_TARGETS;
  // Better targets have lower bits.
  return hwy::TargetName(usable & -usable);
}

#ifdef DSV4_HAVE_CUDA
std::string Cuda() { return absl::StrCat(", cuda (compute capability ", dsv4::kCudaImages, ")"); }
#else
std::string Cuda() { return ""; }
#endif

#ifdef __clang__
constexpr char kCompiler[] = __VERSION__;
#else
constexpr char kCompiler[] = "GCC " __VERSION__;
#endif

}  // namespace

uint32_t dsv4_get_abi_version() noexcept { return DSV4_ABI_VERSION; }

const char* dsv4_get_version() noexcept { return DSV4_VERSION; }

const char* dsv4_get_build_info() noexcept {
  static const std::string info =
      absl::StrCat("dsv4 " DSV4_VERSION " (" DSV4_COMMIT "), ", kCompiler, ", backends: cpu (",
                   InstructionSet(), "), reference", Cuda());
  return info.c_str();
}
