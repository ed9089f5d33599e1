// SPDX-License-Identifier: Apache-2.0
// Brings quantised weights, once they are read, to the format in which they run: F32 scales that
// are powers of two to E8M0, and NVFP4 experts to MXFP4 where all values stay. A device runs the
// experts of a block in one format, MXFP4 wherever it can, and FP8 ones under F32 scales. Owns the
// memory of what changes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/io/checkpoint.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

class FormatChanges {
 public:
  // For a device, a weight's memory lasts until the next one settles.
  FormatChanges(const Checkpoint& checkpoint, bool for_device)
      : checkpoint_(checkpoint), for_device_(for_device) {}

  // `name` is that of the weight's tensors, less ".weight". For a device, `as` is the format in
  // which the block's routed experts run. Errors: Unsupported, naming tensor and place, for what a
  // device's kernels do not run: values that are not of that format; and with routed experts in
  // MXFP4, scales of a shared expert that are no powers of two.
  void Settle(Fp8Weight* weight);
  absl::Status SettleShared(const std::string& name, ExpertFormat as, Fp8Weight* weight);
  absl::Status Settle(const std::string& name, ExpertFormat as, ExpertMatrix* expert);

  // Whether an expert was refused because it has no MXFP4 weight of the same values.
  bool found_no_mxfp4() const { return found_no_mxfp4_; }
  int64_t bytes() const { return bytes_; }  // of the memory below
  std::vector<std::unique_ptr<std::byte[]>> TakeMemory() { return std::move(memory_); }

 private:
  using Memory = std::unique_ptr<std::byte[]>;
  uint8_t* Keep(Memory memory, int64_t bytes);
  void KeepF32Scales(ExpertMatrix* expert);
  absl::Status NotMxfp4(const std::string& name, const ExpertMatrix& expert, int64_t run);

  const Checkpoint& checkpoint_;
  const bool for_device_;
  std::vector<Memory> memory_;
  int64_t bytes_ = 0;
  bool found_no_mxfp4_ = false;
};

}  // namespace dsv4
