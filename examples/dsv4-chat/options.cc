// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-chat/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "examples/dsv4-chat/failure.h"

namespace chat {
namespace {

enum class Takes { kNothing, kValue, kThinking };

struct Option {
  const char* short_name;  // "" without one
  const char* long_name;
  Takes takes;
  const char* value_name;
  const char* help;
  // `name` is the option as the user wrote it.
  void (*apply)(Options* options, const std::string& name, const std::string& value);
};

[[noreturn]] void Refuse(const std::string& name, const std::string& value,
                         const std::string& expected) {
  throw Failure{kUsageError, name + ": \"" + value + "\" is not " + expected};
}

// `value` as a number from `low` to `high`, all of it.
template <class T>
T ParseNumber(const std::string& name, const std::string& value, T low, T high,
              const std::string& expected) {
  T number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  // Written so that NaN fails.
  if (error != std::errc() || stop != end || !(number >= low && number <= high))
    Refuse(name, value, expected);
  return number;
}

// `expected` lists the names of `choices`.
template <class T>
T Choose(const std::string& name, const std::string& value, const std::string& expected,
         std::initializer_list<std::pair<const char*, T>> choices) {
  for (const auto& [choice, meaning] : choices) {
    if (value == choice) return meaning;
  }
  Refuse(name, value, expected);
}

float ParsePenalty(const std::string& name, const std::string& value) {
  return ParseNumber<float>(name, value, -2, 2, "a number from -2 to 2");
}

std::vector<int32_t> ParseDevices(const std::string& name, const std::string& value) {
  std::vector<int32_t> devices;
  for (size_t begin = 0, end; begin <= value.size(); begin = end + 1) {
    end = std::min(value.find(',', begin), value.size());
    devices.push_back(ParseNumber<int32_t>(name, value.substr(begin, end - begin), 0,
                                           std::numeric_limits<int32_t>::max(),
                                           "whole numbers of 0 or more, separated by commas"));
  }
  return devices;
}

int64_t ParseGigabytes(const std::string& name, const std::string& value) {
  constexpr double kMost = 1e6;
  return std::llround(1e9 * ParseNumber<double>(name, value, 0, kMost, "a number of GB"));
}

std::string ParseFile(const std::string& name, const std::string& value) {
  if (value.empty()) Refuse(name, value, "a file");
  return value;
}

template <class T>
T ParseCount(const std::string& name, const std::string& value) {
  const T high = std::numeric_limits<T>::max();
  return ParseNumber<T>(name, value, 1, high, "a whole number from 1 to " + std::to_string(high));
}

const Option kTalkOptions[] = {
    {"-m", "--model", Takes::kValue, "DIR", "model folder (required)",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v.empty()) Refuse(name, v, "a folder");
       o->model = v;
     }},
    {"-p", "--prompt", Takes::kValue, "TEXT", "answer TEXT and what is piped in, and end",
     [](Options* o, const std::string&, const std::string& v) { o->prompt = v; }},
    {"-f", "--file", Takes::kValue, "FILE", "the same with the text of FILE, after that of -p",
     [](Options* o, const std::string& name, const std::string& v) {
       o->prompt_file = ParseFile(name, v);
     }},
    {"-s", "--system", Takes::kValue, "TEXT", "system message",
     [](Options* o, const std::string&, const std::string& v) { o->system = v; }},
    {"", "--tools", Takes::kValue, "FILE", "tools for the model: a JSON array in OpenAI's form",
     [](Options* o, const std::string& name, const std::string& v) {
       o->tools = ParseFile(name, v);
     }},
    {"", "--think", Takes::kThinking, "off|low|high|max", "reason before answering; alone: low",
     [](Options* o, const std::string& name, const std::string& v) {
       o->thinking = ParseThinking(name, v);
     }},
    {"", "--chat-encoder", Takes::kValue, "NAME", "auto (by the folder), preview or 0731",
     [](Options* o, const std::string& name, const std::string& v) {
       o->chat_encoder = ParseEncoder(name, v);
     }},
    {"", "--hide-thinking", Takes::kNothing, "", "do not show the reasoning",
     [](Options* o, const std::string&, const std::string&) { o->hide_thinking = true; }},
    {"", "--raw", Takes::kNothing, "", "go on with the prompt as it is: no chat format",
     [](Options* o, const std::string&, const std::string&) { o->raw = true; }},
    {"", "--load", Takes::kValue, "FILE", "begin with the conversation that FILE keeps",
     [](Options* o, const std::string& name, const std::string& v) {
       o->load_file = ParseFile(name, v);
     }},
    {"", "--save", Takes::kValue, "FILE", "at the end keep the conversation in FILE",
     [](Options* o, const std::string& name, const std::string& v) {
       o->save_file = ParseFile(name, v);
     }},
};

const Option kSamplingOptions[] = {
    {"-n", "--max-tokens", Takes::kValue, "N", "stop an answer after N tokens",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.max_tokens = ParseCount<int64_t>(name, v);
     }},
    {"", "--temp", Takes::kValue, "X", "temperature; 0 takes the most likely token",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.temperature = ParseNumber<float>(name, v, 0, std::numeric_limits<float>::max(),
                                                    "a number of 0 or more");
     }},
    {"", "--top-k", Takes::kValue, "K", "sample from the K most likely tokens; 0 for all",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.top_k = ParseNumber<int32_t>(name, v, 0, std::numeric_limits<int32_t>::max(),
                                                "a whole number of 0 or more");
     }},
    {"", "--top-p", Takes::kValue, "P", "sample from the most likely tokens that reach P",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.top_p = ParseNumber<float>(name, v, std::numeric_limits<float>::denorm_min(), 1,
                                              "a number above 0 and up to 1");
     }},
    {"", "--min-p", Takes::kValue, "P", "drop tokens below P times the most likely one",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.min_p = ParseNumber<float>(name, v, 0, 1, "a number from 0 to 1");
     }},
    {"", "--seed", Takes::kValue, "N", "seed of the sampling (default: another one each run)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.seed = ParseNumber<uint64_t>(name, v, 0, std::numeric_limits<uint64_t>::max(),
                                                "a whole number below 2^64");
     }},
    {"", "--repetition-penalty", Takes::kValue, "X",
     "above 1: make tokens that occurred less likely",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.repetition_penalty =
           ParseNumber<float>(name, v, 0.01f, 100, "a number from 0.01 to 100");
     }},
    {"", "--presence-penalty", Takes::kValue, "X", "the same for tokens of the answer, once",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.presence_penalty = ParsePenalty(name, v);
     }},
    {"", "--frequency-penalty", Takes::kValue, "X", "and as often as they occur there",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.frequency_penalty = ParsePenalty(name, v);
     }},
    {"", "--stop", Takes::kValue, "TEXT", "end an answer before TEXT; may be given again",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v.empty()) Refuse(name, v, "a text");
       o->sampling.stop_strings.push_back(v);
     }},
    {"", "--schema", Takes::kValue, "FILE", "answer in JSON that is valid by the schema in FILE",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.schema_file = ParseFile(name, v);
     }},
    {"", "--regex", Takes::kValue, "PATTERN", "answer with what matches the regular expression",
     [](Options* o, const std::string&, const std::string& v) { o->sampling.regex = v; }},
    {"", "--think-budget", Takes::kValue, "N", "end the reasoning after N tokens",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.think_budget = ParseCount<int64_t>(name, v);
     }},
    {"", "--draft", Takes::kValue, "N", "draft N tokens ahead, up to 7; 0 for none (default)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->sampling.drafts = ParseNumber<int32_t>(name, v, 0, 7, "a whole number from 0 to 7");
     }},
};

const Option kEngineOptions[] = {
    {"-c", "--context", Takes::kValue, "N", "tokens of context (default: the model's limit)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->context = ParseCount<int64_t>(name, v);
     }},
    {"", "--backend", Takes::kValue, "auto|cpu|cuda|reference",
     "where the model runs (default: auto)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->backend = Choose<dsv4_backend>(name, v, "auto, cpu, cuda or reference",
                                         {{"auto", DSV4_BACKEND_AUTO},
                                          {"cpu", DSV4_BACKEND_CPU},
                                          {"cuda", DSV4_BACKEND_CUDA},
                                          {"reference", DSV4_BACKEND_REFERENCE}});
     }},
    {"", "--devices", Takes::kValue, "N,...", "the backend's devices to share out to (default: 0)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->devices = ParseDevices(name, v);
     }},
    {"", "--device-weights", Takes::kValue, "GB",
     "most of the weights on each device; experts beyond it lie on the host (cuda)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->device_weights = ParseGigabytes(name, v);
     }},
    {"", "--host-weights", Takes::kValue, "GB", "most of the experts on the host (cuda)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->host_weights = ParseGigabytes(name, v);
     }},
    {"", "--threads", Takes::kValue, "N", "CPU threads (default: one per core)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->threads = ParseCount<int32_t>(name, v);
     }},
    {"", "--chunk", Takes::kValue, "N", "tokens of a prompt to compute at once",
     [](Options* o, const std::string& name, const std::string& v) {
       o->chunk = ParseCount<int32_t>(name, v);
     }},
    {"", "--numerics", Takes::kValue, "published|fp32|exact",
     "how numbers are rounded (default: as published)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->numerics = Choose<dsv4_numerics>(name, v, "published, fp32 or exact",
                                           {{"published", DSV4_NUMERICS_PUBLISHED},
                                            {"fp32", DSV4_NUMERICS_FP32},
                                            {"exact", DSV4_NUMERICS_EXACT}});
     }},
    {"", "--cache-format", Takes::kValue, "FORMAT", "auto, packed, bf16, fp8_per_tensor or f32",
     [](Options* o, const std::string& name, const std::string& v) {
       o->cache_format =
           Choose<dsv4_cache_format>(name, v, "auto, packed, bf16, fp8_per_tensor or f32",
                                     {{"auto", DSV4_CACHE_AUTO},
                                      {"packed", DSV4_CACHE_PACKED},
                                      {"bf16", DSV4_CACHE_BF16},
                                      {"fp8_per_tensor", DSV4_CACHE_FP8_PER_TENSOR},
                                      {"f32", DSV4_CACHE_F32}});
     }},
    {"", "--drafter", Takes::kValue, "auto|mtp|dspark|ngram",
     "who drafts with --draft (default: the model's own)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->drafter = Choose<dsv4_drafter>(name, v, "auto, mtp, dspark or ngram",
                                         {{"auto", DSV4_DRAFTER_AUTO},
                                          {"mtp", DSV4_DRAFTER_MTP},
                                          {"dspark", DSV4_DRAFTER_DSPARK},
                                          {"ngram", DSV4_DRAFTER_NGRAM}});
     }},
    {"", "--tuning", Takes::kValue, "DIR", "tuning tables to use instead of the library's (cuda)",
     [](Options* o, const std::string&, const std::string& v) { o->tuning_dir = v; }},
};

const Option kOutputOptions[] = {
    {"", "--json", Takes::kNothing, "", "answer in JSON, one object a line (see below)",
     [](Options* o, const std::string&, const std::string&) { o->json = true; }},
    {"", "--inspect", Takes::kNothing, "", "describe the model folder and end",
     [](Options* o, const std::string&, const std::string&) { o->inspect = true; }},
    {"", "--plan", Takes::kNothing, "", "say what memory the model would take and end",
     [](Options* o, const std::string&, const std::string&) { o->plan = true; }},
    {"", "--stats", Takes::kNothing, "", "print statistics of each answer (default)",
     [](Options* o, const std::string&, const std::string&) { o->stats = true; }},
    {"", "--no-stats", Takes::kNothing, "", "do not",
     [](Options* o, const std::string&, const std::string&) { o->stats = false; }},
    {"-v", "--verbose", Takes::kNothing, "", "print what the library logs",
     [](Options* o, const std::string&, const std::string&) { o->verbose = true; }},
    {"", "--no-history", Takes::kNothing, "",
     "neither read nor write the file of lines typed before",
     [](Options* o, const std::string&, const std::string&) { o->history = false; }},
    {"", "--color", Takes::kValue, "auto|always|never", "dim reasoning and statistics",
     [](Options* o, const std::string& name, const std::string& v) {
       o->color = Choose<ColorMode>(name, v, "auto, always or never",
                                    {{"auto", ColorMode::kAuto},
                                     {"always", ColorMode::kAlways},
                                     {"never", ColorMode::kNever}});
     }},
    {"-h", "--help", Takes::kNothing, "", "print this and end",
     [](Options* o, const std::string&, const std::string&) { o->help = true; }},
    {"", "--version", Takes::kNothing, "", "print version and build, and end",
     [](Options* o, const std::string&, const std::string&) { o->version = true; }},
};

struct Group {
  const char* heading;
  std::span<const Option> options;
};

const Group kGroups[] = {{"Conversation", kTalkOptions},
                         {"Choice of tokens, also by /set", kSamplingOptions},
                         {"Engine", kEngineOptions},
                         {"Output", kOutputOptions}};

constexpr char kHelpNotes[] =
    "\nOn standard output comes the model's text alone, or with --json its turns alone. Calls of\n"
    "tools go to standard error, a line each: ID: NAME ARGUMENTS. In a conversation the next "
    "lines\n"
    "typed are then their results, one for each call; /skip goes on without.\n"
    "\n"
    "Objects of --json have a member \"event\":\n"
    "  reasoning            text: a piece of it\n"
    "  text                 text: a piece of the answer\n"
    "  tool_call_start      call (number within the turn, from 0), id, name\n"
    "  tool_call_arguments  call, text: a piece of the JSON object; repaired\n"
    "  tool_call_end        call, repaired: the model's JSON was none, a string replaces it\n"
    "  malformed            call (it breaks off; or -1), text, reason: markup without a meaning\n"
    "  end                  finish (stop, length, context_full, interrupted), unfinished, text "
    "(both:\n"
    "                       markup that was cut), prompt_tokens, cached_tokens, generated_tokens,\n"
    "                       context_tokens, drafted_tokens, accepted_tokens, first_token_seconds,\n"
    "                       prefill_seconds, decode_seconds, context_limit, cache_bytes\n"
    "  error                status (the library's, or empty), exit_code, message\n"
    "  inspect, plan        what --inspect and --plan say; sizes in bytes\n"
    "\n"
    "Exit codes: 0 done, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device lost, "
    "130 interrupted.\n";

std::vector<std::string_view> OptionNames() {
  std::vector<std::string_view> names;
  for (const Group& group : kGroups) {
    for (const Option& option : group.options) names.push_back(option.long_name);
  }
  return names;
}

// How many letters must be added, dropped or changed to make `a` of `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// The option that `argument` names, and the value written in the same argument: --name=VALUE,
// -nVALUE.
const Option* FindOption(const std::string& argument, std::string* name,
                         std::optional<std::string>* value) {
  const bool is_long = argument.starts_with("--");
  const size_t name_end = is_long ? argument.find('=') : 2;
  *name = argument.substr(0, name_end);
  for (const Group& group : kGroups) {
    for (const Option& option : group.options) {
      if (*name != option.long_name && *name != option.short_name) continue;
      if (argument.size() > name->size()) *value = argument.substr(name->size() + is_long);
      return &option;
    }
  }
  return nullptr;
}

}  // namespace

dsv4_thinking_mode ParseThinking(const std::string& where, const std::string& value) {
  if (value == "off") return DSV4_THINKING_OFF;
  if (value == "low") return DSV4_THINKING_LOW;
  if (value == "high") return DSV4_THINKING_HIGH;
  if (value == "max") return DSV4_THINKING_MAX;
  Refuse(where, value, "off, low, high or max");
}

dsv4_chat_encoder ParseEncoder(const std::string& where, const std::string& value) {
  if (value == "auto") return DSV4_CHAT_ENCODER_AUTO;
  if (value == "preview") return DSV4_CHAT_ENCODER_PREVIEW;
  if (value == "0731") return DSV4_CHAT_ENCODER_0731;
  Refuse(where, value, "auto, preview or 0731");
}

std::string Suggestion(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = 3;  // more slips are none
  for (const std::string_view candidate : candidates) {
    const bool begins = name.size() > 3 && candidate.starts_with(name);
    const size_t distance = begins ? 0 : Distance(name, candidate);
    if (distance >= best_distance || 2 * distance >= name.size()) continue;
    best = candidate;
    best_distance = distance;
  }
  return best.empty() ? "" : ": did you mean " + std::string(best) + "?";
}

void SetSampling(SamplingOptions* sampling, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    throw Failure{kUsageError, "/set: \"" + assignment + "\" is not NAME=VALUE"};
  const std::string name = assignment.substr(0, equals);
  std::vector<std::string_view> names;
  for (const Option& option : kSamplingOptions) {
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
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.size() < 2 || argument[0] != '-')
      throw Failure{kUsageError,
                    "unexpected argument \"" + argument + "\": a prompt goes after -p"};
    std::string name;
    std::optional<std::string> value;
    const Option* option = FindOption(argument, &name, &value);
    if (option == nullptr)
      throw Failure{kUsageError, "unknown option " + name + Suggestion(name, OptionNames())};
    const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
    switch (option->takes) {
      case Takes::kNothing:
        if (value) throw Failure{kUsageError, name + " takes no value, but has \"" + *value + "\""};
        break;
      case Takes::kValue:
        if (!value) {
          if (i + 1 == argc)
            throw Failure{kUsageError, name + " needs a value: " + option->value_name};
          value = argv[++i];
        }
        break;
      case Takes::kThinking:
        if (!value && (next == "off" || next == "low" || next == "high" || next == "max"))
          value = argv[++i];
        break;
    }
    option->apply(&options, name, value.value_or(option->takes == Takes::kThinking ? "low" : ""));
  }
  return options;
}

std::string HelpText() {
  std::string text =
      "usage: dsv4-chat -m DIR [options]\n"
      "Chats with the model in DIR. With -p, -f or piped input it answers once and ends.\n";
  for (const Group& group : kGroups) {
    text += std::string("\n") + group.heading + ":\n";
    for (const Option& option : group.options) {
      std::string names = option.short_name;
      if (!names.empty()) names += ", ";
      names += option.long_name;
      if (option.takes != Takes::kNothing) names += std::string(" ") + option.value_name;
      char line[160];
      std::snprintf(line, sizeof line, "  %-33s %s\n", names.c_str(), option.help);
      text += line;
    }
  }
  return text + kHelpNotes;
}

}  // namespace chat
