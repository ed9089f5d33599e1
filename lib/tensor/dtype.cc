// SPDX-License-Identifier: Apache-2.0
#include "lib/tensor/dtype.h"

#include <array>

namespace dsv4 {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t bytes;
  const char* name;
};

constexpr std::array<DTypeInfo, 11> kDTypes = {{
    {DType::kF32, 4, "F32"},
    {DType::kF16, 2, "F16"},
    {DType::kBF16, 2, "BF16"},
    {DType::kF8E4M3, 1, "F8_E4M3"},
    {DType::kF8E8M0, 1, "F8_E8M0"},
    {DType::kI8, 1, "I8"},
    {DType::kU8, 1, "U8"},
    {DType::kI32, 4, "I32"},
    {DType::kI64, 8, "I64"},
    {DType::kBlocks, 1, "blocks"},
    {DType::kOther, 1, "other"},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder());

}  // namespace

int64_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

absl::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype < DType::kBlocks && name == info.name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace dsv4
