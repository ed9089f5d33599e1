// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-server/arguments.h"

#include <charconv>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "examples/dsv4-chat/failure.h"

namespace server {
namespace {

struct Option {
  const char* name;
  const char* value_name;  // "" without a value
  const char* help;
  void (*apply)(Arguments* arguments, const std::string& name, const std::string& value);
};

[[noreturn]] void Refuse(const std::string& name, const std::string& value,
                         const std::string& expected) {
  throw chat::Failure{chat::kUsageError, name + ": \"" + value + "\" is not " + expected};
}

template <class T>
T ParseNumber(const std::string& name, const std::string& value, T low, T high) {
  T number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high)
    Refuse(name, value,
           "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return number;
}

int32_t ParseCount(const std::string& name, const std::string& value) {
  return ParseNumber<int32_t>(name, value, 1, std::numeric_limits<int32_t>::max());
}

template <class T>
T Choose(const std::string& name, const std::string& value, const std::string& expected,
         std::initializer_list<std::pair<const char*, T>> choices) {
  for (const auto& [choice, meaning] : choices) {
    if (value == choice) return meaning;
  }
  Refuse(name, value, expected);
}

const Option kOptions[] = {
    {"--model", "DIR", "model folder (required)",
     [](Arguments* a, const std::string&, const std::string& v) { a->model = v; }},
    {"--served-model-name", "NAME", "as clients name the model (default: the folder's name)",
     [](Arguments* a, const std::string&, const std::string& v) { a->served_name = v; }},
    {"--host", "ADDRESS", "where to listen (default: 127.0.0.1, this machine alone)",
     [](Arguments* a, const std::string&, const std::string& v) { a->host = v; }},
    {"--port", "N", "default: 8000; 0 for a free one",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->port = ParseNumber<int>(n, v, 0, 65535);
     }},
    {"--api-key", "KEY", "that requests must carry, as Authorization: Bearer KEY",
     [](Arguments* a, const std::string& n, const std::string& v) {
       if (v.empty()) Refuse(n, v, "a key");
       a->api_key = v;
     }},
    {"--max-requests", "N", "requests that may run and wait (default: 256)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->max_requests = ParseNumber<size_t>(n, v, 1, 4096);
     }},
    {"--max-sessions", "N", "requests that are computed together (default: 16)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.max_sessions = ParseCount(n, v);
     }},
    {"--context", "N", "tokens of the longest conversation (default: the model's limit)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.context_tokens = ParseNumber<int64_t>(n, v, 1, INT64_MAX);
     }},
    {"--cache-tokens", "N", "tokens of all conversations in memory (default: as --context)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.cache_tokens = ParseNumber<int64_t>(n, v, 1, INT64_MAX);
     }},
    {"--chunk", "N", "tokens of prompts to compute in one pass",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.prefill_chunk_tokens = ParseCount(n, v);
     }},
    {"--threads", "N", "CPU threads (default: one per core)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.threads = ParseCount(n, v);
     }},
    {"--backend", "auto|cpu|cuda", "where the model runs (default: auto)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.backend = Choose<dsv4_backend>(
           n, v, "auto, cpu or cuda",
           {{"auto", DSV4_BACKEND_AUTO}, {"cpu", DSV4_BACKEND_CPU}, {"cuda", DSV4_BACKEND_CUDA}});
     }},
    {"--devices", "N", "the first N devices of the backend share the model (default: 1)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       const int count = ParseNumber<int>(n, v, 1, 8);
       a->engine.devices.clear();
       for (int32_t device = 0; device < count; ++device) a->engine.devices.push_back(device);
     }},
    {"--draft", "N", "draft N tokens ahead, up to 7 (default: 0, none)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.max_draft_tokens = ParseNumber<int32_t>(n, v, 0, 7);
     }},
    {"--think", "off|low|high|max", "reasoning of requests that ask for none (default: off)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->thinking = Choose<dsv4_thinking_mode>(n, v, "off, low, high or max",
                                                {{"off", DSV4_THINKING_OFF},
                                                 {"low", DSV4_THINKING_LOW},
                                                 {"high", DSV4_THINKING_HIGH},
                                                 {"max", DSV4_THINKING_MAX}});
     }},
    {"--chat-encoder", "NAME", "auto (by the folder), preview or 0731",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->encoder = Choose<dsv4_chat_encoder>(n, v, "auto, preview or 0731",
                                              {{"auto", DSV4_CHAT_ENCODER_AUTO},
                                               {"preview", DSV4_CHAT_ENCODER_PREVIEW},
                                               {"0731", DSV4_CHAT_ENCODER_0731}});
     }},
    {"--help", "", "print this and end",
     [](Arguments* a, const std::string&, const std::string&) { a->help = true; }},
    {"--version", "", "print version and build, and end",
     [](Arguments* a, const std::string&, const std::string&) { a->version = true; }},
};

const Option& Find(std::string_view name) {
  if (name == "-m") name = "--model";
  if (name == "-h") name = "--help";
  for (const Option& option : kOptions) {
    if (name == option.name) return option;
  }
  throw chat::Failure{chat::kUsageError, "unknown option " + std::string(name)};
}

}  // namespace

Arguments ParseArguments(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.engine.max_sessions = 16;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i], value;
    const size_t equals = name.starts_with("--") ? name.find('=') : std::string::npos;
    const bool attached = equals != std::string::npos;
    if (attached) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    const Option& option = Find(name);
    const bool takes_value = *option.value_name != '\0';
    if (attached && !takes_value) throw chat::Failure{chat::kUsageError, name + " takes no value"};
    if (takes_value && !attached) {
      if (++i == argc) throw chat::Failure{chat::kUsageError, name + " needs a value"};
      value = argv[i];
    }
    option.apply(&arguments, name, value);
  }
  return arguments;
}

std::string HelpText() {
  std::string text =
      "usage: dsv4-server --model DIR [option...]\n"
      "Serves a model by OpenAI's API over HTTP. See docs/server.md.\n\n";
  for (const Option& option : kOptions) {
    std::string left = std::string("  ") + option.name;
    if (*option.value_name != '\0') left += std::string(" ") + option.value_name;
    left.resize(std::max(left.size() + 1, size_t{31}), ' ');
    text += left + option.help + "\n";
  }
  return text +
         "\nThe first SIGTERM or SIGINT lets running requests end; the second cancels them.\n"
         "Exit codes: 0 stopped, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device "
         "lost.\n";
}

}  // namespace server
