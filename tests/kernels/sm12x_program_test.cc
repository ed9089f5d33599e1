// SPDX-License-Identifier: Apache-2.0
// Step programs (kernels/sm12x/step_program.h) leave in every buffer of a layer, and count, what
// the operators' own launches do, bit for bit; and which launches they take.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "kernels/op/dense.h"
#include "kernels/op/hyper_connection.h"
#include "kernels/op/moe.h"
#include "kernels/registry/launch_program.h"
#include "lib/device/cuda_stream.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/kernels/operator_weights.h"

namespace dsv4::test {
namespace {

struct Shape {
  int64_t hidden, inter;
  int32_t experts, k;
  int64_t groups, rank, group_width, lora, heads;
  int32_t multiprocessors;  // that launches use; 0: all of the GPU's
};

// Weights of a layer on the device.
struct Layer {
  Layer(const Shape& s, uint64_t seed)
      : wo_a(On::kTested, Fp8Storage(seed + 1, s.groups * s.rank, s.group_width)),
        wo_b(On::kTested, Fp8Storage(seed + 2, s.hidden, s.groups * s.rank)),
        wq_a(On::kTested, Fp8Storage(seed + 3, s.lora, s.hidden)),
        wkv(On::kTested, Fp8Storage(seed + 4, 512, s.hidden)),
        wq_b(On::kTested, Fp8Storage(seed + 5, s.heads * 512, s.lora)),
        index_wq_b(On::kTested, Fp8Storage(seed + 6, s.heads * 128, s.lora)),
        gate(On::kTested, Bf16Storage(seed + 7, s.experts, s.hidden)),
        w1(On::kTested, Fp8Storage(seed + 8, s.inter, s.hidden)),
        w3(On::kTested, Fp8Storage(seed + 9, s.inter, s.hidden)),
        w2(On::kTested, Fp8Storage(seed + 10, s.hidden, s.inter)),
        bias(On::kTested, RandomFloats(seed + 11, s.experts, 0.3f)),
        q_norm(On::kTested, RandomNorm(seed + 12, s.lora)) {
    std::vector<ExpertWeights> all;
    for (int e = 0; e < s.experts; ++e) {
      for (int m = 0; m < 3; ++m) {
        const int64_t n = m == 2 ? s.hidden : s.inter, k = m == 2 ? s.inter : s.hidden;
        // As many matrices as tell experts apart, not one for each.
        if (e < 8) {
          routed.emplace_back(On::kTested,
                              Fp4Storage(seed + 20 + static_cast<uint64_t>(3 * e + m), n, k));
        }
      }
      const SideWeight* const of = &routed[static_cast<size_t>(3 * (e % 8))];
      all.push_back({of[0].expert(), of[1].expert(), of[2].expert()});
    }
    experts = std::make_unique<Array<ExpertWeights>>(On::kTested, all);
    std::vector<const ExpertWeights*> at;
    for (int e = 0; e < s.experts; ++e) at.push_back(experts->data() + e);
    table = std::make_unique<Array<const ExpertWeights*>>(On::kTested, at);
    for (int i = 0; i < 2; ++i) {
      const uint64_t of = seed + 90 + static_cast<uint64_t>(10 * i);
      fn.emplace_back(On::kTested, RandomFloats(of, 24 * 4 * s.hidden, 0.05f));
      base.emplace_back(On::kTested, RandomFloats(of + 1, 24));
      norm.emplace_back(On::kTested, RandomNorm(of + 2, s.hidden));
    }
  }
  SideWeight wo_a, wo_b, wq_a, wkv, wq_b, index_wq_b, gate, w1, w3, w2;
  Array<float> bias;
  Array<uint16_t> q_norm;
  std::vector<SideWeight> routed;
  std::unique_ptr<Array<ExpertWeights>> experts;
  std::unique_ptr<Array<const ExpertWeights*>> table;
  std::vector<Array<float>> fn, base;  // of attention, of the experts
  std::vector<Array<uint16_t>> norm;
  Array<float> scale{On::kTested, std::vector<float>{0.7f, 1.3f, 0.9f}};
};

// What launches write, by name.
class Buffers {
 public:
  template <class T = std::byte>
  T* At(const std::string& name, int64_t count) {
    auto& made = all_[name];
    if (made == nullptr) {
      made = std::make_unique<Array<uint8_t>>(
          On::kTested, std::vector<uint8_t>(static_cast<size_t>(count) * sizeof(T)));
    }
    return reinterpret_cast<T*>(made->data());
  }
  void* Acts(const std::string& name, int64_t count) { return At<uint16_t>(name, count); }
  void* Codes(const std::string& name, int64_t width) {
    return At(name, Tested().manifest.rows.quantized_bytes(width));
  }
  void Set(const std::string& name, const std::vector<float>& values) {
    auto* const to = static_cast<uint16_t*>(Acts(name, static_cast<int64_t>(values.size())));
    std::vector<uint16_t> bits(values.size());
    std::transform(values.begin(), values.end(), bits.begin(), FloatToBf16);
    Tested().copy(to, bits.data(), static_cast<int64_t>(bits.size() * 2));
  }
  void RequireEqual(const Buffers& other) const {
    REQUIRE(all_.size() == other.all_.size());
    std::string different;
    for (const auto& [name, array] : all_) {
      if (array->Get() != other.all_.at(name)->Get()) different += " " + name;
    }
    REQUIRE(different == "");
  }

 private:
  std::map<std::string, std::unique_ptr<Array<uint8_t>>> all_;
};

struct LayerOptions {
  bool hashed = false;   // the gate chooses by token
  bool indexes = true;   // the layer has index queries
  bool padding = false;  // the row is padding
  bool counts = true;    // the gate counts
};

// Calls `run` for what a step launches from a layer's attention to the next layer's queries.
template <class Run>
void ForEachLaunch(const Shape& s, const Layer& w, const LayerOptions& o, Buffers& b, Run&& run) {
  const int64_t d = s.hidden;
  void* const streams = b.Acts("streams", 4 * d);
  void* const y = b.Acts("y", d);
  auto* const post = b.At<float>("post", 4);
  auto* const comb = b.At<float>("comb", 16);
  void* const groups = b.Codes("groups", s.groups * s.rank);
  run(OutputGroupsParams{.rows = 1,
                         .groups = static_cast<int32_t>(s.groups),
                         .rank = s.rank,
                         .group_width = s.group_width,
                         .wo_a = w.wo_a.fp8(),
                         .o = b.Acts("o", s.groups * s.group_width),
                         .y = groups});
  LinearFp8Params out{.rows = 1, .k = s.groups * s.rank, .x = groups, .part_count = 1};
  out.parts[0] = {w.wo_b.fp8(), y};
  run(out);
  const auto hc = [&](int which, const HcUpdate& update) {
    const auto i = static_cast<size_t>(which);
    return HcPreParams{.rows = 1,
                       .hidden = d,
                       .streams = streams,
                       .fn = w.fn[i].data(),
                       .base = w.base[i].data(),
                       .scale = w.scale.data(),
                       .hc_eps = 1e-6f,
                       .norm_eps = 1e-6f,
                       .sinkhorn_iters = 20,
                       .norm = w.norm[i].data(),
                       .normed = b.Acts("normed", d),
                       .quantized = b.Codes("quantized", d),
                       .post = post,
                       .comb = comb,
                       .update = update};
  };
  run(hc(1, {y, post, comb, streams}));
  run(MoeGateParams{.rows = 1,
                    .experts_per_token = s.k,
                    .gate = w.gate.bf16(),
                    .x = b.Acts("normed", d),
                    .tokens = b.At<int32_t>("tokens", 1),
                    .sequence_of = b.At<int32_t>(o.padding ? "no sequence" : "sequence", 1),
                    .tid2eid = o.hashed ? b.At<int32_t>("by token", 8 * s.k) : nullptr,
                    .bias = o.hashed ? nullptr : w.bias.data(),
                    .routed_scale = 1.5f,
                    .experts = b.At<int32_t>("experts", s.k),
                    .weights = b.At<float>("weights", s.k),
                    .counts = o.counts ? b.At<ExpertCounts>("counts", s.experts) : nullptr,
                    .calls = o.counts ? b.At<uint32_t>("calls", 1) : nullptr});
  run(ExpertFfnParams{.rows = 1,
                      .hidden = d,
                      .inter = s.inter,
                      .expert_count = s.experts,
                      .experts_per_token = s.k,
                      .experts_table = w.table->data(),
                      .shared_w1 = w.w1.fp8(),
                      .shared_w3 = w.w3.fp8(),
                      .shared_w2 = w.w2.fp8(),
                      .experts = b.At<int32_t>("experts", s.k),
                      .weights = b.At<float>("weights", s.k),
                      .limit = 10,
                      .x = b.Codes("quantized", d),
                      .y = y});
  run(HcPostParams{.rows = 1,
                   .hidden = d,
                   .y = y,
                   .post = post,
                   .comb = comb,
                   .streams = streams,
                   .out = streams});
  run(hc(0, {}));
  LinearFp8Params down{.rows = 1, .k = d, .x = b.Codes("quantized", d), .part_count = 2};
  down.parts[0] = {w.wq_a.fp8(), b.Acts("qr", s.lora)};
  down.parts[1] = {w.wkv.fp8(), b.Acts("kv", 512)};
  run(down);
  run(RmsNormParams{.rows = 1,
                    .dim = s.lora,
                    .x = b.Acts("qr", s.lora),
                    .weight = w.q_norm.data(),
                    .eps = 1e-6f,
                    .quantized = b.Codes("qr quantised", s.lora)});
  LinearFp8Params up{.rows = 1, .k = s.lora, .x = b.Codes("qr quantised", s.lora), .part_count = 1};
  up.parts[0] = {w.wq_b.fp8(), b.Acts("q", s.heads * 512)};
  if (o.indexes) {
    up.parts[static_cast<size_t>(up.part_count++)] = {w.index_wq_b.fp8(),
                                                      b.Acts("index q", s.heads * 128)};
  }
  run(up);
}

std::byte* Marked() {
  static std::byte* const memory = [] {
    std::byte* made = nullptr;
    REQUIRE_CUDA(cudaMalloc(reinterpret_cast<void**>(&made), kMarkedBytes));
    REQUIRE_CUDA(cudaMemset(made, 0, kMarkedBytes));
    return made;
  }();
  return memory;
}

// Launches on a stream of its own, alone or as programs.
class Launcher {
 public:
  Launcher(const Shape& shape, LaunchProgram* program) : program_(program) {
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&on_, cudaStreamNonBlocking));
    context_.stream = &stream_.emplace(on_);
    context_.multiprocessors =
        shape.multiprocessors != 0 ? shape.multiprocessors : CudaMultiprocessors();
    if (program != nullptr) context_.marked = Marked();
  }
  ~Launcher() { cudaStreamDestroy(on_); }

  // Returns whether the program took it.
  template <class Params>
  bool operator()(const Params& params) {
    const KernelEntry& entry = *TestedEntry(Params::kOp);
    if (workspace_ == nullptr) workspace_ = std::make_unique<DeviceCopy<std::byte>>(1 << 20);
    REQUIRE(entry.workspace_bytes(&params, context_.multiprocessors) <= workspace_->size());
    context_.workspace = workspace_->data();
    if (program_ != nullptr) {
      if (program_->Take(entry, context_, &params)) return true;
      program_->Launch();
    }
    entry.launch(context_, &params);
    REQUIRE_CUDA(cudaPeekAtLastError());
    return false;
  }
  void End() {
    if (program_ != nullptr) program_->Launch();
    REQUIRE_CUDA(cudaPeekAtLastError());
    REQUIRE_CUDA(cudaStreamSynchronize(on_));
  }

 private:
  LaunchProgram* program_;
  cudaStream_t on_ = nullptr;
  std::optional<CudaStream> stream_;
  LaunchContext context_;
  std::unique_ptr<DeviceCopy<std::byte>> workspace_;
};

std::vector<Shape> Shapes() {
  // A block has several tiles of everything where multiprocessors are few.
  std::vector<Shape> shapes = {{256, 128, 16, 4, 8, 256, 256, 256, 2, 8},
                               {512, 256, 40, 6, 16, 128, 128, 512, 1, 19},
                               // And here many; warps share K slices of wo_b.
                               {256, 128, 16, 4, 2, 128, 256, 128, 1, 60}};
  if (!EmulatedGpu()) shapes.push_back({4096, 2048, 256, 6, 8, 1024, 4096, 1024, 64, 0});
  return shapes;
}

void Fill(const Shape& s, uint64_t seed, Buffers* b) {
  b->Set("streams", RandomActs(seed, 1, 4 * s.hidden));
  b->Set("o", RandomActs(seed + 1, 1, s.groups * s.group_width));
  Tested().copy(b->At<float>("post", 4), RandomFloats(seed + 2, 4).data(), 16);
  Tested().copy(b->At<float>("comb", 16), RandomFloats(seed + 3, 16).data(), 64);
  const int32_t token = static_cast<int32_t>(seed % 8), none = -1, sequence = 0;
  Tested().copy(b->At<int32_t>("tokens", 1), &token, 4);
  Tested().copy(b->At<int32_t>("sequence", 1), &sequence, 4);
  Tested().copy(b->At<int32_t>("no sequence", 1), &none, 4);
  std::vector<int32_t> by_token;
  for (int32_t i = 0; i < 8 * s.k; ++i) by_token.push_back((i * 5 + i / s.k) % s.experts);
  Tested().copy(b->At<int32_t>("by token", 8 * s.k), by_token.data(), 32 * s.k);
}

TEST_CASE("a step program leaves what its operators' own launches do") {
  for (const Shape& shape : Shapes()) {
    INFO("hidden " << shape.hidden);
    const Layer first(shape, 1000), second(shape, 2000);
    for (const LayerOptions& options :
         {LayerOptions{}, LayerOptions{.hashed = true, .indexes = false, .counts = false},
          LayerOptions{.padding = true}}) {
      Buffers alone, together;
      const std::unique_ptr<LaunchProgram> program = Tested().manifest.make_program();
      Launcher one_by_one(shape, nullptr), in_programs(shape, program.get());
      // Of launches that follow each other, each empties words that the next one but one uses.
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        INFO("launch " << seed);
        Fill(shape, seed, &alone);
        Fill(shape, seed, &together);
        const Layer& layer = seed % 2 == 1 ? first : second;
        ForEachLaunch(shape, layer, options, alone,
                      [&](const auto& params) { one_by_one(params); });
        one_by_one.End();
        std::set<Op> taken;
        ForEachLaunch(shape, layer, options, together, [&](const auto& params) {
          if (in_programs(params)) taken.insert(params.kOp);
        });
        in_programs.End();
        REQUIRE(taken == std::set<Op>{Op::kOutputGroups, Op::kLinearFp8, Op::kHcPre, Op::kExpertFfn,
                                      Op::kHcPost});
        alone.RequireEqual(together);
      }
    }
  }
}

// A program ends, and another begins, between any two launches.
TEST_CASE("step programs may be cut anywhere") {
  const Shape shape = Shapes()[0];
  const Layer layer(shape, 1000);
  constexpr int kLaunches = 10;
  for (int cut = 0; cut <= kLaunches; ++cut) {
    INFO("in front of launch " << cut);
    Buffers alone, together;
    const std::unique_ptr<LaunchProgram> program = Tested().manifest.make_program();
    Launcher one_by_one(shape, nullptr), in_programs(shape, program.get());
    Fill(shape, 5, &alone);
    Fill(shape, 5, &together);
    ForEachLaunch(shape, layer, {}, alone, [&](const auto& params) { one_by_one(params); });
    one_by_one.End();
    int launch = 0;
    ForEachLaunch(shape, layer, {}, together, [&](const auto& params) {
      if (launch++ == cut) in_programs.End();
      in_programs(params);
    });
    REQUIRE(launch == kLaunches);
    in_programs.End();
    alone.RequireEqual(together);
  }
}

}  // namespace
}  // namespace dsv4::test
