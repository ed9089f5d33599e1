// SPDX-License-Identifier: Apache-2.0
// Checks what an indexer selected, whatever the order of its f32 sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace dsv4::test {

// "" if the `topk` places of `got` are in order, else what is wrong in the first one that is not:
// - selected compressed blocks ascend and are in range; -1 follows;
// - one that is left out scores at most `slack` of the largest magnitude above the lowest selected.
template <class Index>
std::string WrongSelection(const std::vector<double>& scores, int64_t topk, const Index* got,
                           double slack) {
  std::ostringstream text;
  const auto visible = static_cast<int64_t>(scores.size());
  double lowest = std::numeric_limits<double>::infinity(), magnitude = 0;
  std::vector<bool> chosen(scores.size());
  for (int64_t i = 0; i < topk; ++i) {
    const auto block = static_cast<int64_t>(got[i]);
    const bool empty = i >= std::min(visible, topk);
    const bool right = empty ? block == -1
                             : block >= 0 && block < visible &&
                                   (i == 0 || block > static_cast<int64_t>(got[i - 1]));
    if (!right) {
      text << "place " << i << " has " << block << (empty ? ", expected -1" : "") << "; " << visible
           << " compressed blocks are visible";
      return text.str();
    }
    if (empty) continue;
    chosen[static_cast<size_t>(block)] = true;
    lowest = std::min(lowest, scores[static_cast<size_t>(block)]);
  }
  for (const double score : scores) magnitude = std::max(magnitude, std::abs(score));
  for (size_t block = 0; block < scores.size(); ++block) {
    if (chosen[block] || scores[block] <= lowest + slack * magnitude) continue;
    text << "compressed block " << block << " of score " << scores[block]
         << " is left out; the lowest selected is " << lowest;
    return text.str();
  }
  return "";
}

}  // namespace dsv4::test
