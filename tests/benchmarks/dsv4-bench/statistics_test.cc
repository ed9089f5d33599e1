// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/dsv4-bench/statistics.h"

#include "tests/support/catch.h"

namespace bench {
namespace {

// By hand: the mean is 5, the squared deviations 9, 1, 1, 1, 0, 0, 4, 16 add up to 32.
const std::vector<double> kValues = {2, 4, 4, 4, 5, 5, 7, 9};

TEST_CASE("mean and deviations are those of the book") {
  REQUIRE(Mean(kValues) == 5);
  REQUIRE(Deviation(kValues) == 2);                                 // sqrt(32 / 8)
  REQUIRE(SampleDeviation(kValues) == Approx(2.1380899352993950));  // sqrt(32 / 7)
}

TEST_CASE("percentiles are interpolated between ranks") {
  // Ranks 0 to 4 of the sorted 10, 20, 30, 40, 50: rank 2, 3.96, 1 and 0.4.
  const std::vector<double> values = {50, 10, 40, 20, 30};
  REQUIRE(Percentile(values, 50) == 30);
  REQUIRE(Percentile(values, 99) == Approx(49.6));
  REQUIRE(Percentile(values, 25) == 20);
  REQUIRE(Percentile(values, 10) == Approx(14));
  REQUIRE(Percentile(values, 0) == 10);
  REQUIRE(Percentile(values, 100) == 50);
  REQUIRE(Percentile({1, 2, 3, 10}, 50) == 2.5);
}

TEST_CASE("statistics of one value and of none") {
  REQUIRE(Mean({3}) == 3);
  REQUIRE(Deviation({3}) == 0);
  REQUIRE(SampleDeviation({3}) == 0);
  REQUIRE(Percentile({3}, 99) == 3);
  REQUIRE(Mean({}) == 0);
  REQUIRE(Deviation({}) == 0);
  REQUIRE(SampleDeviation({}) == 0);
  REQUIRE(Percentile({}, 50) == 0);
}

}  // namespace
}  // namespace bench
