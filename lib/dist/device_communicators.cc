// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/device_communicators.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/device/cuda_stream.h"
#include "lib/dist/nccl.h"
#include "lib/dist/nccl_abort.h"
#include "lib/dist/nccl_gather.h"
#include "lib/dist/rendezvous.h"

namespace dsv4 {
namespace {

constexpr int64_t kSignalBytes = 256;
static_assert(sizeof(ExchangeSignals) <= kSignalBytes);
constexpr int64_t kInboxBytes = sizeof(ExchangeInbox);
static_assert(kInboxBytes % kSignalBytes == 0);
constexpr int64_t kShortBytes = 1024;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // of the size at which NCCL begins
// Sizes at which the two ways are compared, ascending.
constexpr std::array<int64_t, 5> kMeasuredBytes = {
    int64_t{64} << 10, int64_t{256} << 10, int64_t{1} << 20, int64_t{4} << 20, int64_t{16} << 20};

// What the ranks share.
class Group final : public ExchangeWays {
 public:
  Group(int ranks, std::chrono::milliseconds limit, const Nccl* nccl, bool silent)
      : meeting(ranks, limit), nccl(nccl), silent(silent) {}

  std::string Describe() const override {
    if (silent) return "left out";
    if (nccl == nullptr) return "by kernels";
    const std::string by_nccl = absl::StrCat("by NCCL ", nccl->version());
    if (!direct) return by_nccl;
    const int64_t from = nccl_from.load();
    if (from == kNever) return "by kernels";
    return absl::StrCat("by kernels below ", from, " bytes, then ", by_nccl);
  }

  // Ends all waits of hosts' threads and of kernels; each rank ends its own of NCCL.
  void Fail(const absl::Status& reason) {
    meeting.Fail(reason);
    std::atomic_ref<uint32_t>(failure()->aborted).store(1, std::memory_order_release);
  }

  ExchangeFailure* failure() const {
    return reinterpret_cast<ExchangeFailure*>(failure_memory.data());
  }

  Rendezvous meeting;
  const Nccl* const nccl;  // null: not used
  const bool silent;       // nothing is exchanged
  bool direct = false;     // the devices reach each other's memory
  std::array<ExchangeSignals*, kMaxRanks> signals{};
  std::array<ExchangeInbox*, kMaxRanks> inboxes{};
  Buffer failure_memory;
  std::atomic<int64_t> nccl_from{0};  // bytes of an exchange from which on NCCL makes it
};

class DeviceCommunicator final : public Communicator {
 public:
  // Takes over `comm`, NCCL's of the rank; null where NCCL is not used.
  DeviceCommunicator(std::shared_ptr<Group> group, int rank, const DeviceRank& own, Nccl::Comm comm)
      : group_(std::move(group)), rank_(rank), own_(own), comm_(comm) {}
  // Without graphs that exchanges of NCCL were recorded in. Of ranks that failed some may have left
  // the others already.
  ~DeviceCommunicator() override {
    if (comm_ == nullptr) return;
    const Nccl& nccl = *group_->nccl;
    (group_->meeting.Check().ok() ? nccl.CommDestroy : nccl.CommAbort)(comm_);
  }

  absl::Status Allocate() {
    DSV4_ASSIGN_OR_RETURN(memory_,
                          own_.device->Allocate(ExchangeDeviceBytes(), "exchange between devices"));
    group_->signals[static_cast<size_t>(rank_)] =
        reinterpret_cast<ExchangeSignals*>(memory_.data());
    group_->inboxes[static_cast<size_t>(rank_)] =
        reinterpret_cast<ExchangeInbox*>(memory_.data() + kSignalBytes);
    DSV4_RETURN_IF_ERROR(own_.dispatch->Prepare(GatherColumnsParams{}));
    // Other ranks write to it without asking.
    return own_.device->Synchronize();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return group_->meeting.ranks(); }
  bool exchanges() const override { return !group_->silent; }
  absl::Status Check() override { return group_->meeting.Check(); }
  void Abort(const absl::Status& reason) override { group_->Fail(reason); }

  // Connections are made by an exchange, and must not be while one is recorded.
  absl::Status Start() override {
    if (group_->nccl == nullptr) return absl::OkStatus();
    uses_nccl_ = true;
    DSV4_RETURN_IF_ERROR(ConnectUneven());
    DSV4_RETURN_IF_ERROR(SecondsOf(kShortBytes, true).status());
    int64_t nccl_from = kNever;
    for (auto bytes = kMeasuredBytes.rbegin(); bytes != kMeasuredBytes.rend(); ++bytes) {
      DSV4_ASSIGN_OR_RETURN(const double by_nccl, SecondsOf(*bytes, true));
      if (!group_->direct) continue;
      DSV4_ASSIGN_OR_RETURN(const double directly, SecondsOf(*bytes, false));
      // All ranks measure all sizes; the first one's times count.
      if (directly <= by_nccl) settled_ = true;
      if (!settled_) nccl_from = *bytes;
    }
    if (rank_ == 0) group_->nccl_from.store(nccl_from);
    // No rank continues before that is stored.
    DSV4_RETURN_IF_ERROR(Meet());
    uses_nccl_ = !group_->direct || group_->nccl_from.load() != kNever;
    if (uses_nccl_) return absl::OkStatus();
    return group_->nccl->Check(group_->nccl->CommDestroy(std::exchange(comm_, nullptr)),
                               "disconnecting devices");
  }

  absl::Status AllGather(const GatherParams& params) override {
    if (group_->silent) return group_->meeting.Check();
    return Gather(params, ByNccl(params));
  }

  absl::Status Synchronize() override {
    if (uses_nccl_) DSV4_RETURN_IF_ERROR(WatchNccl());
    const absl::Status status = own_.device->Synchronize();
    if (!status.ok()) return status;
    const uint32_t late =
        std::atomic_ref<uint32_t>(group_->failure()->late).load(std::memory_order_acquire);
    if (late != 0) {
      group_->Fail(DeviceLost("a device waited ", group_->meeting.limit().count(),
                              " ms for an exchange of rank ", late - 1));
    }
    return group_->meeting.Check();
  }

 private:
  // A rank without columns takes no part in NCCL's exchange, and so would not be waited for.
  bool ByNccl(const GatherParams& params) const {
    if (!uses_nccl_) return false;
    if (!group_->direct) return true;
    return params.rows * params.shares.WholeStride() >= group_->nccl_from.load() &&
           std::all_of(params.shares.widths.begin(), params.shares.widths.begin() + ranks(),
                       [](int64_t width) { return width > 0; });
  }

  absl::Status Gather(const GatherParams& params, bool by_nccl) {
    DSV4_RETURN_IF_ERROR(group_->meeting.Post(rank_, params));
    std::array<const std::byte*, kMaxRanks> slices{};
    for (int rank = 0; rank < ranks(); ++rank) {
      DSV4_ASSIGN_OR_RETURN(slices[static_cast<size_t>(rank)],
                            group_->meeting.Take(rank_, rank, params));
    }
    if (by_nccl) return GatherByNccl(params);
    return Launch(params, slices);
  }

  absl::Status Launch(const GatherParams& params,
                      const std::array<const std::byte*, kMaxRanks>& slices) const {
    const GatherColumnsParams gather{
        .rows = params.rows,
        .rank = rank_,
        .ranks = ranks(),
        .shares = params.shares,
        .slices = slices,
        .whole = params.whole,
        .signals = group_->signals,
        .inboxes = group_->inboxes,
        .failure = group_->failure(),
        .limit_ns = std::chrono::nanoseconds(group_->meeting.limit()).count()};
    const DeviceScope scope(own_.device);
    return own_.dispatch->Run(LaunchContext{.stream = &own_.device->stream()}, gather);
  }

  absl::Status GatherByNccl(const GatherParams& params) const {
    return NcclGather{group_->nccl, comm_, own_, rank_, ranks(), Staging()}.Run(params);
  }

  // Waits for the device. A link that fails, or another rank, ends what NCCL waits for.
  absl::Status WatchNccl() {
    constexpr auto kBusy = std::chrono::milliseconds(20);
    constexpr auto kNap = std::chrono::microseconds(200);
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(const bool idle, own_.device->Idle());
      if (idle) return group_->meeting.Check();
      if (comm_ != nullptr) {
        int error = Nccl::kSuccess;
        const int result = group_->nccl->CommGetAsyncError(comm_, &error);
        const absl::Status status =
            group_->nccl->Check(result == Nccl::kSuccess ? error : result, "an exchange");
        if (!status.ok()) group_->Fail(status);
        if (!group_->meeting.Check().ok()) {
          abort_.Start(group_->nccl, std::exchange(comm_, nullptr));
        }
      }
      if (std::chrono::steady_clock::now() - begin > kBusy) std::this_thread::sleep_for(kNap);
    }
  }

  // Of one exchange of so many bytes.
  absl::StatusOr<double> SecondsOf(int64_t bytes, bool by_nccl) {
    constexpr int kRuns = 6, kWarm = 2;
    const int64_t width = bytes / ranks() / 16 * 16;
    std::byte* const slices = Staging();
    GatherParams params{.rows = 1, .whole = Staging() + NcclGather::kStagingBytes / 2};
    std::fill_n(params.shares.widths.begin(), ranks(), width);
    auto begin = std::chrono::steady_clock::now();
    for (int run = 0; run < kWarm + kRuns; ++run) {
      if (run == kWarm) {
        DSV4_RETURN_IF_ERROR(Synchronize());
        DSV4_RETURN_IF_ERROR(Meet());
        begin = std::chrono::steady_clock::now();
      }
      params.slice = slices + ++exchanges_ % 2 * width;
      DSV4_RETURN_IF_ERROR(Gather(params, by_nccl));
    }
    DSV4_RETURN_IF_ERROR(Synchronize());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRuns;
  }

  // NCCL's way of exchanges to which ranks give different widths.
  absl::Status ConnectUneven() {
    GatherParams params{.rows = 1,
                        .slice = Staging() + ++exchanges_ % 2 * kShortBytes,
                        .whole = Staging() + NcclGather::kStagingBytes / 2};
    for (int rank = 0; rank < ranks(); ++rank) {
      params.shares.widths[static_cast<size_t>(rank)] = 16 * (rank + 1);
    }
    DSV4_RETURN_IF_ERROR(Gather(params, true));
    return Synchronize();
  }

  // Of threads alone.
  absl::Status Meet() {
    const GatherParams params{.rows = 1};
    DSV4_RETURN_IF_ERROR(group_->meeting.Post(rank_, params));
    for (int rank = 0; rank < ranks(); ++rank) {
      DSV4_RETURN_IF_ERROR(group_->meeting.Take(rank_, rank, params).status());
    }
    return absl::OkStatus();
  }

  std::byte* Staging() const { return memory_.data() + kSignalBytes + kInboxBytes; }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const DeviceRank own_;
  Buffer memory_;    // signals, inbox, staging
  Nccl::Comm comm_;  // this rank's thread's, once it has started
  NcclAbort abort_;
  bool uses_nccl_ = false;
  int exchanges_ = 0;
  bool settled_ = false;
};

// OK where every device reaches every other's memory.
absl::Status ReachEachOther(absl::Span<const DeviceRank> ranks) {
  for (const DeviceRank& from : ranks) {
    for (const DeviceRank& to : ranks) {
      if (&from != &to) DSV4_RETURN_IF_ERROR(from.device->ReachMemoryOf(*to.device));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ExchangeDeviceBytes() { return kSignalBytes + kInboxBytes + NcclGather::kStagingBytes; }

absl::StatusOr<DeviceCommunicators> ConnectDevices(absl::Span<const DeviceRank> ranks,
                                                   ExchangePath path,
                                                   std::chrono::milliseconds limit) {
  const bool silent = path == ExchangePath::kNone;
  absl::Status direct = Unsupported("direct access was not requested");
  if (path == ExchangePath::kAuto || path == ExchangePath::kDirect) direct = ReachEachOther(ranks);
  if (path == ExchangePath::kDirect && !direct.ok()) return direct;
  const Nccl* nccl = nullptr;
  if (path == ExchangePath::kAuto || path == ExchangePath::kNccl) {
    absl::StatusOr<const Nccl*> loaded = Nccl::Load();
    if (loaded.ok()) {
      nccl = *loaded;
    } else if (!direct.ok()) {
      return Unsupported("the devices cannot exchange data: ", direct.message(), "; ",
                         loaded.status().message());
    }
  }

  const auto count = static_cast<int>(ranks.size());
  std::vector<Nccl::Comm> comms(ranks.size());
  if (nccl != nullptr) {
    std::vector<int> devices;
    for (const DeviceRank& rank : ranks) devices.push_back(rank.device->index());
    const DeviceScope scope(ranks[0].device);  // the call leaves another device current
    const absl::Status connected =
        nccl->Check(nccl->CommInitAll(comms.data(), count, devices.data()), "connecting devices");
    if (!connected.ok() && !direct.ok()) return connected;
    if (!connected.ok()) {
      Log(LogLevel::kWarning,
          "devices exchange by kernels alone: ", std::string(connected.message()));
      nccl = nullptr;
    }
  }
  auto group = std::make_shared<Group>(count, limit, nccl, silent);
  group->direct = direct.ok();
  DeviceCommunicators connected;
  for (int rank = 0; rank < count; ++rank) {
    const auto r = static_cast<size_t>(rank);
    connected.ranks.push_back(
        std::make_unique<DeviceCommunicator>(group, rank, ranks[r], nccl ? comms[r] : nullptr));
  }
  DSV4_ASSIGN_OR_RETURN(group->failure_memory,
                        ranks[0].device->AllocateHost(sizeof(ExchangeFailure), "exchange"));
  *group->failure() = {};
  for (const std::unique_ptr<Communicator>& rank : connected.ranks) {
    DSV4_RETURN_IF_ERROR(static_cast<DeviceCommunicator&>(*rank).Allocate());
  }
  connected.ways = group;
  return connected;
}

}  // namespace dsv4
