// SPDX-License-Identifier: Apache-2.0
// The layout of packed weights in block formats, for device and host code. A block's fields lie
// apart: a packed weight is one plane after the other, each at a multiple of 16 bytes, and a plane
// is [row][block][bytes]. Planes of codes are rearranged, so that the codes of 32 elements are
// words whose fields have the order of the elements; the others are bytes of the file's blocks. No
// byte is added.
//
// Words of codes, of the 32 elements from 32 c on:
// - bits 4: four words of eight elements; of byte i, the low half is element i, the other i + 4.
// - table: four words of eight elements, element i in bits 4 i .. 4 i + 3.
// - bits 2: two words of sixteen elements; bits 2 s, 2 s + 1 of byte i are element 4 s + i.
// - bits 1: one word; bit j of byte i is element 4 j + i.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "lib/base/checked_math.h"
#include "lib/tensor/block_format.h"

namespace dsv4::sm12x {

// What a plane has of a block.
enum class PlaneKind : uint8_t {
  kNone,
  kBytes,  // bytes as they are
  kBits4,
  kTable,
  kBits2,
  kBits1,
};

struct Plane {
  PlaneKind kind = PlaneKind::kNone;
  int32_t bytes = 0;   // of a block
  int32_t offset = 0;  // in the file's block, of bytes as they are
};

inline constexpr int kMostPlanes = 5;

struct BlockLayout {
  int32_t elements = 0;  // of a block
  int32_t bytes = 0;
  std::array<Plane, kMostPlanes> planes{};
};

// Scales come last. REQUIRES: a block format.
constexpr BlockLayout LayoutOf(BlockType type) {
  using enum PlaneKind;
  switch (type) {
    case BlockType::kF32:
      return {32, 128, {{{kBytes, 128, 0}}}};
    case BlockType::kF16:
    case BlockType::kBf16:
      return {32, 64, {{{kBytes, 64, 0}}}};
    case BlockType::kQ4_0:
      return {32, 18, {{{kBits4, 16}, {kBytes, 2, 0}}}};
    case BlockType::kQ4_1:
      return {32, 20, {{{kBits4, 16}, {kBytes, 4, 0}}}};
    case BlockType::kQ5_0:
      return {32, 22, {{{kBits4, 16}, {kBits1, 4}, {kBytes, 2, 0}}}};
    case BlockType::kQ5_1:
      return {32, 24, {{{kBits4, 16}, {kBits1, 4}, {kBytes, 4, 0}}}};
    case BlockType::kQ8_0:
      return {32, 34, {{{kBytes, 32, 2}, {kBytes, 2, 0}}}};
    case BlockType::kQ2K:
      return {256, 84, {{{kBits2, 64}, {kBytes, 16, 0}, {kBytes, 4, 80}}}};
    case BlockType::kQ3K:
      return {256, 110, {{{kBits2, 64}, {kBits1, 32}, {kBytes, 12, 96}, {kBytes, 2, 108}}}};
    case BlockType::kQ4K:
      return {256, 144, {{{kBits4, 128}, {kBytes, 12, 4}, {kBytes, 4, 0}}}};
    case BlockType::kQ5K:
      return {256, 176, {{{kBits4, 128}, {kBits1, 32}, {kBytes, 12, 4}, {kBytes, 4, 0}}}};
    case BlockType::kQ6K:
      return {256, 210, {{{kBits4, 128}, {kBits2, 64}, {kBytes, 16, 192}, {kBytes, 2, 208}}}};
    case BlockType::kIq2Xxs:
      return {256, 66, {{{kBytes, 64, 2}, {kBytes, 2, 0}}}};
    case BlockType::kIq2Xs:
      return {256, 74, {{{kBytes, 64, 2}, {kBytes, 8, 66}, {kBytes, 2, 0}}}};
    case BlockType::kIq2S:
      return {
          256,
          82,
          {{{kBytes, 32, 2}, {kBytes, 32, 34}, {kBytes, 8, 66}, {kBytes, 8, 74}, {kBytes, 2, 0}}}};
    case BlockType::kIq3Xxs:
      return {256, 98, {{{kBytes, 64, 2}, {kBytes, 32, 66}, {kBytes, 2, 0}}}};
    case BlockType::kIq3S:
      return {
          256,
          110,
          {{{kBytes, 64, 2}, {kBytes, 8, 66}, {kBytes, 32, 74}, {kBytes, 4, 106}, {kBytes, 2, 0}}}};
    case BlockType::kIq1S:
      return {256, 50, {{{kBytes, 32, 2}, {kBytes, 16, 34}, {kBytes, 2, 0}}}};
    case BlockType::kIq1M:
      return {256, 56, {{{kBytes, 32, 0}, {kBytes, 16, 32}, {kBytes, 8, 48}}}};
    case BlockType::kIq4Nl:
      return {32, 18, {{{kTable, 16}, {kBytes, 2, 0}}}};
    case BlockType::kIq4Xs:
      return {256, 136, {{{kTable, 128}, {kBytes, 4, 4}, {kBytes, 4, 0}}}};
    case BlockType::kMxfp4:
      return {32, 17, {{{kTable, 16}, {kBytes, 1, 0}}}};
    case BlockType::kNvfp4:
      return {64, 36, {{{kTable, 32}, {kBytes, 4, 0}}}};
    case BlockType::kNone:
    case BlockType::kCount:
      break;
  }
  return {};
}

constexpr Plane PlaneOf(BlockType type, int plane) {
  return LayoutOf(type).planes[static_cast<size_t>(plane)];
}

// Every byte of a block is in one plane.
constexpr bool LayoutsAreWhole() {
  for (int t = static_cast<int>(BlockType::kF32); t < static_cast<int>(BlockType::kCount); ++t) {
    const BlockLayout layout = LayoutOf(static_cast<BlockType>(t));
    int32_t bytes = 0;
    for (const Plane& plane : layout.planes) bytes += plane.bytes;
    if (bytes != layout.bytes || layout.elements == 0) return false;
  }
  return true;
}
static_assert(LayoutsAreWhole());

constexpr int64_t PlaneBytes(const BlockLayout& layout, int plane, int64_t n, int64_t k) {
  return RoundUp(n * (k / layout.elements) * layout.planes[static_cast<size_t>(plane)].bytes,
                 int64_t{16});
}

// From the packed weight's first byte.
constexpr int64_t PlaneOffset(const BlockLayout& layout, int plane, int64_t n, int64_t k) {
  int64_t offset = 0;
  for (int i = 0; i < plane; ++i) offset += PlaneBytes(layout, i, n, k);
  return offset;
}

template <BlockType kType>
using TypeTag = std::integral_constant<BlockType, kType>;

// Calls f(TypeTag<type>()).
template <class F>
void ForBlockType(BlockType type, F&& f) {
  switch (type) {
    case BlockType::kF32:
      return f(TypeTag<BlockType::kF32>());
    case BlockType::kF16:
      return f(TypeTag<BlockType::kF16>());
    case BlockType::kBf16:
      return f(TypeTag<BlockType::kBf16>());
    case BlockType::kQ4_0:
      return f(TypeTag<BlockType::kQ4_0>());
    case BlockType::kQ4_1:
      return f(TypeTag<BlockType::kQ4_1>());
    case BlockType::kQ5_0:
      return f(TypeTag<BlockType::kQ5_0>());
    case BlockType::kQ5_1:
      return f(TypeTag<BlockType::kQ5_1>());
    case BlockType::kQ8_0:
      return f(TypeTag<BlockType::kQ8_0>());
    case BlockType::kQ2K:
      return f(TypeTag<BlockType::kQ2K>());
    case BlockType::kQ3K:
      return f(TypeTag<BlockType::kQ3K>());
    case BlockType::kQ4K:
      return f(TypeTag<BlockType::kQ4K>());
    case BlockType::kQ5K:
      return f(TypeTag<BlockType::kQ5K>());
    case BlockType::kQ6K:
      return f(TypeTag<BlockType::kQ6K>());
    case BlockType::kIq2Xxs:
      return f(TypeTag<BlockType::kIq2Xxs>());
    case BlockType::kIq2Xs:
      return f(TypeTag<BlockType::kIq2Xs>());
    case BlockType::kIq2S:
      return f(TypeTag<BlockType::kIq2S>());
    case BlockType::kIq3Xxs:
      return f(TypeTag<BlockType::kIq3Xxs>());
    case BlockType::kIq3S:
      return f(TypeTag<BlockType::kIq3S>());
    case BlockType::kIq1S:
      return f(TypeTag<BlockType::kIq1S>());
    case BlockType::kIq1M:
      return f(TypeTag<BlockType::kIq1M>());
    case BlockType::kIq4Nl:
      return f(TypeTag<BlockType::kIq4Nl>());
    case BlockType::kIq4Xs:
      return f(TypeTag<BlockType::kIq4Xs>());
    case BlockType::kMxfp4:
      return f(TypeTag<BlockType::kMxfp4>());
    case BlockType::kNvfp4:
      return f(TypeTag<BlockType::kNvfp4>());
    case BlockType::kNone:
    case BlockType::kCount:
      break;
  }
}

}  // namespace dsv4::sm12x
