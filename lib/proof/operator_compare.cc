// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/operator_compare.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// Share of a row's RMS below which f32 sums have no more bits than the step there.
constexpr double kCancelled = 1. / 1024;
// Multiple of a row's RMS: larger terms of a sum do not cancel with the others in practice. Each
// term is rounded itself, so a flip of one is a step of the term.
constexpr double kLargestTerm = 4;
constexpr double kMostLeftOut = 1. / 100, kF32Distance = 1e-5;
constexpr int64_t kElementsAFlip = 400;

float Largest(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

// Counts elements of a run that differ; `step(i, m)` is the format's step at element i, of
// magnitude m.
template <class F>
void CompareRun(const float* expected, const float* actual, int64_t n, const F& step,
                OperatorFlips* flips) {
  flips->elements += n;
  for (int64_t i = 0; i < n; ++i) {
    if (expected[i] == actual[i]) continue;
    ++flips->differing;
    const float most = step(i, std::max(std::abs(expected[i]), std::abs(actual[i])));
    flips->beyond += !(std::abs(expected[i] - actual[i]) <= most);
  }
}

// bf16; `steps`: how many of them one flip is. Below `floor_share` of the row's RMS terms cancel,
// and a step is that of the terms. Elements from `roped` on are pairs, rotated after a rounding: a
// flip in front of it is a step of the larger one.
void CompareBf16(const float* expected, const float* actual, int64_t n, double floor_share,
                 int64_t roped, OperatorFlips* flips, float steps = 1) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{expected[i]} * expected[i];
  const auto floor = static_cast<float>(std::sqrt(squares / static_cast<double>(n)) * floor_share);
  const auto ulp = [=](float magnitude) {
    return std::ldexp(steps, std::ilogb(std::max({magnitude, floor, 1e-30f})) - 7);
  };
  const auto step = [&](int64_t i, float magnitude) {
    return i < roped ? ulp(magnitude) : ulp(magnitude) + ulp(std::abs(expected[i ^ 1]));
  };
  CompareRun(expected, actual, n, step, flips);
}

// Codes whose largest is `limit`, with a scale for the run. A scale may turn, too: a code is then
// one of twice the scale. `relative` bounds a step by its number, `least` by the scale.
void CompareCodes(const float* expected, const float* actual, int64_t n, float limit, float floor,
                  float relative, float least, OperatorFlips* flips) {
  const float amax = std::max(Largest(expected, n), floor);
  const float scale = std::exp2(std::ceil(std::log2(amax / limit)));
  const auto step = [=](int64_t, float magnitude) {
    return std::max(magnitude * relative, scale * least);
  };
  CompareRun(expected, actual, n, step, flips);
}

void CompareE4M3(const float* expected, const float* actual, int64_t n, OperatorFlips* flips) {
  CompareCodes(expected, actual, n, 448, 1e-4f, 0x1p-3f, 0x1p-8f, flips);
}

constexpr int64_t kPlain = kKvRowElements - kKvRopeElements;

void CompareRow(OutputFormat format, const float* expected, const float* actual, int64_t n,
                OperatorFlips* flips) {
  switch (format) {
    case OutputFormat::kBf16:
      return CompareBf16(expected, actual, n, kCancelled, n, flips);
    case OutputFormat::kSum:
      return CompareBf16(expected, actual, n, kLargestTerm, n, flips);
    case OutputFormat::kNormed:
      return CompareBf16(expected, actual, n, kCancelled, n, flips, 2);
    case OutputFormat::kHead:
      return CompareBf16(expected, actual, n, kCancelled, kPlain, flips);
    case OutputFormat::kCodes:
      for (int64_t i = 0; i < n; i += 128) CompareE4M3(expected + i, actual + i, 128, flips);
      return;
    case OutputFormat::kKvRow:
      for (int64_t i = 0; i < kPlain; i += kKvQuantRun) {
        CompareE4M3(expected + i, actual + i, kKvQuantRun, flips);
      }
      return;
    case OutputFormat::kFp8Row:
      return CompareRun(
          expected, actual, n,
          [](int64_t, float magnitude) {
            return std::max(magnitude * 0x1p-3f, kFp8RowScale * 0x1p-9f);
          },
          flips);
    case OutputFormat::kIndexRow:
      for (int64_t i = 0; i < n; i += 32) {
        CompareCodes(expected + i, actual + i, 32, 6, 6 * 0x1p-126f, 0.5f, 1, flips);
      }
      return;
    case OutputFormat::kF32:
    case OutputFormat::kChoice:
      return;
  }
}

// Whether two rows of indices hold the same ones.
bool SameSet(const float* expected, const float* actual, int64_t n) {
  std::vector<float> a(expected, expected + n), b(actual, actual + n);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

// Compares one output of one launch. `left_out`: the rows that have chosen otherwise so far.
void CompareOutput(const LaunchOutput& output, const std::vector<float>& expected,
                   std::vector<float>* actual, std::vector<bool>* left_out, OperatorFlips* flips,
                   OperatorFlips* rope) {
  const LaunchTensor& tensor = output.tensor;
  if (output.format == OutputFormat::kChoice)
    left_out->assign(static_cast<size_t>(tensor.rows), false);
  for (int64_t r = 0; r < tensor.rows; ++r) {
    float* const to = actual->data() + r * tensor.width;
    const float* const from = expected.data() + r * tensor.width;
    if (output.format == OutputFormat::kChoice) {
      ++flips->choices;
      (*left_out)[static_cast<size_t>(r)] = !SameSet(from, to, tensor.width);
      flips->left_out += (*left_out)[static_cast<size_t>(r)];
    } else if (output.format == OutputFormat::kF32) {
      if (!left_out->empty() && (*left_out)[static_cast<size_t>(r)])
        std::copy_n(from, tensor.width, to);
    } else {
      CompareRow(output.format, from, to, tensor.width, flips);
      if (output.format != OutputFormat::kKvRow) continue;
      CompareBf16(from + kPlain, to + kPlain, kKvRopeElements, kCancelled, 0, rope);
    }
  }
  if (output.format == OutputFormat::kF32) {
    RelativeL2 distance;
    distance.Add(*actual, expected);
    flips->distance = distance.distance();
  }
}

// "rows 7, n 512, k 256"
std::string ShapeOf(const KernelEntry& entry, const void* params) {
  std::string shape;
  const CallDims dims = entry.dims(params);
  for (const CallDim& dim : dims.all()) {
    absl::StrAppend(&shape, shape.empty() ? "" : ", ", dim.name, " ", dim.value);
  }
  return shape;
}

}  // namespace

bool OperatorFlips::Holds() const {
  return differing <= std::max<int64_t>(1, elements / kElementsAFlip) && beyond == 0 &&
         distance <= kF32Distance &&
         static_cast<double>(left_out) <= kMostLeftOut * static_cast<double>(choices);
}

void OperatorFlips::Add(const OperatorFlips& launch, const std::string& of_shape) {
  const auto wrong = [](const OperatorFlips& flips) {
    return std::tuple(flips.beyond, flips.left_out, flips.distance, flips.share());
  };
  if (shape.empty() || wrong(launch) > worst_) {
    shape = of_shape;
    worst_ = wrong(launch);
  }
  elements += launch.elements;
  differing += launch.differing;
  beyond += launch.beyond;
  distance = std::max(distance, launch.distance);
  choices += launch.choices;
  left_out += launch.left_out;
}

std::string OperatorFlips::Describe() const {
  if (choices > 0) return absl::StrFormat("%d rows, %d chose otherwise", choices, left_out);
  if (elements == 0) return absl::StrFormat("%.3g", distance);
  return absl::StrFormat("%d of %d differ, %d by more than a step", differing, elements, beyond);
}

bool OperatorComparison::Holds() const {
  return std::all_of(flips_.begin(), flips_.end(),
                     [](const auto& output) { return output.second.Holds(); });
}

absl::Status OperatorComparison::Complete() {
  if (status_.ok() && replayed_ != launches_.size()) {
    status_ = Internal("the tested engine made ", replayed_, " launches, the baseline ",
                       launches_.size());
  }
  launches_.clear();
  replayed_ = 0;
  return std::exchange(status_, absl::OkStatus());
}

void OperatorComparison::RecordBaseline(const KernelEntry& entry, const void* params,
                                        absl::FunctionRef<void()> launch) {
  const LaunchTensors tensors = entry.tensors(params, memory_->device());
  if (tensors.empty() || !status_.ok()) return launch();
  LaunchRecord& record = launches_.emplace_back();
  record.op = entry.op;
  const auto keep = [&](const LaunchTensor& tensor, std::vector<std::vector<float>>* to) {
    absl::StatusOr<std::vector<float>> values = memory_->Read(tensor);
    if (!values.ok()) {
      status_ = values.status();
      return;
    }
    to->push_back(*std::move(values));
  };
  for (const LaunchTensor& in : tensors.in) keep(in, &record.inputs);
  launch();
  for (const LaunchOutput& out : tensors.out) keep(out.tensor, &record.outputs);
}

void OperatorComparison::RecordTested(const KernelEntry& entry, const void* params,
                                      absl::FunctionRef<void()> launch) {
  const LaunchTensors tensors = entry.tensors(params, memory_->device());
  if (tensors.empty() || !status_.ok()) return launch();
  replayed_ += tensors.stands_for - 1;
  if (replayed_ >= launches_.size() || launches_[replayed_].op != entry.op ||
      launches_[replayed_].outputs.size() != tensors.out.size()) {
    status_ = Internal("launch ", replayed_, ", ", OpName(entry.op), ", is not the baseline's");
    return launch();
  }
  status_ = Compare(entry, params, tensors, &launches_[replayed_++], launch);
}

absl::Status OperatorComparison::Compare(const KernelEntry& entry, const void* params,
                                         const LaunchTensors& tensors, LaunchRecord* record,
                                         absl::FunctionRef<void()> launch) {
  // Known answers have no inputs that earlier launches have left. A sum of waves needs no inputs.
  const size_t inputs = std::min(tensors.in.size(), record->inputs.size());
  for (size_t i = 0; i < inputs; ++i) {
    DSV4_RETURN_IF_ERROR(memory_->Write(tensors.in[i], std::move(record->inputs[i])));
  }
  launch();
  const std::string shape = ShapeOf(entry, params);
  std::vector<bool> left_out;  // rows of this launch
  for (size_t i = 0; i < tensors.out.size(); ++i) {
    const LaunchOutput& output = tensors.out[i];
    if (output.tensor.rows == 0) continue;
    std::vector<float>& expected = record->outputs[i];
    DSV4_ASSIGN_OR_RETURN(std::vector<float> actual, memory_->Read(output.tensor));
    if (expected.size() != actual.size()) {
      return Internal(OpName(entry.op), ".", output.name, " has ", actual.size(),
                      " elements, the baseline's ", expected.size());
    }
    OperatorFlips flips, rope;
    CompareOutput(output, expected, &actual, &left_out, &flips, &rope);
    const std::string key = absl::StrCat(OpName(entry.op), ".", output.name);
    flips_[key].Add(flips, shape);
    if (rope.elements > 0) flips_[key + ".rope"].Add(rope, shape);
    DSV4_RETURN_IF_ERROR(memory_->Write(output.tensor, std::move(expected)));
  }
  return absl::OkStatus();
}

}  // namespace dsv4
