// SPDX-License-Identifier: Apache-2.0
// Kernels whose machine code is known beforehand, for the test of cuda_image.h. Built for SM12x and
// for sm_90, which has no block-scaled MMA. They are never run.
#include <cstdint>

// An m16n8k32 product of e4m3 fragments, block-scaled or not.
template <bool kScaled>
__global__ void sample_mma(float* out, const uint32_t* in) {
  float d[4] = {};
#if __CUDA_ARCH__ >= 1200
  if constexpr (kScaled) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3."
        "f32.ue8m0 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, 0}, "
        "{%11}, {0, 0};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5]), "r"(in[6]),
          "r"(in[7]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5]));
  }
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5]));
#endif
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
template __global__ void sample_mma<true>(float*, const uint32_t*);
template __global__ void sample_mma<false>(float*, const uint32_t*);

// A loop of `outer` rounds around two: one of a product, one of three products.
__global__ void sample_loops(float* out, const uint32_t* in, int outer, int inner) {
  float d[4] = {};
  const auto product = [&](uint32_t a) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
        "{%4, %4}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a));
  };
#pragma unroll 1
  for (int round = 0; round < outer; ++round) {
#pragma unroll 1
    for (int i = 0; i < inner; ++i) product(in[i]);
#pragma unroll 1
    for (int i = 0; i < inner; ++i) {
      product(in[i]);
      product(in[i] + 1);
      product(in[i] + 2);
    }
  }
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

// 400 bytes of shared memory.
__global__ void sample_shared(float* out) {
  __shared__ float values[100];
  values[threadIdx.x] = out[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = values[99 - threadIdx.x];
}

// 160 values that live at the same time; with kFew, in at most 64 registers.
template <bool kFew>
__global__ void __launch_bounds__(kFew ? 1024 : 256, 1) sample_values(float* out, int count) {
  float values[160];
  for (int i = 0; i < 160; ++i) values[i] = out[threadIdx.x + i * 1024];
  for (int step = 0; step < count; ++step) {
#pragma unroll
    for (int i = 0; i < 160; ++i) values[i] = values[i] * values[(i + 7) % 160] + 1;
  }
  for (int i = 0; i < 160; ++i) out[threadIdx.x + i * 1024] = values[i];
}
template __global__ void sample_values<true>(float*, int);
template __global__ void sample_values<false>(float*, int);
