// SPDX-License-Identifier: Apache-2.0
// The yardstick of the statistical tests against printed tables.
#include "tests/support/chi_squared.h"

#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

TEST_CASE("the tail of chi-squared is that of the tables") {
  struct Entry {
    double degrees, statistic, tail;
  };
  // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.4.
  for (const Entry& e :
       {Entry{1, 10.828, 0.001}, Entry{1, 3.841, 0.05}, Entry{2, 13.816, 0.001},
        Entry{5, 20.515, 0.001}, Entry{5, 1.145, 0.95}, Entry{10, 29.588, 0.001},
        Entry{10, 18.307, 0.05}, Entry{30, 59.703, 0.001}, Entry{30, 14.953, 0.99},
        Entry{100, 149.449, 0.001}, Entry{100, 124.342, 0.05}, Entry{100, 70.065, 0.99}}) {
    CAPTURE(e.degrees, e.statistic);
    REQUIRE(ChiSquaredTail(e.statistic, e.degrees) == Approx(e.tail).epsilon(2e-3));
  }
  REQUIRE(ChiSquaredTail(0, 3) == 1);
}

TEST_CASE("a p-value by hand") {
  // (60 - 50)^2 / 50 twice: 4 with one degree of freedom.
  REQUIRE(ChiSquaredPValue({60, 40}, {0.5, 0.5}) == Approx(0.0455003).epsilon(1e-5));
  REQUIRE(ChiSquaredPValue({50, 50}, {0.5, 0.5}) == 1);
  // What cannot be was seen; what cannot be was not.
  REQUIRE(ChiSquaredPValue({60, 39, 1}, {0.5, 0.5, 0}) == 0);
  REQUIRE(ChiSquaredPValue({60, 40, 0}, {0.5, 0.5, 0}) == Approx(0.0455003).epsilon(1e-5));
  // Two rare outcomes of 2 expected each count as one of 4: (52-48)^2/48 + 0 + (0-4)^2/4.
  REQUIRE(ChiSquaredPValue({52, 48, 0, 0}, {0.48, 0.48, 0.02, 0.02}) ==
          Approx(ChiSquaredTail(16.0 / 48 + 4, 2)));
}

}  // namespace
}  // namespace dsv4::test
