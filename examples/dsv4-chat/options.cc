// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-chat/options.h"

#include <limits>
#include <span>
#include <string_view>

#include "examples/console/command_line.h"
#include "examples/console/engine_options.h"
#include "examples/console/failure.h"

namespace chat {
namespace {

float ParsePenalty(const std::string& name, const std::string& value) {
  return ParseNumber<float>(name, value, -2, 2, "a number from -2 to 2");
}

constexpr Option<Options> kTalkOptions[] = {
    {"-m", "--model", "MODEL", "folder, GGUF file or OWNER/NAME in the hub's cache (required)",
     SetParsed<ParseFolder, &Options::model>},
    {"-p", "--prompt", "TEXT", "answer TEXT, followed by piped input, and exit",
     SetText<&Options::prompt>},
    {"-f", "--file", "FILE", "answer the text of FILE (after that of -p) and exit",
     SetParsed<ParseFile, &Options::prompt_file>},
    {"-s", "--system", "TEXT", "system message", SetText<&Options::system>},
    {"", "--tools", "FILE", "tools that the model may call: JSON in OpenAI's form",
     SetParsed<ParseFile, &Options::tools>},
    {"", "--think", "off|low|high|max",
     "reason before answering (default: off; without a value: low)",
     SetName<kThinkingModes, &Options::thinking>, "low"},
    {"", "--chat-encoder", "NAME", "auto (from the model folder), preview or 0731",
     SetName<kChatEncoders, &Options::chat_encoder>},
    {"", "--hide-thinking", "", "do not show the reasoning",
     SetFlag<true, &Options::hide_thinking>},
    {"", "--raw", "", "continue the prompt as it is, without the chat format",
     SetFlag<true, &Options::raw>},
    {"", "--load", "FILE", "start with the conversation saved in FILE",
     SetParsed<ParseFile, &Options::load_file>},
    {"", "--save", "FILE", "save the conversation in FILE on exit",
     SetParsed<ParseFile, &Options::save_file>},
};

constexpr Option<Options> kSamplingOptions[] = {
    {"-n", "--max-tokens", "N", "stop an answer after N tokens",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.max_tokens = ParseCount<int64_t>(name, v);
     }},
    {"", "--temp", "X", "temperature; 0 chooses the most likely token",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.temperature = ParseNumber<float>(name, v, 0, std::numeric_limits<float>::max(),
                                                    "a number of 0 or more");
     }},
    {"", "--top-k", "K", "sample from the K most likely tokens; 0 for all",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.top_k = ParseNumber<int32_t>(name, v, 0, std::numeric_limits<int32_t>::max(),
                                                "a whole number of 0 or more");
     }},
    {"", "--top-p", "P", "sample from the most likely tokens up to probability P",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.top_p = ParseNumber<float>(name, v, std::numeric_limits<float>::denorm_min(), 1,
                                              "a number above 0 and up to 1");
     }},
    {"", "--min-p", "P", "drop tokens below P times the most likely one",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.min_p = ParseNumber<float>(name, v, 0, 1, "a number from 0 to 1");
     }},
    {"", "--seed", "N", "seed of the sampling (default: a new one each run)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.seed = ParseNumber<uint64_t>(name, v, 0, std::numeric_limits<uint64_t>::max(),
                                                "a whole number below 2^64");
     }},
    {"", "--repetition-penalty", "X", "above 1: make earlier tokens less likely",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.repetition_penalty =
           ParseNumber<float>(name, v, 0.01f, 100, "a number from 0.01 to 100");
     }},
    {"", "--presence-penalty", "X", "above 0: make tokens of the answer less likely",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.presence_penalty = ParsePenalty(name, v);
     }},
    {"", "--frequency-penalty", "X", "the same for each occurrence",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.frequency_penalty = ParsePenalty(name, v);
     }},
    {"", "--stop", "TEXT", "end an answer before TEXT; may be given again",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v.empty()) Refuse(name, v, "a text");
       o->sampling.stop_strings.push_back(v);
     }},
    {"", "--schema", "FILE", "answer in JSON that is valid under the schema in FILE",
     SetParsed<ParseFile, &Options::sampling, &SamplingOptions::schema_file>},
    {"", "--regex", "PATTERN", "answer with a match of the regular expression",
     SetText<&Options::sampling, &SamplingOptions::regex>},
    {"", "--think-budget", "N", "end the reasoning after N tokens",
     SetCount<&Options::sampling, &SamplingOptions::think_budget>},
    {"", "--draft", "N",
     "draft up to N tokens, at most 7; 0 for none (default: the model's drafter)",
     SetParsed<ParseDrafts, &Options::sampling, &SamplingOptions::drafts>},
};

constexpr Named<ColorMode> kColorModes[] = {
    {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};

constexpr Option<Options> kOutputOptions[] = {
    {"", "--json", "", "print JSON events, one per line (see below)",
     SetFlag<true, &Options::json>},
    {"", "--inspect", "", "describe the model folder and exit", SetFlag<true, &Options::inspect>},
    {"", "--plan", "", "print the memory that the model would take and exit",
     SetFlag<true, &Options::plan>},
    {"", "--list-devices", "", "list the GPUs and the CPU, and exit; needs no model",
     SetFlag<true, &Options::list_devices>},
    {"", "--list-models", "", "list the models in the hub's cache and whether they fit, and exit",
     SetFlag<true, &Options::list_models>},
    {"", "--stats", "", "print statistics of each answer (default)",
     SetFlag<true, &Options::stats>},
    {"", "--no-stats", "", "do not print statistics", SetFlag<false, &Options::stats>},
    {"-v", "--verbose", "", "print the library's log", SetFlag<true, &Options::verbose>},
    {"", "--no-history", "", "do not read or write the history of typed lines",
     SetFlag<false, &Options::history>},
    {"", "--color", "auto|always|never", "dim reasoning and statistics",
     SetName<kColorModes, &Options::color>},
    kHelpOption<Options>,
    kVersionOption<Options>,
};

struct Section {
  const char* heading;
  std::span<const Option<Options>> options;
};

const Section kSections[] = {{"Conversation", kTalkOptions},
                             {"Sampling (also /set)", kSamplingOptions},
                             {"Engine", kEngineOptions<Options>},
                             {"Output", kOutputOptions}};

constexpr char kHelpNotes[] =
    "\nStandard output contains only the model's text, or only events with --json. Tool calls go\n"
    "to standard error, one per line: ID: NAME ARGUMENTS. In a conversation, type the result of\n"
    "each call, one per line; /skip continues without results.\n"
    "\n"
    "Objects of --json have a member \"event\":\n"
    "  reasoning            text: a piece of it\n"
    "  text                 text: a piece of the answer\n"
    "  tool_call_start      call (number within the turn, from 0), id, name\n"
    "  tool_call_arguments  call, text: a piece of the JSON object; repaired\n"
    "  tool_call_end        call, repaired: an invalid JSON value was replaced by a string\n"
    "  malformed            call (the interrupted one, or -1), text, reason: invalid markup\n"
    "  end                  finish (stop, length, context_full, interrupted), incomplete, text "
    "(both:\n"
    "                       markup that was cut), prompt_tokens, cached_tokens, generated_tokens,\n"
    "                       context_tokens, drafted_tokens, accepted_tokens, first_token_seconds,\n"
    "                       prefill_seconds, decode_seconds, prefill_tokens_per_second,\n"
    "                       decode_tokens_per_second (of this turn),\n"
    "                       measured_decode_tokens_per_second (0 before 256 tokens),\n"
    "                       predicted_decode_tokens_per_second, context_limit, cache_bytes\n"
    "  error                status (the library's, or empty), exit_code, message\n"
    "  inspect, plan        what --inspect and --plan say; sizes in bytes\n"
    "  models               what --list-models says; sizes in bytes\n"
    "  devices              what --list-devices says; sizes in bytes\n"
    "\n"
    "Exit codes: 0 done, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device lost, "
    "130 interrupted.\n";

}  // namespace

void SetSampling(SamplingOptions* sampling, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    throw Failure{kUsageError, "/set: \"" + assignment + "\" is not NAME=VALUE"};
  const std::string name = assignment.substr(0, equals);
  std::vector<std::string_view> names;
  for (const Option<Options>& option : kSamplingOptions) {
    names.push_back(option.long_name + 2);
    if (name != names.back()) continue;
    Options options;
    options.sampling = *sampling;
    option.apply(&options, name, assignment.substr(equals + 1));
    *sampling = options.sampling;
    return;
  }
  std::string list;
  for (const std::string_view known : names)
    list += (list.empty() ? "" : ", ") + std::string(known);
  throw Failure{kUsageError, "/set: there is no " + name + " to set; there are " + list};
}

Options ParseOptions(int argc, const char* const* argv) {
  Options options;
  OptionTables<Options> tables;
  for (const Section& section : kSections) tables.push_back(section.options);
  ParseOptions(argc, argv, tables, &options, ": a prompt goes after -p");
  return options;
}

std::string HelpText() {
  std::string text =
      "usage: dsv4-chat -m MODEL [options]\n"
      "Chats with MODEL. With -p, -f or piped input it answers once and ends.\n";
  for (const Section& section : kSections)
    text += std::string("\n") + section.heading + ":\n" + HelpLines(section.options);
  return text + kHelpNotes;
}

}  // namespace chat
