// SPDX-License-Identifier: Apache-2.0
// NCCL, NVIDIA's collective communication library, loaded as libnccl.so.2 when it is first needed:
// neither the build nor the host program needs it. The declarations are of its ABI since 2.4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dsv4 {

class Nccl {
 public:
  using Comm = void*;    // ncclComm_t
  using Stream = void*;  // cudaStream_t
  // By which ranks of several processes find each other: ncclUniqueId.
  struct UniqueId {
    char bytes[128];
  };
  // ncclConfig_t as of 2.18. Later versions recognize it by its size and version.
  struct Config {
    static constexpr int kUnset = std::numeric_limits<int>::min();
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = 21800;
    int blocking = kUnset, cga_cluster_size = kUnset, min_ctas = kUnset, max_ctas = kUnset;
    const char* net_name = nullptr;
    int split_share = kUnset;
  };
  // ncclResult_t, ncclDataType_t
  static constexpr int kSuccess = 0, kInProgress = 7, kUint8 = 1;

  // The process's NCCL. Errors: Unsupported, with the reason, if there is none, it is too old, or
  // it lacks a function.
  static absl::StatusOr<const Nccl*> Load();

  // "2.27.3"
  const std::string& version() const { return version_; }
  // "2.27.3 (/usr/lib/x86_64-linux-gnu/libnccl.so.2)"
  std::string VersionAndFile() const;
  // Whether this version runs on GPUs of a compute capability. Unsupported names the version, the
  // file it comes from, and the least version.
  absl::Status Supports(int32_t compute_capability) const;
  // The status of `result`. `what`: the call, for the message.
  absl::Status Check(int result, const char* what) const;

  int (*CommInitAll)(Comm* comms, int count, const int* devices) = nullptr;
  int (*GetUniqueId)(UniqueId* id) = nullptr;
  int (*CommInitRank)(Comm* comm, int ranks, UniqueId id, int rank) = nullptr;
  int (*CommInitRankConfig)(Comm* comm, int ranks, UniqueId id, int rank, Config* config) = nullptr;
  int (*CommDestroy)(Comm comm) = nullptr;
  int (*CommAbort)(Comm comm) = nullptr;
  int (*CommGetAsyncError)(Comm comm, int* error) = nullptr;
  int (*AllGather)(const void* from, void* to, size_t count, int type, Comm comm,
                   Stream stream) = nullptr;
  int (*Broadcast)(const void* from, void* to, size_t count, int type, int root, Comm comm,
                   Stream stream) = nullptr;
  int (*GroupStart)() = nullptr;
  int (*GroupEnd)() = nullptr;

 private:
  Nccl() = default;
  static absl::StatusOr<const Nccl*> Open();

  const char* (*GetErrorString)(int result) = nullptr;
  int number_ = 0;  // 22703
  std::string version_, file_;
};

}  // namespace dsv4
