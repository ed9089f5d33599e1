// SPDX-License-Identifier: Apache-2.0
#include "lib/packing/format_changes.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/packing/expert_format.h"

namespace dsv4 {
namespace {

std::unique_ptr<std::byte[]> NewBytes(int64_t bytes) {
  return std::unique_ptr<std::byte[]>(new std::byte[static_cast<size_t>(bytes)]);
}

uint8_t* Pointer(const std::unique_ptr<std::byte[]>& memory) {
  return reinterpret_cast<uint8_t*>(memory.get());
}

std::string Place(const Checkpoint& checkpoint, const std::string& tensor) {
  return absl::StrCat(checkpoint.FileOf(*checkpoint.Find(tensor)), ": tensor ", tensor);
}

}  // namespace

uint8_t* FormatChanges::Keep(Memory memory, int64_t bytes) {
  bytes_ += bytes;
  memory_.push_back(std::move(memory));
  return Pointer(memory_.back());
}

void FormatChanges::Settle(Fp8Weight* weight) {
  if (for_device_) memory_.clear();
  if (weight->f32_scale == nullptr) return;
  const int64_t across = CeilDiv(weight->k, kFp8Block);
  const int64_t count = CeilDiv(weight->n, kFp8Block) * across;
  const absl::Span<const float> f32(weight->f32_scale, static_cast<size_t>(count));
  Memory scale = NewBytes(count);
  if (ToE8M0(f32, Pointer(scale))) return;
  weight->scale = Keep(std::move(scale), count);
  weight->f32_scale = nullptr;
}

absl::Status FormatChanges::SettleShared(const std::string& name, ExpertFormat as,
                                         Fp8Weight* weight) {
  Settle(weight);
  if (!for_device_ || as != ExpertFormat::kMxfp4 || weight->f32_scale == nullptr) {
    return absl::OkStatus();
  }
  return Unsupported(Place(checkpoint_, name + ".scale"),
                     ": F32 scales that are not powers of two; the device's kernels do not support "
                     "them with routed experts in MXFP4");
}

absl::Status FormatChanges::Settle(const std::string& name, ExpertFormat as, ExpertMatrix* expert) {
  if (expert->format == ExpertFormat::kBlocks) return absl::OkStatus();
  if (for_device_) memory_.clear();
  if (for_device_ && as != ExpertFormat::kMxfp4) {
    if (expert->format != as) {
      return Unsupported(Place(checkpoint_, name + ".weight"), ": is in ",
                         ExpertFormatName(expert->format), ", the layer's other routed experts in ",
                         ExpertFormatName(as), "; the device's kernels need one format a layer");
    }
    if (as == ExpertFormat::kFp8 && expert->f32_scale == nullptr) KeepF32Scales(expert);
    return absl::OkStatus();
  }
  if (expert->format == ExpertFormat::kMxfp4) return absl::OkStatus();
  const int64_t scale_bytes = expert->n * expert->k / kFp4Run;
  Memory scale = NewBytes(scale_bytes);
  if (expert->format == ExpertFormat::kNvfp4) {
    const std::optional<int64_t> unlike = FoldToMxfp4(expert->nvfp4(), Pointer(scale));
    if (unlike && for_device_) return NotMxfp4(name, *expert, *unlike);
    if (unlike) return absl::OkStatus();
    *expert = Fp4Weight{expert->data, Keep(std::move(scale), scale_bytes), expert->n, expert->k};
    return absl::OkStatus();
  }
  Fp8Weight fp8 = expert->fp8();
  Settle(&fp8);
  *expert = fp8;
  if (!for_device_) return absl::OkStatus();
  if (fp8.f32_scale != nullptr) {
    const int64_t across = expert->k / kFp8Block, count = CeilDiv(expert->n, kFp8Block) * across;
    const int64_t block =
        ToE8M0({fp8.f32_scale, static_cast<size_t>(count)}, Pointer(scale)).value_or(0);
    return NotMxfp4(name, *expert,
                    (block / across * kFp8Block * across + block % across) * kFp8Block / kFp4Run);
  }
  const int64_t data_bytes = expert->n * expert->k / 2;
  Memory data = NewBytes(data_bytes);
  const std::optional<int64_t> unlike = FoldToMxfp4(fp8, Pointer(data), Pointer(scale));
  if (unlike) return NotMxfp4(name, *expert, *unlike);
  *expert = Fp4Weight{Keep(std::move(data), data_bytes), Keep(std::move(scale), scale_bytes),
                      expert->n, expert->k};
  return absl::OkStatus();
}

void FormatChanges::KeepF32Scales(ExpertMatrix* expert) {
  const int64_t count = CeilDiv(expert->n, kFp8Block) * CeilDiv(expert->k, kFp8Block);
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  auto* const f32 = reinterpret_cast<float*>(Keep(NewBytes(bytes), bytes));
  for (int64_t i = 0; i < count; ++i) f32[i] = E8M0ToFloat(expert->scale[i]);
  expert->scale = nullptr;
  expert->f32_scale = f32;
}

absl::Status FormatChanges::NotMxfp4(const std::string& name, const ExpertMatrix& expert,
                                     int64_t run) {
  found_no_mxfp4_ = true;
  const int64_t runs = expert.k / kFp4Run, column = run % runs * kFp4Run;
  return Unsupported(Place(checkpoint_, name + ".weight"), ": elements ", column, " to ",
                     column + kFp4Run - 1, " of row ", run / runs,
                     " are not MXFP4 values under one scale, as those of the layer's other routed "
                     "experts are; the device's kernels need one format a layer");
}

}  // namespace dsv4
