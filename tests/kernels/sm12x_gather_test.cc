// SPDX-License-Identifier: Apache-2.0
// gather_columns of the CUDA backend: columns and tails where they belong, and the signals by which
// ranks meet. What takes two GPUs is in tests/tools/ranks_cuda_test.cc.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/op/gather_columns.h"
#include "tests/kernels/operator_memory.h"

namespace dsv4::test {
namespace {

using Bytes = std::vector<uint8_t>;

// The slices of an exchange in the device's memory, and what they make by hand.
struct Exchange {
  Exchange(int64_t rows, std::vector<int64_t> widths, std::vector<int64_t> tails, int64_t align) {
    params.rows = rows;
    params.ranks = static_cast<int32_t>(widths.size());
    params.shares.row_align = align;
    std::copy(widths.begin(), widths.end(), params.shares.widths.begin());
    std::copy(tails.begin(), tails.end(), params.shares.tails.begin());
    const auto stride = static_cast<size_t>(params.shares.WholeStride());
    want.assign(static_cast<size_t>(rows) * stride, kUntouched);
    size_t column = 0, tail = static_cast<size_t>(params.shares.WholeWidth());
    slices.reserve(widths.size());
    for (int rank = 0; rank < params.ranks; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const auto own = static_cast<size_t>(params.shares.SliceStride(rank));
      Bytes slice(std::max<size_t>(static_cast<size_t>(rows) * own, 1));
      for (size_t i = 0; i < slice.size(); ++i) {
        slice[i] = static_cast<uint8_t>(1 + (i * 7 + i / 250 + r * 31) % 200);
      }
      for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        const auto from = slice.begin() + static_cast<int64_t>(row * own);
        const auto to = want.begin() + static_cast<int64_t>(row * stride);
        std::copy_n(from, widths[r], to + static_cast<int64_t>(column));
        std::copy_n(from + widths[r], tails[r], to + static_cast<int64_t>(tail));
      }
      column += static_cast<size_t>(widths[r]);
      tail += static_cast<size_t>(tails[r]);
      slices.emplace_back(On::kTested, slice);
      params.slices[r] = reinterpret_cast<const std::byte*>(slices.back().data());
    }
  }

  static constexpr uint8_t kUntouched = 255;
  GatherColumnsParams params;
  std::vector<Array<uint8_t>> slices;
  Bytes want;
};

void ExpectGathered(Exchange& exchange) {
  Array<uint8_t> whole(On::kTested, Bytes(exchange.want.size(), Exchange::kUntouched));
  exchange.params.whole = reinterpret_cast<std::byte*>(whole.data());
  Launch(On::kTested, exchange.params);
  REQUIRE((whole.Get() == exchange.want));
}

// Launches without expecting a result.
void Gather(Exchange& exchange) {
  Array<uint8_t> whole(On::kTested, exchange.want);
  exchange.params.whole = reinterpret_cast<std::byte*>(whole.data());
  Launch(On::kTested, exchange.params);
}

TEST_CASE("sm12x gather_columns puts columns and tails where they belong") {
  for (const int64_t rows : {1, 3, 200}) {
    CAPTURE(rows);
    Exchange even(rows, {2048, 2048}, {0, 0}, 1);
    ExpectGathered(even);
    Exchange uneven(rows, {16, 0, 48, 5}, {0, 0, 0, 0}, 1);
    ExpectGathered(uneven);
    // Quantised rows of 256, 128 and no elements.
    Exchange quantised(rows, {256, 128, 0}, {2, 1, 0}, 16);
    ExpectGathered(quantised);
    Exchange eight(rows, {128, 128, 128, 128, 128, 128, 128, 128}, {1, 1, 1, 1, 1, 1, 1, 1}, 16);
    ExpectGathered(eight);
  }
}

TEST_CASE("sm12x gather_columns meets the other ranks") {
  for (const bool come : {true, false}) {
    CAPTURE(come);
    Exchange exchange(5, {64, 32}, {0, 0}, 1);
    // This rank is at its eighth exchange, and so is the other, or at the one before.
    std::vector<ExchangeSignals> signals(2);
    signals[1].done = 7;
    signals[1].arrived[0] = come ? 8 : 7;
    Array<ExchangeSignals> on_device(On::kTested, signals);
    Array<ExchangeFailure> failure(On::kTested, std::vector<ExchangeFailure>(1));
    exchange.params.rank = 1;
    exchange.params.signals = {on_device.data(), on_device.data() + 1};
    exchange.params.failure = failure.data();
    exchange.params.limit_ns = 1'000'000;
    come ? ExpectGathered(exchange) : Gather(exchange);
    const std::vector<ExchangeSignals> after = on_device.Get();
    REQUIRE(after[0].arrived[1] == 8);  // told the other
    REQUIRE(after[1].done == 8);
    REQUIRE(after[1].done_blocks == 0);
    REQUIRE(after[1].failed == (come ? 0u : 1u));
    REQUIRE(failure.Get()[0].late == (come ? 0u : 1u));
    if (come) continue;
    // Nothing waits from then on.
    exchange.params.limit_ns = int64_t{3600} * 1'000'000'000;
    ExpectGathered(exchange);
  }
}

// A slice in packets, as its rank writes them in the exchange of that number.
void Pack(const Bytes& slice, uint32_t number, uint64_t (*packets)[2]) {
  for (size_t at = 0; at < slice.size(); ++at) {
    uint64_t& word = packets[at / 8][at / 4 % 2];
    word = (word & 0xffffffff) | uint64_t{slice[at]} << at % 4 * 8 | uint64_t{number} << 32;
  }
}

TEST_CASE("sm12x gather_columns takes short slices from its inbox, and fills the others'") {
  // Columns, columns and scales, odd ones, and a rank that has nothing but waits and is waited for.
  struct Shares {
    int64_t rows;
    std::vector<int64_t> widths, tails;
    int64_t align;
  };
  const std::vector<Shares> all = {{5, {64, 32, 64}, {0, 0, 0}, 1},
                                   {3, {256, 128, 0}, {2, 1, 0}, 16},
                                   {2, {5, 3, 10}, {1, 0, 2}, 8},
                                   {40, {2048, 2048, 0}, {0, 0, 0}, 1},
                                   {1, {kMostPushedBytes, 64, 8}, {0, 0, 0}, 1}};
  for (const Shares& shares : all) {
    for (const bool come : {true, false}) {
      // Of the second rank's exchange: one in each half of the inboxes.
      const uint32_t number = come ? 8 : 9;
      Exchange exchange(shares.rows, shares.widths, shares.tails, shares.align);
      CAPTURE(exchange.want.size(), come);
      std::vector<ExchangeSignals> signals(3);
      signals[1].done = number - 1;
      std::vector<ExchangeInbox> inboxes(3), expected(3);
      for (const int from : {0, 2}) {
        if (from == 2 && !come) continue;
        const Bytes slice = exchange.slices[static_cast<size_t>(from)].Get();
        if (exchange.params.shares.SliceStride(from) == 0) {
          Pack(Bytes(8), number, inboxes[1].packets[number % 2][from]);
        } else {
          Pack(slice, number, inboxes[1].packets[number % 2][from]);
        }
      }
      // Packets of the exchange before the last, which are not waited for a second time.
      if (!come) Pack(Bytes(64, 99), number - 2, inboxes[1].packets[number % 2][2]);
      expected[1] = inboxes[1];
      const Bytes own = exchange.slices[1].Get();
      for (const int to : {0, 2}) Pack(own, number, expected[to].packets[number % 2][1]);
      Array<ExchangeSignals> signals_there(On::kTested, signals);
      Array<ExchangeInbox> inboxes_there(On::kTested, inboxes);
      Array<ExchangeFailure> failure(On::kTested, std::vector<ExchangeFailure>(1));
      for (int r = 0; r < 3; ++r) {
        exchange.params.signals[r] = signals_there.data() + r;
        exchange.params.inboxes[r] = inboxes_there.data() + r;
      }
      exchange.params.rank = 1;
      exchange.params.failure = failure.data();
      exchange.params.limit_ns = 1'000'000;
      come ? ExpectGathered(exchange) : Gather(exchange);
      const std::vector<ExchangeInbox> left = inboxes_there.Get();
      REQUIRE(std::memcmp(left.data(), expected.data(), sizeof(ExchangeInbox) * 3) == 0);
      const std::vector<ExchangeSignals> after = signals_there.Get();
      REQUIRE(after[1].done == number);
      REQUIRE(after[1].done_blocks == 0);
      REQUIRE(after[1].failed == (come ? 0u : 1u));
      REQUIRE(failure.Get()[0].late == (come ? 0u : 3u));
    }
  }
}

TEST_CASE("sm12x gather_columns reads slices that are too long for an inbox") {
  constexpr int64_t kWidth = 2 * kMostPushedBytes;
  Exchange exchange(1, {kWidth, 64}, {0, 0}, 1);
  std::vector<ExchangeSignals> signals(2);
  signals[1].arrived[0] = 1;
  Array<ExchangeSignals> signals_there(On::kTested, signals);
  Array<ExchangeInbox> inboxes(On::kTested, std::vector<ExchangeInbox>(2));
  Array<ExchangeFailure> failure(On::kTested, std::vector<ExchangeFailure>(1));
  exchange.params.rank = 1;
  exchange.params.signals = {signals_there.data(), signals_there.data() + 1};
  exchange.params.inboxes = {inboxes.data(), inboxes.data() + 1};
  exchange.params.failure = failure.data();
  exchange.params.limit_ns = 1'000'000;
  ExpectGathered(exchange);
  REQUIRE(signals_there.Get()[1].failed == 0);
}

}  // namespace
}  // namespace dsv4::test
