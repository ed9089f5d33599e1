// SPDX-License-Identifier: Apache-2.0
#include "examples/console/amounts.h"

#include <cstdio>

namespace chat {

std::string BytesText(double bytes) {
  const char* unit = "kB";
  double size = 1e3;
  for (const char* larger : {"MB", "GB", "TB"}) {
    if (bytes < size * 999.95) break;
    size *= 1e3;
    unit = larger;
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.1f %s", bytes / size, unit);
  return text;
}

std::string DurationText(double seconds) {
  char text[48];
  if (seconds < 100) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  }
  return text;
}

}  // namespace chat
