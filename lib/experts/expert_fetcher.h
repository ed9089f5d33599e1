// SPDX-License-Identifier: Apache-2.0
// Reads experts from disk into device slots when a pass of one rank needs them. A pass waits after
// each gate. It computes the chosen experts that are in slots in a first wave (ExpertWave) while
// the others are read, and these in further waves, a few in each. They stay in their slots until
// other experts need the slots.
//
// All ranks take the same waves, because they exchange the outputs of each wave. After a failed
// read the pass therefore continues, with undefined weights, and fails at its end. The failure of
// one rank is then reported to all (Fail), and all drop the experts that they have read.
//
// Threads: the thread that runs the rank's passes; any for `traffic`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/device/device.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"
#include "lib/io/checkpoint.h"
#include "lib/io/direct_reader.h"
#include "lib/packing/format_changes.h"
#include "lib/packing/weight_packer.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// A rank's rows of a matrix of an expert on disk: in the mapped file of the checkpoint, or in
// memory if there is no file. Of a mapped file only the address is used; no byte is read.
struct ExpertSource {
  std::string name;  // of the tensors, less ".weight"
  ExpertMatrix stored;
  int64_t whole_bytes = 0;  // as stored, with the other ranks' rows
  ExpertFormat runs_as = ExpertFormat::kMxfp4;
};

class ExpertFetcher {
 public:
  struct Parts {
    const Checkpoint* checkpoint = nullptr;
    WeightPacker packer{};
    WeightPacker::Stage pack_stage{};  // on the device
    const ExpertSlots* slots = nullptr;
    std::vector<std::array<ExpertSource, 3>> sources{};  // [blocks * experts], of those on disk
    bool plain_reads = false;
    ExpertUse* use = nullptr;  // counts the chosen experts; null: another rank's fetcher does
    // For the first blocks, the experts of each token: [vocab, experts_per_token] in host memory.
    std::vector<const int32_t*> by_token{};
    int64_t experts_per_token = 0;
  };

  // Host memory to read experts, and device memory to pack them.
  struct StageBytes {
    int64_t host = 0;
    WeightPacker::Stage device{};  // sizes alone
  };
  // The StageBytes for all matrices that were added.
  class StagePlan {
   public:
    void Add(int matrix, const ExpertMatrix& stored, ExpertFormat runs_as);
    StageBytes bytes() const;

   private:
    std::array<int64_t, 3> room_ = {};
    int64_t data_ = 0, scale_ = 0;
  };

  // `stage`: StageBytes::host bytes of Device::AllocateHost, which outlive the result. Errors: of
  // opening the checkpoint's files.
  static absl::StatusOr<std::unique_ptr<ExpertFetcher>> Open(Parts parts,
                                                             absl::Span<std::byte> stage);

  // Called before and after a pass. EndPass returns the first failure of its reads: IoError or
  // Corrupt, naming the file and the tensor or offset. Fail reports that another rank's read
  // failed.
  void BeginPass();
  const absl::Status& EndPass() const { return failure_; }
  void Fail(const absl::Status& failure) { failure_ = failure; }
  // Called before the layers of a pass on these tokens: reads experts that follow from token ids,
  // for several blocks at once. Fills at most half of the slots of each size. Errors: DeviceLost.
  absl::Status Prefetch(absl::Span<const int32_t> tokens);

  // Called after the gate of a block: `experts` [pairs], -1 for none, on the device. Returns true
  // if all are in slots: then there are no waves. Errors: DeviceLost, as below.
  absl::StatusOr<bool> Begin(int32_t block, const int32_t* experts, int64_t pairs);
  // The experts of the current wave: [pairs], -1 for pairs of other waves.
  const std::vector<int32_t>& wave() const { return wave_; }
  bool more() const { return next_ < missing_.size(); }
  // Reads the experts of the next wave into slots. REQUIRES: more().
  absl::Status Next();

  // `moved` is not counted.
  ExpertTraffic traffic() const;

 private:
  // A device slot for experts on disk.
  struct Guest {
    int64_t index = -1;  // of its expert; -1: none
    uint64_t used = 0;   // clock_ of the last use
  };

  explicit ExpertFetcher(Parts parts);
  // A matrix that was read, as stored.
  struct ReadMatrix {
    const ExpertSource* source;
    ExpertMatrix matrix;
    bool in_stage;
  };

  // Reads [begin, end) of missing_, experts of the current block, and packs them into slots.
  absl::Status Bring(size_t begin, size_t end);
  // The wave's experts are those whose place is in [begin, end).
  void SetWave(int64_t begin, int64_t end);
  absl::Status Read(size_t begin, size_t end);
  absl::Status Check(const ReadMatrix& read) const;
  // The `index`th expert that was read, one of the block.
  absl::Status PackInto(size_t index, int64_t block, int64_t slot);
  // Of the guests for experts of the block.
  size_t LeastUsed(int64_t block) const;

  const Parts parts_;
  const ResidencyPlan& plan_;
  Device* const device_;
  std::unique_ptr<DirectReader> reader_;
  FormatChanges changes_;
  absl::Span<std::byte> stage_;
  int stage_half_ = 0;
  std::vector<Guest> guests_;      // those of each class of slots together
  std::vector<int32_t> guest_of_;  // [blocks * experts]: which holds it, or -1
  uint64_t clock_ = 0;

  // Experts of the current block; while prefetching, missing_ has those of several blocks.
  std::vector<int32_t> experts_, wave_;  // [pairs]
  std::vector<int64_t> place_;           // [experts]: in missing_; -1: in a slot; -2: not chosen
  std::vector<ExpertId> missing_;
  size_t next_ = 0;            // of missing_
  std::vector<int64_t> room_;  // guests that Prefetch may still fill, of each class
  std::vector<FilePiece> pieces_;
  std::vector<ReadMatrix> read_;  // three of each expert
  absl::Status failure_;          // of the pass
  std::atomic<int64_t> device_reads_{0}, host_reads_{0}, device_bytes_{0}, host_bytes_{0};
  std::atomic<int64_t> disk_reads_{0}, disk_bytes_{0}, prefetched_{0};
  std::atomic<int64_t> disk_nanoseconds_{0};
};

}  // namespace dsv4
