// SPDX-License-Identifier: Apache-2.0
// token_candidates: from rows of logits, the tokens among which a sampling rule chooses.
//
// Contract: kernels/op/token_candidates.h.
//
// Roofline: 4 vocab bytes a query, which the head left in L2. Bound by launches and latency.
//
// Plan: kBlocks blocks a query, each with a part of the vocabulary in token order. Three kernels
// compute
// - the largest logit of each part;
// - the mass of each part, and of each bin if the rule asks for the most likely tokens;
// - the list.
// Sums are of integers, so their order does not matter. Queries are read without a wait: they were
// written before the head started.
//
// Edge cases: skipped queries; rows without a finite logit; rows with more candidates than a list
// holds; any vocab.
#include "kernels/op/token_candidates.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/launch.h"
#include "kernels/sm12x/overlapped_launch.cuh"
#include "lib/base/checked_math.h"

namespace dsv4 {
namespace sm12x::token_candidates {

constexpr int kThreads = 256;
constexpr int kBlocks = 32;  // of a query

// Intermediate results of a query.
struct Scratch {
  uint64_t best[kBlocks];  // of each part: KeyOf of the largest logit; 0: none is finite
  uint64_t mass[kBlocks];  // of each part, in units
  uint32_t count, done_blocks;
  uint64_t bins[kCandidateBins];  // kMostLikely: numbers of tokens; kMostMass: units
};

// A key in the order of logits; of equal logits, the lowest token has the highest key.
__device__ uint64_t KeyOf(float logit, int32_t token) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 is 0
  const uint32_t ordered = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  return static_cast<uint64_t>(ordered) << 32 | (0xffffffffu - static_cast<uint32_t>(token));
}
__device__ float LogitOf(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return __uint_as_float(ordered >> 31 != 0 ? ordered & 0x7fffffffu : ~ordered);
}
__device__ int32_t TokenOf(uint64_t key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

// The part of this block: tokens [begin, end) of one query.
struct Part {
  CandidateQuery query;
  const float* logits;
  int32_t begin, end;
  __device__ explicit Part(const TokenCandidatesParams& p) : query(p.queries[blockIdx.y]) {
    logits = p.logits + query.row * p.vocab;
    const int64_t tokens = RoundUp<int64_t>((p.vocab + kBlocks - 1) / kBlocks, 32);
    begin = static_cast<int32_t>(min(blockIdx.x * tokens, p.vocab));
    end = static_cast<int32_t>(min(begin + tokens, p.vocab));
  }
  // Reads a logit. Returns whether the token is a candidate: allowed, with a finite logit.
  __device__ bool Read(int32_t token, float* logit) const {
    *logit = logits[token];
    return (query.allowed[token / 32] >> (token % 32) & 1) != 0 && isfinite(*logit);
  }
  __device__ float WeightOf(float logit, float best) const {
    return TokenWeight((logit - best) / query.rule.temperature);
  }
};

__device__ uint64_t WarpSum(uint64_t value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(~0u, value, lanes);
  return value;
}

__device__ uint64_t WarpMax(uint64_t value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = max(value, __shfl_xor_sync(~0u, value, lanes));
  }
  return value;
}

// The best key of all parts, and the mass of the parts before part `end`, in every thread.
static_assert(kBlocks == 32, "a lane for each part");
__device__ uint64_t BestKey(const Scratch& scratch) {
  return WarpMax(scratch.best[threadIdx.x % 32]);
}
__device__ uint64_t MassBefore(const Scratch& scratch, unsigned end) {
  return WarpSum(threadIdx.x % 32 < end ? scratch.mass[threadIdx.x % 32] : 0);
}

__global__ void __launch_bounds__(kThreads)
    token_candidates_largest_kernel(const __grid_constant__ TokenCandidatesParams p, Scratch* all) {
  constexpr int kBinsOfBlock = kCandidateBins / kBlocks;
  __shared__ uint64_t warp_best[kThreads / 32];
  const Part part(p);
  sm12x::BeginAfterPredecessors();
  if (part.query.row < 0) return;
  Scratch& scratch = all[blockIdx.y];
  if (threadIdx.x < kBinsOfBlock) scratch.bins[blockIdx.x * kBinsOfBlock + threadIdx.x] = 0;
  if (blockIdx.x == 0 && threadIdx.x == 0) scratch.count = scratch.done_blocks = 0;
  uint64_t best = 0;
  for (int32_t token = part.begin + static_cast<int32_t>(threadIdx.x); token < part.end;
       token += kThreads) {
    float logit;
    if (part.Read(token, &logit)) best = max(best, KeyOf(logit, token));
  }
  best = WarpMax(best);
  if (threadIdx.x % 32 == 0) warp_best[threadIdx.x / 32] = best;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) best = max(best, warp_best[warp]);
  scratch.best[blockIdx.x] = best;
}

__global__ void __launch_bounds__(kThreads)
    token_candidates_mass_kernel(const __grid_constant__ TokenCandidatesParams p, Scratch* all) {
  __shared__ unsigned long long bins[kCandidateBins];
  __shared__ uint64_t warp_mass[kThreads / 32];
  const Part part(p);
  sm12x::BeginAfterPredecessors();
  if (part.query.row < 0) return;
  Scratch& scratch = all[blockIdx.y];
  const CandidateRule::Kind kind = part.query.rule.kind;
  if (kind == CandidateRule::kLargest || kind == CandidateRule::kLeastWeight) {
    if (threadIdx.x == 0) scratch.mass[blockIdx.x] = 0;
    return;
  }
  const float best = LogitOf(BestKey(scratch));
  for (int bin = threadIdx.x; bin < kCandidateBins; bin += kThreads) bins[bin] = 0;
  __syncthreads();
  uint64_t mass = 0;
  for (int32_t token = part.begin + static_cast<int32_t>(threadIdx.x); token < part.end;
       token += kThreads) {
    float logit;
    if (!part.Read(token, &logit)) continue;
    if (kind == CandidateRule::kMostLikely) {
      atomicAdd(&bins[DistanceBin(best, logit)], 1ull);
      continue;
    }
    const float weight = part.WeightOf(logit, best);
    if (weight == 0) continue;
    const uint64_t units = WeightUnits(weight);
    mass += units;
    if (kind == CandidateRule::kMostMass) {
      atomicAdd(&bins[WeightBin(weight)], static_cast<unsigned long long>(units));
    }
  }
  mass = WarpSum(mass);
  if (threadIdx.x % 32 == 0) warp_mass[threadIdx.x / 32] = mass;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < kThreads / 32; ++warp) mass += warp_mass[warp];
    scratch.mass[blockIdx.x] = mass;
  }
  if (kind == CandidateRule::kDraw) return;
  for (int bin = threadIdx.x; bin < kCandidateBins; bin += kThreads) {
    if (bins[bin] != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&scratch.bins[bin]), bins[bin]);
    }
  }
}

// Sets *before to the exclusive prefix sum over the block. Returns the sum.
__device__ uint64_t SumBefore(uint64_t value, uint64_t* before) {
  __shared__ uint64_t warps[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t through = value;
  for (int lanes = 1; lanes < 32; lanes *= 2) {
    const uint64_t below = __shfl_up_sync(~0u, through, lanes);
    if (lane >= lanes) through += below;
  }
  if (lane == 31) warps[warp] = through;
  __syncthreads();
  uint64_t sum = 0;
  for (int i = 0; i < kThreads / 32; ++i) {
    if (i == warp) *before = sum + through - value;
    sum += warps[i];
  }
  __syncthreads();
  return sum;
}

// The first bin at which the bins so far satisfy top_k or top_p.
__device__ int32_t LastBin(const CandidateRule& rule, const Scratch& scratch, uint64_t mass) {
  constexpr int kBinsOfThread = kCandidateBins / kThreads;
  __shared__ int32_t last;
  if (threadIdx.x == 0) last = kCandidateBins - 1;
  uint64_t own[kBinsOfThread], sum = 0, before;
  for (int i = 0; i < kBinsOfThread; ++i) {
    own[i] = scratch.bins[threadIdx.x * kBinsOfThread + i];
    sum += own[i];
  }
  SumBefore(sum, &before);
  const double wanted = double{rule.top_p} * MassOfUnits(mass);
  const auto suffices = [&](uint64_t measure) {
    return rule.kind == CandidateRule::kMostLikely ? measure >= static_cast<uint64_t>(rule.top_k)
                                                   : MassOfUnits(measure) >= wanted;
  };
  for (int i = 0; i < kBinsOfThread; ++i) {
    if (!suffices(before) && suffices(before + own[i])) last = threadIdx.x * kBinsOfThread + i;
    before += own[i];
  }
  __syncthreads();
  return last;
}

// Writes the token at which the mass, in token order, exceeds `uniform` of the whole, if it is in
// this part. Each thread adds up consecutive tokens.
__device__ void Draw(const Part& part, const Scratch& scratch, float best, uint64_t mass,
                     CandidateList* list, int32_t* chosen) {
  const uint64_t parts_before = MassBefore(scratch, blockIdx.x);
  const double wanted = part.query.rule.uniform * MassOfUnits(mass);
  const auto passes = [&](uint64_t units) { return MassOfUnits(units) > wanted; };
  if (passes(parts_before) || !passes(parts_before + scratch.mass[blockIdx.x])) return;
  const int32_t tokens = (part.end - part.begin + kThreads - 1) / kThreads;
  const int32_t begin = min(part.begin + static_cast<int32_t>(threadIdx.x) * tokens, part.end);
  const int32_t end = min(begin + tokens, part.end);
  uint64_t own = 0, before;
  float logit;
  for (int32_t token = begin; token < end; ++token) {
    if (part.Read(token, &logit)) own += WeightUnits(part.WeightOf(logit, best));
  }
  SumBefore(own, &before);
  before += parts_before;
  if (passes(before) || !passes(before + own)) return;
  for (int32_t token = begin; token < end; ++token) {
    if (!part.Read(token, &logit)) continue;
    before += WeightUnits(part.WeightOf(logit, best));
    if (!passes(before)) continue;
    list->tokens[0] = {token, logit};
    if (chosen != nullptr) *chosen = token;
    return;
  }
}

__global__ void __launch_bounds__(kThreads)
    token_candidates_list_kernel(const __grid_constant__ TokenCandidatesParams p, Scratch* all) {
  const Part part(p);
  const CandidateRule& rule = part.query.rule;
  sm12x::BeginAfterPredecessors();
  if (part.query.row < 0) return;
  Scratch& scratch = all[blockIdx.y];
  CandidateList* const list = &p.lists[part.query.list];
  int32_t* const chosen = p.chosen == nullptr ? nullptr : p.chosen + part.query.list;
  const uint64_t key = BestKey(scratch);
  const float best = LogitOf(key);
  const bool single = rule.kind == CandidateRule::kLargest || rule.kind == CandidateRule::kDraw;
  const uint64_t mass = MassBefore(scratch, kBlocks);
  if (key != 0 && rule.kind == CandidateRule::kDraw) {
    Draw(part, scratch, best, mass, list, chosen);
  } else if (key != 0 && !single) {
    const int32_t last =
        rule.kind == CandidateRule::kLeastWeight ? 0 : LastBin(rule, scratch, mass);
    for (int32_t token = part.begin + static_cast<int32_t>(threadIdx.x); token < part.end;
         token += kThreads) {
      float logit;
      if (!part.Read(token, &logit)) continue;
      if (rule.kind == CandidateRule::kMostLikely) {
        if (DistanceBin(best, logit) > last) continue;
      } else {
        const float weight = part.WeightOf(logit, best);
        if (weight == 0 || (rule.kind == CandidateRule::kLeastWeight ? weight < rule.min_p
                                                                     : WeightBin(weight) > last)) {
          continue;
        }
      }
      const uint32_t place = atomicAdd(&scratch.count, 1u);
      if (place < kMostCandidates) list->tokens[place] = {token, logit};
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (single && blockIdx.x == 0) {
    if (rule.kind == CandidateRule::kLargest && key != 0) {
      list->tokens[0] = {TokenOf(key), part.logits[TokenOf(key)]};
    }
    list->count = key != 0 ? 1 : 0;
    list->mass = MassOfUnits(mass);
  }
  // For a draw, the thread that finds the token writes it.
  if (blockIdx.x == 0 && chosen != nullptr && (key == 0 || rule.kind != CandidateRule::kDraw)) {
    *chosen = key != 0 && single ? TokenOf(key) : -1;
  }
  if (single) return;
  // The last block of the query to end knows the count.
  __threadfence();
  if (atomicAdd(&scratch.done_blocks, 1u) != kBlocks - 1) return;
  const uint32_t count = atomicAdd(&scratch.count, 0u);
  list->count = count <= kMostCandidates ? static_cast<int32_t>(count) : -1;
  list->mass = MassOfUnits(mass);
}

int64_t TokenCandidatesWorkspace(const TokenCandidatesParams& params, int) {
  return params.rows * static_cast<int64_t>(sizeof(Scratch));
}

void LaunchTokenCandidates(const LaunchContext& context, const TokenCandidatesParams& params) {
  if (params.rows == 0) return;
  const cudaStream_t stream = CudaStreamOf(context);
  auto* const scratch = reinterpret_cast<Scratch*>(context.workspace);
  const dim3 grid(kBlocks, static_cast<unsigned>(params.rows));
  const auto launch = [&](auto* kernel) {
    sm12x::LaunchOverlapped(stream, grid, kThreads, 0, kernel, params, scratch);
  };
  launch(&token_candidates_largest_kernel);
  launch(&token_candidates_mass_kernel);
  launch(&token_candidates_list_kernel);
}

absl::Status SupportsTokenCandidates(const TokenCandidatesParams& params) {
  constexpr int32_t kMostRows = 65535;  // of a grid
  if (params.rows > kMostRows) return Unsupported(params.rows, " queries; at most ", kMostRows);
  return absl::OkStatus();
}

}  // namespace sm12x::token_candidates
using namespace sm12x::token_candidates;  // NOLINT: of this file alone

constinit const KernelEntry kSm12xTokenCandidates =
    MakeSm12xEntry<TokenCandidatesParams, &LaunchTokenCandidates, &SupportsTokenCandidates,
                   &TokenCandidatesWorkspace>("sm12x.token_candidates", 1);

}  // namespace dsv4
