// SPDX-License-Identifier: Apache-2.0
// Two GPUs that are not there, on machines that go wrong as real ones do, and a libnccl.so.2 that
// does what it is told (tests/support/scripted_nccl.cc): each ends within its limit, named.
#include "lib/dist/device_communicators.h"

#include <algorithm>
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
// The check takes a second at most; sanitizers and busy machines take several times as long.
constexpr double kSoon = 10;

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

// Notes what its rank's kernel was given, and does what the contract says.
std::array<int64_t, 2> limits_of_launches;
std::array<std::atomic<int>, 2> launches, pushes;
void GatherByHand(const LaunchContext&, const GatherColumnsParams& params) {
  const auto own = static_cast<size_t>(params.rank);
  limits_of_launches[own] = params.limit_ns;
  ++launches[own];
  pushes[own] += PushesColumns(params) ? 1 : 0;
  const ColumnShares& shares = params.shares;
  for (int64_t row = 0; row < params.rows; ++row) {
    std::byte* column = params.whole + row * shares.WholeStride();
    std::byte* tail = column + shares.WholeWidth();
    for (int rank = 0; rank < params.ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const std::byte* const slice = params.slices[r] + row * shares.SliceStride(rank);
      column = std::copy_n(slice, shares.widths[r], column);
      tail = std::copy_n(slice + shares.widths[r], shares.tails[r], tail);
    }
  }
}
constexpr KernelEntry kEntries[] = {MakeEntry<GatherColumnsParams, &GatherByHand>(
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

// The warnings of the log while it lives.
class Warnings {
 public:
  Warnings() {
    SetLogCallback(
        [](void* user, LogLevel, const char* line) {
          *static_cast<std::string*>(user) += std::string(line) + "\n";
        },
        &said_, LogLevel::kWarning);
  }
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;
  ~Warnings() { SetLogCallback(nullptr, nullptr, LogLevel::kInfo); }
  bool Has(const std::string& text) const { return said_.find(text) != std::string::npos; }

 private:
  std::string said_;
};

TEST_CASE("GPUs that reach each other are connected, and their memory is left cleared") {
  Opened opened({});
  REQUIRE_OK(opened.connected);
  CHECK(opened.seconds < kSoon);
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
    CHECK(direct.seconds < kSoon);
    // NCCL would wait for the same access, unless its environment says that it is not to use it: it
    // is not asked.
    const Warnings warnings;
    Opened through_host(one.machine, ExchangePath::kAuto, "start");
    REQUIRE_OK(through_host.connected);
    REQUIRE_OK(through_host.Start());
    CHECK(through_host.seconds < kSoon);
    CHECK(through_host.connected->ways->Describe() == "by kernels through host memory");
    CHECK(warnings.Has("devices exchange through host memory: "));
    CHECK(warnings.Has(one.told));
    CHECK_FALSE(warnings.Has("NCCL 2.27.3"));
    Opened by_nccl(one.machine, ExchangePath::kNccl);
    REQUIRE_OK(by_nccl.connected);
    REQUIRE_OK(by_nccl.Start());
    CHECK(by_nccl.connected->ways->Describe() == "by NCCL 2.27.3");
  }
}

TEST_CASE("peer access that the second GPU is refused is none for both") {
  Opened direct({.refuses_second = true}, ExchangePath::kDirect);
  REQUIRE_FAILS(direct.connected, kUnsupportedCode, "cuda:1 cannot access the memory of cuda:0");
  Opened through_host({.refuses_second = true});
  REQUIRE_OK(through_host.connected);
  REQUIRE_OK(through_host.Start());
  CHECK(through_host.connected->ways->Describe().find("by kernels through host memory") == 0);
}

TEST_CASE("exchanges through host memory are parts that an inbox takes, of all rows and columns") {
  const struct {
    int64_t rows;
    ColumnShares shares;
    int parts;
  } cases[] = {
      {1, {.widths = {2048, 2048}}, 1},
      {300, {.widths = {2048, 1024}}, 5},                                   // of 64 rows
      {1000, {.widths = {256, 128}, .tails = {2, 1}, .row_align = 16}, 3},  // of 481 rows
      {40, {.widths = {16384, 0}}, 5},                                      // of 8 rows
      {3, {.widths = {200'000, 131'080}, .row_align = 16}, 3 * (2 + 2)},    // pieces of rows
      {1, {.widths = {1 << 20, 1 << 20}}, 16},
  };
  Opened opened({.offers_peer_access = false}, ExchangePath::kHost);
  REQUIRE_OK(opened.connected);
  CHECK(opened.connected->ways->Describe() == "by kernels through host memory");
  const auto threads = RankThreads::Start(2);
  REQUIRE_OK(threads);
  const auto gather = [&](const GatherParams& params, std::vector<std::byte>* slices,
                          std::vector<std::byte>* wholes) {
    for (size_t rank : {0, 1}) launches[rank] = pushes[rank] = 0;
    return (*threads)->Run([&](int rank) {
      GatherParams own = params;
      own.slice = slices[rank].data();
      own.whole = wholes[rank].data();
      return opened.connected->ranks[static_cast<size_t>(rank)]->AllGather(own);
    });
  };
  for (const auto& one : cases) {
    CAPTURE(one.rows, one.shares.widths[0], one.shares.widths[1]);
    std::vector<std::byte> slices[2], wholes[2];
    const auto rows = static_cast<size_t>(one.rows);
    for (int rank : {0, 1}) {
      slices[rank].resize(rows * static_cast<size_t>(one.shares.SliceStride(rank)));
      for (size_t i = 0; i < slices[rank].size(); ++i) {
        slices[rank][i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(rank) * 99);
      }
      wholes[rank].resize(rows * static_cast<size_t>(one.shares.WholeStride()));
    }
    // At once, by the contract.
    std::vector<std::byte> expected(wholes[0].size());
    GatherByHand({}, {.rows = one.rows,
                      .ranks = 2,
                      .shares = one.shares,
                      .slices = {slices[0].data(), slices[1].data()},
                      .whole = expected.data()});
    REQUIRE_OK(gather({.rows = one.rows, .shares = one.shares}, slices, wholes));
    for (size_t rank : {0, 1}) {
      CHECK(launches[rank] == one.parts);
      CHECK(pushes[rank] == one.parts);
      CHECK((wholes[rank] == expected));
    }
  }
  // No model has these; nothing is exchanged.
  std::vector<std::byte> slices[2], wholes[2];
  for (int rank : {0, 1}) {
    slices[rank].resize(1 << 20);
    wholes[rank].resize(1 << 20);
  }
  REQUIRE_FAILS(gather({.rows = 2, .shares = {.widths = {5, 3}}}, slices, wholes), kUnsupportedCode,
                "rows of 8 bytes that do not begin at multiples of 8 cannot");
  REQUIRE_FAILS(
      gather({.rows = 1, .shares = {.widths = {200'000, 8}, .tails = {8, 8}, .row_align = 16}},
             slices, wholes),
      kUnsupportedCode, "with scales cannot be exchanged through host memory");
  CHECK(launches[0] == 0);
}

TEST_CASE("a copy between GPUs that never ends is no peer access", "[.long]") {
  Opened opened({.hangs_copies = true}, ExchangePath::kDirect);
  REQUIRE_FAILS(opened.connected, kUnsupportedCode, "no copy to another device ended within 1 s");
  CHECK(opened.seconds < kSoon);
}

TEST_CASE("a start of NCCL that never returns is left behind after its limit") {
  Opened opened({.offers_peer_access = false}, ExchangePath::kNccl, "start");
  REQUIRE_FAILS(opened.connected, DeviceLost().code(),
                "did not connect the devices within 0.3 s; PCIe ACS");
  CHECK(opened.seconds < kSoon);
  // Where kernels exchange, it is not needed.
  for (const bool offers : {true, false}) {
    const Warnings warnings;
    Opened kernels({.offers_peer_access = offers}, ExchangePath::kAuto, "start");
    REQUIRE_OK(kernels.connected);
    CHECK(kernels.connected->ways->Describe() ==
          (offers ? "by kernels" : "by kernels through host memory"));
    CHECK(warnings.Has("devices exchange by kernels alone: NCCL 2.27.3"));
    CHECK(warnings.Has("cuda:0 cannot access the memory of cuda:1") == !offers);
  }
}

TEST_CASE("a first exchange of NCCL that never ends loses the devices after its limit") {
  Opened opened({.offers_peer_access = false}, ExchangePath::kAuto, "exchange");
  REQUIRE_OK(opened.connected);
  const auto begin = Clock::now();
  REQUIRE_FAILS(opened.Start(), DeviceLost().code(),
                "NCCL 2.27.3 made no exchange within 0.3 s; PCIe ACS");
  CHECK(Clock::now() - begin < std::chrono::seconds(10));
}

// In a process of its own: the version is read once.
TEST_CASE("an NCCL that is too old for the GPUs is named with its file", "[.old]") {
  Opened opened({.offers_peer_access = false}, ExchangePath::kNccl);
  REQUIRE_FAILS(opened.connected, kUnsupportedCode, "NCCL 2.26.5 (");
  REQUIRE_FAILS(opened.connected, kUnsupportedCode,
                "libnccl.so.2) is too old for GPUs of compute capability 12.0; at least 2.27.0");
  for (const bool offers : {true, false}) {
    Opened kernels({.offers_peer_access = offers});
    REQUIRE_OK(kernels.connected);
  }
}

}  // namespace
}  // namespace dsv4
