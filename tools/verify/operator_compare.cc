// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/operator_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/op/attention.h"
#include "kernels/op/dense.h"
#include "kernels/op/draft_logits.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/op/rope.h"
#include "kernels/reference/cache_rows.h"
#include "lib/base/error.h"
#include "tools/verify/expected_tensors.h"

namespace dsv4 {
namespace {

// Of a row's RMS: below it f32 sums have no more bits than the step there.
constexpr double kCancelled = 1. / 1024;
constexpr double kMostFlips = 1. / 400, kMostLeftOut = 1. / 100, kF32Distance = 1e-5;

// What a tensor's elements are rounded to last.
enum class Format {
  kBf16,
  kSum,       // bf16, of terms that are rounded themselves
  kHead,      // bf16, of which the last 64 are rotated in pairs
  kCodes,     // act_quant 128
  kKvRow,     // act_quant 64 of the first 448; bf16 behind them, which is counted apart
  kIndexRow,  // fp4_act_quant
  kF32,
  kChoice,  // indices, of which a row is a set
};

// A place in a pool of cache rows.
struct Place {
  int32_t block;
  int64_t slot;
};

struct Tensor {
  enum class Type { kAct, kF32, kInt32, kCacheRows };
  Type type;
  void* data = nullptr;
  int64_t rows = 0, width = 0, stride = 0;
  int64_t column = 0;  // the first of a row
  RowPool pool{};
  std::vector<Place> places{};
};

struct Output {
  const char* name;
  Format format;
  Tensor tensor;
};

struct Tensors {
  std::vector<Tensor> in;
  std::vector<Output> out;
};

Tensor Make(Tensor::Type type, const void* data, int64_t rows, int64_t width, int64_t stride = 0) {
  return {.type = type,
          .data = const_cast<void*>(data),
          .rows = data == nullptr ? 0 : rows,
          .width = width,
          .stride = stride == 0 ? width : stride};
}
Tensor Act(const void* data, int64_t rows, int64_t width, int64_t stride = 0) {
  return Make(Tensor::Type::kAct, data, rows, width, stride);
}
Tensor F32(const float* data, int64_t rows, int64_t width) {
  return Make(Tensor::Type::kF32, data, rows, width);
}
Tensor Int32(const int32_t* data, int64_t rows, int64_t width) {
  return Make(Tensor::Type::kInt32, data, rows, width);
}
Tensor CacheRows(const RowPool& pool, int64_t width, std::vector<Place> places) {
  return {.type = Tensor::Type::kCacheRows,
          .rows = static_cast<int64_t>(places.size()),
          .width = width,
          .pool = pool,
          .places = std::move(places)};
}

// ---- What a launch reads and writes of activations and cache rows. What it finds in the cache is
// the baseline's, since that replaced it when it was written.

Tensors Of(const RopeTableParams& p) {
  return {{},
          {{"window", Format::kF32, F32(p.out.window, p.rows, 2 * kRopePairs)},
           {"compressed", Format::kF32, F32(p.out.compressed, p.rows, 2 * kRopePairs)}}};
}

Tensors Of(const HcPostParams& p) {
  const int64_t width = 4 * p.hidden;
  return {{Act(p.y, p.rows, p.hidden), F32(p.post, p.rows, 4), F32(p.comb, p.rows, 16),
           Act(p.streams, p.rows, width)},
          {{"out", Format::kBf16, Act(p.out, p.rows, width)}}};
}

Tensors Of(const HcPreParams& p) {
  Tensors all;
  if (p.update.y != nullptr) {
    all = Of(UpdateOf(p));
  } else {
    all.in = {Act(p.streams, p.rows, 4 * p.hidden)};
  }
  all.out.push_back({"normed", Format::kBf16, Act(p.normed, p.rows, p.hidden)});
  all.out.push_back({"quantized", Format::kCodes, Act(p.quantized, p.rows, p.hidden)});
  all.out.push_back({"post", Format::kF32, F32(p.post, p.rows, 4)});
  all.out.push_back({"comb", Format::kF32, F32(p.comb, p.rows, 16)});
  return all;
}

Tensors Of(const HcHeadParams& p) {
  const int64_t streams =
      p.row_of == nullptr ? p.rows : 1 + *std::max_element(p.row_of, p.row_of + p.rows);
  Tensor quantized = Act(p.quantized, p.rows, p.hidden, p.quantized_width);
  quantized.column = p.quantized_column;
  return {{Act(p.streams, streams, 4 * p.hidden)},
          {{"mixed", Format::kBf16, Act(p.mixed, p.rows, p.hidden)},
           {"normed", Format::kBf16, Act(p.normed, p.rows, p.hidden)},
           {"quantized", Format::kCodes, std::move(quantized)}}};
}

Tensors Of(const DraftLogitsParams& p) {
  const int64_t rows = 1 + *std::max_element(p.row_of, p.row_of + p.rows);
  const Tensor logits = F32(p.logits, rows, p.vocab);
  return {{Act(p.states, rows, p.hidden), logits},
          {{"logits", Format::kF32, logits},
           {"confidences", Format::kF32, F32(p.confidences, rows, 1)}}};
}

Tensors Of(const MtpCombineParams& p) {
  return {{Act(p.e, p.rows, p.hidden), Act(p.h, p.rows, 4 * p.hidden)},
          {{"streams", Format::kBf16, Act(p.streams, p.rows, 4 * p.hidden)}}};
}

Tensors Of(const RmsNormParams& p) {
  return {{Act(p.x, p.rows, p.dim)},
          {{"normed", Format::kBf16, Act(p.normed, p.rows, p.dim)},
           {"quantized", Format::kCodes, Act(p.quantized, p.rows, p.dim)}}};
}

Tensors Of(const LinearFp8Params& p) {
  Tensors all{{Act(p.x, p.rows, p.k)}, {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    all.out.push_back({"y", Format::kBf16, Act(p.parts[i].y, p.rows, p.parts[i].w.n)});
  }
  return all;
}

Tensors Of(const LinearBf16Params& p) {
  Tensors all{{Act(p.x, p.rows, p.k)}, {}};
  for (int32_t i = 0; i < p.part_count; ++i) {
    const LinearBf16Params::Part& part = p.parts[i];
    if (part.round_output) {
      all.out.push_back({"y", Format::kBf16, Act(part.y, p.rows, part.w.n)});
    } else {
      const auto* y = static_cast<const float*>(part.y);
      all.out.push_back({"y_f32", Format::kF32, F32(y, p.rows, part.w.n)});
    }
  }
  return all;
}

Tensors Of(const OutputGroupsParams& p) {
  return {{Act(p.o, p.rows, p.groups * p.group_width)},
          {{"y", Format::kCodes, Act(p.y, p.rows, p.groups * p.rank)}}};
}

Tensors Of(const QkvPrepareParams& p) {
  const StepRows& step = *p.step;
  std::vector<Place> places;
  for (int32_t r = 0; r < step.rows; ++r) {
    const int64_t at = step.positions[r];
    const SequenceRows& sequence = step.sequences[step.sequence_of[r]];
    places.push_back({sequence.window_blocks[at / kWindowBlockTokens], at % kWindowBlockTokens});
  }
  const Tensor q = Act(p.q, int64_t{step.rows} * p.heads, kKvRowElements);
  const Tensor index_q = Act(p.index_q, int64_t{step.rows} * p.index_heads, kIndexKeyElements);
  return {{q, Act(p.kv, step.rows, kKvRowElements), index_q},
          {{"q", Format::kHead, q},
           {"index_q", Format::kIndexRow, index_q},
           {"window", Format::kKvRow, CacheRows(p.window, kKvRowElements, std::move(places))}}};
}

Tensors Of(const CompressKvParams& p) {
  const StepRows& step = *p.step;
  Tensors all{{F32(p.k, step.rows, p.width()), F32(p.z, step.rows, p.width())}, {}};
  const int64_t per_block = kGroupBlockTokens / p.ratio;
  std::vector<Place> places;
  for (int32_t i = 0; i < step.sequence_count; ++i) {
    const SequenceRows& s = step.sequences[i];
    for (int64_t g = s.first_position / p.ratio; g < (s.first_position + s.rows) / p.ratio; ++g) {
      places.push_back({s.group_blocks[g / per_block], g % per_block});
    }
    for (int32_t save = 0; save < s.save_count; ++save) {
      const auto* state = reinterpret_cast<const float*>(p.states.Slot(s.saves[save].slot));
      all.out.push_back(
          {"state", Format::kF32, F32(state, 1, CompressorStateFloats(p.ratio, p.dim()))});
    }
  }
  all.out.push_back({p.index_keys ? "keys" : "rows",
                     p.index_keys ? Format::kIndexRow : Format::kKvRow,
                     CacheRows(p.rows, p.dim(), std::move(places))});
  return all;
}

Tensors Of(const IndexScoreTopkParams& p) {
  const int64_t rows = p.step->rows;
  return {{Act(p.q, rows * p.heads, kIndexKeyElements), Act(p.weights, rows, p.heads)},
          {{"selected", Format::kChoice, Int32(p.selected, rows, p.topk)}}};
}

Tensors Of(const SparseAttentionParams& p) {
  const int64_t rows = int64_t{p.step->rows} * p.heads;
  return {{Act(p.q, rows, kKvRowElements),
           Int32(p.ratio == kCsaRatio ? p.selected : nullptr, p.step->rows, p.topk)},
          {{"o", Format::kHead, Act(p.o, rows, kKvRowElements)}}};
}

Tensors Of(const MoeGateParams& p) {
  return {{Act(p.x, p.rows, p.gate.k)},
          {{"experts", Format::kChoice, Int32(p.experts, p.rows, p.experts_per_token)},
           {"weights", Format::kF32, F32(p.weights, p.rows, p.experts_per_token)}}};
}

Tensors Of(const ExpertFfnParams& p) {
  return {{Act(p.x, p.rows, p.hidden), Int32(p.experts, p.rows, p.experts_per_token),
           F32(p.weights, p.rows, p.experts_per_token)},
          {{"y", Format::kSum, Act(p.y, p.rows, p.hidden)}}};
}

template <class Params>
Tensors As(const void* params) {
  return Of(*static_cast<const Params*>(params));
}

// Operators that copy have nothing to compare.
Tensors TensorsOf(Op op, const void* params) {
  switch (op) {
    case Op::kRopeTable:
      return As<RopeTableParams>(params);
    case Op::kHcPre:
      return As<HcPreParams>(params);
    case Op::kHcPost:
      return As<HcPostParams>(params);
    case Op::kHcHead:
      return As<HcHeadParams>(params);
    case Op::kRmsNorm:
      return As<RmsNormParams>(params);
    case Op::kLinearFp8:
      return As<LinearFp8Params>(params);
    case Op::kLinearBf16:
      return As<LinearBf16Params>(params);
    case Op::kQkvPrepare:
      return As<QkvPrepareParams>(params);
    case Op::kCompressKv:
      return As<CompressKvParams>(params);
    case Op::kIndexScoreTopk:
      return As<IndexScoreTopkParams>(params);
    case Op::kSparseAttention:
      return As<SparseAttentionParams>(params);
    case Op::kOutputGroups:
      return As<OutputGroupsParams>(params);
    case Op::kMoeGate:
      return As<MoeGateParams>(params);
    case Op::kExpertFfn:
      return As<ExpertFfnParams>(params);
    case Op::kMtpCombine:
      return As<MtpCombineParams>(params);
    case Op::kDraftLogits:
      return As<DraftLogitsParams>(params);
    default:
      return {};
  }
}

// ---- Their elements as floats.

bool StoresF32(Backend backend) { return backend == Backend::kReference; }

std::vector<float> Read(const Tensor& t, Backend backend) {
  std::vector<float> values(static_cast<size_t>(t.rows * t.width));
  for (int64_t r = 0; r < t.rows; ++r) {
    float* const to = values.data() + r * t.width;
    if (t.type == Tensor::Type::kCacheRows) {
      reference::LoadRow(t.pool, t.places[r].block, t.places[r].slot, to);
      continue;
    }
    for (int64_t i = 0; i < t.width; ++i) {
      const int64_t at = r * t.stride + t.column + i;
      if (t.type == Tensor::Type::kInt32) {
        to[i] = static_cast<float>(static_cast<const int32_t*>(t.data)[at]);
      } else if (t.type == Tensor::Type::kF32 || StoresF32(backend)) {
        to[i] = static_cast<const float*>(t.data)[at];
      } else {
        to[i] = Bf16ToFloat(static_cast<const uint16_t*>(t.data)[at]);
      }
    }
  }
  return values;
}

// Values of the baseline, which every format of the tested backend holds.
void Write(const Tensor& t, Backend backend, std::vector<float> values) {
  for (int64_t r = 0; r < t.rows; ++r) {
    float* const from = values.data() + r * t.width;
    if (t.type == Tensor::Type::kCacheRows) {
      const Point point =
          t.width == kIndexKeyElements ? Point::kQuantIndexKey : Point::kQuantWindowRow;
      reference::StoreRow({}, point, t.pool, t.places[r].block, t.places[r].slot, from);
      continue;
    }
    for (int64_t i = 0; i < t.width; ++i) {
      const int64_t at = r * t.stride + t.column + i;
      if (t.type == Tensor::Type::kInt32) {
        static_cast<int32_t*>(t.data)[at] = static_cast<int32_t>(from[i]);
      } else if (t.type == Tensor::Type::kF32 || StoresF32(backend)) {
        static_cast<float*>(t.data)[at] = from[i];
      } else {
        static_cast<uint16_t*>(t.data)[at] = FloatToBf16(from[i]);
      }
    }
  }
}

// ---- Their difference.

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

// bf16. Below `floor_share` of the row's RMS terms cancel, and a step is that of the terms.
// Elements from `roped` on are pairs, rotated after a rounding: a flip in front of it is a step of
// the larger one.
void CompareBf16(const float* expected, const float* actual, int64_t n, double floor_share,
                 int64_t roped, OperatorFlips* flips) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += double{expected[i]} * expected[i];
  const auto floor = static_cast<float>(std::sqrt(squares / static_cast<double>(n)) * floor_share);
  const auto ulp = [floor](float magnitude) {
    return std::ldexp(1.0f, std::ilogb(std::max({magnitude, floor, 1e-30f})) - 7);
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

void CompareRow(Format format, const float* expected, const float* actual, int64_t n,
                OperatorFlips* flips) {
  switch (format) {
    case Format::kBf16:
      return CompareBf16(expected, actual, n, kCancelled, n, flips);
    case Format::kSum:
      return CompareBf16(expected, actual, n, 1, n, flips);
    case Format::kHead:
      return CompareBf16(expected, actual, n, kCancelled, kPlain, flips);
    case Format::kCodes:
      for (int64_t i = 0; i < n; i += 128) CompareE4M3(expected + i, actual + i, 128, flips);
      return;
    case Format::kKvRow:
      for (int64_t i = 0; i < kPlain; i += kKvQuantRun) {
        CompareE4M3(expected + i, actual + i, kKvQuantRun, flips);
      }
      return;
    case Format::kIndexRow:
      for (int64_t i = 0; i < n; i += 32) {
        CompareCodes(expected + i, actual + i, 32, 6, 6 * 0x1p-126f, 0.5f, 1, flips);
      }
      return;
    case Format::kF32:
    case Format::kChoice:
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

}  // namespace

bool OperatorFlips::Holds() const {
  return share() <= kMostFlips && beyond == 0 && distance <= kF32Distance &&
         static_cast<double>(left_out) <= kMostLeftOut * static_cast<double>(choices);
}

bool OperatorComparison::Holds() const {
  return std::all_of(flips_.begin(), flips_.end(),
                     [](const auto& output) { return output.second.Holds(); });
}

absl::Status OperatorComparison::Finish() {
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
  const Tensors tensors = TensorsOf(entry.op, params);
  Launch& record = launches_.emplace_back();
  record.op = entry.op;
  for (const Tensor& in : tensors.in) record.inputs.push_back(Read(in, entry.backend));
  launch();
  for (const Output& out : tensors.out) {
    record.outputs.push_back(Read(out.tensor, entry.backend));
  }
}

void OperatorComparison::RecordTested(const KernelEntry& entry, const void* params,
                                      absl::FunctionRef<void()> launch) {
  const Tensors tensors = TensorsOf(entry.op, params);
  if (!status_.ok()) return launch();
  if (replayed_ == launches_.size() || launches_[replayed_].op != entry.op ||
      launches_[replayed_].inputs.size() != tensors.in.size() ||
      launches_[replayed_].outputs.size() != tensors.out.size()) {
    status_ = Internal("launch ", replayed_, ", ", OpName(entry.op), ", is not the baseline's");
    return launch();
  }
  Launch& record = launches_[replayed_++];
  for (size_t i = 0; i < tensors.in.size(); ++i) {
    Write(tensors.in[i], entry.backend, std::move(record.inputs[i]));
  }
  launch();
  std::vector<bool> left_out;  // rows of this launch
  for (size_t i = 0; i < tensors.out.size(); ++i) {
    const auto& [name, format, tensor] = tensors.out[i];
    if (tensor.rows == 0) continue;
    std::vector<float>& expected = record.outputs[i];
    std::vector<float> actual = Read(tensor, entry.backend);
    const std::string key = absl::StrCat(OpName(entry.op), ".", name);
    OperatorFlips& flips = flips_[key];
    if (format == Format::kChoice) left_out.assign(static_cast<size_t>(tensor.rows), false);
    for (int64_t r = 0; r < tensor.rows; ++r) {
      float* const to = actual.data() + r * tensor.width;
      const float* const from = expected.data() + r * tensor.width;
      if (format == Format::kChoice) {
        ++flips.choices;
        left_out[r] = !SameSet(from, to, tensor.width);
        flips.left_out += left_out[r];
      } else if (format == Format::kF32) {
        if (!left_out.empty() && left_out[r]) std::copy_n(from, tensor.width, to);
      } else {
        CompareRow(format, from, to, tensor.width, &flips);
        if (format != Format::kKvRow) continue;
        CompareBf16(from + kPlain, to + kPlain, kKvRopeElements, kCancelled, 0,
                    &flips_[key + ".rope"]);
      }
    }
    if (format == Format::kF32) {
      RelativeL2 distance;
      distance.Add(actual, expected);
      flips.distance = std::max(flips.distance, distance.distance());
    }
    Write(tensor, entry.backend, std::move(expected));
  }
}

}  // namespace dsv4
