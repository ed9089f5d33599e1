// SPDX-License-Identifier: Apache-2.0
// Converts quantised weights, after they are read, to the format in which they run, without loss:
// F32 scales that are powers of two to E8M0, and NVFP4 experts to MXFP4. A device runs the experts
// of a block in one format: MXFP4 if possible; FP8 experts may have F32 scales. Owns the converted
// data.
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
  // With a device, a weight's converted data are valid until the next Settle.
  FormatChanges(const Checkpoint& checkpoint, bool for_device)
      : checkpoint_(checkpoint), for_device_(for_device) {}

  // `name`: of the weight's tensors, without ".weight". `as`: with a device, the format in which
  // the block's routed experts run. Errors: Unsupported, naming the tensor and the place, if a
  // device's kernels cannot run the weight: an expert has values that `as` cannot represent; or a
  // shared expert next to MXFP4 experts has scales that are not powers of two.
  void Settle(Fp8Weight* weight);
  absl::Status SettleShared(const std::string& name, ExpertFormat as, Fp8Weight* weight);
  absl::Status Settle(const std::string& name, ExpertFormat as, ExpertMatrix* expert);

  // Whether an expert was refused because MXFP4 cannot represent its values.
  bool found_no_mxfp4() const { return found_no_mxfp4_; }
  int64_t bytes() const { return bytes_; }  // of the converted data
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
