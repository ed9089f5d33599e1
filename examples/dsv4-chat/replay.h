// SPDX-License-Identifier: Apache-2.0
// The tokens of an answer that were shown. If the device is lost, the model is opened again and
// computes the answer again. It has the same tokens; those that were shown are not shown again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace chat {

class Replay {
 public:
  // Whether the next token is a new one. Throws a Failure if another one was shown in its place.
  bool IsNew(int32_t token);
  // The next token is the first one again.
  void Rewind() { next_ = 0; }

 private:
  std::vector<int32_t> shown_;
  size_t next_ = 0;
};

}  // namespace chat
