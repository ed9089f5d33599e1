// SPDX-License-Identifier: Apache-2.0
// --json: the model's turns on standard output for programs, one JSON object per line. HelpText
// lists the objects.
#pragma once

#include <string>

#include "examples/console/failure.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

class JsonLines : public TurnOutput {
 public:
  void Event(const dsv4::Event& event) override;
  void End(const TurnEnd& end) override;

 private:
  // Of the event END, which is written when the turn's cost is known.
  bool incomplete_ = false;
  std::string cut_;
};

void WriteJsonError(const Failure& failure);

}  // namespace chat
