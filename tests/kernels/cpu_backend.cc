// SPDX-License-Identifier: Apache-2.0
// The cpu backend under the cases of tests/kernels/op: on every instruction set that was compiled
// and that this machine has, without and, where there are any, with bf16 dot instructions.
#include <cstring>
#include <new>

#include "hwy/highway.h"
#include "kernels/cpu/attention_dot.h"
#include "kernels/cpu/dot.h"
#include "kernels/cpu/manifest.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/tested_backend.h"

namespace dsv4::test {
namespace {

constexpr std::align_val_t kAlignment{256};

void ForEachTarget(const std::function<void()>& test) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    const DotKernels* last = nullptr;
    for (const DotExtension extension :
         {DotExtension::kNone, DotExtension::kAvx512Bf16, DotExtension::kAmx}) {
      AllowDotExtensions(extension);
      if (&ActiveDotKernels() == last) continue;
      last = &ActiveDotKernels();
      INFO("target " << hwy::TargetName(target) << ", dots " << last->name);
      test();
    }
  }
  AllowDotExtensions(DotExtension::kAmx);
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace

const TestedBackend& Tested() {
  static const TestedBackend backend = {
      .manifest = CpuManifest(),
      .formats = {RowFormat::kPacked, RowFormat::kBf16, RowFormat::kFp8PerTensor},
      .allocate =
          [](int64_t bytes) {
            return static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes), kAlignment));
          },
      .release = [](std::byte* memory) { ::operator delete(memory, kAlignment); },
      .copy = [](void* to, const void* from,
                 int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); },
      .launch =
          [](const KernelEntry& entry, const void* params, int threads) {
            LaunchEntry(entry, params, {.numerics = Numerics::kPublished, .threads = threads});
          },
      .for_each_variant = &ForEachTarget,
      .equal_sums = 0.99996,
      .equal_others = 1,
      .host_memory = true,
      .most_heads = 11,
      .most_rows = 129,
  };
  return backend;
}

}  // namespace dsv4::test
