// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/status_exchange.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "lib/dist/memory_communicator.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

// What each rank comes to know where they came with `own`.
std::vector<absl::Status> Exchanged(const std::vector<absl::Status>& own) {
  const int ranks = static_cast<int>(own.size());
  const auto communicators = MemoryCommunicators(ranks, std::chrono::minutes(1));
  absl::StatusOr<std::unique_ptr<Device>> device = Device::Open({.threads = 1});
  REQUIRE_OK(device);
  const std::vector<std::byte> none(static_cast<size_t>(StatusExchange::DeviceBytes(ranks)));
  std::vector<std::vector<std::byte>> memory(own.size(), none);  // others read it to the end
  std::vector<absl::Status> known(own.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < own.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const StatusExchange exchange(device->get(), memory[rank].data());
      known[rank] = exchange.Exchange(communicators[rank].get(), own[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return known;
}

TEST_CASE("what failed on one rank fails on all, with its code and the lowest rank's words") {
  const absl::Status ok;
  REQUIRE(Exchanged({ok, ok}) == std::vector<absl::Status>{ok, ok});
  const absl::Status unread = IoError("a: Input/output error"), damaged = Corrupt("b: a NaN");
  const absl::Status of_one = IoError("rank 1: a: Input/output error");
  REQUIRE(Exchanged({ok, unread, damaged, ok}) ==
          std::vector<absl::Status>{of_one, unread, of_one, of_one});
  REQUIRE(Exchanged({damaged, unread}) ==
          std::vector<absl::Status>{damaged, Corrupt("rank 0: b: a NaN")});
}

TEST_CASE("a long message is cut behind a whole character") {
  const std::string name(1015, 'a');
  const std::vector<absl::Status> known =
      Exchanged({absl::Status(), IoError(name, "\u00e4", "and more")});
  REQUIRE(known[0] == IoError("rank 1: ", name));
}

// As an engine has them with ExchangePath::kNone.
class Silent final : public Communicator {
 public:
  int rank() const override { return 1; }
  int ranks() const override { return 2; }
  bool exchanges() const override { return false; }
  absl::Status AllGather(const GatherParams&) override { return absl::OkStatus(); }
  absl::Status Check() override { return absl::OkStatus(); }
  void Abort(const absl::Status&) override {}
};

TEST_CASE("where nothing is exchanged, a rank knows of its own failure alone") {
  const absl::StatusOr<std::unique_ptr<Device>> device = Device::Open({.threads = 1});
  REQUIRE_OK(device);
  // Of any content, which no exchange replaces: here that of a failure of rank 0.
  std::vector<std::byte> memory(static_cast<size_t>(StatusExchange::DeviceBytes(2)), std::byte{1});
  const StatusExchange exchange(device->get(), memory.data());
  Silent silent;
  REQUIRE_OK(exchange.Exchange(&silent, absl::OkStatus()));
  const absl::Status unread = IoError("a: Input/output error");
  REQUIRE(exchange.Exchange(&silent, unread) == unread);
}

}  // namespace
}  // namespace dsv4
