// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry/tuning_table.h"

namespace dsv4 {

const KernelConfig& TuningTable::For(const CallDims& dims) const {
  for (const TuningBucket& bucket : buckets) {
    bool inside = true;
    size_t i = 0;
    for (const CallDim& dim : dims.all()) {
      const TuningRange& range = bucket.when[i++];
      inside = inside && dim.value >= range.first && dim.value <= range.last;
    }
    if (inside) return bucket.config;
  }
  return fallback;
}

}  // namespace dsv4
