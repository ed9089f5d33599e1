// SPDX-License-Identifier: Apache-2.0
// What all operator contracts share: the operator names, the numerics modes with their rounding
// points, the launch context, the cost model, and the rows of a step. Each <operator>.h in this
// folder holds one operator's Params (its contract), Validate, CostOf and TensorsOf.
//
// Storage:
// - Activations ("act" in the contracts): bf16 in the cpu and cuda backends; f32 in the reference
//   backend, which rounds explicitly.
// - Quantised activations: the dequantised values (exact in bf16); in the cuda backend, codes and
//   scales (QuantizedRows).
// - All tensors are row-major and contiguous unless a stride is given.
// - All pointers of one Params point to memory of the device that runs it.
//
// Accuracy: no sum is less accurate than f32 accumulation in an order that the backend states. With
// the same inputs, two backends differ in at most one element of an output in 400, by one step of
// its format (docs/adr/0022-f32-sums-in-a-stated-order.md).
//
// Row rule: the bits of a row's result depend only on that row's input, position and visible rows.
// They do not depend on the other rows of the call, block ids or the thread count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/device/stream.h"
#include "lib/tensor/dtype.h"

namespace dsv4 {

enum class Op : int32_t {
  kRopeTable,
  kEmbedRows,
  kHcPre,
  kHcPost,
  kHcHead,
  kRmsNorm,
  kLinearFp8,
  kLinearBf16,
  kQkvPrepare,
  kCompressKv,
  kIndexScoreTopk,
  kSparseAttention,
  kOutputGroups,
  kMoeGate,
  kExpertFfn,
  kMtpCombine,
  kCopyRows,
  kPackWeight,
  kTokenCandidates,
  kGatherColumns,
  kDraftLogits,
  kCount,
};

const char* OpName(Op op);  // "linear_fp8", ...

// How a backend stores a row of a quantised activation. Its n elements are a multiple of 128.
enum class QuantizedRows : int32_t {
  kRoundTrip,  // the dequantised values, in the format of other activations
  kCodes,      // n e4m3 codes, then a ue8m0 scale for each 128, padded to a multiple of 16 bytes
};

enum class Numerics : int32_t {
  kPublished,  // bf16 values at the rounding points below, every quantiser (model.md section 3)
  kFp32,       // f32 activations, every quantiser; reference backend only
  kExact,      // f32 activations, no activation or cache quantiser; reference backend only
};

const char* NumericsName(Numerics numerics);  // "published", "fp32", "exact"

// The places where published numerics round to bf16 or quantise. The reference backend can omit
// each of them, so that tests can show that the oracle's rules detect the omission.
enum class Point : int32_t {
  kRoundLinear,         // output of every linear that is not kept in f32
  kRoundHcPre,          // the weighted sum of hc_pre
  kRoundRmsNorm,        // every RMSNorm
  kRoundQNorm,          // the per-head q norm
  kRoundRope,           // RoPE of q, key/value rows, compressed rows and index queries and keys
  kRoundPooling,        // the compressor's pooling
  kRoundHadamard,       // the indexer's rotation
  kRoundAttention,      // the attention output
  kRoundInverseRope,    // the inverse RoPE
  kRoundOutputGroups,   // wo_a
  kRoundSwiglu,         // the SwiGLU product, routing weight included
  kRoundExpertOutput,   // each expert's output before the sum
  kRoundFfnOutput,      // the FFN output
  kRoundHcPost,         // hc_post
  kQuantLinearInput,    // act_quant 128 of the normed hidden state and of qr
  kQuantOutputGroups,   // act_quant 128 before wo_b
  kQuantExpertHidden,   // act_quant 128 before w2, routed and shared
  kQuantWindowRow,      // act_quant 64 of window rows
  kQuantCompressedRow,  // act_quant 64 of compressed rows
  kQuantIndexQuery,     // fp4_act_quant of index queries
  kQuantIndexKey,       // fp4_act_quant of index keys
  kCount,
};

const char* PointName(Point point);  // "round_linear", ...

constexpr bool IsQuantiser(Point point) { return point >= Point::kQuantLinearInput; }
constexpr uint64_t PointBit(Point point) { return uint64_t{1} << static_cast<int32_t>(point); }

// Values of a kernel entry's knobs, in the order of its knob names. They never change a result's
// bits.
inline constexpr int kMaxKnobs = 4;
struct KernelConfig {
  std::array<int32_t, kMaxKnobs> values{};
  bool operator==(const KernelConfig&) const = default;
};

// Bytes of LaunchContext::marked.
inline constexpr int64_t kMarkedBytes = 64 + (int64_t{384} << 10);

struct LaunchContext {
  Stream* stream = nullptr;
  Numerics numerics = Numerics::kPublished;
  uint64_t omitted_points = 0;     // PointBit set; reference backend only, 0 outside tests
  std::byte* workspace = nullptr;  // 64-byte aligned; at least the entry's workspace_bytes
  // Device memory, 64-byte aligned, for words that blocks of a kernel hand to each other; null if
  // blocks must not wait for each other (Device::TakeWaitingBlocks). It was zero before the first
  // launch with it; launches of one stream, all of the same model, write it and nothing else does.
  std::byte* marked = nullptr;
  // Dispatch fills in these two.
  const KernelConfig* config = nullptr;  // of the launched entry; null: its first
  int32_t multiprocessors = 1;           // of the device, for grid sizes; cuda only
};

// A call's named dimensions. Tuning tables choose a config by them.
struct CallDim {
  const char* name = "";
  int64_t value = 0;
};
class CallDims {
 public:
  static constexpr size_t kMost = 4;
  CallDims(std::initializer_list<CallDim> dims) : count_(dims.size()) {
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }
  absl::Span<const CallDim> all() const { return {dims_.data(), count_}; }

 private:
  std::array<CallDim, kMost> dims_;
  size_t count_;
};

// Dimensions for an operator whose contract defines no others. Pointers may be null.
template <class Params>
CallDims DimsOf(const Params& params) {
  if constexpr (requires { params.step; }) {
    return {{"rows", params.step == nullptr ? 0 : params.step->rows}};
  } else {
    return {{"rows", params.rows}};
  }
}

// Work of one launch: bytes that must move from memory at least once, and floating-point
// operations.
struct Cost {
  int64_t bytes = 0;
  int64_t flops = 0;
};

// Bytes of a stored activation in costs: bf16.
inline constexpr int64_t kActBytes = 2;

// For Validate: InvalidArgument with the pieces when `condition` is false.
template <class... Args>
absl::Status Expect(bool condition, const Args&... pieces) {
  if (condition) [[likely]]
    return absl::OkStatus();
  return InvalidArgument(pieces...);
}

}  // namespace dsv4
