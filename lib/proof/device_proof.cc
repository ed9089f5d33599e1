// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/device_proof.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/op/hyper_connection.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/mutex.h"
#include "lib/base/status_macros.h"
#include "lib/device/watched_thread.h"
#include "lib/io/content_hash.h"
#include "lib/proof/known_answers.h"
#include "lib/proof/launch_memory.h"
#include "lib/proof/proof_models.h"

namespace dsv4 {
namespace {

constexpr int32_t kKnownPasses[] = {1, 3};  // rows
constexpr int32_t kLongRowsInBlocks = 72;   // of the model in block formats, a tile and more
constexpr int32_t kShortRows = 8;           // of a pass that the long prompt is computed in, too

LaunchMemory MemoryOf(Engine& engine) { return {&engine.device(), engine.host_rows()}; }

absl::Status RunKnownPasses(Engine& engine) {
  ProofTimeline timeline(engine);
  DSV4_RETURN_IF_ERROR(timeline.Open());
  for (const int32_t rows : kKnownPasses) DSV4_RETURN_IF_ERROR(timeline.Pass(rows));
  return absl::OkStatus();
}

// Records only the launches of the DSpark drafter, with generated inputs that are the same on every
// device. So the other launches of its model need no known answers.
class OfDspark final : public LaunchRecorder {
 public:
  OfDspark(LaunchRecorder* inner, const LaunchMemory& memory) : inner_(inner), memory_(memory) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    const bool mean =
        entry.op == Op::kHcHead && static_cast<const HcHeadParams*>(params)->fn == nullptr;
    if (!mean && entry.op != Op::kDraftLogits) return launch();
    std::mt19937_64 random(1);
    for (const LaunchTensor& input : entry.tensors(params, memory_.device()).in) {
      std::vector<float> values(static_cast<size_t>(input.rows * input.width));
      for (float& value : values) value = MadeUp(random, 2);
      status_.Update(memory_.Write(input, std::move(values)));
    }
    inner_->Record(entry, params, cost, launch);
  }
  const absl::Status& status() const { return status_; }

 private:
  LaunchRecorder* const inner_;
  const LaunchMemory memory_;
  absl::Status status_;
};

// Records only the launches of experts.
class OfExperts final : public LaunchRecorder {
 public:
  explicit OfExperts(LaunchRecorder* inner) : inner_(inner) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    if (entry.op != Op::kExpertFfn) return launch();
    inner_->Record(entry, params, cost, launch);
  }

 private:
  LaunchRecorder* const inner_;
};

// The known passes of a model, seen by `recorder`.
absl::Status RunSeen(ProofModel model, Engine& engine, LaunchRecorder* recorder) {
  OfDspark of_dspark(recorder, MemoryOf(engine));
  OfExperts of_experts(recorder);
  if (model == ProofModel::kDspark) recorder = &of_dspark;
  if (model == ProofModel::kNvfp4) recorder = &of_experts;
  engine.set_recorder(recorder);
  const absl::Status ran = RunKnownPasses(engine);
  engine.set_recorder(nullptr);
  DSV4_RETURN_IF_ERROR(of_dspark.status());
  return ran;
}

// Runs `launched` after each launch of another recorder's.
class AfterLaunches final : public LaunchRecorder {
 public:
  AfterLaunches(LaunchRecorder* inner, const ProofOptions& options)
      : inner_(inner), launched_(options.launched) {}
  void Record(const KernelEntry& entry, const void* params, const Cost& cost,
              absl::FunctionRef<void()> launch) override {
    inner_->Record(entry, params, cost, [&] {
      launch();
      if (launched_) launched_(entry, params);
    });
  }

 private:
  LaunchRecorder* const inner_;
  const std::function<void(const KernelEntry&, const void*)>& launched_;
};

// Nothing but the launches: with a recorder they are one after the other, and in no graph.
class Launches final : public LaunchRecorder {
  void Record(const KernelEntry&, const void*, const Cost&,
              absl::FunctionRef<void()> launch) override {
    launch();
  }
};

// Hashes of the rows of every output. The rows of consecutive passes are joined.
class OutputRows final : public LaunchRecorder {
 public:
  struct Output {
    Op op;
    const char* name;
    std::vector<ContentHash> rows;
  };

  explicit OutputRows(const LaunchMemory& memory) : memory_(memory) {}
  void NextPass() { next_ = 0; }
  void Record(const KernelEntry& entry, const void* params, const Cost&,
              absl::FunctionRef<void()> launch) override {
    launch();
    if (!status_.ok()) return;
    for (const LaunchOutput& out : entry.tensors(params, memory_.device()).out) {
      // A pass leaves the states behind its own last row.
      if (absl::string_view(out.name) == "state") continue;
      const absl::StatusOr<std::vector<float>> values = memory_.Read(out.tensor);
      if (!values.ok()) {
        status_ = values.status();
        return;
      }
      if (next_ == outputs_.size()) outputs_.push_back({entry.op, out.name, {}});
      for (int64_t row = 0; row < out.tensor.rows; ++row) {
        const auto* bytes =
            reinterpret_cast<const uint8_t*>(values->data() + row * out.tensor.width);
        outputs_[next_].rows.push_back(
            HashOf({bytes, static_cast<size_t>(out.tensor.width) * sizeof(float)}));
      }
      ++next_;
    }
  }

  const absl::Status& status() const { return status_; }
  const std::vector<Output>& outputs() const { return outputs_; }

 private:
  const LaunchMemory memory_;
  size_t next_ = 0;
  std::vector<Output> outputs_;
  absl::Status status_;
};

class Proof {
 public:
  explicit Proof(const ProofOptions& options) : options_(options) {}

  absl::StatusOr<DeviceProof> Run() {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<int32_t> devices =
        options_.devices.empty() ? std::vector<int32_t>{0} : options_.devices;
    std::map<ProofModel, std::vector<float>> logits;
    // The parts of the CPU are alike.
    const size_t alone = options_.backend == Backend::kCuda ? devices.size() : 1;
    for (const int32_t device : absl::MakeConstSpan(devices).first(alone)) {
      std::map<ProofModel, std::shared_ptr<Engine>> engines;
      for (const ProofModel model : kProofModels) {
        DSV4_ASSIGN_OR_RETURN(engines[model], Open(model, {device}));
      }
      const std::string name = NameOf(*engines.begin()->second, device);
      DSV4_RETURN_IF_ERROR(Named(name, KnownAnswersHold(engines)));
      // A block of DSpark has as many rows in every step.
      for (const ProofModel model : {ProofModel::kMtp, ProofModel::kBlocks, ProofModel::kNvfp4}) {
        const int32_t rows = model == ProofModel::kBlocks
                                 ? std::min(options_.long_rows, kLongRowsInBlocks)
                                 : options_.long_rows;
        DSV4_RETURN_IF_ERROR(Named(name, RowRuleHolds(*engines[model], rows)));
      }
      for (const auto& [model, engine] : engines) {
        DSV4_ASSIGN_OR_RETURN(logits[model], LogitsOf(*engine));
        DSV4_RETURN_IF_ERROR(Named(name, GraphsHold(*engine, logits[model])));
      }
    }
    for (const ProofModel model : kProofModels) {
      if (devices.size() == 1) break;
      DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Open(model, devices));
      DSV4_ASSIGN_OR_RETURN(const std::vector<float> together, LogitsOf(*engine));
      if (together != logits[model]) {
        return Refused(absl::StrCat("devices ", absl::StrJoin(devices, ", ")),
                       "exchange: together they compute other logits than one of them alone");
      }
    }
    proof_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(proof_);
  }

 private:
  absl::StatusOr<std::shared_ptr<Engine>> Open(ProofModel model,
                                               const std::vector<int32_t>& devices) const {
    DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, OpenOn(model, devices));
    if (options_.opened) options_.opened(*engine);
    return engine;
  }

  absl::StatusOr<std::shared_ptr<Engine>> OpenOn(ProofModel model,
                                                 const std::vector<int32_t>& devices) const {
    EngineOptions options = ProofEngineOptions(model);
    options.backend = options_.backend;
    options.devices = devices;
    options.tuning_dir = options_.tuning_dir;
    options.threads = options_.threads;
    options.context_tokens = kProofPast + std::max<int32_t>(options_.long_rows, 4) + 8;
    options.cache_tokens = 4 * options.context_tokens;
    options.prefill_chunk_tokens = std::max(kProofPast, options_.long_rows);
    options.config_number = options_.config;
    options.exchange = options_.exchange;
    options.kernel_set = options_.kernel_set;
    return Engine::OpenRandom(ProofConfig(model), options);
  }

  static std::string NameOf(const Engine& engine, int32_t device) {
    return absl::StrCat(engine.info().backend == Backend::kCuda ? "cuda:" : "cpu:", device, " (",
                        engine.device_name(), ")");
  }

  static absl::Status Refused(const std::string& name, absl::string_view finding) {
    return Unsupported(name, " is refused: it failed its known answers: ", finding);
  }

  // Findings get the device's name; other errors have it.
  static absl::Status Named(const std::string& name, const absl::Status& status) {
    return IsUnsupported(status) ? Refused(name, status.message()) : status;
  }

  absl::Status KnownAnswersHold(const std::map<ProofModel, std::shared_ptr<Engine>>& engines) {
    DSV4_ASSIGN_OR_RETURN(std::vector<LaunchRecord> launches,
                          DecodeKnownAnswers(BuiltinKnownAnswers()));
    OperatorComparison comparison;
    comparison.set_launches(std::move(launches));
    absl::Status ran;
    for (const auto& [model, engine] : engines) {
      AfterLaunches recorder(comparison.tested(MemoryOf(*engine)), options_);
      ran.Update(RunSeen(model, *engine, &recorder));
    }
    const absl::Status same = comparison.Complete();
    // Reports a wrong operator first: other differences may follow from it.
    for (const auto& [name, flips] : comparison.flips()) {
      if (flips.Holds()) continue;
      return Unsupported(name, " (", flips.shape, "): ", flips.Describe());
    }
    DSV4_RETURN_IF_ERROR(ran);
    DSV4_RETURN_IF_ERROR(same);
    for (const auto& [name, flips] : comparison.flips()) proof_.flips[name].Add(flips, flips.shape);
    return absl::OkStatus();
  }

  // A prompt of `rows` rows.
  absl::Status RunLong(Engine& engine, int32_t rows, int32_t pass_rows, OutputRows* outputs) const {
    ProofTimeline timeline(engine);
    DSV4_RETURN_IF_ERROR(timeline.Open());
    AfterLaunches recorder(outputs, options_);
    engine.set_recorder(&recorder);
    absl::Status status;
    for (int32_t row = 0; row < rows && status.ok(); row += pass_rows) {
      outputs->NextPass();
      status = timeline.Pass(std::min(pass_rows, rows - row));
    }
    engine.set_recorder(nullptr);
    DSV4_RETURN_IF_ERROR(outputs->status());
    return status;
  }

  absl::Status RowRuleHolds(Engine& engine, int32_t long_rows) {
    OutputRows together(MemoryOf(engine)), parts(MemoryOf(engine));
    DSV4_RETURN_IF_ERROR(RunLong(engine, long_rows, long_rows, &together));
    DSV4_RETURN_IF_ERROR(RunLong(engine, long_rows, kShortRows, &parts));
    if (together.outputs().size() != parts.outputs().size()) {
      return Internal("a long pass has ", together.outputs().size(), " outputs, short ones ",
                      parts.outputs().size());
    }
    for (size_t i = 0; i < parts.outputs().size(); ++i) {
      const OutputRows::Output &one = together.outputs()[i], &other = parts.outputs()[i];
      if (one.rows.size() != other.rows.size()) continue;  // the head's
      const auto differs =
          std::mismatch(one.rows.begin(), one.rows.end(), other.rows.begin()).first;
      if (differs == one.rows.end()) continue;
      return Unsupported(OpName(one.op), ".", one.name, " (rows ", long_rows, "): row ",
                         differs - one.rows.begin(), " differs from its result in a pass of ",
                         kShortRows, " rows");
    }
    proof_.long_launches += static_cast<int64_t>(parts.outputs().size());
    return absl::OkStatus();
  }

  // What engines do, against the same kernels one after the other.
  absl::Status GraphsHold(Engine& engine, const std::vector<float>& logits) const {
    Launches launches;
    engine.set_recorder(&launches);
    const absl::StatusOr<std::vector<float>> alone = LogitsOf(engine);
    engine.set_recorder(nullptr);
    DSV4_RETURN_IF_ERROR(alone.status());
    if (*alone == logits) return absl::OkStatus();
    return Unsupported(
        "graphs: a step replayed from a graph gives other logits than its kernels one by one");
  }

  // With graphs and concurrent streams, if the device has them.
  static absl::StatusOr<std::vector<float>> LogitsOf(Engine& engine) {
    ProofTimeline timeline(engine);
    DSV4_RETURN_IF_ERROR(timeline.Open());
    for (const int32_t rows : kKnownPasses) DSV4_RETURN_IF_ERROR(timeline.Pass(rows));
    return timeline.logits();
  }

  const ProofOptions& options_;
  DeviceProof proof_;
};

}  // namespace

absl::StatusOr<DeviceProof> ProveDevices(const ProofOptions& options) {
  return Proof(options).Run();
}

namespace {

// The tests of this process.
struct Proofs {
  using Asked = std::pair<std::vector<int32_t>, std::string>;  // devices, tuning_dir
  Mutex testing;                                               // held while a test runs
  std::map<Asked, ProvenKernels> passed ABSL_GUARDED_BY(testing);
  Mutex mutex;
  std::map<Asked, std::string> refused ABSL_GUARDED_BY(mutex);  // the last result
};

Proofs& TheProofs() {
  static Proofs proofs;
  return proofs;
}

// ProveDevices, or DeviceLost if a call of the driver does not return within the limit. The test's
// memory then stays behind.
absl::StatusOr<DeviceProof> ProveWithin(std::chrono::milliseconds limit,
                                        const ProofOptions& options) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<WatchedThread> thread, WatchedThread::Start(limit));
  absl::StatusOr<DeviceProof> proof;
  const auto prove = [&] {
    absl::Status status = Contained([&] {
      proof = ProveDevices(options);
      return proof.status();
    });
    if (!status.ok()) proof = std::move(status);
  };
  if (thread->Run(prove)) return proof;
  return DeviceLost("cuda:", absl::StrJoin(options.devices, ","), " has not answered for ",
                    std::chrono::duration<double>(limit).count(),
                    " s in its known-answer test: its driver has not returned from a call. The "
                    "thread of the test is left behind; only another process can use the device "
                    "again");
}

}  // namespace

absl::StatusOr<ProvenKernels> ProveOnce(absl::Span<const int32_t> devices,
                                        const std::string& tuning_dir) {
  Proofs& proofs = TheProofs();
  const MutexLock testing(&proofs.testing);
  Proofs::Asked asked({devices.begin(), devices.end()}, tuning_dir);
  const auto before = proofs.passed.find(asked);
  if (before != proofs.passed.end()) return before->second;
  ProofOptions options;
  options.devices = asked.first;
  options.tuning_dir = tuning_dir;
  ProvenKernels proven;
  absl::StatusOr<DeviceProof> proof = ProveWithin(kStepLimit, options);
  if (IsUnsupported(proof.status())) {
    const std::string first(proof.status().message());
    proven = {
        KernelSet::kSecond,
        absl::StrCat(first, "; it runs the second set of kernels, without the block-scaled MMA")};
    options.kernel_set = KernelSet::kSecond;
    proof = ProveWithin(kStepLimit, options);
    if (proof.ok()) {
      Log(LogLevel::kWarning, proven.reason, ", which takes longer for prompts");
    } else if (IsUnsupported(proof.status())) {
      proof = Unsupported(first, "; nor does the second set of kernels give them");
    }
  }
  {
    const MutexLock lock(&proofs.mutex);
    proofs.refused.erase(asked);
    if (IsUnsupported(proof.status())) {
      proofs.refused[asked] = std::string(proof.status().message());
    }
  }
  DSV4_RETURN_IF_ERROR(proof.status());
  Log(LogLevel::kInfo, "cuda:", absl::StrJoin(devices, ","), " gave the known answers of ",
      proof->flips.size(), " outputs, in ", static_cast<int64_t>(proof->seconds * 1e3), " ms");
  proofs.passed.emplace(std::move(asked), proven);
  return proven;
}

std::string ProofRefusal(int32_t device) {
  Proofs& proofs = TheProofs();
  const MutexLock lock(&proofs.mutex);
  const auto found = proofs.refused.find({{device}, ""});
  return found == proofs.refused.end() ? "" : found->second;
}

absl::StatusOr<std::vector<LaunchRecord>> RecordKnownAnswers() {
  OperatorComparison comparison;
  for (const ProofModel model : kProofModels) {
    EngineOptions options = ProofEngineOptions(model);
    options.backend = Backend::kReference;
    options.context_tokens = 1024;
    DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine,
                          Engine::OpenRandom(ProofConfig(model), options));
    DSV4_RETURN_IF_ERROR(RunSeen(model, *engine, comparison.baseline(MemoryOf(*engine))));
    DSV4_RETURN_IF_ERROR(comparison.status());
  }
  return comparison.launches();
}

}  // namespace dsv4
