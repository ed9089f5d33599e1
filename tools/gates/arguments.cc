// SPDX-License-Identifier: Apache-2.0
#include "tools/gates/arguments.h"

#include <algorithm>
#include <limits>

#include "examples/console/command_line.h"
#include "tools/gates/gates.h"

namespace gates {
namespace {

using chat::ParseNumber;
using Option = chat::Option<Options>;

constexpr size_t kMostTokens = size_t{1} << 24;
constexpr size_t kMostThreads = 1024;

std::vector<size_t> ParseSizes(const std::string& name, const std::string& value, size_t high) {
  std::vector<size_t> sizes;
  for (const std::string_view part : chat::SplitAtCommas(value))
    sizes.push_back(ParseNumber<size_t>(name, part, 1, high));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

constexpr Option kOptions[] = {
    {"", "--url", "URL", "the server (default: http://127.0.0.1:8000)",
     [](Options* o, const std::string& n, const std::string& v) {
       if (!v.starts_with("http://")) chat::Refuse(n, v, "an address that begins with http://");
       o->url = v;
     }},
    {"", "--api-key", "KEY", "sent as Authorization: Bearer KEY", chat::SetText<&Options::api_key>},
    {"", "--model", "NAME", "the model's name on the server (default: the first listed)",
     chat::SetText<&Options::model>},
    {"", "--gates", "NAME,...", "only these; --list names them",
     [](Options* o, const std::string& n, const std::string& v) {
       for (const std::string_view name : chat::SplitAtCommas(v)) {
         if (FindGate(name) == nullptr) chat::Refuse(n, name, "a gate; --list names them");
         o->gates.emplace_back(name);
       }
     }},
    {"", "--depths", "N,...", "tokens of context (default: 512,2048); the largest is a long prompt",
     [](Options* o, const std::string& n, const std::string& v) {
       o->depths = ParseSizes(n, v, kMostTokens);
     }},
    {"", "--concurrency", "N,...", "requests at a time in the latency matrix (default: 1,4)",
     [](Options* o, const std::string& n, const std::string& v) {
       o->concurrencies = ParseSizes(n, v, kMostThreads);
     }},
    {"", "--output", "N", "tokens of an answer (default: 32)",
     chat::SetNumber<4, kMostTokens, &Options::output>},
    {"", "--requests", "N", "requests at once in tests of many requests (default: 16)",
     chat::SetNumber<4, kMostThreads, &Options::requests>},
    {"", "--needles", "N", "places of the needle in a context, each at 8 positions (default: 3)",
     chat::SetNumber<1, 1000, &Options::needles>},
    {"", "--least-recall", "SHARE", "least share of needles found, per depth and position",
     chat::SetNumber<0, 1, &Options::least_recall>},
    {"", "--decoders", "N", "decoding sessions of fairness (default: 4)",
     chat::SetNumber<2, kMostThreads, &Options::decoders>},
    {"", "--long-prompts", "N", "long prompts of fairness (default: 2)",
     chat::SetNumber<1, kMostThreads, &Options::long_prompts>},
    {"", "--least-share", "SHARE", "least share of the fastest decoder's tokens (default: 0.8)",
     chat::SetNumber<0, 1, &Options::least_share>},
    {"", "--chunk", "N", "decoders must advance after so many prompt tokens (default: 4096)",
     chat::SetNumber<1, kMostTokens, &Options::chunk>},
    {"", "--most-ttft", "MS", "limit of the time to first token, 99th percentile (default: none)",
     chat::SetNumber<0, 1'000'000'000, &Options::most_ttft_ms>},
    {"", "--most-itl", "MS", "limit of the time between tokens, 99th percentile (default: none)",
     chat::SetNumber<0, 1'000'000'000, &Options::most_itl_ms>},
    {"", "--timeout", "S", "seconds to wait for a byte (default: 600)",
     chat::SetNumber<1, 1'000'000, &Options::timeout_s>},
    {"", "--seed", "N", "seed of the prompts (default: 0)",
     chat::SetNumber<0, std::numeric_limits<uint64_t>::max(), &Options::seed>},
    {"-o", "--report", "FILE", "file for the JSON report (default: standard output)",
     chat::SetParsed<chat::ParseFile, &Options::output_file>},
    {"", "--list", "", "print the names of the gates and exit",
     chat::SetFlag<true, &Options::list>},
    chat::kHelpOption<Options>,
    chat::kVersionOption<Options>,
};

}  // namespace

Options ParseOptions(int argc, const char* const* argv) {
  Options options;
  options.depths = {512, 2048};
  options.concurrencies = {1, 4};
  chat::ParseOptions<Options>(argc, argv, {kOptions}, &options);
  return options;
}

std::string HelpText() {
  return "usage: dsv4-gates [--url URL] [option...]\n"
         "Holds a server with OpenAI's API to what its users rely on. See docs/server.md.\n\n" +
         chat::HelpLines<Options>(kOptions) +
         "\nExit codes: 0 all gates passed, 1 one failed, 2 usage, 3 no server to talk to.\n";
}

}  // namespace gates
