// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-server/arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "examples/console/command_line.h"
#include "examples/console/engine_options.h"
#include "examples/console/failure.h"
#include "examples/dsv4-server/http_message.h"

namespace server {
namespace {

using Option = chat::Option<Arguments>;

// "scheme://host" and perhaps a port, as browsers write origins.
bool IsOrigin(std::string_view text) {
  const size_t scheme = text.find("://");
  return text == "*" ||
         (scheme != std::string_view::npos && scheme > 0 && text.size() > scheme + 3 &&
          text.find_first_of("/ \t*", scheme + 3) == std::string_view::npos);
}

void AddOrigins(const std::string& name, const std::string& value,
                std::vector<std::string>* origins) {
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find(',', begin), value.size());
    const std::string origin = LowerCase(value.substr(begin, end - begin));
    if (!IsOrigin(origin))
      chat::Refuse(name, value, "origins such as https://chat.example.com, or *");
    origins->push_back(origin);
    begin = end + 1;
  }
}

constexpr Option kServerOptions[] = {
    {"-m", "--model", "MODEL", "folder, GGUF file or OWNER/NAME in the hub's cache (required)",
     chat::SetParsed<chat::ParseFolder, &Arguments::model>},
    {"", "--served-model-name", "NAME",
     "the model's name for clients (default: OWNER/NAME of the hub, or the folder's); again for "
     "an alias",
     [](Arguments* a, const std::string&, const std::string& v) {
       if (a->served_name.empty())
         a->served_name = v;
       else
         a->aliases.push_back(v);
     }},
    {"", "--any-model", "", "answer requests for a model of any name",
     chat::SetFlag<true, &Arguments::any_model>},
    {"", "--strict-fields", "", "refuse fields, content and tools that are not known",
     chat::SetFlag<true, &Arguments::strict_fields>},
    {"", "--host", "ADDRESS", "address to listen on (default: 127.0.0.1, this machine only)",
     chat::SetText<&Arguments::host>},
    {"", "--port", "N", "port to listen on (default: 8000); 0 for a free one",
     chat::SetNumber<0, 65535, &Arguments::port>},
    {"", "--api-key", "KEY", "requests must carry it, as Authorization: Bearer KEY",
     [](Arguments* a, const std::string& n, const std::string& v) {
       if (v.empty()) chat::Refuse(n, v, "a key");
       a->api_key = v;
     }},
    {"", "--api-key-file", "FILE", "file with that key; others cannot read it as they can options",
     chat::SetText<&Arguments::api_key_file>},
    {"", "--cors-origin", "ORIGIN,...", "origins whose pages may use the server; * for all",
     [](Arguments* a, const std::string& n, const std::string& v) {
       AddOrigins(n, v, &a->origins);
     }},
    {"", "--max-requests", "N", "most requests that run or wait (default: 1024)",
     chat::SetNumber<1, 65536, &Arguments::max_requests>},
    {"", "--connection-memory", "MB",
     "memory for requests and unread answers of all connections (default: 64)",
     chat::SetNumber<16, 65536, &Arguments::connection_memory_mb>},
    {"", "--max-sessions", "N", "most requests computed at a time (default: 16)",
     chat::SetCount<&Arguments::engine, &dsv4::EngineOptions::max_sessions>},
    {"", "--cache-tokens", "N", "tokens of cache for all requests (default: as --context)",
     chat::SetCount<&Arguments::engine, &dsv4::EngineOptions::cache_tokens>},
    {"", "--draft", "N",
     "draft up to N tokens, at most 7; 0 for none (default: the model's drafter)",
     chat::SetParsed<chat::ParseDrafts, &Arguments::engine,
                     &dsv4::EngineOptions::max_draft_tokens>},
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
  if (!arguments.api_key.empty() && !arguments.api_key_file.empty())
    throw chat::Failure{chat::kUsageError, "--api-key and --api-key-file exclude each other"};
  if (arguments.suspend_after.count() > 0 && arguments.engine.group.size > 0)
    throw chat::Failure{chat::kUsageError,
                        "--suspend-after: a model that several processes share stays in memory"};
  return arguments;
}

std::string HelpText() {
  return "usage: dsv4-server --model MODEL [option...]\n"
         "Serves a model over HTTP with OpenAI's and Anthropic's APIs. See docs/server.md.\n\n" +
         chat::HelpLines<Arguments>(kServerOptions) + "\nEngine:\n" +
         chat::HelpLines<Arguments>(chat::kEngineOptions<Arguments>) +
         "\nThe first SIGTERM or SIGINT lets running requests end; the second cancels them.\n"
         "Exit codes: 0 stopped, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device "
         "lost.\n";
}

}  // namespace server
