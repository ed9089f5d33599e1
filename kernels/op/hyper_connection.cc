// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/hyper_connection.h"

#include "lib/base/status_macros.h"

namespace dsv4 {
absl::Status Validate(const HcPreParams& p) {
  if (p.update.y != nullptr) DSV4_RETURN_IF_ERROR(Validate(UpdateOf(p)));
  return Expect(p.rows >= 1 && p.hidden >= 128 && p.hidden % 128 == 0 && p.sinkhorn_iters >= 1 &&
                    p.streams != nullptr && p.fn != nullptr && p.base != nullptr &&
                    p.scale != nullptr && p.norm != nullptr && p.normed != nullptr &&
                    p.quantized != nullptr && p.post != nullptr && p.comb != nullptr,
                "hc_pre: rows ", p.rows, ", hidden ", p.hidden, ", Sinkhorn iterations ",
                p.sinkhorn_iters, " or a null pointer");
}

Cost CostOf(const HcPreParams& p) {
  const int64_t rows = p.rows, width = 4 * p.hidden;
  Cost cost{.bytes = 24 * width * 4 + rows * (width + 2 * p.hidden) * kActBytes + rows * 20 * 4,
            .flops = rows * (2 * 24 * width + 2 * width + 2 * width + 8 * p.hidden +
                             int64_t{p.sinkhorn_iters} * 2 * 32)};
  if (p.update.y != nullptr) {
    const Cost update = CostOf(UpdateOf(p));
    cost.bytes += update.bytes - rows * width * kActBytes;  // X need not be read again
    cost.flops += update.flops;
  }
  return cost;
}

LaunchTensors TensorsOf(const HcPreParams& p, Device& device) {
  LaunchTensors all;
  if (p.update.y != nullptr) {
    all = TensorsOf(UpdateOf(p), device);
  } else {
    all.in = {LaunchTensor::Act(p.streams, p.rows, 4 * p.hidden)};
  }
  all.out.push_back(
      {"normed", OutputFormat::kNormed, LaunchTensor::Act(p.normed, p.rows, p.hidden)});
  all.out.push_back(
      {"quantized", OutputFormat::kCodes, LaunchTensor::Quantized(p.quantized, p.rows, p.hidden)});
  all.out.push_back({"post", OutputFormat::kF32, LaunchTensor::F32(p.post, p.rows, 4)});
  all.out.push_back({"comb", OutputFormat::kF32, LaunchTensor::F32(p.comb, p.rows, 16)});
  return all;
}

absl::Status Validate(const HcPostParams& p) {
  return Expect(p.rows >= 1 && p.hidden >= 1 && p.y != nullptr && p.post != nullptr &&
                    p.comb != nullptr && p.streams != nullptr && p.out != nullptr,
                "hc_post: rows ", p.rows, ", hidden ", p.hidden, " or a null pointer");
}

Cost CostOf(const HcPostParams& p) {
  return {.bytes = int64_t{p.rows} * p.hidden * 9 * kActBytes,
          .flops = int64_t{p.rows} * p.hidden * 36};
}

LaunchTensors TensorsOf(const HcPostParams& p, Device&) {
  const int64_t width = 4 * p.hidden;
  return {{LaunchTensor::Act(p.y, p.rows, p.hidden), LaunchTensor::F32(p.post, p.rows, 4),
           LaunchTensor::F32(p.comb, p.rows, 16), LaunchTensor::Act(p.streams, p.rows, width)},
          {{"out", OutputFormat::kBf16, LaunchTensor::Act(p.out, p.rows, width)}}};
}

absl::Status Validate(const HcHeadParams& p) {
  if (p.fn == nullptr) {
    return Expect(p.rows >= 1 && p.hidden >= 1 && p.streams != nullptr && p.quantized != nullptr &&
                      p.quantized_column >= 0 && p.quantized_column % 128 == 0 &&
                      p.quantized_width >= p.quantized_column + p.hidden && p.normed == nullptr &&
                      p.mixed == nullptr,
                  "hc_head: rows ", p.rows, ", hidden ", p.hidden, ", column ", p.quantized_column,
                  " of ", p.quantized_width, " or a null pointer");
  }
  return Expect(p.rows >= 1 && p.hidden >= 1 && p.streams != nullptr && p.fn != nullptr &&
                    p.base != nullptr && p.scale != nullptr && p.norm != nullptr &&
                    p.normed != nullptr && p.quantized == nullptr,
                "hc_head: rows ", p.rows, ", hidden ", p.hidden, " or a null pointer");
}

Cost CostOf(const HcHeadParams& p) {
  const int64_t rows = p.rows, width = 4 * p.hidden;
  return {.bytes = 4 * width * 4 + rows * (width + p.hidden) * kActBytes,
          .flops = rows * (2 * 4 * width + 4 * width + 4 * p.hidden)};
}

LaunchTensors TensorsOf(const HcHeadParams& p, Device& device) {
  const int64_t streams = p.row_of == nullptr ? p.rows : RowsReached(p.row_of, p.rows, device);
  LaunchTensor quantized = p.quantise ? LaunchTensor::Quantized(p.quantized, p.rows, p.hidden)
                                      : LaunchTensor::Act(p.quantized, p.rows, p.hidden);
  quantized.stride = p.quantized_width;
  quantized.column = p.quantized_column;
  return {{LaunchTensor::Act(p.streams, streams, 4 * p.hidden)},
          {{"mixed", OutputFormat::kBf16, LaunchTensor::Act(p.mixed, p.rows, p.hidden)},
           {"normed", OutputFormat::kNormed, LaunchTensor::Act(p.normed, p.rows, p.hidden)},
           {"quantized", p.quantise ? OutputFormat::kCodes : OutputFormat::kNormed,
            std::move(quantized)}}};
}

absl::Status Validate(const MtpCombineParams& p) {
  return Expect(
      p.rows >= 1 && p.hidden >= 1 && p.e != nullptr && p.h != nullptr && p.streams != nullptr,
      "mtp_combine: rows ", p.rows, ", hidden ", p.hidden, " or a null pointer");
}

Cost CostOf(const MtpCombineParams& p) {
  return {.bytes = int64_t{p.rows} * p.hidden * 9 * kActBytes,
          .flops = int64_t{p.rows} * p.hidden * 4};
}

LaunchTensors TensorsOf(const MtpCombineParams& p, Device&) {
  return {{LaunchTensor::Act(p.e, p.rows, p.hidden), LaunchTensor::Act(p.h, p.rows, 4 * p.hidden)},
          {{"streams", OutputFormat::kBf16, LaunchTensor::Act(p.streams, p.rows, 4 * p.hidden)}}};
}

}  // namespace dsv4
