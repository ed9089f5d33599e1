// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/memory_communicator.h"

#include <cstring>
#include <utility>

#include "lib/base/status_macros.h"
#include "lib/dist/rendezvous.h"

namespace dsv4 {
namespace {

class MemoryCommunicator final : public Communicator {
 public:
  MemoryCommunicator(std::shared_ptr<Rendezvous> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int ranks() const override { return group_->ranks(); }
  absl::Status Check() override { return group_->Check(); }
  void Abort(const absl::Status& reason) override { group_->Fail(reason); }

  absl::Status AllGather(const GatherParams& params) override {
    DSV4_RETURN_IF_ERROR(group_->Check());
    const ColumnShares& shares = params.shares;
    if (shares.widths[static_cast<size_t>(rank_)] == 0) {
      last_slice_ = nullptr;
    } else if (params.slice == std::exchange(last_slice_, params.slice)) {
      const absl::Status status =
          Internal("rank ", rank_, " gave a slice that the exchange before may still read");
      group_->Fail(status);
      return status;
    }
    DSV4_RETURN_IF_ERROR(group_->Post(rank_, params));
    const int64_t stride = shares.WholeStride();
    std::byte* column = params.whole;
    std::byte* tail = params.whole + shares.WholeWidth();
    for (int rank = 0; rank < ranks(); ++rank) {
      DSV4_ASSIGN_OR_RETURN(const std::byte* slice, group_->Take(rank_, rank, params));
      const int64_t width = shares.widths[static_cast<size_t>(rank)];
      const int64_t tail_width = shares.tails[static_cast<size_t>(rank)];
      for (int64_t row = 0; width > 0 && row < params.rows; ++row) {
        std::memcpy(column + row * stride, slice, static_cast<size_t>(width));
        std::memcpy(tail + row * stride, slice + width, static_cast<size_t>(tail_width));
        slice += shares.SliceStride(rank);
      }
      column += width;
      tail += tail_width;
    }
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<Rendezvous> group_;
  const int rank_;
  const std::byte* last_slice_ = nullptr;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> MemoryCommunicators(int ranks,
                                                               std::chrono::milliseconds limit) {
  const auto group = std::make_shared<Rendezvous>(ranks, limit);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank) {
    communicators.push_back(std::make_unique<MemoryCommunicator>(group, rank));
  }
  return communicators;
}

}  // namespace dsv4
