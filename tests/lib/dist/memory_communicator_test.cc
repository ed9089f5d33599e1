// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/memory_communicator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/sleeping_threads.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using Communicators = std::vector<std::unique_ptr<Communicator>>;
using Bytes = std::vector<uint8_t>;

constexpr std::chrono::hours kLong{1};  // a wait that only this ends hangs the test

// Calls f(communicator) on a thread for each rank.
std::vector<absl::Status> OnAll(const Communicators& all,
                                const std::function<absl::Status(Communicator&)>& f) {
  std::vector<absl::Status> statuses(all.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = f(*all[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// The slice of a rank in an exchange: no two bytes of a test are likely the same.
Bytes SliceOf(int rank, int exchange, int64_t rows, int64_t width) {
  Bytes bytes(static_cast<size_t>(rows * width));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(31 * rank + 7 * exchange + 3 * i + i / 251);
  }
  return bytes;
}

GatherParams Params(int64_t rows, const std::vector<int64_t>& widths, const Bytes& slice,
                    Bytes* whole) {
  ColumnShares shares;
  std::copy(widths.begin(), widths.end(), shares.widths.begin());
  return {.rows = rows,
          .shares = shares,
          .slice = reinterpret_cast<const std::byte*>(slice.data()),
          .whole = reinterpret_cast<std::byte*>(whole->data())};
}

TEST_CASE("a gathered tensor has the columns of all ranks in their order") {
  const std::vector<std::vector<int64_t>> widths = {{5}, {3, 4}, {2, 0, 7, 1}, {0, 0, 9, 0}};
  for (const std::vector<int64_t>& ranks : widths) {
    CAPTURE(ranks);
    const Communicators all = MemoryCommunicators(static_cast<int>(ranks.size()), kLong);
    // Two of each rank, as the one of the last exchange is still read.
    std::vector<std::array<Bytes, 2>> all_slices(ranks.size());
    const std::vector<absl::Status> statuses = OnAll(all, [&](Communicator& c) -> absl::Status {
      std::array<Bytes, 2>& slices = all_slices[static_cast<size_t>(c.rank())];
      for (int exchange = 0; exchange < 300; ++exchange) {
        const int64_t rows = 1 + exchange % 5;
        Bytes& slice = slices[static_cast<size_t>(exchange % 2)];
        slice = SliceOf(c.rank(), exchange, rows, ranks[static_cast<size_t>(c.rank())]);
        Bytes want, whole;
        for (int64_t row = 0; row < rows; ++row) {
          for (int rank = 0; rank < c.ranks(); ++rank) {
            const int64_t width = ranks[static_cast<size_t>(rank)];
            const Bytes from = SliceOf(rank, exchange, rows, width);
            want.insert(want.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
          }
        }
        whole.resize(want.size());
        const absl::Status status = c.AllGather(Params(rows, ranks, slice, &whole));
        if (!status.ok()) return status;
        if (whole != want) return Internal("exchange ", exchange, " differs on rank ", c.rank());
      }
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) REQUIRE_OK(status);
  }
}

TEST_CASE("a rank that aborts ends the waits of all others, and every later exchange") {
  const Communicators all = MemoryCommunicators(3, kLong);
  const std::vector<int64_t> widths = {1, 1, 1};
  const Bytes slice(1);
  const auto gather = [&](Communicator& c) {
    Bytes whole(3);
    return c.AllGather(Params(1, widths, slice, &whole));
  };
  std::vector<absl::Status> statuses = OnAll(all, [&](Communicator& c) {
    if (c.rank() != 1) return gather(c);
    test::AwaitSleepOfOthers();
    c.Abort(Internal("it fell over"));
    c.Abort(Internal("and again"));
    return absl::OkStatus();
  });
  for (const size_t rank : {0, 2}) {
    REQUIRE_FAILS(statuses[rank], DeviceLost().code(),
                  "a device of the engine failed: it fell over");
  }
  for (const absl::Status& status : OnAll(all, gather)) {
    REQUIRE_FAILS(status, DeviceLost().code(), "it fell over");
  }
}

TEST_CASE("a rank that does not come makes the others fail after the limit, by name") {
  const Communicators all = MemoryCommunicators(2, std::chrono::milliseconds(50));
  const std::vector<int64_t> widths = {1, 1};
  const Bytes slice(1);
  Bytes whole(2);
  REQUIRE_FAILS(all[0]->AllGather(Params(1, widths, slice, &whole)), DeviceLost().code(),
                "rank 0 waited 50 ms for exchange 1 of rank 1");
  REQUIRE_FAILS(all[1]->AllGather(Params(1, widths, slice, &whole)), DeviceLost().code(),
                "rank 0 waited");
}

TEST_CASE("a rank that comes within the limit finds the others waiting") {
  const std::vector<int64_t> widths = {1, 1};
  const Bytes slice(1);
  for (const absl::Status& status : OnAll(MemoryCommunicators(2, kLong), [&](Communicator& c) {
         if (c.rank() == 1) test::AwaitSleepOfOthers();
         Bytes whole(2);
         return c.AllGather(Params(1, widths, slice, &whole));
       })) {
    REQUIRE_OK(status);
  }
}

TEST_CASE("ranks that exchange different things find out") {
  const Communicators all = MemoryCommunicators(2, kLong);
  const std::vector<int64_t> widths = {1, 1};
  const Bytes slice(4);
  for (const absl::Status& status : OnAll(all, [&](Communicator& c) {
         Bytes whole(8);
         return c.AllGather(Params(1 + c.rank(), widths, slice, &whole));
       })) {
    REQUIRE_FAILS(status, DeviceLost().code(), "exchange 1 has");
  }

  // One that gives the same slice twice would change what others may not have read.
  const Communicators careless = MemoryCommunicators(2, kLong);
  const std::vector<absl::Status> statuses = OnAll(careless, [&](Communicator& c) {
    Bytes whole(2);
    const absl::Status first = c.AllGather(Params(1, widths, slice, &whole));
    return first.ok() ? c.AllGather(Params(1, widths, slice, &whole)) : first;
  });
  for (const absl::Status& status : statuses) REQUIRE_FALSE(status.ok());
}

}  // namespace
}  // namespace dsv4
