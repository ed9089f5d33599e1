// SPDX-License-Identifier: Apache-2.0
// Brings experts that lie on disk to slots of the device when a pass needs them: for one rank. A
// pass stops behind each gate. Those of the chosen experts that are in slots are computed in a
// first turn, while the others are read; these follow in further turns (ExpertTurn), a few in each,
// and stay in their slots until others need them. Used by the thread that runs the rank's passes;
// `traffic` from any.
//
// Ranks that are asked for the same experts take the same turns, as each of them exchanges what it
// computed of one. So a read that fails is remembered: the pass goes on with anything, and fails at
// its end. What fails on one rank is then said to all, and all give up what they have read.
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
#include "lib/io/checkpoint.h"
#include "lib/io/direct_reader.h"
#include "lib/model/expert_mover.h"
#include "lib/model/expert_residency.h"
#include "lib/model/expert_table.h"
#include "lib/model/format_changes.h"
#include "lib/model/weight_packer.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// A matrix of an expert on disk: a rank's rows of it, where the checkpoint's file is mapped, or in
// memory where no file is. Of what is mapped the place counts, and no byte is touched.
struct ExpertSource {
  std::string name;  // of the tensors, less ".weight"
  ExpertMatrix stored;
  int64_t whole_bytes = 0;  // as stored, with the other ranks' rows
  ExpertFormat runs_as = ExpertFormat::kMxfp4;
};

class ExpertFetcher {
 public:
  struct Parts {
    ResidencyPlan plan;
    const Checkpoint* checkpoint = nullptr;
    Device* device = nullptr;
    WeightPacker packer{};
    WeightPacker::Stage pack_stage{};  // on the device
    const ExpertSlots* slots = nullptr;
    ExpertTable table{};
    std::vector<std::array<ExpertSource, 3>> sources{};  // [blocks * experts], of those on disk
    bool plain_reads = false;
    ExpertUse* use = nullptr;  // told of what passes choose; null: another rank's is
    // Of the first blocks, the experts of each token, [vocab, experts_per_token] in host memory.
    std::vector<const int32_t*> by_token{};
    int64_t experts_per_token = 0;
  };

  // Host memory for reads of experts whose matrices take so many bytes as stored, and what the
  // device's part of packing them takes.
  struct StageBytes {
    int64_t host = 0;
    WeightPacker::Stage device{};  // sizes alone
  };
  // Adds a matrix, the `matrix`th of an expert, to what stages have to hold.
  class StagePlan {
   public:
    void Add(int matrix, const ExpertMatrix& stored, ExpertFormat runs_as);
    StageBytes bytes() const;

   private:
    std::array<int64_t, 3> room_ = {};
    int64_t data_ = 0, scale_ = 0;
  };

  // `stage`: of AllocateHost, of StageBytes::host. Errors: of opening the checkpoint's files.
  static absl::StatusOr<std::unique_ptr<ExpertFetcher>> Open(Parts parts, Buffer stage);

  // Before and after a pass. EndPass: the first failure of its reads. IoError and Corrupt name the
  // file, and the tensor or the place in it. Fail: that another rank's failed.
  void BeginPass();
  const absl::Status& EndPass() const { return failure_; }
  void Fail(const absl::Status& failure) { failure_ = failure; }
  // Before the layers of a pass on these tokens: brings those of their experts that token ids alone
  // tell to slots, as many as half of the slots hold, so that one read brings those of several
  // blocks. Errors: DeviceLost.
  absl::Status Prefetch(absl::Span<const int32_t> tokens);

  // Behind the gate of a block of the pass: `experts` [pairs], -1 for none, of the host or, with
  // the number of pairs, on the device. True where all are in slots: there are no turns then.
  // Errors: DeviceLost, as below.
  bool Begin(int32_t block, absl::Span<const int32_t> experts);
  absl::StatusOr<bool> Begin(int32_t block, const int32_t* experts, int64_t pairs);
  // The experts of the turn at hand, [pairs], -1 where a pair is of another one.
  const std::vector<int32_t>& turn() const { return turn_; }
  bool more() const { return next_ < missing_.size(); }
  // Brings the experts of the next turn to slots. REQUIRES: more().
  absl::Status Next();

  // `moved` is not counted.
  ExpertTraffic traffic() const;

 private:
  // A slot of the device for experts on disk.
  struct Guest {
    int64_t index = -1;  // of the expert that it holds; -1: none
    uint64_t used = 0;   // when it was used last
  };

  explicit ExpertFetcher(Parts parts);
  // A matrix that was read, as stored.
  struct ReadMatrix {
    const ExpertSource* source;
    ExpertMatrix matrix;
    bool in_stage;
  };

  // Where the experts of the block at hand are.
  bool Look(int32_t block);
  // Reads [begin, end) of missing_, of the block at hand, and packs them into slots.
  absl::Status Bring(size_t begin, size_t end);
  // The turn's experts are those whose place is in [begin, end).
  void SetTurn(int64_t begin, int64_t end);
  absl::Status Read(size_t begin, size_t end);
  absl::Status Check(const ReadMatrix& read) const;
  // The `index`th expert that was read.
  absl::Status PackInto(size_t index, int64_t slot);
  size_t LeastUsed() const;

  const Parts parts_;
  std::unique_ptr<DirectReader> reader_;
  FormatChanges changes_;
  Buffer stage_;
  int stage_half_ = 0;
  std::vector<Guest> guests_;
  std::vector<int32_t> guest_of_;  // [blocks * experts]: which holds it, or -1
  uint64_t clock_ = 0;

  // Of the block at hand; while prefetching, missing_ has those of several.
  std::vector<int32_t> experts_, turn_;  // [pairs]
  std::vector<int64_t> place_;           // [experts]: in missing_; -1: in a slot; -2: not chosen
  std::vector<ExpertId> missing_;
  size_t next_ = 0;  // of missing_
  std::vector<FilePiece> pieces_;
  std::vector<ReadMatrix> read_;  // three of each expert
  absl::Status failure_;          // of the pass
  std::atomic<int64_t> device_reads_{0}, host_reads_{0}, disk_reads_{0}, disk_bytes_{0};
  std::atomic<int64_t> prefetched_{0};
  std::atomic<int64_t> disk_nanoseconds_{0};
};

}  // namespace dsv4
