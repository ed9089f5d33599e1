// SPDX-License-Identifier: Apache-2.0
// What nvcc knows without being told, for a C++ compiler that is given kernels/sm12x: included
// before each of its files. The instructions that those files have as PTX are in the headers
// below kernels/ here, which are found before the ones they stand for.
#pragma once

#include <math.h>  // NOLINT: the functions without std::, as CUDA has them
#include <vector_functions.h>
#include "lib/device/cuda_runtime.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tests/emulation/block.h"

// One block runs at a time; those that wait for others have none (block.h).
#undef __shared__
#define __shared__ static
#define __launch_bounds__(...)

// What the launch of a kernel does on the fake CUDA runtime.
namespace dsv4::test {
cudaError_t EnqueueFake(const void* kernel, const cudaLaunchConfig_t& config,
                        std::function<void()> work);
}

template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...),
                               Args&&... args) {
  const std::tuple<std::remove_cv_t<Params>...> params(std::forward<Args>(args)...);
  const dim3 blocks = config->gridDim;
  return dsv4::test::EnqueueFake(
      reinterpret_cast<const void*>(kernel), *config,
      [params, kernel, blocks, threads = config->blockDim.x, shared = config->dynamicSmemBytes] {
        const std::function<void()> thread = [&] { std::apply(kernel, params); };
        dsv4::emulation::RunGrid({blocks.x, blocks.y, blocks.z}, threads, shared, thread);
      });
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline void sincospi(double x, double* sine, double* cosine) {
  const long double angle = 3.14159265358979323846264338327950288L * std::remainder(x, 2.0);
  *sine = static_cast<double>(std::sin(angle));
  *cosine = static_cast<double>(std::cos(angle));
}
inline float rsqrtf(float x) { return static_cast<float>(1 / std::sqrt(double{x})); }

inline uint32_t __float_as_uint(float x) { return std::bit_cast<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int32_t x) { return std::bit_cast<float>(x); }

inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }

// c plus the products of four signed bytes.
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}

inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return out;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}

inline void __threadfence() {}
template <class T>
T atomicExch(T* at, std::type_identity_t<T> value) {
  return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);
}
template <class T>
T atomicAdd(T* at, std::type_identity_t<T> value) {
  return __atomic_fetch_add(at, value, __ATOMIC_ACQ_REL);
}

inline void __syncthreads() { dsv4::emulation::SyncBlock(); }
inline int __syncthreads_count(int predicate) {
  return dsv4::emulation::SyncBlock(predicate != 0 ? 1 : 0);
}

namespace dsv4::emulation {

struct Nothing {};

// The value that lane `from(lane)` gives; the lane's own where there is no such lane.
template <class T, class From>
T Shuffle(uint32_t mask, const char* what, T value, int argument, From) {
  struct Give {
    T value;
    int argument;
  };
  return Together<T>(mask, what, Give{value, argument}, [](const Give* given, T* got) {
    for (int lane = 0; lane < 32; ++lane) {
      const int from = From()(lane, given[lane].argument);
      got[lane] = given[from < 0 || from > 31 ? lane : from].value;
    }
  });
}

// The same of all lanes' values for each lane.
template <class Get, class Give, class Of>
Get OfAll(uint32_t mask, const char* what, Give value, Of) {
  struct Given {
    Give value;
    bool there;
  };
  return Together<Get>(mask, what, Given{value, true}, [](const Given* given, Get* got) {
    Get result = Of::kNone;
    for (int lane = 0; lane < 32; ++lane) {
      if (given[lane].there) result = Of()(result, given[lane].value, lane);
    }
    for (int lane = 0; lane < 32; ++lane) got[lane] = result;
  });
}

struct Ballot {
  static constexpr uint32_t kNone = 0;
  uint32_t operator()(uint32_t all, bool value, int lane) const {
    return all | (value ? 1u << lane : 0);
  }
};
struct Sum {
  static constexpr uint32_t kNone = 0;
  uint32_t operator()(uint32_t all, uint32_t value, int) const { return all + value; }
};
struct Least {
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t operator()(uint32_t all, uint32_t value, int) const { return std::min(all, value); }
};
struct Most {
  static constexpr uint32_t kNone = 0;
  uint32_t operator()(uint32_t all, uint32_t value, int) const { return std::max(all, value); }
};

}  // namespace dsv4::emulation

inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  dsv4::emulation::OfAll<uint32_t>(mask, "__syncwarp", false, dsv4::emulation::Ballot());
}
template <class T>
T __shfl_sync(uint32_t mask, T value, int lane) {
  return dsv4::emulation::Shuffle(mask, "__shfl_sync", value, lane,
                                  [](int, int of) { return of & 31; });
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int bits) {
  return dsv4::emulation::Shuffle(mask, "__shfl_xor_sync", value, bits,
                                  [](int lane, int with) { return lane ^ with; });
}
template <class T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta) {
  return dsv4::emulation::Shuffle(mask, "__shfl_up_sync", value, static_cast<int>(delta),
                                  [](int lane, int by) { return lane - by; });
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta) {
  return dsv4::emulation::Shuffle(mask, "__shfl_down_sync", value, static_cast<int>(delta),
                                  [](int lane, int by) { return lane + by; });
}
inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
  return dsv4::emulation::OfAll<uint32_t>(mask, "__ballot_sync", predicate != 0,
                                          dsv4::emulation::Ballot());
}
inline int __any_sync(uint32_t mask, int predicate) {
  return dsv4::emulation::OfAll<uint32_t>(mask, "__any_sync", predicate != 0,
                                          dsv4::emulation::Ballot()) != 0;
}
inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t value) {
  return dsv4::emulation::OfAll<uint32_t>(mask, "__reduce_add_sync", value, dsv4::emulation::Sum());
}
inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t value) {
  return dsv4::emulation::OfAll<uint32_t>(mask, "__reduce_min_sync", value,
                                          dsv4::emulation::Least());
}
inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t value) {
  return dsv4::emulation::OfAll<uint32_t>(mask, "__reduce_max_sync", value,
                                          dsv4::emulation::Most());
}
