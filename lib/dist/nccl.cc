// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/nccl.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/loaded_library.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kLeastVersion = 21800;  // 2.18.0: communicators that can be aborted from any thread
// The least version for compute capability 12.x. 2.25 asks for more shared memory than they have
// (NVIDIA/nccl#1637), 2.26 makes illegal accesses from 512 KiB on (NVIDIA/nccl#2418).
constexpr int kLeastVersionOf12 = 22700;

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

template <class F>
absl::Status Find(void* library, const char* name, F* function) {
  *function = reinterpret_cast<F>(FunctionIn(library, name));
  if (*function != nullptr) return absl::OkStatus();
  return Unsupported(kLibrary, " has no function ", name);
}

}  // namespace

absl::StatusOr<const Nccl*> Nccl::Load() {
  static const absl::StatusOr<const Nccl*> loaded = Open();
  return loaded;
}

absl::StatusOr<const Nccl*> Nccl::Open() {
  std::string reason;
  void* const library = LoadLibraryNamed(kLibrary, &reason);
  if (library == nullptr) return Unsupported("NCCL cannot be loaded: ", reason);
  std::unique_ptr<Nccl> nccl(new Nccl);
  int (*get_version)(int*) = nullptr;
  DSV4_RETURN_IF_ERROR(Find(library, "ncclGetVersion", &get_version));
  int version = 0;
  nccl->file_ = FileOfFunction(reinterpret_cast<void*>(get_version));
  if (nccl->file_.empty()) nccl->file_ = kLibrary;
  const bool known = get_version(&version) == kSuccess;
  nccl->number_ = version;
  nccl->version_ = VersionText(version);
  if (!known || version < kLeastVersion) {
    return Unsupported("NCCL ", nccl->VersionAndFile(), " is too old; at least ",
                       VersionText(kLeastVersion), " is needed");
  }
  DSV4_RETURN_IF_ERROR(Find(library, "ncclGetErrorString", &nccl->GetErrorString));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommInitAll", &nccl->CommInitAll));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclGetUniqueId", &nccl->GetUniqueId));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommInitRank", &nccl->CommInitRank));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommInitRankConfig", &nccl->CommInitRankConfig));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommDestroy", &nccl->CommDestroy));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommAbort", &nccl->CommAbort));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclCommGetAsyncError", &nccl->CommGetAsyncError));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclAllGather", &nccl->AllGather));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclBroadcast", &nccl->Broadcast));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclGroupStart", &nccl->GroupStart));
  DSV4_RETURN_IF_ERROR(Find(library, "ncclGroupEnd", &nccl->GroupEnd));
  return nccl.release();
}

std::string Nccl::VersionAndFile() const { return absl::StrCat(version_, " (", file_, ")"); }

absl::Status Nccl::Supports(int32_t compute_capability) const {
  const int least = compute_capability >= 120 ? kLeastVersionOf12 : kLeastVersion;
  if (number_ >= least) return absl::OkStatus();
  return Unsupported("NCCL ", VersionAndFile(), " is too old for GPUs of compute capability ",
                     compute_capability / 10, ".", compute_capability % 10, "; at least ",
                     VersionText(least), " is needed");
}

absl::Status Nccl::Check(int result, const char* what) const {
  if (result == kSuccess || result == kInProgress) return absl::OkStatus();
  return DeviceLost("NCCL ", version_, ": ", what, " failed: ", GetErrorString(result));
}

}  // namespace dsv4
