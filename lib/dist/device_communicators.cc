// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/device_communicators.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/base/status_macros.h"
#include "lib/device/cuda_stream.h"
#include "lib/device/watched_thread.h"
#include "lib/dist/nccl.h"
#include "lib/dist/nccl_abort.h"
#include "lib/dist/nccl_call.h"
#include "lib/dist/nccl_gather.h"
#include "lib/dist/rendezvous.h"

namespace dsv4 {
namespace {

constexpr int64_t kSignalBytes = 256;
static_assert(sizeof(ExchangeSignals) <= kSignalBytes);
constexpr int64_t kInboxBytes = sizeof(ExchangeInbox);
static_assert(kInboxBytes % kSignalBytes == 0);
constexpr int64_t kShortBytes = 1024;
constexpr int64_t kCheckedStagingBytes = 64 << 10;  // by the check of a pair
constexpr auto kPairLimit = std::chrono::seconds(1);
// The longest wait of a kernel on a GPU that drives a display: the driver would end the kernel, and
// with it the context.
constexpr std::chrono::milliseconds kDisplayLimit{1000};
constexpr auto kAbortLimit = std::chrono::seconds(10);
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // of the size at which NCCL begins
// Sizes at which the two ways are compared, ascending.
constexpr std::array<int64_t, 5> kMeasuredBytes = {
    int64_t{64} << 10, int64_t{256} << 10, int64_t{1} << 20, int64_t{4} << 20, int64_t{16} << 20};

double Seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

// The state that the ranks share.
class Group final : public ExchangeWays {
 public:
  Group(int ranks, std::chrono::milliseconds limit, std::chrono::milliseconds start_limit,
        bool silent)
      : meeting(ranks, limit), start_limit(start_limit), silent(silent) {}

  std::string Describe() const override {
    if (silent) return "left out";
    const char* const by_kernels = host ? "by kernels through host memory" : "by kernels";
    if (nccl == nullptr) return by_kernels;
    const std::string by_nccl = absl::StrCat("by NCCL ", nccl->version());
    if (!kernels()) return by_nccl;
    const int64_t from = nccl_from.load();
    if (from == kNever) return by_kernels;
    return absl::StrCat(by_kernels, " below ", from, " bytes, then ", by_nccl);
  }

  // Whether kernels exchange.
  bool kernels() const { return direct || host; }

  // Ends all waits of hosts' threads and of kernels; each rank ends its own of NCCL.
  void Fail(const absl::Status& reason) {
    meeting.Fail(reason);
    std::atomic_ref<uint32_t>(failure()->aborted).store(1, std::memory_order_release);
  }

  ExchangeFailure* failure() const {
    return reinterpret_cast<ExchangeFailure*>(failure_memory.data());
  }

  Rendezvous meeting;
  const std::chrono::milliseconds start_limit;  // of NCCL's first exchanges
  const Nccl* nccl = nullptr;                   // null: not used
  const bool silent;                            // nothing is exchanged
  bool direct = false;                          // the devices reach each other's memory
  bool host = false;                            // inboxes are in host memory
  std::array<ExchangeSignals*, kMaxRanks> signals{};
  std::array<ExchangeInbox*, kMaxRanks> inboxes{};
  Buffer failure_memory;
  std::atomic<int64_t> nccl_from{0};  // bytes of an exchange from which on NCCL makes it
};

class DeviceCommunicator final : public Communicator {
 public:
  DeviceCommunicator(std::shared_ptr<Group> group, int rank, const DeviceRank& own)
      : group_(std::move(group)), rank_(rank), own_(own) {}
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

  // Moves the inbox to host memory.
  absl::Status AllocateHostInbox() {
    DSV4_ASSIGN_OR_RETURN(host_inbox_, own_.device->AllocateHost(kInboxBytes, "exchange"));
    std::memset(host_inbox_.data(), 0, static_cast<size_t>(kInboxBytes));
    group_->inboxes[static_cast<size_t>(rank_)] =
        reinterpret_cast<ExchangeInbox*>(host_inbox_.data());
    return absl::OkStatus();
  }

  // Takes over NCCL's communicator of the rank. Without one NCCL is not used.
  void set_comm(Nccl::Comm comm) { comm_ = comm; }

  // Whether what this rank's device writes to `other`'s exchange memory arrives, and what it reads
  // there is what that device wrote. Leaves both cleared. Called before either is used.
  absl::Status CheckReach(DeviceCommunicator& other) {
    const int64_t signals = kSignalBytes + kInboxBytes;
    for (const auto& [begin, bytes] :
         {std::pair(int64_t{0}, signals),
          std::pair(ExchangeDeviceBytes() - kCheckedStagingBytes, kCheckedStagingBytes)}) {
      const absl::Status status = CheckPiece(other, begin, bytes);
      if (!status.ok()) return status;
    }
    const std::vector<std::byte> zeros(static_cast<size_t>(signals));
    for (DeviceCommunicator* rank : {this, &other}) {
      DSV4_RETURN_IF_ERROR(rank->own_.device->Upload(rank->memory_.data(), zeros.data(), signals));
      DSV4_RETURN_IF_ERROR(rank->own_.device->Synchronize());
    }
    return absl::OkStatus();
  }

  int rank() const override { return rank_; }
  int ranks() const override { return group_->meeting.ranks(); }
  bool exchanges() const override { return !group_->silent; }
  absl::Status Check() override { return group_->meeting.Check(); }
  void Abort(const absl::Status& reason) override { group_->Fail(reason); }

  // Connections are made by an exchange, and must not be while one is recorded.
  absl::Status Start() override {
    if (group_->nccl == nullptr) return absl::OkStatus();
    uses_nccl_ = starting_ = true;
    DSV4_RETURN_IF_ERROR(ConnectUneven());
    DSV4_RETURN_IF_ERROR(SecondsOf(kShortBytes, true).status());
    int64_t nccl_from = kNever;
    for (auto bytes = kMeasuredBytes.rbegin(); bytes != kMeasuredBytes.rend(); ++bytes) {
      DSV4_ASSIGN_OR_RETURN(const double by_nccl, SecondsOf(*bytes, true));
      if (!group_->kernels()) continue;
      DSV4_ASSIGN_OR_RETURN(const double directly, SecondsOf(*bytes, false));
      // All ranks measure all sizes; the first one's times count.
      if (directly <= by_nccl) settled_ = true;
      if (!settled_) nccl_from = *bytes;
    }
    if (rank_ == 0) group_->nccl_from.store(nccl_from);
    // No rank continues before that is stored.
    DSV4_RETURN_IF_ERROR(Meet());
    starting_ = false;
    uses_nccl_ = !group_->kernels() || group_->nccl_from.load() != kNever;
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
      group_->Fail(DeviceLost("a device waited ", KernelLimit().count(),
                              " ms for an exchange of rank ", late - 1));
    }
    return group_->meeting.Check();
  }

 private:
  // The limit of a kernel's wait on this rank's device.
  std::chrono::milliseconds KernelLimit() const {
    const std::chrono::milliseconds limit = group_->meeting.limit();
    return own_.device->limits_kernels() ? std::min(limit, kDisplayLimit) : limit;
  }

  // A rank without columns takes no part in NCCL's exchange, and so would not be waited for.
  bool ByNccl(const GatherParams& params) const {
    if (!uses_nccl_) return false;
    if (!group_->kernels()) return true;
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
    const GatherColumnsParams gather{.rows = params.rows,
                                     .rank = rank_,
                                     .ranks = ranks(),
                                     .shares = params.shares,
                                     .slices = slices,
                                     .whole = params.whole,
                                     .signals = group_->signals,
                                     .inboxes = group_->inboxes,
                                     .failure = group_->failure(),
                                     .limit_ns = std::chrono::nanoseconds(KernelLimit()).count()};
    return group_->host ? RunThroughHost(gather) : Run(gather);
  }

  absl::Status Run(const GatherColumnsParams& gather) const {
    const DeviceScope scope(own_.device);
    return own_.dispatch->Run(LaunchContext{.stream = &own_.device->stream()}, gather);
  }

  // In parts whose slices are short. All ranks make the same parts.
  absl::Status RunThroughHost(const GatherColumnsParams& gather) const {
    const ColumnShares& shares = gather.shares;
    int64_t longest = 1;
    for (int rank = 0; rank < ranks(); ++rank) {
      longest = std::max(longest, shares.SliceStride(rank));
    }
    const int64_t rows = kMostPushedBytes / longest;
    if (rows == 0) return RunRowsThroughHost(gather);
    for (int64_t row = 0; row < gather.rows; row += rows) {
      GatherColumnsParams part = gather;
      part.rows = std::min(rows, gather.rows - row);
      part.whole += row * shares.WholeStride();
      for (int rank = 0; rank < ranks(); ++rank) {
        const auto r = static_cast<size_t>(rank);
        if (part.slices[r] != nullptr) part.slices[r] += row * shares.SliceStride(rank);
      }
      DSV4_RETURN_IF_ERROR(RunPart(part));
    }
    return absl::OkStatus();
  }

  // Rows that are too long for an inbox: pieces of one rank's columns after another.
  absl::Status RunRowsThroughHost(const GatherColumnsParams& gather) const {
    const ColumnShares& shares = gather.shares;
    if (shares.tails != std::array<int64_t, kMaxRanks>{}) {
      return Unsupported("rows of ", shares.WholeStride(), " bytes with scales cannot be exchanged",
                         " through host memory");
    }
    for (int64_t row = 0; row < gather.rows; ++row) {
      std::byte* whole = gather.whole + row * shares.WholeStride();
      for (int rank = 0; rank < ranks(); ++rank) {
        const auto r = static_cast<size_t>(rank);
        for (int64_t begin = 0; begin < shares.widths[r]; begin += kMostPushedBytes) {
          GatherColumnsParams part = gather;
          part.rows = 1;
          part.shares = {.row_align = 8};
          part.shares.widths[r] = std::min(kMostPushedBytes, shares.widths[r] - begin);
          part.slices[r] += row * shares.SliceStride(rank) + begin;
          part.whole = whole + begin;
          DSV4_RETURN_IF_ERROR(RunPart(part));
        }
        whole += shares.widths[r];
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunPart(const GatherColumnsParams& part) const {
    if (PushesColumns(part)) return Run(part);
    return Unsupported("rows of ", part.shares.WholeStride(),
                       " bytes that do not begin at multiples",
                       " of 8 cannot be exchanged through host memory");
  }

  absl::Status GatherByNccl(const GatherParams& params) const {
    return NcclGather{group_->nccl, comm_, own_, rank_, ranks(), Staging()}.Run(params);
  }

  // Waits for the device. A link that fails, another rank, or a first exchange beyond its limit
  // ends what NCCL waits for. A device that is busy after that is left so.
  absl::Status WatchNccl() {
    constexpr auto kBusy = std::chrono::milliseconds(20);
    constexpr auto kNap = std::chrono::microseconds(200);
    const DriverCall in_driver;
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(const bool idle, own_.device->Idle());
      if (idle) return group_->meeting.Check();
      const auto now = std::chrono::steady_clock::now();
      if (starting_ && comm_ != nullptr && now - begin > group_->start_limit) {
        group_->Fail(DeviceLost("NCCL ", group_->nccl->version(), " made no exchange within ",
                                Seconds(group_->start_limit), " s; ", kPcieHint));
      }
      if (comm_ != nullptr) {
        int error = Nccl::kSuccess;
        const int result = group_->nccl->CommGetAsyncError(comm_, &error);
        const absl::Status status =
            group_->nccl->Check(result == Nccl::kSuccess ? error : result, "an exchange");
        if (!status.ok()) group_->Fail(status);
        if (!group_->meeting.Check().ok()) {
          abort_.Start(group_->nccl, std::exchange(comm_, nullptr));
          aborted_ = now;
        }
      } else if (!group_->meeting.Check().ok() && now - aborted_ > kAbortLimit) {
        return group_->meeting.Check();
      }
      if (std::chrono::steady_clock::now() - begin > kBusy) std::this_thread::sleep_for(kNap);
    }
  }

  // Waits for the device, but no longer than the limit.
  absl::Status AwaitIdle() {
    const auto until = std::chrono::steady_clock::now() + kPairLimit;
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(const bool idle, own_.device->Idle());
      if (idle) return absl::OkStatus();
      if (std::chrono::steady_clock::now() > until) {
        return Unsupported("no copy to another device ended within ", kPairLimit.count(), " s");
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  // CheckReach for `bytes` of the memory.
  absl::Status CheckPiece(DeviceCommunicator& other, int64_t begin, int64_t bytes) {
    Device& own = *own_.device;
    Device& theirs = *other.own_.device;
    const auto size = static_cast<size_t>(bytes);
    std::vector<std::byte> pattern(size), found(size);
    // Written by this device, read by the other one.
    Fill(absl::MakeSpan(pattern), 2 * (rank_ * kMaxRanks + other.rank_));
    DSV4_RETURN_IF_ERROR(own.Upload(Staging(), pattern.data(), bytes));
    DSV4_RETURN_IF_ERROR(own.Copy(other.memory_.data() + begin, Staging(), bytes));
    DSV4_RETURN_IF_ERROR(AwaitIdle());
    DSV4_RETURN_IF_ERROR(theirs.Download(found.data(), other.memory_.data() + begin, bytes));
    if (found != pattern) return Lost(other, "writes to the memory of");
    // Written by the other device, read by this one.
    Fill(absl::MakeSpan(pattern), 2 * (rank_ * kMaxRanks + other.rank_) + 1);
    DSV4_RETURN_IF_ERROR(theirs.Upload(other.memory_.data() + begin, pattern.data(), bytes));
    DSV4_RETURN_IF_ERROR(theirs.Synchronize());
    DSV4_RETURN_IF_ERROR(own.Copy(Staging(), other.memory_.data() + begin, bytes));
    DSV4_RETURN_IF_ERROR(AwaitIdle());
    DSV4_RETURN_IF_ERROR(own.Download(found.data(), Staging(), bytes));
    if (found != pattern) return Lost(other, "reads from the memory of");
    return absl::OkStatus();
  }

  // Bytes that differ from those of any other `number` and from zeros.
  static void Fill(absl::Span<std::byte> bytes, int number) {
    uint32_t state = 0x9E3779B9u * static_cast<uint32_t>(number + 1);
    for (std::byte& byte : bytes) {
      state = state * 1664525u + 1013904223u;
      byte = static_cast<std::byte>(state >> 24 | 1u);
    }
  }

  absl::Status Lost(const DeviceCommunicator& other, absl::string_view what) const {
    return Unsupported("cuda:", own_.device->index(), " offers peer access, but its ", what,
                       " cuda:", other.own_.device->index(), " are lost; ", kPcieHint);
  }

  // The time of one exchange of so many bytes.
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

  // Waits for the other ranks' threads, not for devices.
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
  Buffer memory_;              // signals, inbox, staging
  Buffer host_inbox_;          // in place of that inbox
  Nccl::Comm comm_ = nullptr;  // this rank's thread's, once it has started
  NcclAbort abort_;
  std::chrono::steady_clock::time_point aborted_{};
  bool uses_nccl_ = false;
  bool starting_ = false;  // within Start
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

// OK if every device's writes and reads of every other's exchange memory are right; Unsupported,
// with the reason, if not. Other errors are the devices'.
absl::Status CheckPairs(absl::Span<DeviceCommunicator* const> members) {
  for (DeviceCommunicator* from : members) {
    for (DeviceCommunicator* to : members) {
      if (from == to) continue;
      DSV4_RETURN_IF_ERROR(from->CheckReach(*to));
    }
  }
  return absl::OkStatus();
}

// Gives each member its communicator of NCCL.
absl::Status ConnectNccl(absl::Span<const DeviceRank> ranks, std::chrono::milliseconds limit,
                         absl::Span<DeviceCommunicator* const> members, Group* group) {
  DSV4_ASSIGN_OR_RETURN(const Nccl* const nccl, Nccl::Load());
  struct Call {
    std::vector<Nccl::Comm> comms;
    std::vector<int> devices;
  };
  const auto made = std::make_shared<Call>();
  made->comms.resize(ranks.size());
  for (const DeviceRank& rank : ranks) {
    DSV4_RETURN_IF_ERROR(nccl->Supports(rank.device->traits().compute_capability));
    made->devices.push_back(rank.device->index());
  }
  const std::optional<int> result = CallWithin(
      limit,
      [nccl, made] {
        return nccl->CommInitAll(made->comms.data(), static_cast<int>(made->comms.size()),
                                 made->devices.data());
      },
      [nccl, made](int) {
        for (const Nccl::Comm comm : made->comms) {
          if (comm != nullptr) nccl->CommAbort(comm);
        }
      });
  if (!result) {
    return DeviceLost("NCCL ", nccl->VersionAndFile(), " did not connect the devices within ",
                      Seconds(limit), " s; ", kPcieHint);
  }
  DSV4_RETURN_IF_ERROR(nccl->Check(*result, "connecting devices"));
  for (size_t rank = 0; rank < members.size(); ++rank) members[rank]->set_comm(made->comms[rank]);
  group->nccl = nccl;
  return absl::OkStatus();
}

}  // namespace

int64_t ExchangeDeviceBytes() { return kSignalBytes + kInboxBytes + NcclGather::kStagingBytes; }

absl::StatusOr<DeviceCommunicators> ConnectDevices(absl::Span<const DeviceRank> ranks,
                                                   ExchangePath path,
                                                   std::chrono::milliseconds limit,
                                                   std::chrono::milliseconds start_limit) {
  const bool silent = path == ExchangePath::kNone;
  absl::Status direct = Unsupported("direct access was not requested");
  if (path == ExchangePath::kAuto || path == ExchangePath::kDirect) direct = ReachEachOther(ranks);
  if (path == ExchangePath::kDirect && !direct.ok()) return direct;

  for (const DeviceRank& rank : ranks) {
    if (!rank.device->limits_kernels()) continue;
    Log(LogLevel::kWarning, "cuda:", rank.device->index(),
        " drives a display, and the driver ends kernels that run for some seconds: it waits for ",
        "other GPUs for 1 s at most");
  }
  const auto count = static_cast<int>(ranks.size());
  auto group = std::make_shared<Group>(count, limit, start_limit, silent);
  std::vector<DeviceCommunicator*> members;
  DeviceCommunicators connected;
  for (int rank = 0; rank < count; ++rank) {
    auto member =
        std::make_unique<DeviceCommunicator>(group, rank, ranks[static_cast<size_t>(rank)]);
    DSV4_RETURN_IF_ERROR(member->Allocate());
    members.push_back(member.get());
    connected.ranks.push_back(std::move(member));
  }
  const bool offered = direct.ok();
  if (direct.ok()) {
    direct = CheckPairs(members);
    if (!direct.ok() && (path == ExchangePath::kDirect || !IsUnsupported(direct))) return direct;
  }
  group->direct = direct.ok();
  group->host = path == ExchangePath::kHost || (path == ExchangePath::kAuto && !direct.ok());
  if (group->host) {
    if (path == ExchangePath::kAuto) {
      Log(LogLevel::kWarning, "devices exchange through host memory: ", direct.message());
    }
    for (DeviceCommunicator* const member : members) {
      DSV4_RETURN_IF_ERROR(member->AllocateHostInbox());
    }
  }
  if (path == ExchangePath::kNccl) {
    DSV4_RETURN_IF_ERROR(ConnectNccl(ranks, start_limit, members, group.get()));
  } else if (path == ExchangePath::kAuto && (direct.ok() || !offered)) {
    const absl::Status by_nccl = ConnectNccl(ranks, start_limit, members, group.get());
    if (!by_nccl.ok()) {
      Log(LogLevel::kWarning,
          "devices exchange by kernels alone: ", std::string(by_nccl.message()));
    }
  }
  DSV4_ASSIGN_OR_RETURN(group->failure_memory,
                        ranks[0].device->AllocateHost(sizeof(ExchangeFailure), "exchange"));
  *group->failure() = {};
  connected.ways = group;
  return connected;
}

}  // namespace dsv4
