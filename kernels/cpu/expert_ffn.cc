// SPDX-License-Identifier: Apache-2.0
// Routed and shared experts; contract in kernels/op/moe.h.
//
// A pair is a row with one of its experts; the shared expert is in the last pair of every row.
// Pairs are sorted by expert and cut into jobs of one expert, so that its weights are read once for
// all rows of a job.
//
// - Phase 1 computes the quantised hidden rows. Unit: a job by 128 of I.
// - Phase 2 computes the experts' outputs. Unit: a job by a stretch of D.
// - Phase 3 adds up each row.
// - With few pairs, phases 2 and 3 are one: a unit is a stretch of D for all pairs. A decode step
//   then waits for its threads only twice.
// - If the halves are separate calls (ExpertPart), the first is phase 1, with rows in sorted order;
//   the second quantises these rows.
#include <algorithm>
#include <bit>

#include "kernels/cpu/entries.h"
#include "kernels/cpu/epilogue.h"
#include "kernels/cpu/panel.h"
#include "kernels/op/moe.h"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace {

constexpr int64_t kJobRows = 128;  // most rows of a job
constexpr int64_t kFewPairs = 64;

// Pairs [first, first + rows) in sorted order, all of one expert.
struct Job {
  int32_t expert;  // expert_count: the shared one
  int32_t first;
  int32_t rows;
};

// Weight rows that are unpacked together: a power of two that fits in L2.
int64_t StretchRows(int64_t k) {
  const int64_t bytes = ActiveDotKernels().pack != nullptr ? 512 << 10 : 128 << 10;
  const auto rows = std::bit_floor(static_cast<uint64_t>(bytes / (2 * k)));
  return std::clamp<int64_t>(static_cast<int64_t>(rows), 16, kPanelRows);
}

// The parts of the workspace, in order; every size is a multiple of 64 bytes.
struct Layout {
  int64_t pairs, max_jobs;
  int64_t begin, token, position, weight, jobs, hidden, outputs, scratch;  // offsets
  int64_t unpacked_bytes, packed_at, scratch_bytes, total;
  bool in_blocks;

  Layout(const ExpertFfnParams& p, int threads) {
    const int64_t routed = int64_t{p.rows} * p.experts_per_token;
    pairs = routed + p.rows;
    max_jobs = std::min<int64_t>(p.expert_count, routed) + pairs / kJobRows + 1;
    int64_t at = 0;
    const auto take = [&at](int64_t bytes) {
      const int64_t offset = at;
      at += RoundUp<int64_t>(bytes, 64);
      return offset;
    };
    begin = take((int64_t{p.expert_count} + 1) * 4);
    token = take(routed * 4);
    position = take(routed * 4);
    weight = take(routed * 4);
    jobs = take(max_jobs * static_cast<int64_t>(sizeof(Job)));
    hidden = take(p.part == ExpertPart::kWhole ? pairs * p.inter * 2 : 0);
    outputs = pairs > kFewPairs ? take(pairs * p.hidden * 2) : at;
    // Experts in blocks come from one file with the shared one.
    const ExpertWeights* const first = p.experts_table == nullptr ? nullptr : p.experts_table[0];
    in_blocks =
        p.shared_w1.in_blocks() || (first != nullptr && first->w1.format == ExpertFormat::kBlocks);
    const auto format = in_blocks ? WeightView::Format::kBlocks : WeightView::Format::kFp8;
    unpacked_bytes = std::max(UnpackedBytes(format, StretchRows(p.hidden), p.hidden),
                              UnpackedBytes(format, StretchRows(p.inter), p.inter));
    // Scratch of a thread: two panels of sums, an unpacked stretch, the outputs of phase 2 with few
    // pairs, and packed rows.
    packed_at = 2 * kJobRows * kPanelRows * 4 + unpacked_bytes + kFewPairs * kPanelRows * 2;
    scratch_bytes =
        packed_at + PackedBytes(std::min(pairs, kJobRows), std::max(p.hidden, p.inter), in_blocks);
    scratch = take(threads * scratch_bytes);
    total = at;
  }
};

class ExpertFfn {
 public:
  ExpertFfn(const LaunchContext& context, const ExpertFfnParams& p)
      : p_(p),
        stream_(*static_cast<CpuStream*>(context.stream)),
        layout_(p, stream_.threads()),
        workspace_(context.workspace),
        begin_(At<int32_t>(layout_.begin)),
        token_(At<int32_t>(layout_.token)),
        position_(At<int32_t>(layout_.position)),
        weight_(At<float>(layout_.weight)),
        jobs_(At<Job>(layout_.jobs)),
        hidden_(p.part == ExpertPart::kWhole ? At<uint16_t>(layout_.hidden)
                                             : static_cast<uint16_t*>(p.products)),
        outputs_(At<uint16_t>(layout_.outputs)) {}

  void Run() {
    SortPairs();
    if (p_.part != ExpertPart::kOutputs) Products();
    if (p_.part == ExpertPart::kOutputs) QuantiseProducts();
    if (p_.part != ExpertPart::kProducts) Outputs();
  }

 private:
  void Products() {
    const int64_t width = UnitWidth(p_.inter, kPanelRows, p_.hidden),
                  units = CeilDiv<int64_t>(p_.inter, width);
    ForUnits(stream_, job_count_ * units, 2 * Cycles(), [&](int64_t unit, int worker) {
      const int64_t begin = unit % units * width;
      HiddenTiles(jobs_[unit / units], begin, std::min<int64_t>(begin + width, p_.inter), worker);
    });
  }

  void QuantiseProducts() {
    ForUnits(stream_, job_count_, layout_.pairs * p_.inter / 4, [&](int64_t j, int) {
      if (!QuantisesHidden(jobs_[j])) return;
      QuantiseRows(hidden_ + jobs_[j].first * p_.inter, p_.inter, jobs_[j].rows, p_.inter);
    });
  }

  void Outputs() {
    if (layout_.pairs <= kFewPairs) {
      const int64_t wanted = CeilDiv<int64_t>(p_.hidden, 4 * stream_.threads());
      const auto even = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
      const int64_t stretch = std::min(StretchRows(p_.inter), std::clamp<int64_t>(even, 16, 128));
      ForUnits(stream_, CeilDiv(p_.hidden, stretch), Cycles(),
               [&](int64_t unit, int worker) { SumOfExperts(unit * stretch, stretch, worker); });
      return;
    }
    const int64_t stretch = StretchRows(p_.inter), width = UnitWidth(p_.hidden, stretch, p_.inter);
    const int64_t units = CeilDiv<int64_t>(p_.hidden, width);
    ForUnits(stream_, job_count_ * units, Cycles(), [&](int64_t unit, int worker) {
      const Job& job = jobs_[unit / units];
      const int64_t begin = unit % units * width;
      const ActRows rows =
          Packed(HiddenRows(job), job, p_.inter, worker, OutputWeight(job).int8_rows());
      for (int64_t d0 = begin; d0 < std::min<int64_t>(begin + width, p_.hidden); d0 += stretch) {
        Output(job, rows, d0, stretch, outputs_ + job.first * p_.hidden + d0, p_.hidden, worker);
      }
    });
    constexpr int64_t kBlockRows = 16;
    ForUnits(stream_, CeilDiv<int64_t>(p_.rows, kBlockRows), layout_.pairs * p_.hidden / 16,
             [&](int64_t unit, int) {
               const int64_t end = std::min<int64_t>(p_.rows, (unit + 1) * kBlockRows);
               for (int64_t row = unit * kBlockRows; row < end; ++row) {
                 SumRow(row, outputs_, p_.hidden, 0, p_.hidden);
               }
             });
  }

  template <class T>
  T* At(int64_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }

  int32_t routed() const { return p_.rows * p_.experts_per_token; }
  bool shared(const Job& job) const { return job.expert == p_.expert_count; }

  // Outputs of a unit, which are computed `step` at a time: if rows are packed, enough to pay for
  // the packing.
  int64_t UnitWidth(int64_t outputs, int64_t step, int64_t k) const {
    constexpr int64_t kPacked = 512;
    const bool packs = PacksRows(kJobRows, k, layout_.in_blocks && layout_.pairs > kFewPairs);
    return packs ? std::min(outputs, std::max(step, kPacked)) : step;
  }

  // Estimated cycles of all jobs for one of the three matrices.
  int64_t Cycles() const {
    return DotCycles(p_.shared_w1, p_.inter, p_.rows) +
           (job_count_ - 1) * p_.inter * p_.hidden / 32 + p_.inter * p_.hidden * routed() / 64;
  }

  // Sorts the routed pairs by expert with a stable counting sort, and lists the jobs: those of the
  // shared expert first, because they have the most work.
  void SortPairs() {
    std::fill_n(begin_, p_.expert_count + 1, 0);
    for (int32_t pair = 0; pair < routed(); ++pair) {
      if (HasExpert(pair)) ++begin_[p_.experts[pair] + 1];
    }
    for (int32_t e = 0; e < p_.expert_count; ++e) begin_[e + 1] += begin_[e];
    AddJobs(p_.expert_count, routed(), p_.rows);
    for (int32_t e = 0; e < p_.expert_count; ++e) AddJobs(e, begin_[e], begin_[e + 1] - begin_[e]);
    for (int32_t pair = 0; pair < routed(); ++pair) {
      position_[pair] = -1;
      if (!HasExpert(pair)) continue;
      const int32_t at = begin_[p_.experts[pair]]++;
      token_[at] = pair / p_.experts_per_token;
      weight_[at] = p_.weights[pair];
      position_[pair] = at;
    }
  }

  bool HasExpert(int32_t pair) const {
    return p_.experts[pair] >= 0 && p_.experts[pair] < p_.expert_count;
  }

  void AddJobs(int32_t expert, int32_t first, int32_t rows) {
    if (rows == 0) return;
    // Jobs of one expert differ by at most one row.
    const int32_t count = CeilDiv<int32_t>(rows, kJobRows);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t from = static_cast<int32_t>(int64_t{rows} * i / count);
      const int32_t to = static_cast<int32_t>(int64_t{rows} * (i + 1) / count);
      jobs_[job_count_++] = {expert, first + from, to - from};
    }
  }

  ActRows HiddenRows(const Job& job) const {
    return {hidden_ + job.first * p_.inter, p_.inter, nullptr};
  }

  ActRows Packed(const ActRows& rows, const Job& job, int64_t k, int worker, bool int8) const {
    return PackRows(
        rows, job.rows, k,
        At<uint32_t>(layout_.scratch + worker * layout_.scratch_bytes + layout_.packed_at), int8);
  }

  WeightView OutputWeight(const Job& job) const {
    return shared(job) ? WeightView(p_.shared_w2) : WeightView(p_.experts_table[job.expert]->w2);
  }
  // Not in front of block formats.
  bool QuantisesHidden(const Job& job) const {
    return shared(job) ? !p_.shared_w2.in_blocks()
                       : p_.experts_table[job.expert]->w2.format != ExpertFormat::kBlocks;
  }

  // Computes hidden elements [begin, end) of a job's pairs.
  void HiddenTiles(const Job& job, int64_t begin, int64_t end, int worker) {
    const ExpertWeights* routed_weights = shared(job) ? nullptr : p_.experts_table[job.expert];
    const WeightView w1 = shared(job) ? WeightView(p_.shared_w1) : routed_weights->w1;
    const WeightView w3 = shared(job) ? WeightView(p_.shared_w3) : routed_weights->w3;
    const uint16_t* x = static_cast<const uint16_t*>(p_.x);
    const ActRows rows =
        Packed(shared(job) ? ActRows{x + (job.first - routed()) * p_.hidden, p_.hidden, nullptr}
                           : ActRows{x, p_.hidden, token_ + job.first},
               job, p_.hidden, worker, w1.int8_rows() || w3.int8_rows());
    float* gate = At<float>(layout_.scratch + worker * layout_.scratch_bytes);
    float* up = gate + kJobRows * kPanelRows;
    uint16_t* unpacked = reinterpret_cast<uint16_t*>(up + kJobRows * kPanelRows);
    for (int64_t i0 = begin; i0 < end; i0 += kPanelRows) {
      Product(w1, i0, kPanelRows, rows, job.rows, gate, unpacked);
      Product(w3, i0, kPanelRows, rows, job.rows, up, unpacked);
      uint16_t* const hidden = hidden_ + job.first * p_.inter + i0;
      SwigluRows(gate, up, kPanelRows, job.rows, kPanelRows, p_.limit,
                 shared(job) ? nullptr : weight_ + job.first, hidden, p_.inter);
      if (p_.part == ExpertPart::kWhole && QuantisesHidden(job)) {
        QuantiseRows(hidden, p_.inter, job.rows, kPanelRows);
      }
    }
  }

  // sums[i, j] = row i . weight row n0 + j for j < n <= 128, kPanelRows apart.
  static void Product(const WeightView& w, int64_t n0, int64_t n, const ActRows& rows, int64_t m,
                      float* sums, uint16_t* unpacked) {
    const int64_t stretch = std::min(n, StretchRows(w.k)), slice = SliceRows(w.k);
    for (int64_t j = 0; j < n; j += stretch) {
      const Panel panel(w, n0 + j, stretch, m, unpacked);
      for (int64_t i = 0; i < m; i += slice) {
        panel.Dot(rows.From(i), std::min(slice, m - i), sums + i * kPanelRows + j, kPanelRows);
      }
    }
  }

  // Computes output elements [d0, d0 + n) of a job's pairs, rounded. `rows`: their HiddenRows().
  void Output(const Job& job, const ActRows& rows, int64_t d0, int64_t n, uint16_t* out,
              int64_t stride, int worker) {
    const WeightView w2 = OutputWeight(job);
    float* sums = At<float>(layout_.scratch + worker * layout_.scratch_bytes);
    uint16_t* unpacked = reinterpret_cast<uint16_t*>(sums + 2 * kJobRows * kPanelRows);
    Product(w2, d0, n, rows, job.rows, sums, unpacked);
    RoundRows(sums, kPanelRows, job.rows, n, out, stride);
  }

  // Computes elements [d0, d0 + n) of every row of y.
  void SumOfExperts(int64_t d0, int64_t n, int worker) {
    std::byte* scratch = workspace_ + layout_.scratch + worker * layout_.scratch_bytes;
    uint16_t* outputs = reinterpret_cast<uint16_t*>(scratch + 2 * kJobRows * kPanelRows * 4 +
                                                    layout_.unpacked_bytes);
    for (int64_t j = 0; j < job_count_; ++j) {
      ActRows rows = HiddenRows(jobs_[j]);
      const bool int8 = OutputWeight(jobs_[j]).int8_rows();
      if (int8) rows = Packed(rows, jobs_[j], p_.inter, worker, int8);
      Output(jobs_[j], rows, d0, n, outputs + jobs_[j].first * kPanelRows, kPanelRows, worker);
    }
    for (int64_t row = 0; row < p_.rows; ++row) SumRow(row, outputs, kPanelRows, d0, n);
  }

  // y[row, d0 .. d0 + n) from the outputs of the row's pairs.
  void SumRow(int64_t row, const uint16_t* outputs, int64_t stride, int64_t d0, int64_t n) {
    const uint16_t* terms[kMaxExpertsPerToken + 1];
    int32_t count = 0;
    for (int32_t i = 0; i < p_.experts_per_token; ++i) {
      const int32_t at = position_[row * p_.experts_per_token + i];
      if (at >= 0) terms[count++] = outputs + at * stride;
    }
    terms[count++] = outputs + (routed() + row) * stride;
    SumRows(terms, count, n, static_cast<uint16_t*>(p_.y) + row * p_.hidden + d0);
  }

  const ExpertFfnParams& p_;
  CpuStream& stream_;
  const Layout layout_;
  std::byte* workspace_;
  int32_t* begin_;     // [E + 1] first sorted pair of each expert
  int32_t* token_;     // [T K] row of a sorted pair
  int32_t* position_;  // [T K] sorted place of a pair; -1: it has no expert
  float* weight_;      // [T K] of a sorted pair
  Job* jobs_;
  int64_t job_count_ = 0;
  uint16_t* hidden_;   // [pairs, I], sorted order, the shared expert's last
  uint16_t* outputs_;  // [pairs, D]
};

absl::Status Supports(const ExpertFfnParams& p) {
  return p.wave == ExpertWave::kAll ? absl::OkStatus() : Unsupported("experts in waves");
}

int64_t Workspace(const ExpertFfnParams& p, int threads) { return Layout(p, threads).total; }

void Launch(const LaunchContext& context, const ExpertFfnParams& p) { ExpertFfn(context, p).Run(); }

}  // namespace

constinit const KernelEntry kCpuExpertFfn =
    MakeEntry<ExpertFfnParams, &Launch, &Supports, &Workspace>(
        "cpu.expert_ffn", Backend::kCpu, NumericsBit(Numerics::kPublished), 2);

}  // namespace dsv4
