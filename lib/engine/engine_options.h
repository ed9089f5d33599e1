// SPDX-License-Identifier: Apache-2.0
// The options of an engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/builtin.h"
#include "kernels/op/kv_layout.h"
#include "kernels/registry/dispatch.h"
#include "lib/config/config.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/process_group.h"
#include "lib/experts/expert_residency.h"
#include "lib/weights/synthetic.h"

namespace dsv4 {

inline constexpr std::chrono::seconds kStepLimit{120};

struct EngineOptions {
  Backend backend = Backend::kCpu;
  Numerics numerics = Numerics::kPublished;
  // How rows of the cache are stored: kPacked or kBf16 under published numerics (both lossless),
  // kF32 under the others, kFp8PerTensor under all. Empty: kPacked or kF32.
  std::optional<RowFormat> cache_format{};
  // The backend's devices, one for each rank of the engine; empty = device 0. On the CPU, 0 to one
  // less than their number: ranks that share its cores. GPUs are of one architecture. What an
  // engine computes does not depend on their number (docs/adr/0020-exact-split.md).
  std::vector<int32_t> devices{};
  // A group of processes that split the model, with one device each. CUDA only. The other options
  // must be the same in all of them.
  GroupPlace group{};
  int64_t context_tokens = 0;        // 0 = max_position_embeddings, the limit
  int64_t cache_tokens = 0;          // 0 = context_tokens
  int32_t max_sessions = 0;          // 0 = 4
  int32_t prefill_chunk_tokens = 0;  // 0 = 256
  int32_t threads = 0;               // 0 = one per usable core
  // 0..7: drafts that sessions may ask for; plans the drafter. Empty: as many as usually pay with
  // the drafter, none if there is none.
  std::optional<int32_t> max_draft_tokens = 0;
  // The drafter; empty: the checkpoint's. NotFound if drafts are asked for and the checkpoint has
  // another one or none.
  std::optional<DrafterKind> drafter{};
  // A folder or GGUF file with the drafter; empty: the checkpoint's own.
  std::string drafter_model{};
  // See PlanResidency. Without devices with memory of their own: host_bytes alone, else
  // Unsupported.
  ExpertBudgets weight_budgets{};
  // File that counts how often experts were chosen (lib/experts/expert_profile.h), by which they
  // are placed. Empty: none. It need not exist. It is replaced when the engine closes or is
  // suspended, and at least every `profile_interval` while the engine is used. Errors:
  // InvalidArgument if all experts are in one kind of memory, Unsupported in a group of processes.
  std::string expert_profile{};
  // Folder with such a file for each checkpoint, "FINGERPRINT.profile", without expert_profile. It
  // is used if there are places to choose; what is wrong with it is logged.
  std::string expert_profiles{};
  std::chrono::milliseconds profile_interval = std::chrono::minutes(5);
  // Directory of tuning files that replace this build's files for the same kernels; empty: none.
  // Unsupported on a backend whose kernels have no knobs.
  std::string tuning_dir{};
  // How long a step waits for one call of a GPU's driver (StepRunner::LimitSteps); 0: without end;
  // empty: kStepLimit. CUDA only.
  std::optional<std::chrono::milliseconds> step_limit{};
  // Chosen by the known-answer test (ProveOnce). CUDA only.
  KernelSet kernel_set = KernelSet::kFirst;
  // For verification, not part of the public interface:
  std::string system_root{};    // the root of the file system that tells the machine's memory
  int32_t config_number = -1;   // see ProofOptions::config
  bool drafts = false;          // plan rows and buffers of the drafter
  int32_t logit_rows = 0;       // rows whose logits one step may ask for, if more than it needs
  uint64_t omitted_points = 0;  // PointBit set, reference backend only
  // For measurements: random weights for this many layers of config.json; no weights are read.
  // 0 = ModelConfig::synthetic_layers.
  int64_t synthetic_layers = 0;
  SyntheticOptions synthetic{};
  bool graphs = true;                           // whether a device records steps of few rows
  ExchangePath exchange = ExchangePath::kAuto;  // between GPUs
  // (done bytes, total bytes) of loading; false cancels.
  std::function<bool(int64_t, int64_t)> progress{};
};

}  // namespace dsv4
