// SPDX-License-Identifier: Apache-2.0
// The backend whose operators a test program checks against the reference. The cases in
// tests/kernels/op are compiled once; a backend links them with one source that defines Tested():
// cpu_backend.cc, sm12x_backend.cc.
#pragma once

#include <functional>
#include <vector>

#include "kernels/op/kv_layout.h"
#include "kernels/registry/kernel_entry.h"

namespace dsv4::test {

struct TestedBackend {
  Manifest manifest;
  std::vector<RowFormat> formats;  // of cache rows; the first one is the default
  // 256-byte aligned memory for the kernels. Copies go in either direction; they wait for launches.
  std::byte* (*allocate)(int64_t bytes);
  void (*release)(std::byte* memory);
  void (*copy)(void* to, const void* from, int64_t bytes);
  // Launches an entry as steps do, with a workspace of exactly the size that it asks for between
  // guards, and waits. `threads`: of a backend that has any.
  void (*launch)(const KernelEntry& entry, const void* params, int threads);
  // Calls `test` once for each implementation that this machine can choose.
  void (*for_each_variant)(const std::function<void()>& test);
  // The least share of an output's elements that equals the reference's: of operators whose f32
  // sums have an order of their own, and of the others.
  double equal_sums, equal_others;
  // Kernels run in host memory. On others steps run as graphs, too, which end in padding rows and
  // sequences.
  bool host_memory;
  // Cases of more heads or rows are left out, because variants without vectors take minutes.
  int32_t most_heads, most_rows;
};

const TestedBackend& Tested();
inline const KernelEntry* TestedEntry(Op op) {
  for (const KernelEntry& entry : Tested().manifest) {
    if (entry.op == op) return &entry;
  }
  return nullptr;
}

inline void ForEachVariant(const std::function<void()>& test) { Tested().for_each_variant(test); }

}  // namespace dsv4::test
