// SPDX-License-Identifier: Apache-2.0
// Two GPUs that are not there, on machines that go wrong as real ones do, and a libnccl.so.2 that
// does what it is told (tests/support/scripted_nccl.cc): each ends within its limit, named.
#include "lib/dist/device_communicators.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/op/gather_columns.h"
#include "kernels/registry/kernel_entry.h"
#include "lib/base/error.h"
#include "lib/base/log.h"
#include "lib/device/cuda_stream.h"
#include "lib/dist/rank_threads.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
const auto kUnsupportedCode = Unsupported().code();

// What each machine does; the defaults are those of one that works.
struct Machine {
  bool offers_peer_access = true;
  bool refuses_second = false;     // peer access of the second GPU, after the first one has it
  bool drops_writes = false;       // to the other GPU's memory
  bool drops_second_only = false;  // only those of the second GPU
  bool reads_ones = false;         // from the other GPU's memory
  bool hangs_copies = false;       // between GPUs
  bool display = false;            // at the first GPU
};

class FakeGpu final : public Device {
 public:
  FakeGpu(int32_t index, const Machine* machine) : index_(index), machine_(*machine) {}

  std::string name() const override { return "fake"; }
  int32_t index() const override { return index_; }
  Stream& stream() override { return stream_; }
  int threads() const override { return 1; }
  DeviceTraits traits() const override { return {.name = "fake", .compute_capability = 120}; }
  bool host_memory() const override { return false; }
  bool limits_kernels() const override { return machine_.display && index_ == 0; }
  absl::StatusOr<Buffer> Allocate(int64_t bytes, absl::string_view purpose) override {
    absl::StatusOr<Buffer> made = Buffer::AllocateHost(bytes, purpose);
    if (made.ok()) Memory()[made->data()] = {bytes, index_};
    return made;
  }
  absl::StatusOr<Buffer> AllocateHost(int64_t bytes, absl::string_view purpose) override {
    return Buffer::AllocateHost(bytes, purpose);
  }
  absl::Status Upload(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Download(std::byte* to, const std::byte* from, int64_t bytes) override {
    return Upload(to, from, bytes);
  }
  absl::Status Copy(std::byte* to, const std::byte* from, int64_t bytes) override {
    const bool writes = OwnerOf(to) != index_, reads = OwnerOf(from) != index_;
    if ((writes || reads) && machine_.hangs_copies) busy_.store(true);
    if (writes && machine_.drops_writes && (index_ == 1 || !machine_.drops_second_only)) {
      return absl::OkStatus();
    }
    if (reads && machine_.reads_ones) {
      std::memset(to, 0xFF, static_cast<size_t>(bytes));
      return absl::OkStatus();
    }
    return Upload(to, from, bytes);
  }
  absl::Status ReachMemoryOf(Device& other) override {
    const bool refused = machine_.refuses_second && index_ == 1;
    if (machine_.offers_peer_access && !refused) return absl::OkStatus();
    return Unsupported("cuda:", index_, " cannot access the memory of cuda:", other.index());
  }
  absl::StatusOr<bool> Idle() override { return !busy_.load(); }
  absl::Status Synchronize() override { return absl::OkStatus(); }

  static void Forget() { Memory().clear(); }

 private:
  struct Piece {
    int64_t bytes;
    int32_t owner;
  };
  static std::map<const std::byte*, Piece>& Memory() {
    static std::map<const std::byte*, Piece> memory;
    return memory;
  }
  static int32_t OwnerOf(const std::byte* at) {
    auto piece = Memory().upper_bound(at);
    REQUIRE(piece != Memory().begin());
    --piece;
    REQUIRE(at < piece->first + piece->second.bytes);
    return piece->second.owner;
  }

  const int32_t index_;
  const Machine& machine_;
  std::atomic<bool> busy_{false};
  CudaStream stream_{&busy_};
};

// Notes the limit that its rank's kernel was given.
std::array<int64_t, 2> limits_of_launches;
void GatherNothing(const LaunchContext&, const GatherColumnsParams& params) {
  limits_of_launches[static_cast<size_t>(params.rank)] = params.limit_ns;
}
constexpr KernelEntry kEntries[] = {MakeEntry<GatherColumnsParams, &GatherNothing>(
    "fake.gather", Backend::kCuda, NumericsBit(Numerics::kPublished), 1)};
constexpr Manifest kManifests[] = {Manifest{kEntries}};

struct Opened {
  explicit Opened(const Machine& given, ExchangePath path = ExchangePath::kAuto,
                  const char* nccl = "") {
    machine = given;
    FakeGpu::Forget();
    setenv("DSV4_SCRIPTED_NCCL", nccl, 1);
    for (int32_t i : {0, 1}) {
      gpus.push_back(std::make_unique<FakeGpu>(i, &machine));
      dispatches.push_back(std::make_unique<Dispatch>(kManifests, Backend::kCuda,
                                                      Numerics::kPublished, gpus.back()->traits()));
      ranks.push_back({gpus.back().get(), dispatches.back().get()});
    }
    const auto begin = Clock::now();
    connected = ConnectDevices(ranks, path, milliseconds(2000), milliseconds(300));
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  absl::Status Start() {
    const auto threads = RankThreads::Start(2);
    REQUIRE_OK(threads);
    return (*threads)->Run(
        [&](int rank) { return connected->ranks[static_cast<size_t>(rank)]->Start(); });
  }

  Machine machine;
  std::vector<std::unique_ptr<FakeGpu>> gpus;
  std::vector<std::unique_ptr<Dispatch>> dispatches;
  std::vector<DeviceRank> ranks;
  absl::StatusOr<DeviceCommunicators> connected;
  double seconds = 0;
};

TEST_CASE("GPUs that reach each other are connected, and their memory is left cleared") {
  Opened opened({});
  REQUIRE_OK(opened.connected);
  CHECK(opened.seconds < 1);
  REQUIRE_OK(opened.Start());
  Opened direct({}, ExchangePath::kDirect);
  REQUIRE_OK(direct.connected);
  CHECK(direct.connected->ways->Describe() == "by kernels");
}

TEST_CASE("the kernel of a GPU that drives a display waits for a second at most") {
  Opened opened({.display = true}, ExchangePath::kDirect);
  REQUIRE_OK(opened.connected);
  const auto threads = RankThreads::Start(2);
  REQUIRE_OK(threads);
  REQUIRE_OK((*threads)->Run([&](int rank) {
    alignas(16) std::byte slice[16] = {}, whole[32];
    return opened.connected->ranks[static_cast<size_t>(rank)]->AllGather(
        {.rows = 1, .shares = {.widths = {16, 16}}, .slice = slice, .whole = whole});
  }));
  CHECK(limits_of_launches[0] == 1'000'000'000);
  CHECK(limits_of_launches[1] == 2'000'000'000);
}

TEST_CASE("peer access that the driver offers and PCIe drops is found out within a second") {
  const struct {
    Machine machine;
    const char* told;
  } cases[] = {
      {{.drops_writes = true},
       "cuda:0 offers peer access, but its writes to the memory of cuda:1 are lost; PCIe ACS"},
      {{.drops_writes = true, .drops_second_only = true},
       "cuda:1 offers peer access, but its writes to the memory of cuda:0 are lost; PCIe ACS"},
      {{.reads_ones = true},
       "cuda:0 offers peer access, but its reads from the memory of cuda:1 are lost; PCIe ACS"},
  };
  for (const auto& one : cases) {
    INFO(one.told);
    Opened direct(one.machine, ExchangePath::kDirect);
    REQUIRE_FAILS(direct.connected, kUnsupportedCode, one.told);
    REQUIRE_FAILS(direct.connected, kUnsupportedCode, "NCCL_P2P_DISABLE=1");
    CHECK(direct.seconds < 1);
    // NCCL would wait for the same access, unless its environment says that it is not to use it.
    Opened both(one.machine, ExchangePath::kAuto, "start");
    REQUIRE_FAILS(both.connected, DeviceLost().code(), one.told);
    REQUIRE_FAILS(both.connected, DeviceLost().code(), "did not connect the devices within 0.3 s");
    Opened by_nccl(one.machine);
    REQUIRE_OK(by_nccl.connected);
    REQUIRE_OK(by_nccl.Start());
    CHECK(by_nccl.connected->ways->Describe() == "by NCCL 2.27.3");
  }
}

TEST_CASE("peer access that the second GPU is refused is none for both") {
  Opened direct({.refuses_second = true}, ExchangePath::kDirect);
  REQUIRE_FAILS(direct.connected, kUnsupportedCode, "cuda:1 cannot access the memory of cuda:0");
  Opened by_nccl({.refuses_second = true});
  REQUIRE_OK(by_nccl.connected);
  REQUIRE_OK(by_nccl.Start());
  CHECK(by_nccl.connected->ways->Describe() == "by NCCL 2.27.3");
}

TEST_CASE("a copy between GPUs that never ends is no peer access", "[.long]") {
  Opened opened({.hangs_copies = true}, ExchangePath::kDirect);
  REQUIRE_FAILS(opened.connected, kUnsupportedCode, "no copy to another device ended within 1 s");
  CHECK(opened.seconds < 2);
}

TEST_CASE("a start of NCCL that never returns is left behind after its limit") {
  Opened opened({.offers_peer_access = false}, ExchangePath::kAuto, "start");
  const auto lost = DeviceLost().code();
  REQUIRE_FAILS(opened.connected, lost, "cuda:0 cannot access the memory of cuda:1");
  REQUIRE_FAILS(opened.connected, lost, "did not connect the devices within 0.3 s; PCIe ACS");
  CHECK(opened.seconds < 2);
  // Where kernels exchange, it is not needed.
  std::string said;
  SetLogCallback(
      [](void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; },
      &said, LogLevel::kWarning);
  Opened direct({}, ExchangePath::kAuto, "start");
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  REQUIRE_OK(direct.connected);
  CHECK(direct.connected->ways->Describe() == "by kernels");
  CHECK(said.find("devices exchange by kernels alone: NCCL 2.27.3") != std::string::npos);
  setenv("DSV4_SCRIPTED_NCCL", "", 1);  // the threads end
}

TEST_CASE("a first exchange of NCCL that never ends loses the devices after its limit") {
  Opened opened({.offers_peer_access = false}, ExchangePath::kAuto, "exchange");
  REQUIRE_OK(opened.connected);
  const auto begin = Clock::now();
  REQUIRE_FAILS(opened.Start(), DeviceLost().code(),
                "NCCL 2.27.3 made no exchange within 0.3 s; PCIe ACS");
  CHECK(Clock::now() - begin < std::chrono::seconds(2));
}

// In a process of its own: the version is read once.
TEST_CASE("an NCCL that is too old for the GPUs is named with its file", "[.old]") {
  Opened opened({.offers_peer_access = false});
  REQUIRE_FAILS(opened.connected, kUnsupportedCode, "NCCL 2.26.5 (");
  REQUIRE_FAILS(opened.connected, kUnsupportedCode,
                "libnccl.so.2) is too old for GPUs of compute capability 12.0; at least 2.27.0");
  Opened direct({});
  REQUIRE_OK(direct.connected);
}

}  // namespace
}  // namespace dsv4
