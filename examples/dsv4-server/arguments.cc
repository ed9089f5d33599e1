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
     chat::SetParsed<chat::ParseFolder, &Arguments::model>},
    {"", "--served-model-name", "NAME", "the model's name for clients (default: the folder's name)",
     chat::SetText<&Arguments::served_name>},
    {"", "--host", "ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)",
     chat::SetText<&Arguments::host>},
    {"", "--port", "N", "port to listen on (default: 8000); 0 for a free one",
     chat::SetNumber<0, 65535, &Arguments::port>},
    {"", "--api-key", "KEY", "requests must carry it, as Authorization: Bearer KEY",
     [](Arguments* a, const std::string& n, const std::string& v) {
       if (v.empty()) chat::Refuse(n, v, "a key");
       a->api_key = v;
     }},
    {"", "--max-requests", "N", "most requests that run or wait (default: 256)",
     chat::SetNumber<1, 4096, &Arguments::max_requests>},
    {"", "--max-sessions", "N", "most requests computed at a time (default: 16)",
     chat::SetCount<&Arguments::engine, &dsv4::EngineOptions::max_sessions>},
    {"", "--cache-tokens", "N", "tokens of cache for all requests (default: as --context)",
     chat::SetCount<&Arguments::engine, &dsv4::EngineOptions::cache_tokens>},
    {"", "--draft", "N", "draft up to N tokens, at most 7; 0 for none (default)",
     chat::SetNumber<0, 7, &Arguments::engine, &dsv4::EngineOptions::max_draft_tokens>},
    {"", "--think", "off|low|high|max",
     "reasoning for requests that do not specify it (default: off)",
     chat::SetName<chat::kThinkingModes, &Arguments::thinking>},
    {"", "--chat-encoder", "NAME", "auto (from the model folder), preview or 0731",
     chat::SetName<chat::kChatEncoders, &Arguments::encoder>},
    {"", "--suspend-after", "SECONDS",
     "free the model's memory after so long without a request (default: never)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->suspend_after = std::chrono::seconds(chat::ParseNumber<int>(n, v, 1, 1'000'000'000));
     }},
    {"", "--isolate", "", "run the model in a child process, restarted after it fails",
     chat::SetFlag<true, &Arguments::isolate>},
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
