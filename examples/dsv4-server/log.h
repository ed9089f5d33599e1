// SPDX-License-Identifier: Apache-2.0
// The server's log: lines on standard error.
#pragma once

#include <string>
#include <string_view>

namespace server {

// Writes one line. Control characters and bytes that are not UTF-8 appear as \xNN, so that a client
// cannot forge lines or control a terminal, and a long text is cut. Keys of clients must never be
// part of `text`.
void Log(std::string_view text);

// `text` as Log writes it.
std::string Printable(std::string_view text);

}  // namespace server
