// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry/dispatch.h"

#include <algorithm>
#include <utility>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

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
                   DeviceTraits traits, std::vector<TuningTable> tables)
    : backend_(backend),
      numerics_(numerics),
      traits_(std::move(traits)),
      tables_(std::move(tables)) {
  for (const Manifest& manifest : manifests) {
    for (const KernelEntry& entry : manifest) {
      if (entry.backend != backend) continue;
      candidates_.push_back(&entry);
      rows_ = manifest.rows;
      make_program_ = manifest.make_program;
    }
  }
}

absl::Status Dispatch::ExpectRunnable(const KernelEntry& entry, const void* largest) const {
  if ((entry.numerics & NumericsBit(numerics_)) == 0) {
    return Unsupported("does not run these numerics (the reference backend runs all)");
  }
  DSV4_RETURN_IF_ERROR(ExpectTraits(entry.needs, traits_));
  return entry.supports(largest);
}

absl::Status Dispatch::PrepareOp(Op op, const void* largest, StreamRole stream) {
  Choice& choice = chosen_[static_cast<size_t>(op)];
  std::string reasons;
  for (const KernelEntry* entry : candidates_) {
    if (entry->op != op || (choice.entry != nullptr && entry != choice.entry)) continue;
    const absl::Status runnable = ExpectRunnable(*entry, largest);
    if (runnable.ok()) {
      choice.entry = entry;
      for (const TuningTable& table : tables_) {
        if (table.entry == entry) choice.table = &table;
      }
      int64_t& bytes = workspace_bytes_[static_cast<size_t>(stream)];
      bytes = std::max(
          bytes, RoundUp<int64_t>(entry->workspace_bytes(largest, traits_.multiprocessors), 64));
      return absl::OkStatus();
    }
    absl::StrAppend(&reasons, "; ", entry->name, ": ", std::string(runnable.message()));
  }
  return Unsupported("no ", BackendName(backend_), " kernel for operator ", OpName(op),
                     reasons.empty() ? std::string("; none is registered") : reasons);
}

absl::Status Dispatch::NotPrepared(Op op) {
  return Internal("operator ", OpName(op), " was not prepared");
}

}  // namespace dsv4
