// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-server/arguments.h"

#include <cstdint>
#include <limits>

#include "examples/dsv4-chat/command_line.h"
#include "examples/dsv4-chat/engine_options.h"
#include "examples/dsv4-chat/failure.h"

namespace server {
namespace {

using Option = chat::Option<Arguments>;

constexpr Option kServerOptions[] = {
    {"-m", "--model", "DIR", "model folder (required)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->model = chat::ParseFolder(n, v);
     }},
    {"", "--served-model-name", "NAME", "as clients name the model (default: the folder's name)",
     [](Arguments* a, const std::string&, const std::string& v) { a->served_name = v; }},
    {"", "--host", "ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)",
     [](Arguments* a, const std::string&, const std::string& v) { a->host = v; }},
    {"", "--port", "N", "default: 8000; 0 for a free one",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->port = chat::ParseNumber<int>(n, v, 0, 65535);
     }},
    {"", "--api-key", "KEY", "requests must carry it, as Authorization: Bearer KEY",
     [](Arguments* a, const std::string& n, const std::string& v) {
       if (v.empty()) chat::Refuse(n, v, "a key");
       a->api_key = v;
     }},
    {"", "--max-requests", "N", "most requests that run or wait (default: 256)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->max_requests = chat::ParseNumber<size_t>(n, v, 1, 4096);
     }},
    {"", "--max-sessions", "N", "most requests computed at a time (default: 16)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.max_sessions = chat::ParseCount<int32_t>(n, v);
     }},
    {"", "--cache-tokens", "N", "tokens of cache for all requests (default: as --context)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.cache_tokens = chat::ParseCount<int64_t>(n, v);
     }},
    {"", "--draft", "N", "draft up to N tokens, at most 7; 0 for none (default)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.max_draft_tokens = chat::ParseNumber<int32_t>(n, v, 0, 7);
     }},
    {"", "--think", "off|low|high|max", "reasoning of requests that do not say (default: off)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->thinking = chat::ParseName(n, v, chat::kThinkingModes);
     }},
    {"", "--chat-encoder", "NAME", "auto (from the model folder), preview or 0731",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->encoder = chat::ParseName(n, v, chat::kChatEncoders);
     }},
    {"", "--suspend-after", "SECONDS",
     "free the model's memory after so long without a request (default: never)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->suspend_after = std::chrono::seconds(chat::ParseNumber<int>(n, v, 1, 1'000'000'000));
     }},
    {"", "--isolate", "", "run the model in a child process, restarted after it fails",
     [](Arguments* a, const std::string&, const std::string&) { a->isolate = true; }},
    chat::kHelpOption<Arguments>,
    chat::kVersionOption<Arguments>,
};

}  // namespace

Arguments ParseArguments(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.engine.max_sessions = 16;
  chat::ParseOptions<Arguments>(argc, argv, {kServerOptions, chat::kEngineOptions<Arguments>},
                                &arguments);
  if (arguments.suspend_after.count() > 0 && arguments.engine.group_size > 0)
    throw chat::Failure{chat::kUsageError,
                        "--suspend-after: a model that several processes share stays in memory"};
  return arguments;
}

std::string HelpText() {
  return "usage: dsv4-server --model DIR [option...]\n"
         "Serves a model over HTTP with OpenAI's and Anthropic's APIs. See docs/server.md.\n\n" +
         chat::HelpLines<Arguments>(kServerOptions) + "\nEngine:\n" +
         chat::HelpLines<Arguments>(chat::kEngineOptions<Arguments>) +
         "\nThe first SIGTERM or SIGINT lets running requests end; the second cancels them.\n"
         "Exit codes: 0 stopped, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device "
         "lost.\n";
}

}  // namespace server
