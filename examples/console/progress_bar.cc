// SPDX-License-Identifier: Apache-2.0
#include "examples/console/progress_bar.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "examples/console/amounts.h"
#include "examples/console/terminal.h"

namespace chat {
namespace {

std::string Amount(double value, dsv4_progress_unit unit) {
  if (unit == DSV4_UNIT_BYTES) return BytesText(value);
  char text[48];
  std::snprintf(text, sizeof text, "%.0f tok", value);
  return text;
}

}  // namespace

std::string ProgressText(const dsv4::ProgressReport& report, double seconds) {
  const auto done = static_cast<double>(report.done), total = static_cast<double>(report.total);
  const double rate = seconds > 0 ? done / seconds : 0;
  char percent[16];
  std::snprintf(percent, sizeof percent, "%3.0f %%", 100 * done / total);
  std::string text = std::string(percent) + "  " + Amount(rate, report.unit) + "/s";
  if (rate > 0 && done < total) text += "  " + DurationText((total - done) / rate) + " left";
  return text;
}

ProgressBar::ProgressBar(std::string label, bool visible)
    : label_(std::move(label)), visible_(visible), start_(std::chrono::steady_clock::now()) {}

dsv4::Progress ProgressBar::Callback() {
  return [this](const dsv4::ProgressReport& report) {
    Update(report);
    return !Interrupted();
  };
}

void ProgressBar::Update(const dsv4::ProgressReport& report) {
  if (!visible_ || report.total == 0) return;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const double share = static_cast<double>(report.done) / static_cast<double>(report.total);
  const std::string after = " " + ProgressText(report, seconds);
  const int room = TerminalColumns() - static_cast<int>(label_.size() + after.size()) - 4;
  const size_t width = static_cast<size_t>(std::clamp(room, 0, 40));
  const size_t filled = static_cast<size_t>(share * static_cast<double>(width));
  std::string line = "\r";
  line += label_;
  line += width > 0 ? " [" : " ";
  line.append(filled, '#').append(width - filled, ' ');
  if (width > 0) line += "]";
  WriteErr(line + after + "\x1b[K");
  drawn_ = true;
}

void ProgressBar::Wipe() {
  if (drawn_) WriteErr("\r\x1b[K");
  drawn_ = false;
}

}  // namespace chat
