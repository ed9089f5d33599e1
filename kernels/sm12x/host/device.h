// SPDX-License-Identifier: Apache-2.0
// What nvcc knows without being told, for the C++ compiler that compiles the host's part of
// kernels/sm12x: included before each of its files. nvcc compiles the same files to an image for
// GPUs (cmake/Dsv4Image.cmake).
//
// Kernels are functions here that end the program. Their addresses say which kernel of the image is
// meant; nobody calls them.
#pragma once

#include <math.h>  // NOLINT: the functions without std::, as CUDA has them
#include <vector_functions.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lib/device/cuda_runtime.h"
#include "lib/device/kernel_image.h"

#undef __shared__
#define __shared__
#define __launch_bounds__(...)

namespace dsv4::sm12x {

[[noreturn]] inline void NotOnHost() { __builtin_trap(); }
[[noreturn]] inline const uint3& NoIndex() { __builtin_trap(); }

}  // namespace dsv4::sm12x

#define threadIdx (::dsv4::sm12x::NoIndex())
#define blockIdx (::dsv4::sm12x::NoIndex())
#define blockDim (::dsv4::sm12x::NoIndex())
#define gridDim (::dsv4::sm12x::NoIndex())

#define DSV4_PTX(...) ::dsv4::sm12x::NotOnHost()
#define DSV4_PTX_VOLATILE DSV4_PTX

// The image of the file that is compiled. Its name comes from the build.
extern "C" dsv4::KernelImage DSV4_KERNEL_IMAGE;

template <class... Params, class... Args>
static cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                                      Args&&... args) {
  std::tuple<std::remove_cv_t<Params>...> params(std::forward<Args>(args)...);
  return std::apply(
      [&](auto&... each) {
        void* pointers[] = {&each...};
        return cudaLaunchKernelExC(config, DSV4_KERNEL_IMAGE.Find(kernel), pointers);
      },
      params);
}

template <class... Params>
static cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute,
                                        int value) {
  return cudaFuncSetAttribute(DSV4_KERNEL_IMAGE.Find(kernel), attribute, value);
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

// Declared, so that the kernels' code can be read.
#define DSV4_DEVICE_FUNCTION(type, ...) \
  inline type __VA_ARGS__ { dsv4::sm12x::NotOnHost(); }
DSV4_DEVICE_FUNCTION(float, __fadd_rn(float, float))
DSV4_DEVICE_FUNCTION(float, __fsub_rn(float, float))
DSV4_DEVICE_FUNCTION(float, __fmul_rn(float, float))
DSV4_DEVICE_FUNCTION(float, __fdiv_rn(float, float))
DSV4_DEVICE_FUNCTION(float, __fmaf_rn(float, float, float))
DSV4_DEVICE_FUNCTION(float, __fdividef(float, float))
DSV4_DEVICE_FUNCTION(float, rsqrtf(float))
DSV4_DEVICE_FUNCTION(void, sincospi(double, double*, double*))
DSV4_DEVICE_FUNCTION(uint32_t, __float_as_uint(float))
DSV4_DEVICE_FUNCTION(float, __uint_as_float(uint32_t))
DSV4_DEVICE_FUNCTION(float, __int_as_float(int32_t))
DSV4_DEVICE_FUNCTION(int, __float2int_rn(float))
DSV4_DEVICE_FUNCTION(int, __dp4a(int, int, int))
DSV4_DEVICE_FUNCTION(int, __popc(uint32_t))
DSV4_DEVICE_FUNCTION(int, __ffs(int))
DSV4_DEVICE_FUNCTION(uint32_t, __byte_perm(uint32_t, uint32_t, uint32_t))
DSV4_DEVICE_FUNCTION(uint32_t, __ballot_sync(uint32_t, int))
DSV4_DEVICE_FUNCTION(int, __any_sync(uint32_t, int))
DSV4_DEVICE_FUNCTION(uint32_t, __reduce_add_sync(uint32_t, uint32_t))
DSV4_DEVICE_FUNCTION(uint32_t, __reduce_min_sync(uint32_t, uint32_t))
DSV4_DEVICE_FUNCTION(uint32_t, __reduce_max_sync(uint32_t, uint32_t))
DSV4_DEVICE_FUNCTION(size_t, __cvta_generic_to_shared(const void*))
DSV4_DEVICE_FUNCTION(void, __threadfence())
DSV4_DEVICE_FUNCTION(void, __syncthreads())
DSV4_DEVICE_FUNCTION(int, __syncthreads_count(int))
DSV4_DEVICE_FUNCTION(void, __syncwarp(uint32_t = 0))
template <class T>
DSV4_DEVICE_FUNCTION(T, __ldg(const T*))
template <class T>
DSV4_DEVICE_FUNCTION(T, __ldcg(const T*))
template <class T>
DSV4_DEVICE_FUNCTION(T, atomicExch(T*, std::type_identity_t<T>))
template <class T>
DSV4_DEVICE_FUNCTION(T, atomicAdd(T*, std::type_identity_t<T>))
template <class T>
DSV4_DEVICE_FUNCTION(T, __shfl_sync(uint32_t, T, int))
template <class T>
DSV4_DEVICE_FUNCTION(T, __shfl_xor_sync(uint32_t, T, int))
template <class T>
DSV4_DEVICE_FUNCTION(T, __shfl_up_sync(uint32_t, T, unsigned))
template <class T>
DSV4_DEVICE_FUNCTION(T, __shfl_down_sync(uint32_t, T, unsigned))
#undef DSV4_DEVICE_FUNCTION
