// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/launch_tensors.h"

#include <algorithm>

#include "lib/device/device.h"

namespace dsv4 {

int64_t RowsReached(const int32_t* row_of, int32_t rows, Device& device) {
  std::vector<int32_t> all(static_cast<size_t>(rows));
  device
      .Download(reinterpret_cast<std::byte*>(all.data()),
                reinterpret_cast<const std::byte*>(row_of), rows * int64_t{sizeof(int32_t)})
      .IgnoreError();
  return 1 + *std::max_element(all.begin(), all.end());
}

}  // namespace dsv4
