// SPDX-License-Identifier: Apache-2.0
// One table of options serves parsing and help.
#include "examples/dsv4-chat/options.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string_view>
#include <system_error>

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

template <class T>
T ParseCount(const std::string& name, const std::string& value) {
  const T high = std::numeric_limits<T>::max();
  return ParseNumber<T>(name, value, 1, high, "a whole number from 1 to " + std::to_string(high));
}

const Option kOptions[] = {
    {"-m", "--model", Takes::kValue, "DIR", "model folder (required)",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v.empty()) Refuse(name, v, "a folder");
       o->model = v;
     }},
    {"-p", "--prompt", Takes::kValue, "TEXT", "answer TEXT, joined with piped input, and end",
     [](Options* o, const std::string&, const std::string& v) { o->prompt = v; }},
    {"-s", "--system", Takes::kValue, "TEXT", "system message",
     [](Options* o, const std::string&, const std::string& v) { o->system = v; }},
    {"-n", "--max-tokens", Takes::kValue, "N", "stop an answer after N tokens",
     [](Options* o, const std::string& name, const std::string& v) {
       o->max_tokens = ParseCount<int64_t>(name, v);
     }},
    {"-c", "--context", Takes::kValue, "N", "tokens of context (default: the model's limit)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->context = ParseCount<int64_t>(name, v);
     }},
    {"", "--temp", Takes::kValue, "X", "temperature; 0 takes the most likely token",
     [](Options* o, const std::string& name, const std::string& v) {
       o->temperature = ParseNumber<float>(name, v, 0, std::numeric_limits<float>::max(),
                                           "a number of 0 or more");
     }},
    {"", "--top-k", Takes::kValue, "K", "sample from the K most likely tokens; 0 for all",
     [](Options* o, const std::string& name, const std::string& v) {
       o->top_k = ParseNumber<int32_t>(name, v, 0, std::numeric_limits<int32_t>::max(),
                                       "a whole number of 0 or more");
     }},
    {"", "--top-p", Takes::kValue, "P", "sample from the most likely tokens that reach P",
     [](Options* o, const std::string& name, const std::string& v) {
       o->top_p = ParseNumber<float>(name, v, std::numeric_limits<float>::denorm_min(), 1,
                                     "a number above 0 and up to 1");
     }},
    {"", "--min-p", Takes::kValue, "P", "drop tokens below P times the most likely one",
     [](Options* o, const std::string& name, const std::string& v) {
       o->min_p = ParseNumber<float>(name, v, 0, 1, "a number from 0 to 1");
     }},
    {"", "--seed", Takes::kValue, "N", "seed of the sampling (default: another one each run)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->seed = ParseNumber<uint64_t>(name, v, 0, std::numeric_limits<uint64_t>::max(),
                                       "a whole number below 2^64");
     }},
    {"", "--draft", Takes::kValue, "N", "draft N tokens ahead, up to 7; 0 for none (default)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->drafts = ParseNumber<int32_t>(name, v, 0, 7, "a whole number from 0 to 7");
     }},
    {"", "--tools", Takes::kValue, "FILE", "tools for the model: a JSON array in OpenAI's form",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v.empty()) Refuse(name, v, "a file");
       o->tools = v;
     }},
    {"", "--think", Takes::kThinking, "off|high|max", "reason before answering; alone: high",
     [](Options* o, const std::string& name, const std::string& v) {
       o->thinking = ParseThinking(name, v);
     }},
    {"", "--think-budget", Takes::kValue, "N", "end the reasoning after N tokens",
     [](Options* o, const std::string& name, const std::string& v) {
       o->think_budget = ParseCount<int64_t>(name, v);
     }},
    {"", "--hide-thinking", Takes::kNothing, "", "do not show the reasoning",
     [](Options* o, const std::string&, const std::string&) { o->hide_thinking = true; }},
    {"", "--json", Takes::kNothing, "", "answer in JSON, one object a line (see below)",
     [](Options* o, const std::string&, const std::string&) { o->json = true; }},
    {"", "--backend", Takes::kValue, "auto|cpu|reference", "where the model runs (default: auto)",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v == "auto") {
         o->backend = DSV4_BACKEND_AUTO;
       } else if (v == "cpu") {
         o->backend = DSV4_BACKEND_CPU;
       } else if (v == "reference") {
         o->backend = DSV4_BACKEND_REFERENCE;
       } else {
         Refuse(name, v, "auto, cpu or reference");
       }
     }},
    {"", "--threads", Takes::kValue, "N", "CPU threads (default: one per core)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->threads = ParseCount<int32_t>(name, v);
     }},
    {"", "--stats", Takes::kNothing, "", "print statistics of each answer (default)",
     [](Options* o, const std::string&, const std::string&) { o->stats = true; }},
    {"", "--no-stats", Takes::kNothing, "", "do not",
     [](Options* o, const std::string&, const std::string&) { o->stats = false; }},
    {"", "--color", Takes::kValue, "auto|always|never", "dim reasoning and statistics",
     [](Options* o, const std::string& name, const std::string& v) {
       if (v == "auto") {
         o->color = ColorMode::kAuto;
       } else if (v == "always") {
         o->color = ColorMode::kAlways;
       } else if (v == "never") {
         o->color = ColorMode::kNever;
       } else {
         Refuse(name, v, "auto, always or never");
       }
     }},
    {"-h", "--help", Takes::kNothing, "", "print this and end",
     [](Options* o, const std::string&, const std::string&) { o->help = true; }},
    {"", "--version", Takes::kNothing, "", "print version and build, and end",
     [](Options* o, const std::string&, const std::string&) { o->version = true; }},
};

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
    "                       prefill_seconds, decode_seconds\n"
    "  error                status (the library's, or empty), exit_code, message\n"
    "\n"
    "Exit codes: 0 done, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device lost, "
    "130 interrupted.\n";

// The option that `argument` names, and the value written in the same argument: --name=VALUE,
// -nVALUE.
const Option* FindOption(const std::string& argument, std::string* name,
                         std::optional<std::string>* value) {
  const bool is_long = argument.starts_with("--");
  const size_t name_end = is_long ? argument.find('=') : 2;
  *name = argument.substr(0, name_end);
  for (const Option& option : kOptions) {
    if (*name != option.long_name && *name != option.short_name) continue;
    if (argument.size() > name->size()) *value = argument.substr(name->size() + is_long);
    return &option;
  }
  return nullptr;
}

}  // namespace

dsv4_thinking_mode ParseThinking(const std::string& where, const std::string& value) {
  if (value == "off") return DSV4_THINKING_OFF;
  if (value == "high") return DSV4_THINKING_HIGH;
  if (value == "max") return DSV4_THINKING_MAX;
  Refuse(where, value, "off, high or max");
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
    if (option == nullptr) throw Failure{kUsageError, "unknown option " + name};
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
        if (!value && (next == "off" || next == "high" || next == "max")) value = argv[++i];
        break;
    }
    option->apply(&options, name, value.value_or(option->takes == Takes::kThinking ? "high" : ""));
  }
  return options;
}

std::string HelpText() {
  std::string text =
      "usage: dsv4-chat -m DIR [options]\n"
      "Chats with the model in DIR. With -p or piped input it answers once and ends.\n\n";
  for (const Option& option : kOptions) {
    std::string names = option.short_name;
    if (!names.empty()) names += ", ";
    names += option.long_name;
    if (option.takes != Takes::kNothing) names += std::string(" ") + option.value_name;
    char line[160];
    std::snprintf(line, sizeof line, "  %-30s %s\n", names.c_str(), option.help);
    text += line;
  }
  return text + kHelpNotes;
}

}  // namespace chat
