// SPDX-License-Identifier: Apache-2.0
// The command line of dsv4-server.
#pragma once

#include <dsv4/dsv4.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace server {

struct Arguments {
  std::string model;                 // folder
  std::string served_name;           // the name for clients; empty: of the folder
  std::vector<std::string> aliases;  // further names
  bool any_model = false;            // requests may name any model
  bool strict_fields = false;        // refuse what is not known in requests
  std::string host = "127.0.0.1";
  int port = 8000;  // 0: a free one
  std::string api_key, api_key_file;
  std::vector<std::string> origins;  // whose pages may use the server
  size_t max_requests = 1024;        // running and waiting
  size_t connection_memory_mb = 64;
  std::chrono::seconds suspend_after{0};            // without requests; 0: never
  dsv4_thinking_mode thinking = DSV4_THINKING_OFF;  // of requests that do not specify it
  dsv4_chat_encoder encoder = DSV4_CHAT_ENCODER_AUTO;
  dsv4::EngineOptions engine;
  bool isolate = false;  // the engine is in a process of its own
  bool help = false, version = false;
};

// Throws a chat::Failure that names the option and the value.
Arguments ParseArguments(int argc, const char* const* argv);

std::string HelpText();

}  // namespace server
