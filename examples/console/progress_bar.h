// SPDX-License-Identifier: Apache-2.0
// The progress of a long call.
#pragma once

#include <chrono>
#include <cstdint>
#include <dsv4/engine.hpp>
#include <string>

namespace chat {

// How far a call has come after so many seconds: " 42 %  1.2 GB/s  12 s left". REQUIRES: a total.
std::string ProgressText(const dsv4::ProgressReport& report, double seconds);

// A bar on standard error that fills during the call and is erased at the end.
class ProgressBar {
 public:
  // Nothing is shown unless `visible`.
  ProgressBar(std::string label, bool visible);
  ~ProgressBar() { Wipe(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Shows a call's progress here; Ctrl-C cancels it. This object must outlive it.
  dsv4::Progress Callback();

 private:
  void Update(const dsv4::ProgressReport& report);
  void Wipe();

  std::string label_;
  bool visible_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace chat
