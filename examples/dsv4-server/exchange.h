// SPDX-License-Identifier: Apache-2.0
// A request while it is answered. If the device is lost, the request is parsed and computed again
// on the next engine. The tokens are the same. Tokens that were sent are not sent again.
#pragma once

#include <dsv4/dsv4.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/host.h"
#include "examples/dsv4-server/identity.h"

namespace server {

class Exchange {
 public:
  // Reads the request.
  using Read = std::function<std::unique_ptr<Answer>(const Model&, Identity*)>;

  // Waits for sessions and opens them. This and the other functions throw the exceptions of `read`,
  // Host::Get and Scheduler::Open, and those that end a generation.
  Exchange(Host* host, Read read, std::function<bool()> client_is_gone);

  bool stream() const { return stream_; }
  // The events of the next token. *ended: they are the last ones. Failures after the first call are
  // events, too, except ClientGone.
  std::string Next(bool* ended);
  // The whole answer.
  Json Whole();

 private:
  // Calls `compute`, and calls it again if the device is lost meanwhile.
  template <class Function>
  void Outlive(const Function& compute);
  // Creates the answer and its sessions, and computes the tokens that were taken before.
  void Begin();
  // Gives a token to the candidate whose turn it is. Returns its events.
  std::string Give(Answer* answer, const Token& token, const dsv4::SessionStats& stats);
  // Goes to the next candidate that has not ended. False without one.
  bool Advance(const Answer& answer);
  // Takes the next token. *more: further ones follow.
  std::string Take(bool* more);

  Host* const host_;
  const Read read_;
  const std::function<bool()> client_is_gone_;
  Identity identity_;
  bool stream_ = false;
  std::vector<uint64_t> seeds_;  // of the candidates
  std::vector<int32_t> tokens_;  // that were taken
  std::string failure_;          // ends a stream if there is no answer
  // Empty while the device is lost.
  std::shared_ptr<Opened> opened_;
  std::unique_ptr<Answer> answer_;
  Scheduler::Generations generations_;
  size_t candidate_ = 0;  // whose turn it is
  bool begun_ = false;    // the answer has a token
};

}  // namespace server
