// SPDX-License-Identifier: Apache-2.0
// Loads and transposes fragments of 16-bit elements: instructions of every target that this backend
// is built for. In lane l, g = l / 4 and t = l % 4.
#pragma once

#include <cstdint>

#include "kernels/sm12x/arch/target.cuh"

namespace dsv4::sm12x {

// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane l passes the address of row
// l % 8 (16 bytes) of matrix l / 8, and gets elements 2t and 2t + 1 of row g of each matrix.
__device__ __forceinline__ void LoadMatrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  DSV4_PTX_VOLATILE("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                    : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                    : "r"(address)
                    : "memory");
}

// LoadMatrices with each matrix transposed: lane l gets element g of rows 2t and 2t + 1.
__device__ __forceinline__ void LoadTransposedMatrices(uint32_t (&out)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  DSV4_PTX_VOLATILE("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                    : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                    : "r"(address)
                    : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements. Lane l passes elements 2t and 2t + 1 of row g, and
// gets the same elements of the transpose.
__device__ __forceinline__ uint32_t TransposedMatrix(uint32_t elements) {
  uint32_t out;
  DSV4_PTX_VOLATILE("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(elements));
  return out;
}

}  // namespace dsv4::sm12x
