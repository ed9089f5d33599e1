// SPDX-License-Identifier: Apache-2.0
// What nvcc made of the kernels of a source file, read from the machine code in its fat binary: no
// tool of CUDA is needed, and nothing is compiled again. Not for images that nvcc compressed or
// that hold PTX alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dsv4::test {

struct CudaKernel {
  std::string symbol;
  std::string name;  // without return type, parameters and this project's namespaces
  int64_t registers = 0;
  int64_t stack_bytes = 0;
  int64_t shared_bytes = 0;  // static; without what the driver takes of every block
  // Instructions in the code: reads and writes of local memory (spilled registers, arrays that
  // no register holds), block-scaled MMA, and MMA of any other kind.
  int64_t local = 0, scaled_mma = 0, other_mma = 0;
  // Of the innermost loops that have an MMA, the one with the most: its instructions, those that it
  // branches around included, and its MMAs. An instruction takes one issue slot of a warp's
  // scheduler. 0 where no loop has an MMA. around_instructions: those of the smallest loop around
  // it, with its own; 0 where there is none.
  int64_t loop_instructions = 0, loop_scaled_mma = 0, loop_other_mma = 0, around_instructions = 0;
};

struct CudaImage {
  int32_t architecture = 0;         // 120 for sm_120, sm_120a and sm_120f
  std::vector<CudaKernel> kernels;  // by name
};

// The images in a fat binary. Corrupt for what is none, and for one whose device code has another
// format.
absl::StatusOr<std::vector<CudaImage>> ReadCudaImages(const std::string& path);

}  // namespace dsv4::test
