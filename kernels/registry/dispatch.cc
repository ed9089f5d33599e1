// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry/dispatch.h"

#include <algorithm>
#include <chrono>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"

namespace dsv4 {

const char* BackendName(Backend backend) {
  switch (backend) {
    case Backend::kReference:
      return "reference";
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
  }
  return "unknown";
}

Dispatch::Dispatch(absl::Span<const Manifest> manifests, Backend backend, Numerics numerics,
                   int threads)
    : backend_(backend), numerics_(numerics), threads_(threads) {
  for (const Manifest& manifest : manifests) {
    for (const KernelEntry& entry : manifest) {
      if (entry.backend == backend) candidates_.push_back(&entry);
    }
  }
}

absl::Status Dispatch::PrepareOp(Op op, const void* largest) {
  const KernelEntry*& chosen = chosen_[static_cast<size_t>(op)];
  std::string reasons;
  for (const KernelEntry* entry : candidates_) {
    if (entry->op != op || (chosen != nullptr && entry != chosen)) continue;
    absl::Status supported =
        (entry->numerics & NumericsBit(numerics_)) != 0
            ? entry->supports(largest)
            : Unsupported("does not run these numerics (the reference backend runs all)");
    if (supported.ok()) {
      chosen = entry;
      workspace_bytes_ = std::max(workspace_bytes_,
                                  RoundUp<int64_t>(entry->workspace_bytes(largest, threads_), 64));
      return absl::OkStatus();
    }
    absl::StrAppend(&reasons, "; ", entry->name, ": ", std::string(supported.message()));
  }
  return Unsupported("no ", BackendName(backend_), " kernel for operator ", OpName(op),
                     reasons.empty() ? std::string("; none is registered") : reasons);
}

absl::Status Dispatch::NotPrepared(Op op) {
  return Internal("operator ", OpName(op), " was not prepared");
}

double Dispatch::LaunchTimed(const KernelEntry& entry, const LaunchContext& context,
                             const void* params) {
  const auto start = std::chrono::steady_clock::now();
  entry.launch(context, params);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace dsv4
