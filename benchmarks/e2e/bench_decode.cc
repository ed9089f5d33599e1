// SPDX-License-Identifier: Apache-2.0
// Prefill and decode of a whole model at chosen lengths of context and numbers of sessions, against
// the bandwidth that this device has for copies, measured in the same run. With --synthetic-layers
// N the weights are random and MODEL_DIR needs a config.json alone: benchmarks/e2e/flash has the
// one of DeepSeek V4 Flash. --mix NAME gives them the types of a public GGUF file
// (lib/weights/synthetic_mix.h).
//
// The floor of a step is the time to read each weight once that the step needs: all weights except
// the embedding and the MTP block. T tokens choose E (1 - (1 - K / E)^T) experts on average. Each
// of several devices reads its rows of the weights that they divide, and all other weights. Cache
// rows are not counted. "sm120" models the share for a device of 1792 GB/s with the same launches:
// the part of the time beyond the floor stays the same.
//
// One session's prompt is computed per context; the sessions that are measured load its saved form,
// each into memory of its own, and continue with different tokens, so that their routing differs.
// With --operators, tables of where the time goes, each launch timed alone.
//
// With --without-weights, all matrices are one page of zeros, which stays in L2: what a step takes
// then is the latency of its launches, one after the other, with all their instructions. Shares of
// the floor mean nothing there.
//
// With --leave-out, a table of how much shorter the graph of a step is without the launches of each
// operator: what it takes there, beside what overlaps it. Only the length of such steps means
// anything. Their sum is not the step: what two operators overlap counts for neither. Launches of
// an operator that read and write as many bytes are left out together; those outside the layers
// stay. Each operator has launches of its own there (no step programs), as in the step that it is
// compared with.
//
// With --exchange none, devices compute on what is in their memory instead of exchanging it: what a
// step takes less is what exchange costs.
//
// With --device-weights, experts beyond so many GB of weights on each device lie in host memory.
// The floor is then the device's bytes over the bandwidth of its copies and the host's over the
// link's, that of copies from pinned memory, measured in the same run. What a step reads there was
// counted, up to a few steps; what a prefill reads there is by the share of experts that lie there.
// With --host-weights, experts beyond so many GB of host memory lie on disk: their elements in
// FILE, which is written if it is not there (8 GB; several experts lie in the same place, and reads
// go past the page cache). The floor then has the bytes that were read over the disk's bandwidth,
// measured in the same run by reads as the engine makes them.
// --warm N has N steps before those that are measured, in which experts that are chosen often come
// to the device, and --router-skew X routers of random weights that choose few experts often
// (lib/weights/synthetic.h). --own-tokens N has each session compute the last N tokens of its
// context itself (16): where experts lie on disk, that takes seconds.
//
// With --drafts N, for the folder's drafter: what a step takes that verifies N drafts, and a draft
// of N tokens, of one session, by the device's time of their graphs. The floor of a draft is the
// time to read the drafter's weights, of the experts as many as its rows choose, and the head's.
//
// --step-limit has each step watched, as the library does by default (EngineOptions::step_limit).
//
// --auto opens what the library chooses without any option, of GPUs of any kind: devices, limits of
// memory and the context. --leave GB takes memory of each GPU until so much of it is free.
//
// Lines "# clocks" have the devices' clocks, power and throttling during the prefills and during
// the rest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/clock.h"
#include "benchmarks/dsv4-bench/gpu_state.h"
#include "benchmarks/e2e/bandwidth.h"
#include "benchmarks/e2e/bench_decode_options.h"
#include "benchmarks/e2e/operator_times.h"
#include "benchmarks/e2e/page_of_zeros.h"
#include "benchmarks/must.h"
#include "examples/console/failure.h"
#include "lib/base/error.h"
#include "lib/engine/engine.h"
#include "lib/proof/list_devices.h"
#include "lib/proof/open_best.h"
#include "lib/session/session.h"
#include "lib/weights/gguf_tensors.h"
#include "lib/weights/synthetic.h"
#include "lib/weights/weight_table.h"

namespace dsv4 {
namespace {

// The launches of an operator that read and write as many bytes.
using LaunchKind = std::pair<Op, int64_t>;

// Launches all but one kind, and counts the launches of each kind.
class LeftOut final : public LaunchRecorder {
 public:
  explicit LeftOut(std::optional<LaunchKind> kind = {}) : kind_(kind) {}
  const std::map<LaunchKind, int64_t>& launches() const { return launches_; }
  void Record(const KernelEntry& entry, const void*, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    const LaunchKind kind(entry.op, cost.bytes);
    ++launches_[kind];
    if (kind != kind_) launch();
  }
  bool overlaps() const override { return true; }

 private:
  std::optional<LaunchKind> kind_;
  std::map<LaunchKind, int64_t> launches_;
};

constexpr int kGraphSteps = 16, kRecordedSteps = 4;
constexpr int64_t kMostLeftOut = 64 * kGraphSteps;  // steps of --leave-out
constexpr double kSm120Bandwidth = 1792e9;  // RTX PRO 6000, RTX 5090: bytes a second, by the vendor

// Names of the tensors that devices divide, without the suffixes of their parts.
std::set<std::string> SharedOut(const ModelConfig& config) {
  WeightViews views;
  views.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  WeightTable table(config);
  table.AddAll(&views);
  std::set<std::string> names;
  for (const WeightSpec& spec : table.specs()) {
    if (spec.split != Split::kNone) names.insert(spec.name);
  }
  return names;
}

// Name and bytes of each tensor of the engine.
std::vector<std::pair<std::string, int64_t>> TensorsOf(const std::string& folder,
                                                       const ModelConfig& config,
                                                       const EngineOptions& options) {
  const std::unique_ptr<Checkpoint> checkpoint =
      Must(options.synthetic_layers > 0 ? SyntheticCheckpoint(config, options.synthetic)
                                        : OpenWeights(folder, config));
  std::vector<std::pair<std::string, int64_t>> tensors;
  for (const auto& [name, entry] : checkpoint->tensors()) tensors.emplace_back(name, entry.bytes);
  return tensors;
}

std::vector<int32_t> Prompt(int64_t tokens, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> prompt;
  for (int64_t i = 0; i < tokens; ++i) {
    uint64_t z = (seed << 32) + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 31)) * 0xbf58476d1ce4e5b9u;
    prompt.push_back(static_cast<int32_t>(2 + (z >> 33) % static_cast<uint64_t>(vocab - 2)));
  }
  return prompt;
}

class Benchmark {
 public:
  explicit Benchmark(const BenchDecodeOptions& options) : options_(options) {
    const auto largest = [](const std::vector<int64_t>& values) {
      return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
    };
    const int64_t context =
        std::max(largest(options.contexts) + options.warm_steps + kGraphSteps + kRecordedSteps +
                     options.steps + 2 + (options.leave_out ? kMostLeftOut : 0),
                 largest(options.prefills) + 2);
    const int64_t sessions = largest(options.sessions);
    OpenOptions open{options.engine};
    if (options.automatic) {
      open.prefer_gpu = open.any_gpu = open.prove = true;
    } else {
      open.context_tokens = context;
      open.cache_tokens = context * sessions;
      open.max_sessions = static_cast<int32_t>(sessions);
    }
    open.max_draft_tokens = static_cast<int32_t>(options.drafts);
    if (options.left_bytes > 0) TakeMemory(options.left_bytes);
    // Opened before, so that what CUDA takes for any program does not count.
    const bool cuda = open.backend == Backend::kCuda;
    const auto device = Must(Device::Open({.kind = cuda ? DeviceKind::kCuda : DeviceKind::kCpu}));
    if (cuda) gpus_ = open.devices.empty() ? std::vector<int32_t>{0} : open.devices;
    bandwidth_ = CopyBandwidth(*device);
    link_ = LinkBandwidth(*device);
    const std::optional<int64_t> free_before = device->FreeBytes();
    if (const std::string file = std::exchange(open.synthetic.file, {}); !file.empty()) {
      WriteDiskFile(file);
      disk_ = DiskBandwidth(file);
      // Experts on disk are the last of each layer.
      const ResidencyPlan plan = Must(options.automatic ? PlanBest(options.folder, open)
                                                        : Engine::Plan(options.folder, open))
                                     .info()
                                     .residency;
      open.synthetic.file = file;
      open.synthetic.first_in_file = plan.experts - plan.OnDisk(plan.blocks - 1);
    }
    const Clock::time_point start = Clock::now();
    double shown = 0;
    open.progress = [&](int64_t done, int64_t total) {
      constexpr double kBetween = 20;  // seconds
      if (SecondsSince(start) < shown + kBetween) return true;
      shown = SecondsSince(start);
      std::printf("%.0f s: %.1f of %.1f GB of weights\n", shown, static_cast<double>(done) * 1e-9,
                  static_cast<double>(total) * 1e-9);
      return true;
    };
    engine_ = Must(options.automatic ? OpenBest(options.folder, open)
                                     : Engine::Open(options.folder, open));
    tensors_ = TensorsOf(options.folder, engine_->config(), open);
    shared_out_ = SharedOut(engine_->config());
    Must(engine_->device().Synchronize());
    open_seconds_ = SecondsSince(start);
    if (options.without_weights) TakeWeightsOut();
    if (options.leave_out &&
        (engine_->device().host_memory() || engine_->info().devices.size() != 1 ||
         !options.engine.graphs || engine_->info().residency.on_disk > 0)) {
      Must(Unsupported("--leave-out needs one GPU and recorded steps"));
    }
    const EngineInfo& info = engine_->info();
    if (free_before) {
      unplanned_bytes_ =
          *free_before - *engine_->device().FreeBytes() - info.devices.front().total();
    }
  }

  void Run() {
    PrintTitle();
    if (options_.operators) {
      std::printf("of each launch below, %.1f us are those of an empty one\n",
                  engine_->device().SecondsOf([] {}) * 1e6);
    }
    if (!options_.prefills.empty()) {
      bench::GpuSampler clocks(gpus_);
      for (const int64_t tokens : options_.prefills) MeasurePrefill(tokens);
      clocks.StopAndPrint();
    }
    bench::GpuSampler clocks(gpus_);
    std::printf("%9s %9s %9s %9s %10s %9s %8s %8s %7s %9s\n", "context", "sessions", "step ms",
                "graph ms", "tokens/s", "floor ms", "of it", "sm120", "longer", "distinct");
    // Of each number of sessions at the first context.
    std::vector<double> first;
    for (const int64_t context : options_.contexts) {
      const std::vector<uint8_t> image = Computed(context);
      for (size_t i = 0; i < options_.sessions.size(); ++i) {
        const double step =
            MeasureDecode(context, options_.sessions[i], image, i < first.size() ? first[i] : 0);
        if (i == first.size()) first.push_back(step);
      }
      if (options_.drafts > 0) MeasureDrafts(context, image);
    }
    clocks.StopAndPrint();
  }

 private:
  // Of each GPU, until so many bytes of it are free.
  void TakeMemory(int64_t left) {
    for (const DeviceListing& gpu : ListDevices("")) {
      if (gpu.kind != DeviceKind::kCuda) continue;
      auto device = Must(Device::Open({.kind = DeviceKind::kCuda, .index = gpu.index}));
      const int64_t free = device->FreeBytes().value_or(0);
      if (free > left) taken_.push_back(Must(device->Allocate(free - left, "what is taken")));
      taken_from_.push_back(std::move(device));
    }
  }

  void TakeWeightsOut() {
#ifdef DSV4_HAVE_CUDA
    Must(ReadPageOfZeros(engine_.get()));
#else
    Must(Unsupported("--without-weights: this build has no CUDA backend"));
#endif
  }

  void PrintTitle() const {
    const EngineInfo& info = engine_->info();
    if (options_.without_weights) std::printf("without the bytes of weights\n");
    if (options_.automatic) {
      const DeviceBytes& fullest = info.fullest();
      std::printf("chosen: %s\n%.2f GB of weights of %.2f GB on each GPU, context of %lld tokens\n",
                  info.backend_reason.c_str(), static_cast<double>(fullest.weights) * 1e-9,
                  static_cast<double>(fullest.total()) * 1e-9,
                  static_cast<long long>(info.context_tokens));
    }
    std::printf("predicted: decode %.2f tokens/s, prefill %.0f tokens/s\n", info.expected_decode,
                info.expected_prefill);
    const double bytes = FloorBytes(1);
    std::printf(
        "%s, %lld layers, opened in %.1f s: weights %.2f GB, cache %.2f GB, workspace %.2f GB, "
        "%s rows\n",
        engine_->device_name().c_str(), static_cast<long long>(engine_->config().num_hidden_layers),
        open_seconds_, static_cast<double>(info.weight_bytes) * 1e-9,
        static_cast<double>(info.cache_bytes) * 1e-9,
        static_cast<double>(info.workspace_bytes) * 1e-9, RowFormatName(info.cache_format));
    if (info.devices.size() > 1) {
      std::printf("%zu devices of at most %.2f GB each; %lld exchanges and %.2f MB a token\n",
                  info.devices.size(), static_cast<double>(info.fullest().total()) * 1e-9,
                  static_cast<long long>(info.exchange.exchanges),
                  static_cast<double>(info.exchange.bytes) * 1e-6);
    }
    if (info.residency.on_host > 0) {
      std::printf("%lld of %lld experts on the host, %.2f GB; the link has %.1f GB/s\n",
                  static_cast<long long>(info.residency.on_host),
                  static_cast<long long>(info.residency.all()),
                  static_cast<double>(info.residency.host_bytes()) * 1e-9, link_ * 1e-9);
    }
    if (info.residency.on_disk > 0) {
      std::printf("%lld of them on disk, at %.2f GB/s; %lld slots for them on the device\n",
                  static_cast<long long>(info.residency.on_disk), disk_ * 1e-9,
                  static_cast<long long>(info.residency.guests));
    }
    if (unplanned_bytes_) {
      std::printf("kernels and graphs took %.3f GB of the device, which the plan does not count\n",
                  static_cast<double>(*unplanned_bytes_) * 1e-9);
    }
    std::printf("a token reads %.3f GB; copies %.0f GB/s; floor %.3f ms, at %.0f GB/s %.3f ms\n",
                bytes * 1e-9, bandwidth_ * 1e-9, bytes / bandwidth_ * 1e3, kSm120Bandwidth * 1e-9,
                bytes / kSm120Bandwidth * 1e3);
  }

  // Bytes of weights that each device reads in a step of so many tokens, or in a draft of them.
  double FloorBytes(int64_t tokens, bool draft = false) const {
    const ModelConfig& config = engine_->config();
    const auto devices = static_cast<double>(engine_->info().devices.size());
    const double chosen = static_cast<double>(config.num_experts_per_tok) /
                          static_cast<double>(config.n_routed_experts);
    const double read_experts = 1 - std::pow(1 - chosen, static_cast<double>(tokens));
    double bytes = 0;
    for (const auto& [name, tensor_bytes] : tensors_) {
      const bool drafter = name.rfind("mtp.", 0) == 0;
      if (name == "embed.weight") continue;
      if (draft != (drafter || (draft && name == "head.weight"))) continue;
      if (name.find("tid2eid") != std::string::npos) continue;
      const bool routed = name.find("ffn.experts.") != std::string::npos;
      const std::string row = name.substr(0, name.rfind('.'));
      const bool part = shared_out_.count(row) > 0 || shared_out_.count(name) > 0;
      bytes +=
          (routed ? read_experts : 1) * static_cast<double>(tensor_bytes) / (part ? devices : 1);
    }
    return bytes;
  }

  // That shares nothing with any other.
  std::unique_ptr<Session> NewSession() {
    std::unique_ptr<Session> session = Must(Session::Open(engine_, {}, ++salt_));
    Must(session->SetSampling({.temperature = options_.temperature,
                               .seed = salt_,
                               .banned_tokens = engine_->config().eos_token_ids}));
    return session;
  }

  std::vector<int32_t> Tokens(int64_t count, uint64_t seed) const {
    return Prompt(count, engine_->config().vocab_size, seed);
  }

  double PrefillSeconds(const std::vector<int32_t>& tokens) {
    const std::unique_ptr<Session> session = NewSession();
    Must(session->Sync(tokens));
    const Clock::time_point start = Clock::now();
    Must(session->Prefill(0, nullptr));
    return SecondsSince(start);
  }

  void MeasurePrefill(int64_t count) {
    const std::vector<int32_t> tokens = Tokens(count, static_cast<uint64_t>(count));
    // What runs for the first time is loaded then. From disk comes most of a long prompt's time.
    if (engine_->info().residency.on_disk == 0) {
      PrefillSeconds(
          {tokens.begin(),
           tokens.begin() + std::min<int64_t>(count, engine_->info().prefill_chunk_tokens)});
    }
    const double seconds = PrefillSeconds(tokens);
    std::printf("prefill of %lld tokens: %.1f ms, %.0f tokens/s\n", static_cast<long long>(count),
                seconds * 1e3, static_cast<double>(count) / seconds);
    if (engine_->info().residency.on_host > 0) {
      const int64_t chunk = std::min<int64_t>(count, engine_->info().prefill_chunk_tokens);
      const double host = FloorOf(chunk).host_bytes / link_ * static_cast<double>(count) /
                          static_cast<double>(chunk);
      std::printf("  its experts on the host take %.1f ms of the link, %.1f %% of it\n", host * 1e3,
                  100 * host / seconds);
    }
    if (!options_.operators) return;
    OperatorTimes times(&engine_->device());
    engine_->set_recorder(&times);
    PrefillSeconds(tokens);
    engine_->set_recorder(nullptr);
    times.Print(1);
  }

  // The saved form of a session that has computed all of a context but own_tokens.
  std::vector<uint8_t> Computed(int64_t context) {
    const std::unique_ptr<Session> session = NewSession();
    Must(session->Sync(Tokens(context - options_.own_tokens, 0)));
    Must(session->Prefill(0, nullptr));
    std::vector<uint8_t> image(static_cast<size_t>(session->SaveBytes()));
    Must(session->SaveTo(absl::MakeSpan(image)));
    return image;
  }

  double MeasureDecode(int64_t context, int64_t count, absl::Span<const uint8_t> image,
                       double first) {
    std::vector<std::unique_ptr<Session>> sessions;
    std::vector<Session*> steps;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> tokens = Tokens(context - options_.own_tokens, 0);
      const std::vector<int32_t> own = Tokens(options_.own_tokens, static_cast<uint64_t>(i + 1));
      tokens.insert(tokens.end(), own.begin(), own.end());
      sessions.push_back(NewSession());
      Must(sessions.back()->Load(image, "the computed context"));
      Must(sessions.back()->Sync(tokens));
      Must(sessions.back()->Prefill(0, nullptr));
      steps.push_back(sessions.back().get());
    }
    std::vector<absl::StatusOr<StepResult>> results(steps.size());
    int64_t distinct = 0;
    const auto step_all = [&] {
      const Clock::time_point start = Clock::now();
      Must(Session::StepAll(steps, absl::MakeSpan(results)));
      const double seconds = SecondsSince(start);
      std::set<int32_t> tokens;
      for (const auto& result : results) tokens.insert(Must(result).token);
      distinct += static_cast<int64_t>(tokens.size());
      return seconds;
    };
    for (int64_t i = 0; i < options_.warm_steps; ++i) step_all();
    distinct = 0;
    const ExpertTraffic before = engine_->expert_traffic();
    double seconds = 0;
    for (int64_t i = 0; i < options_.steps; ++i) seconds += step_all();
    const ExpertTraffic after = engine_->expert_traffic();
    const double measured_distinct = static_cast<double>(distinct);
    const bool graphs = options_.engine.graphs && engine_->info().residency.on_disk == 0;
    const double graph_seconds = !graphs ? 0 : engine_->device().GraphSecondsOf([&] {
      for (int i = 0; i < kGraphSteps; ++i) step_all();
    });
    const double step = seconds / static_cast<double>(options_.steps);
    const auto measured = static_cast<double>(options_.steps);
    const int64_t host_reads = after.host_reads - before.host_reads;
    const int64_t reads = host_reads + after.device_reads - before.device_reads;
    const int64_t disk_bytes = after.disk_bytes - before.disk_bytes;
    StepFloor least = FloorOf(count);
    if (reads > 0) {
      const double host_bytes = static_cast<double>(after.host_bytes - before.host_bytes);
      least = FloorOf(count,
                      host_bytes / measured / static_cast<double>(engine_->info().devices.size()));
    }
    if (disk_bytes > 0) least.seconds += static_cast<double>(disk_bytes) / measured / disk_;
    const double floor = least.seconds;
    const double sm120_floor = least.device_bytes / kSm120Bandwidth + least.host_bytes / link_;
    std::printf("%9lld %9lld %9.3f %9.3f %10.1f %9.3f %7.1f%% %7.1f%% %7.3f %9.1f\n",
                static_cast<long long>(context), static_cast<long long>(count), step * 1e3,
                graph_seconds / kGraphSteps * 1e3, static_cast<double>(count) / step, floor * 1e3,
                100 * floor / step, 100 * sm120_floor / (sm120_floor + std::max(step - floor, 0.0)),
                first == 0 ? 1 : step / first,
                measured_distinct / static_cast<double>(options_.steps));
    if (reads > 0) {
      std::printf("  %.1f experts a step, %.1f %% of them on the device; %.1f came there a step\n",
                  static_cast<double>(reads) / measured,
                  100 - 100 * static_cast<double>(host_reads) / static_cast<double>(reads),
                  static_cast<double>(after.moved - before.moved) / measured);
    }
    if (disk_bytes > 0) {
      std::printf("  %.1f experts a step from disk, %.3f GB, for which it waits %.1f ms\n",
                  static_cast<double>(after.disk_reads - before.disk_reads) / measured,
                  static_cast<double>(disk_bytes) / measured * 1e-9,
                  (after.disk_seconds - before.disk_seconds) / measured * 1e3);
    }
    if (options_.leave_out) PrintLeftOut(step_all);
    if (options_.operators) {
      OperatorTimes times(&engine_->device());
      engine_->set_recorder(&times);
      for (int i = 0; i < kRecordedSteps; ++i) step_all();
      engine_->set_recorder(nullptr);
      times.Print(kRecordedSteps);
    }
    std::fflush(stdout);
    return step;
  }

  void PrintLeftOut(absl::FunctionRef<double()> step_all) {
    LeftOut all;
    engine_->set_recorder(&all);
    step_all();
    engine_->set_recorder(nullptr);
    // Device seconds of a step that is recorded so.
    const auto seconds_with = [&](LeftOut&& left_out) {
      engine_->set_recorder(&left_out);
      Must(engine_->model().RecordAgain());
      engine_->set_recorder(nullptr);
      const double seconds = engine_->device().GraphSecondsOf([&] {
        for (int step = 0; step < kGraphSteps; ++step) step_all();
      });
      return seconds / kGraphSteps;
    };
    const double whole = seconds_with(LeftOut());
    std::printf("  %-17s %8s %9s %9s\n", "without", "MB", "launches", "us less");
    for (const auto& [kind, launches] : all.launches()) {
      if (launches == 1) continue;  // not of the layers
      std::printf("  %-17s %8.2f %9lld %9.1f\n", OpName(kind.first),
                  static_cast<double>(kind.second) * 1e-6, static_cast<long long>(launches),
                  (whole - seconds_with(LeftOut(kind))) * 1e6);
    }
    Must(engine_->model().RecordAgain());
  }

  // Device seconds and seconds of a step that verifies drafts, of wrong ones, few enough that
  // drafting is not given up; `own`: and makes new ones, by the drafter.
  std::pair<double, double> DraftingStep(int64_t context, absl::Span<const uint8_t> image,
                                         bool own) {
    constexpr int kRounds = 4, kSteps = 4;
    double device = 0, host = 0;
    for (int round = 0; round < kRounds; ++round) {
      const std::unique_ptr<Session> session = NewSession();
      Must(session->SetSampling({.seed = salt_,
                                 .banned_tokens = engine_->config().eos_token_ids,
                                 .draft_tokens = own ? static_cast<int32_t>(options_.drafts) : 0}));
      const auto step = [&] {
        Must(session->Step());
        if (own) return;
        Speculation& speculation = session->timeline().speculation();
        speculation.Clear();
        for (int64_t i = 0; i < options_.drafts; ++i) speculation.Add(2);
      };
      std::vector<int32_t> tokens = Tokens(context - options_.own_tokens, 0);
      const std::vector<int32_t> last = Tokens(options_.own_tokens, salt_);
      tokens.insert(tokens.end(), last.begin(), last.end());
      Must(session->Load(image, "the computed context"));
      Must(session->Sync(tokens));
      // Until a step has ended with drafts, so that those that follow verify some.
      step();
      step();
      const Clock::time_point start = Clock::now();
      device += engine_->device().GraphSecondsOf([&] {
        const int64_t before = session->stats().speculation.steps();
        while (session->stats().speculation.steps() < before + kSteps) step();
      });
      host += SecondsSince(start);
    }
    if (device == 0) device = host;  // without graphs
    return {device / (kRounds * kSteps), host / (kRounds * kSteps)};
  }

  void MeasureDrafts(int64_t context, absl::Span<const uint8_t> image) {
    DraftingStep(context, image, true);  // warms up
    const auto [verify, verify_host] = DraftingStep(context, image, false);
    const auto [both, both_host] = DraftingStep(context, image, true);
    const double verify_floor = FloorBytes(options_.drafts + 1) / bandwidth_;
    const double draft_floor = FloorBytes(options_.drafts, true) / bandwidth_;
    std::printf(
        "context %lld, %lld drafts: verifying %.3f ms (floor %.3f, %.1f %%), drafting %.3f ms "
        "(floor %.3f, %.1f %%); on the host's clock %.3f ms without drafting, %.3f with\n",
        static_cast<long long>(context), static_cast<long long>(options_.drafts), verify * 1e3,
        verify_floor * 1e3, 100 * verify_floor / verify, (both - verify) * 1e3, draft_floor * 1e3,
        100 * draft_floor / (both - verify), verify_host * 1e3, both_host * 1e3);
    std::fflush(stdout);
  }

  const BenchDecodeOptions& options_;
  std::vector<std::unique_ptr<Device>> taken_from_;
  std::vector<Buffer> taken_;
  std::shared_ptr<Engine> engine_;
  // Seconds that a step of so many tokens takes at least, and the bytes of the device and of the
  // host that it reads.
  struct StepFloor {
    double seconds, device_bytes, host_bytes;
  };
  StepFloor FloorOf(int64_t tokens, std::optional<double> host_bytes = {}) const {
    const EngineInfo& info = engine_->info();
    const double all = FloorBytes(tokens);
    const double experts = all - FloorBytes(0);  // routed, of one device
    const double share = static_cast<double>(info.residency.on_host) /
                         static_cast<double>(std::max<int64_t>(info.residency.all(), 1));
    const double host = host_bytes.value_or(experts * share);
    return {(all - host) / bandwidth_ + host / link_, all - host, host};
  }

  std::vector<std::pair<std::string, int64_t>> tensors_;
  std::set<std::string> shared_out_;
  std::vector<int32_t> gpus_;  // CUDA's indices; none with the CPU backend
  double open_seconds_ = 0, bandwidth_ = 0, link_ = 0, disk_ = 0;
  std::optional<int64_t> unplanned_bytes_;  // of the device's memory
  uint64_t salt_ = 0;
};

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  dsv4::BenchDecodeOptions options;
  try {
    options = dsv4::ParseBenchDecode(argc, argv);
  } catch (const chat::Failure& failure) {
    std::fprintf(stderr, "bench_decode: %s\n%s", failure.message.c_str(),
                 dsv4::BenchDecodeUsage().c_str());
    return failure.exit_code;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a run was killed at is then seen in a file, too
  dsv4::Benchmark(options).Run();
  return 0;
}
