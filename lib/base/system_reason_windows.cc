// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"

namespace dsv4 {

// The system's text ends in a full stop and a line break.
std::string SystemReason(int error) {
  wchar_t wide[512];
  const DWORD length =
      FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, nullptr,
                     static_cast<DWORD>(error), 0, wide, std::size(wide), nullptr);
  char text[4 * std::size(wide)];
  const int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, static_cast<int>(length), text,
                                        sizeof text, nullptr, nullptr);
  if (bytes <= 0) return absl::StrCat("error ", error);
  const absl::string_view line =
      absl::StripAsciiWhitespace(absl::string_view(text, static_cast<size_t>(bytes)));
  return absl::StrCat(absl::StripSuffix(line, "."), " (error ", error, ")");
}

}  // namespace dsv4
