// SPDX-License-Identifier: Apache-2.0
// What the cases of tests/kernels/op share: tensors in the form of the reference or of the tested
// backend, launches on either, and comparisons of what they leave. A case computes the same on both
// sides: numbers are functions of (kind, row, element), so that the same rows can be run alone, in
// chunks and in batches. All that a kernel must not write is poisoned and checked.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/op/quantizers.h"
#include "kernels/reference/manifest.h"
#include "lib/tensor/dtype.h"
#include "tests/kernels/kernel_launch.h"
#include "tests/kernels/random_weights.h"
#include "tests/kernels/tested_backend.h"
#include "tests/support/worst_element.h"

namespace dsv4::test {

enum class On { kReference, kTested };

// An array in the side's memory, between guards; poisoned where no values are given.
template <class T>
class Array {
 public:
  Array(On on, int64_t count) : on_(on), count_(count) {
    const std::vector<unsigned char> poison(Bytes(), kPoison);
    if (on == On::kReference) {
      host_.resize(Bytes() + kGuardBytes);
      const auto at = reinterpret_cast<uintptr_t>(host_.data());
      memory_ = host_.data() + (kGuardBytes - at % kGuardBytes) % kGuardBytes;
      std::memcpy(memory_, poison.data(), Bytes());
    } else {
      memory_ = Tested().allocate(static_cast<int64_t>(Bytes()));
      Tested().copy(memory_, poison.data(), static_cast<int64_t>(Bytes()));
    }
  }
  Array(On on, const std::vector<T>& values) : Array(on, static_cast<int64_t>(values.size())) {
    Set(values);
  }
  Array(Array&& other) noexcept
      : on_(other.on_),
        count_(other.count_),
        host_(std::move(other.host_)),
        memory_(std::exchange(other.memory_, nullptr)) {}
  Array& operator=(Array&&) = delete;
  ~Array() {
    if (memory_ != nullptr && on_ == On::kTested) Tested().release(memory_);
  }

  T* data() const { return reinterpret_cast<T*>(memory_ + kGuardBytes); }
  int64_t size() const { return count_; }
  void Set(const std::vector<T>& values) {
    REQUIRE(static_cast<int64_t>(values.size()) <= count_);
    if (!values.empty()) Copy(data(), values.data(), values.size() * sizeof(T));
  }
  // Also checks that the guards are as they were.
  std::vector<T> Get() const {
    std::vector<unsigned char> all(Bytes());
    Copy(all.data(), memory_, all.size());
    const auto same = [](unsigned char b) { return b == kPoison; };
    REQUIRE(std::all_of(all.begin(), all.begin() + kGuardBytes, same));
    REQUIRE(std::all_of(all.end() - kGuardBytes, all.end(), same));
    std::vector<T> values(static_cast<size_t>(count_));
    if (count_ > 0) std::memcpy(values.data(), all.data() + kGuardBytes, values.size() * sizeof(T));
    return values;
  }
  static constexpr unsigned char kPoison = 0xfd;

 private:
  static constexpr int64_t kGuardBytes = 256;
  size_t Bytes() const {
    return static_cast<size_t>(count_) * sizeof(T) + 2 * static_cast<size_t>(kGuardBytes);
  }
  void Copy(void* to, const void* from, size_t bytes) const {
    if (on_ == On::kReference) {
      std::memcpy(to, from, bytes);
    } else {
      Tested().copy(to, from, static_cast<int64_t>(bytes));
    }
  }

  On on_;
  int64_t count_;
  std::vector<std::byte> host_;
  std::byte* memory_ = nullptr;
};

// Activations: f32 on the reference, bf16 on the tested backend. Values are bf16 numbers.
class Acts {
 public:
  Acts(On on, int64_t count) : on_(on), bytes_(on, count * (on == On::kReference ? 4 : 2)) {}
  Acts(On on, const std::vector<float>& values) : Acts(on, static_cast<int64_t>(values.size())) {
    std::vector<uint8_t> stored(static_cast<size_t>(bytes_.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t bits = FloatToBf16(values[i]);
      if (on == On::kReference) {
        std::memcpy(&stored[4 * i], &values[i], 4);
      } else {
        std::memcpy(&stored[2 * i], &bits, 2);
      }
    }
    bytes_.Set(stored);
  }
  void* data() const { return bytes_.data(); }
  std::vector<float> Get() const {
    const std::vector<uint8_t> stored = bytes_.Get();
    std::vector<float> values;
    for (size_t at = 0; at < stored.size(); at += on_ == On::kReference ? 4 : 2) {
      uint32_t bits = 0;
      std::memcpy(&bits, &stored[at], on_ == On::kReference ? 4 : 2);
      values.push_back(std::bit_cast<float>(on_ == On::kReference ? bits : bits << 16));
    }
    return values;
  }

 private:
  On on_;
  Array<uint8_t> bytes_;
};

// Quantised activations [rows, width] as the side stores them; from values that are quantised on
// the way, or poisoned.
class QuantizedActs {
 public:
  QuantizedActs(On on, int64_t rows, int64_t width)
      : on_(on), rows_(rows), width_(width), bytes_(on, rows * RowBytes(on, width)) {}
  QuantizedActs(On on, int64_t width, std::vector<float> values)
      : QuantizedActs(on, static_cast<int64_t>(values.size()) / width, width) {
    std::vector<std::byte> stored(static_cast<size_t>(bytes_.size()),
                                  std::byte{Array<int>::kPoison});
    if (!Codes()) ActQuant(values.data(), static_cast<int64_t>(values.size()), 128);
    for (int64_t r = 0; r < rows_; ++r) {
      std::byte* const row = stored.data() + r * RowBytes(on, width);
      const float* const from = values.data() + r * width;
      if (Codes()) {
        Tested().manifest.rows.encode(from, width, 0, width, row);
      } else if (on == On::kReference) {
        std::memcpy(row, from, static_cast<size_t>(width) * 4);
      } else {
        std::transform(from, from + width, reinterpret_cast<uint16_t*>(row), FloatToBf16);
      }
    }
    bytes_.Set(stored);
  }
  void* data() const { return bytes_.data(); }
  std::vector<float> Get() const {
    const std::vector<std::byte> stored = bytes_.Get();
    std::vector<float> values(static_cast<size_t>(rows_ * width_));
    std::vector<uint16_t> bits(static_cast<size_t>(width_));
    for (int64_t r = 0; r < rows_; ++r) {
      const std::byte* const row = stored.data() + r * RowBytes(on_, width_);
      float* const to = values.data() + r * width_;
      if (on_ == On::kReference) {
        std::memcpy(to, row, static_cast<size_t>(width_) * 4);
        continue;
      }
      if (Codes()) {
        Tested().manifest.rows.decode(row, width_, bits.data());
      } else {
        std::memcpy(bits.data(), row, static_cast<size_t>(width_) * 2);
      }
      std::transform(bits.begin(), bits.end(), to, Bf16ToFloat);
    }
    return values;
  }

 private:
  bool Codes() const {
    return on_ == On::kTested && Tested().manifest.rows.quantized() == QuantizedRows::kCodes;
  }
  static int64_t RowBytes(On on, int64_t width) {
    if (on == On::kReference) return 4 * width;
    const HostRows& rows = Tested().manifest.rows;
    return rows.quantized() == QuantizedRows::kCodes ? rows.quantized_bytes(width) : 2 * width;
  }

  On on_;
  int64_t rows_, width_;
  Array<std::byte> bytes_;
};

template <class Params>
void Launch(On on, const Params& params, int threads = 1) {
  if (on == On::kReference) {
    return LaunchKernel(ReferenceManifest(), params,
                        {.numerics = Numerics::kPublished, .threads = 2});
  }
  REQUIRE_OK(Validate(params));
  const KernelEntry* const entry = TestedEntry(Params::kOp);
  REQUIRE(entry != nullptr);
  REQUIRE_OK(entry->supports(&params));
  Tested().launch(*entry, &params, threads);
}

// What a run gave: by (sequence, position or compressed block), or by (0, row).
using Rows = std::map<std::pair<int, int64_t>, std::vector<float>>;

// Appends `values` [rows, n] to rows `first` ...
inline void AddRows(const std::vector<float>& values, int64_t n, int64_t first, Rows* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    (*out)[{0, first + static_cast<int64_t>(i) / n}].push_back(values[i]);
  }
}

// Bit for bit.
inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return DifferentBits(a, b).empty();
}
// The rows of `got` are those of `want`.
inline void RequireAmong(const Rows& got, const Rows& want) {
  for (const auto& [key, row] : got) {
    INFO("sequence " << key.first << ", row, position or compressed block " << key.second);
    REQUIRE(want.count(key) == 1);
    REQUIRE(DifferentBits(row, want.at(key)) == "");
  }
}
inline void RequireSame(const Rows& got, const Rows& want) {
  REQUIRE(got.size() == want.size());
  RequireAmong(got, want);
}

// How far an element may be from the reference's: `of_largest` times its row's largest, plus
// `of_itself` times itself.
struct Distance {
  double of_largest = 0, of_itself = 0;
};

// Sums in another order move a value across a rounding border now and then; everything else must be
// equal: at least `equal` of all values to the bit, and each within `most`.
inline void RequireClose(const Rows& got, const Rows& want, double equal, Distance most) {
  REQUIRE(got.size() == want.size());
  int64_t count = 0, same = 0;
  for (const auto& [key, row] : want) {
    INFO("sequence " << key.first << ", row, position or compressed block " << key.second);
    REQUIRE(got.count(key) == 1);
    const std::vector<float>& other = got.at(key);
    REQUIRE(other.size() == row.size());
    float largest = 0;
    for (const float v : row) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < row.size(); ++i) {
      ++count;
      same += std::bit_cast<uint32_t>(row[i]) == std::bit_cast<uint32_t>(other[i]);
      if (!(std::abs(row[i] - other[i]) <=
            most.of_largest * largest + most.of_itself * std::abs(row[i]))) {
        INFO("element " << i << ": " << other[i] << " instead of " << row[i]);
        REQUIRE(false);
      }
    }
  }
  INFO(same << " of " << count << " values are equal");
  REQUIRE(static_cast<double>(same) >= equal * static_cast<double>(count));
}

// Elements [first, first + part.size()) of `all` are those of `part`, bit for bit.
template <class T>
void RequireSlice(const std::vector<T>& part, const std::vector<T>& all, int64_t first) {
  REQUIRE(static_cast<size_t>(first) + part.size() <= all.size());
  REQUIRE(DifferentBits(part, absl::MakeConstSpan(all.data() + first, part.size())) == "");
}
template <class T>
std::vector<T> Slice(const std::vector<T>& all, int64_t first, int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

// How a backend's rows may differ from the reference's where both round the same numbers: nothing,
// or as docs/adr/0022-f32-sums-in-a-stated-order.md says. Then at most 1 - equal_others of the
// elements differ,
// - of bf16 numbers by one step, or two where two roundings follow each other; or by `noise`: an
//   ulp of a factor, where terms cancel each other;
inline void RequireRounded(const std::vector<float>& got, const std::vector<float>& want,
                           double noise = 0) {
  if (Tested().equal_others == 1) return RequireSlice(got, want, 0);
  REQUIRE(got.size() == want.size());
  size_t apart = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const int steps = std::abs(int{FloatToBf16(got[i])} - int{FloatToBf16(want[i])});
    apart += steps != 0;
    if (steps <= 2 || std::abs(got[i] - want[i]) <= noise) continue;
    FAIL("element " << i << ": " << got[i] << " instead of " << want[i]);
  }
  INFO(apart << " of " << got.size() << " elements are apart");
  REQUIRE(static_cast<double>(apart) <=
          (1 - Tested().equal_others) * static_cast<double>(got.size()));
}
// - of quantised rows by a step of e4m3 or of a run's scale, to which a bf16 step may turn;
inline void RequireQuantizedShare(const std::vector<float>& got, const std::vector<float>& want,
                                  size_t most_apart) {
  REQUIRE(got.size() == want.size());
  size_t apart = 0;
  float largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (i % 128 == 0) {
      largest = 0;
      for (size_t j = i; j < i + 128; ++j) largest = std::max(largest, std::abs(want[j]));
    }
    if (got[i] == want[i]) continue;
    ++apart;
    if (std::abs(got[i] - want[i]) <= 0.13f * std::abs(want[i]) + 0x1p-16f * largest) continue;
    FAIL("element " << i << ": " << got[i] << " instead of " << want[i]);
  }
  INFO(apart << " of " << got.size() << " elements are apart");
  REQUIRE(apart <= most_apart);
}
inline void RequireQuantized(const std::vector<float>& got, const std::vector<float>& want) {
  const auto count = static_cast<double>(got.size());
  RequireQuantizedShare(got, want, static_cast<size_t>((1 - Tested().equal_others) * count));
}
// - and f32 numbers, all of them, by the last bits, which an exponential may enlarge.
inline void RequireF32(const std::vector<float>& got, const std::vector<float>& want) {
  if (Tested().equal_others == 1) return RequireSlice(got, want, 0);
  REQUIRE(FarElements(got, want, {.relative = 4e-6, .absolute = 1e-12}) == "");
}

}  // namespace dsv4::test
