// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/process_group.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/device/cuda_stream.h"
#include "lib/dist/device_communicators.h"
#include "lib/dist/nccl_call.h"

namespace dsv4 {
namespace {

constexpr absl::string_view kIdPrefix = "dsv4-group-1";
constexpr int64_t kFirstBytes = 4096;   // of a message, its header included
constexpr int64_t kRecordBytes = 8192;  // of one rank
constexpr int64_t kTickedRows = 16;     // exchanges of as many rows or more tick
constexpr auto kLook = std::chrono::milliseconds(50);
constexpr auto kPingAfter = std::chrono::seconds(1);
constexpr auto kBusy = std::chrono::milliseconds(20);
constexpr auto kNap = std::chrono::microseconds(200);
constexpr auto kLeaveLimit = std::chrono::seconds(2);
constexpr int64_t kLoadParts = 64;  // that weights are loaded in, at the same pace everywhere

struct ParsedId {
  std::string nccl, build, carried;
  Nccl::UniqueId id;
};

absl::StatusOr<ParsedId> ParseId(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  ParsedId parsed;
  std::string bytes;
  if (parts.size() != 5 || parts[0] != kIdPrefix ||
      !absl::WebSafeBase64Unescape(parts[2], &parsed.build) ||
      !absl::WebSafeBase64Unescape(parts[3], &parsed.carried) ||
      !absl::WebSafeBase64Unescape(parts[4], &bytes) || bytes.size() != sizeof parsed.id.bytes) {
    return WithArgument(InvalidArgument("option group_id = \"", text, "\" is not a group id"),
                        "group_id");
  }
  parsed.nccl = parts[1];
  std::memcpy(parsed.id.bytes, bytes.data(), bytes.size());
  return parsed;
}

// NCCL completes calls on a non-blocking communicator in a thread of its own.
absl::Status Settle(const Nccl& nccl, Nccl::Comm comm, int result, const char* what,
                    std::chrono::steady_clock::time_point until) {
  while (result == Nccl::kInProgress || result == Nccl::kSuccess) {
    int state = Nccl::kSuccess;
    result = nccl.CommGetAsyncError(comm, &state);
    if (result == Nccl::kSuccess) result = state;
    if (result == Nccl::kSuccess) return absl::OkStatus();
    if (result == Nccl::kInProgress && std::chrono::steady_clock::now() > until) {
      return DeviceLost(what, ": the group's other processes did not join within ",
                        std::chrono::seconds(ProcessGroup::kOpenLimit).count(), " s");
    }
    std::this_thread::sleep_for(kNap);
  }
  return nccl.Check(result, what);
}

// The first line of `record` that rank 0's does not have, or the other way round.
absl::Status Difference(int rank, absl::string_view record, absl::string_view leaders) {
  const std::vector<absl::string_view> own = absl::StrSplit(record, '\n'),
                                       theirs = absl::StrSplit(leaders, '\n');
  for (size_t i = 0; i < std::max(own.size(), theirs.size()); ++i) {
    const absl::string_view a = i < own.size() ? own[i] : "",
                            b = i < theirs.size() ? theirs[i] : "";
    if (a != b) {
      return VersionMismatch("the group's processes differ: rank 0 has ", b, "; rank ", rank,
                             " has ", a);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CreateGroupId(absl::string_view build, absl::string_view carried) {
  DSV4_ASSIGN_OR_RETURN(const Nccl* const nccl, Nccl::Load());
  Nccl::UniqueId id;
  DSV4_RETURN_IF_ERROR(nccl->Check(nccl->GetUniqueId(&id), "making the id of a group"));
  return absl::StrCat(kIdPrefix, ":", nccl->version(), ":", absl::WebSafeBase64Escape(build), ":",
                      absl::WebSafeBase64Escape(carried), ":",
                      absl::WebSafeBase64Escape({id.bytes, sizeof id.bytes}));
}

absl::StatusOr<std::string> CarriedBy(absl::string_view id) {
  DSV4_ASSIGN_OR_RETURN(ParsedId parsed, ParseId(id));
  return std::move(parsed.carried);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::Join(const GroupPlace& place,
                                                                 const DeviceRank& own,
                                                                 absl::string_view record) {
  DSV4_ASSIGN_OR_RETURN(const ParsedId id, ParseId(place.id));
  if (id.build != place.build) {
    return VersionMismatch("the group's id was made by another build of the library, ", id.build,
                           "; this one is ", place.build);
  }
  DSV4_ASSIGN_OR_RETURN(const Nccl* const nccl, Nccl::Load());
  DSV4_RETURN_IF_ERROR(nccl->Supports(own.device->traits().compute_capability));
  if (id.nccl != nccl->version()) {
    return VersionMismatch("the group's id was made with NCCL ", id.nccl, "; this process has ",
                           nccl->version());
  }
  std::unique_ptr<ProcessGroup> group(new ProcessGroup(place, nccl, own));
  DSV4_RETURN_IF_ERROR(group->Connect(id.id, record));
  return group;
}

// Who joins at all is found out with a communicator whose calls do not block; steps have one whose
// calls do, which all others are ready for by then.
absl::Status ProcessGroup::Connect(Nccl::UniqueId id, absl::string_view record) {
  limit_.store(std::chrono::milliseconds(kOpenLimit).count());
  DSV4_ASSIGN_OR_RETURN(memory_,
                        own_.device->Allocate(ExchangeDeviceBytes(), "exchange between processes"));
  DSV4_ASSIGN_OR_RETURN(tick_, own_.device->AllocateHost(kTickBytes, "exchange"));
  std::memset(tick_.data(), 0, kTickBytes);
  std::array<uint32_t, kTicks * kTickBytes / sizeof(uint32_t)> ticks;
  for (size_t i = 0; i < ticks.size(); ++i) ticks[i] = static_cast<uint32_t>(i);
  DSV4_RETURN_IF_ERROR(own_.device->Upload(
      memory_.data(), reinterpret_cast<const std::byte*>(ticks.data()), sizeof ticks));
  DSV4_RETURN_IF_ERROR(own_.dispatch->Prepare(GatherColumnsParams{}));
  const DeviceScope scope(own_.device);
  Nccl::Config config;
  config.blocking = 0;
  Nccl::Comm arrival = nullptr;
  const int begun = nccl_->CommInitRankConfig(&arrival, place_.ranks, id, place_.rank, &config);
  if (arrival == nullptr) return nccl_->Check(begun, "joining a group");
  Nccl::UniqueId next;
  absl::Status status =
      Settle(*nccl_, arrival, begun, "joining a group", Clock::now() + kOpenLimit);
  if (status.ok()) status = CompareRecords(arrival, record, &next);
  Nccl::Comm comm = nullptr;
  if (status.ok()) status = ConnectWithin(next, &comm);
  nccl_->CommAbort(arrival);
  DSV4_RETURN_IF_ERROR(status);
  comm_.store(comm);
  Progressed();
  DSV4_RETURN_IF_ERROR(StartWatching());
  // The first exchange makes connections: NCCL tries for a minute to reach a process that is gone.
  DSV4_RETURN_IF_ERROR(Meet());
  limit_.store(kLoadLimits * place_.limit.count());
  return absl::OkStatus();
}

// NCCL blocks here for ever where PCIe drops what GPUs write.
absl::Status ProcessGroup::ConnectWithin(const Nccl::UniqueId& id, Nccl::Comm* comm) {
  const auto made = std::make_shared<Nccl::Comm>(nullptr);
  const std::optional<int> result = CallWithin(
      kOpenLimit,
      [nccl = nccl_, device = own_.device, ranks = place_.ranks, rank = place_.rank, id, made] {
        device->Enter();  // of this thread, which ends
        return nccl->CommInitRank(made.get(), ranks, id, rank);
      },
      [nccl = nccl_, made](int) {
        if (*made != nullptr) nccl->CommAbort(*made);
      });
  if (!result) {
    return DeviceLost("NCCL ", nccl_->version(), " did not connect the group within ",
                      std::chrono::seconds(kOpenLimit).count(), " s; ", kPcieHint);
  }
  *comm = *made;
  return nccl_->Check(*result, "connecting a group");
}

absl::Status ProcessGroup::CompareRecords(Nccl::Comm comm, absl::string_view record,
                                          Nccl::UniqueId* next) {
  if (static_cast<int64_t>(record.size() + sizeof *next) >= kRecordBytes) {
    return Internal("a record has ", record.size(), " bytes; at most ", kRecordBytes,
                    " are supported");
  }
  std::vector<std::byte> records(static_cast<size_t>(place_.ranks * kRecordBytes));
  if (place_.rank == 0) {
    DSV4_RETURN_IF_ERROR(nccl_->Check(nccl_->GetUniqueId(next), "making the second id of a group"));
    std::memcpy(records.data(), next->bytes, sizeof *next);
  }
  std::memcpy(records.data() + sizeof *next, record.data(), record.size());
  std::byte* const to = staging() + kRecordBytes;
  DSV4_RETURN_IF_ERROR(own_.device->Upload(staging(), records.data(), kRecordBytes));
  void* const stream = static_cast<CudaStream&>(own_.device->stream()).handle();
  const auto gather = [&](Clock::duration limit) -> absl::Status {
    constexpr char kWhat[] = "comparing the processes of a group";
    const auto until = Clock::now() + limit;
    DSV4_RETURN_IF_ERROR(Settle(
        *nccl_, comm, nccl_->AllGather(staging(), to, kRecordBytes, Nccl::kUint8, comm, stream),
        kWhat, until));
    for (;;) {
      DSV4_ASSIGN_OR_RETURN(const bool idle, own_.device->Idle());
      if (idle) return absl::OkStatus();
      DSV4_RETURN_IF_ERROR(Settle(*nccl_, comm, Nccl::kSuccess, kWhat, until));
      if (Clock::now() > until) return DeviceLost("the group's other processes do not answer");
      std::this_thread::sleep_for(kNap);
    }
  };
  DSV4_RETURN_IF_ERROR(gather(kOpenLimit));
  DSV4_RETURN_IF_ERROR(
      own_.device->Download(records.data(), to, static_cast<int64_t>(records.size())));
  std::memcpy(next->bytes, records.data(), sizeof *next);
  const auto record_of = [&](int rank) {
    return absl::string_view(reinterpret_cast<const char*>(records.data() + rank * kRecordBytes) +
                             sizeof *next);
  };
  absl::Status difference;
  for (int rank = 1; rank < place_.ranks && difference.ok(); ++rank) {
    difference = Difference(rank, record_of(rank), record_of(0));
  }
  // No process leaves before all have read the records.
  if (!difference.ok()) gather(kLeaveLimit).IgnoreError();
  return difference;
}

absl::Status ProcessGroup::StartWatching() {
  const int error = watcher_.Start(WatchMain, this);
  if (error != 0) {
    return OutOfHostMemory("cannot start a thread for the process group: ", SystemReason(error));
  }
  watching_ = true;
  return absl::OkStatus();
}

ProcessGroup::~ProcessGroup() {
  stop_.store(true);
  if (watching_) watcher_.Join();
  if (opened_ && place_.rank == 0 && Check().ok()) {
    Contained([&]() -> absl::Status {
      const MutexLock lock(&sending_);
      DSV4_RETURN_IF_ERROR(SendAll({}, true));
      return Synchronize();
    }).IgnoreError();
  }
  if (const Nccl::Comm comm = comm_.exchange(nullptr); comm != nullptr) {
    (opened_ && Check().ok() ? nccl_->CommDestroy : nccl_->CommAbort)(comm);
  }
}

void ProcessGroup::WatchMain(void* group) { static_cast<ProcessGroup*>(group)->Watch(); }

void ProcessGroup::Watch() {
  while (!stop_.load() && !failed_.load()) {
    std::this_thread::sleep_for(kLook);
    Look();
    if (place_.rank == 0) Contained([&] { return Ping(), absl::OkStatus(); }).IgnoreError();
  }
  Look();  // who failed meanwhile
}

// A message sent while the leader computes would wait behind its step anyway.
void ProcessGroup::Ping() {
  const Clock::time_point last{Clock::duration(sent_.load())};
  if (sent_.load() == 0 || Clock::now() - last < kPingAfter) return;
  if (!sending_.TryLock()) return;
  // Check says what fails.
  if (Synchronize().ok() && SendAll({}, false).ok()) Synchronize().IgnoreError();
  sending_.Unlock();
}

void ProcessGroup::Progressed() { progressed_.store(Clock::now().time_since_epoch().count()); }

void ProcessGroup::Look() {
  const MutexLock lock(&looking_);
  const Nccl::Comm comm = comm_.load();
  if (comm == nullptr) return;
  const uint32_t tick =
      std::atomic_ref<uint32_t>(*reinterpret_cast<uint32_t*>(tick_.data())).load();
  if (std::exchange(seen_tick_, tick) != tick) Progressed();
  int error = Nccl::kSuccess;
  const int result = nccl_->CommGetAsyncError(comm, &error);
  const absl::Status status =
      nccl_->Check(result == Nccl::kSuccess ? error : result, "an exchange with another process");
  if (!status.ok()) Abort(status);
  const std::chrono::milliseconds limit(limit_.load());
  const Clock::time_point progressed{Clock::duration(progressed_.load())};
  if (pending_.load() && Clock::now() - progressed > limit) {
    Abort(DeviceLost("waited ", limit.count(), " ms for another process of the group"));
  }
  if (!failed_.load()) return;
  comm_.store(nullptr);
  EndWaits(comm);
}

// Whoever enqueues is done in a moment, unless the device's queue is full: then nothing else ends
// the wait.
void ProcessGroup::EndWaits(Nccl::Comm comm) {
  for (int wait = 0; wait < 200; ++wait) {
    if (enqueueing_.TryLock()) {
      abort_.Start(nccl_, comm);
      enqueueing_.Unlock();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  abort_.Start(nccl_, comm);
}

absl::Status ProcessGroup::Enqueue(absl::FunctionRef<absl::Status(Nccl::Comm comm)> enqueue) {
  Progressed();
  pending_.store(true);
  const MutexLock lock(&enqueueing_);
  const Nccl::Comm comm = comm_.load();
  if (comm == nullptr) return Check();
  return enqueue(comm);
}

absl::Status ProcessGroup::Check() {
  if (!failed_.load()) return absl::OkStatus();
  const MutexLock lock(&mutex_);
  return failure_;
}

void ProcessGroup::Abort(const absl::Status& reason) {
  const MutexLock lock(&mutex_);
  if (failed_.load()) return;
  failure_ = Contained([&] {
    return DeviceLost("rank ", place_.rank, " of the group: ", std::string(reason.message()));
  });
  failed_.store(true);
}

absl::Status ProcessGroup::Meet() {
  GatherParams params{.rows = 1, .slice = staging(), .whole = staging() + kFirstBytes};
  std::fill_n(params.shares.widths.begin(), place_.ranks, kTickBytes);
  DSV4_RETURN_IF_ERROR(AllGather(params));
  return Synchronize();
}

absl::Status ProcessGroup::Start() {
  DSV4_RETURN_IF_ERROR(Meet());
  // NCCL's way of exchanges to which ranks give different widths.
  GatherParams params{.rows = 1, .slice = staging(), .whole = staging() + kFirstBytes};
  for (int rank = 0; rank < place_.ranks; ++rank) {
    params.shares.widths[static_cast<size_t>(rank)] = kTickBytes * (rank + 1);
  }
  DSV4_RETURN_IF_ERROR(AllGather(params));
  return Synchronize();
}

absl::Status ProcessGroup::Loaded(int64_t done, int64_t total) {
  for (; loaded_ < kLoadParts * done / total; ++loaded_) DSV4_RETURN_IF_ERROR(Meet());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> ProcessGroup::FromLeader(
    absl::Span<const std::byte> message) {
  bool closed = false;
  if (place_.rank > 0) return Receive(&closed);
  const MutexLock lock(&sending_);
  DSV4_RETURN_IF_ERROR(Send(message));
  DSV4_RETURN_IF_ERROR(Synchronize());
  return std::vector<std::byte>(message.begin(), message.end());
}

absl::Status ProcessGroup::Opened(bool from_disk) {
  DSV4_RETURN_IF_ERROR(Meet());
  limit_.store(place_.limit.count() * (from_disk ? kLoadLimits : 1));
  opened_ = true;
  sent_.store(Clock::now().time_since_epoch().count());
  return absl::OkStatus();
}

absl::Status ProcessGroup::AllGather(const GatherParams& params) {
  DSV4_RETURN_IF_ERROR(Check());
  return Enqueue([&](Nccl::Comm comm) -> absl::Status {
    const NcclGather gather{nccl_, comm, own_, place_.rank, place_.ranks, staging()};
    DSV4_RETURN_IF_ERROR(gather.Run(params));
    if (params.rows < kTickedRows) return absl::OkStatus();
    enqueueing_.AssertHeld();  // by Enqueue
    ColumnShares tick;
    tick.widths[0] = kTickBytes;
    return gather.Place(tick, 1, {memory_.data() + ++exchanges_ % kTicks * kTickBytes},
                        tick_.data());
  });
}

// Also waits for exchanges in graphs, which are not enqueued here.
absl::Status ProcessGroup::Synchronize() {
  const auto begin = Clock::now();
  if (!pending_.exchange(true)) Progressed();
  for (;;) {
    DSV4_ASSIGN_OR_RETURN(const bool idle, own_.device->Idle());
    if (idle) break;
    Look();
    DSV4_RETURN_IF_ERROR(Check());
    if (Clock::now() - begin > kBusy) std::this_thread::sleep_for(kNap);
  }
  pending_.store(false);
  return Check();
}

absl::Status ProcessGroup::Broadcast(int64_t bytes) {
  DSV4_RETURN_IF_ERROR(Check());
  return Enqueue([&](Nccl::Comm comm) {
    const DeviceScope scope(own_.device);
    void* const stream = static_cast<CudaStream&>(own_.device->stream()).handle();
    return nccl_->Check(nccl_->Broadcast(staging(), staging(), static_cast<size_t>(bytes),
                                         Nccl::kUint8, 0, comm, stream),
                        "a message to another process");
  });
}

void ProcessGroup::AddBefore(absl::Span<const std::byte> message) {
  const MutexLock lock(&mutex_);
  before_.insert(before_.end(), message.begin(), message.end());
}

absl::Status ProcessGroup::Send(absl::Span<const std::byte> message) {
  return SendAll(message, false);
}

// What waits for the device by itself does so for nothing that is late: before each piece the
// others have taken the one before.
absl::Status ProcessGroup::SendAll(absl::Span<const std::byte> message, bool closed) {
  message_.assign(sizeof(Header), std::byte{0});
  {
    const MutexLock lock(&mutex_);
    message_.insert(message_.end(), before_.begin(), before_.end());
    before_.clear();
  }
  message_.insert(message_.end(), message.begin(), message.end());
  const Header header{.bytes = static_cast<int64_t>(message_.size() - sizeof(Header)),
                      .closed = closed ? 1 : 0};
  std::memcpy(message_.data(), &header, sizeof header);
  message_.resize(std::max(message_.size(), static_cast<size_t>(kFirstBytes)));
  const auto end = static_cast<int64_t>(message_.size());
  for (int64_t begin = 0; begin < end;) {
    const int64_t bytes =
        std::min(begin == 0 ? kFirstBytes : NcclGather::kStagingBytes, end - begin);
    DSV4_RETURN_IF_ERROR(Synchronize());
    DSV4_RETURN_IF_ERROR(own_.device->Upload(staging(), message_.data() + begin, bytes));
    DSV4_RETURN_IF_ERROR(Broadcast(bytes));
    begin += bytes;
  }
  // Until then no follower waits for messages that may be empty.
  if (opened_) sent_.store(Clock::now().time_since_epoch().count());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> ProcessGroup::Receive(bool* closed) {
  std::vector<std::byte> all(static_cast<size_t>(kFirstBytes));
  Header header;
  for (int64_t begin = 0, end = kFirstBytes; begin < end;) {
    const int64_t bytes =
        std::min(begin == 0 ? kFirstBytes : NcclGather::kStagingBytes, end - begin);
    DSV4_RETURN_IF_ERROR(Broadcast(bytes));
    DSV4_RETURN_IF_ERROR(Synchronize());
    DSV4_RETURN_IF_ERROR(own_.device->Download(all.data() + begin, staging(), bytes));
    if (begin == 0) {
      std::memcpy(&header, all.data(), sizeof header);
      end = std::max(end, header.bytes + static_cast<int64_t>(sizeof header));
      all.resize(static_cast<size_t>(end));
    }
    begin += bytes;
  }
  *closed = header.closed != 0;
  all.resize(sizeof header + static_cast<size_t>(header.bytes));
  all.erase(all.begin(), all.begin() + sizeof header);
  return all;
}

}  // namespace dsv4
