// SPDX-License-Identifier: Apache-2.0
// Blocks of pinned host memory for the experts of an engine's ranks. They outlive an attempt to
// load weights in which a block was refused: the next plan takes the ones that were granted,
// because a driver that has refused one may refuse all (Windows does, by reports).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/device/device.h"

namespace dsv4 {

class PinnedBlocks {
 public:
  // Gives all blocks back: nobody uses them any more.
  void Restart();
  // A block of at least `bytes`: the smallest that was given back, else a new one. Errors: those of
  // Device::AllocateHost.
  absl::StatusOr<std::byte*> Take(Device* device, int64_t bytes, absl::string_view purpose);
  // Frees blocks beyond the first that have `enough` bytes together. REQUIRES: none is taken.
  void Keep(int64_t enough);
  // Frees the blocks that are not taken.
  void FreeUntaken();

  // Whether a block was refused since Restart.
  bool refused() const { return refused_; }
  // Of all blocks.
  int64_t bytes() const;

 private:
  struct Block {
    Device* device = nullptr;
    Buffer memory;
    bool taken = false;
  };
  std::vector<Block> blocks_;
  bool refused_ = false;
};

}  // namespace dsv4
