// SPDX-License-Identifier: Apache-2.0
// Lists are split, and ranges counted out, in one place for all kinds of values.
#include "benchmarks/dsv4-bench/options.h"

#include <limits>
#include <string_view>
#include <type_traits>

#include "examples/console/command_line.h"
#include "examples/console/engine_options.h"
#include "examples/console/failure.h"

namespace bench {
namespace {

using chat::Failure;
using chat::kBackends;
using chat::kUsageError;
using chat::Named;
using chat::Option;
using chat::ParseName;
using chat::ParseNumber;
using chat::Refuse;
using chat::SplitAtCommas;

// Values of one list: a range that is larger is a slip of the pen.
constexpr size_t kMaxValues = 1024;
constexpr int64_t kMaxTokens = int64_t{1} << 40;

// One part of a list of whole numbers: "N", or a range "FIRST-LAST", "FIRST-LAST+STEP" or
// "FIRST-LAST*FACTOR".
template <class T>
void ParseRange(const std::string& name, std::string_view part, T low, T high,
                std::vector<T>* values) {
  const size_t dash = part.find('-', 1);
  if (dash == std::string_view::npos || part.empty()) {
    values->push_back(ParseNumber<T>(name, part, low, high));
    return;
  }
  const size_t sign = part.find_first_of("+*", dash);
  const T first = ParseNumber<T>(name, part.substr(0, dash), low, high);
  const T last = ParseNumber<T>(name, part.substr(dash + 1, sign - dash - 1), low, high);
  if (last < first) Refuse(name, part, "a range upwards");
  const bool multiply = sign != std::string_view::npos && part[sign] == '*';
  T step = 1;
  if (sign != std::string_view::npos)
    step = ParseNumber<T>(name, part.substr(sign + 1), multiply ? 2 : 1, high);
  if (multiply && first == 0) Refuse(name, part, "a range that ends: 0 times a factor stays 0");
  for (T value = first;;) {
    values->push_back(value);
    if (values->size() > kMaxValues)
      Refuse(name, part, "a list of up to " + std::to_string(kMaxValues) + " values");
    if (multiply ? value > last / step : value > last - step) return;
    value = multiply ? value * step : value + step;
  }
}

// Adds the whole numbers of a list to a field.
template <auto low, auto high, auto field>
void AddNumbers(Options* o, const std::string& name, const std::string& list) {
  auto& values = o->*field;
  using T = typename std::remove_reference_t<decltype(values)>::value_type;
  for (const std::string_view part : SplitAtCommas(list))
    ParseRange<T>(name, part, low, high, &values);
}

// Also none.
constexpr Named<dsv4_drafter> kAllDrafters[] = {{"auto", DSV4_DRAFTER_AUTO},
                                                {"none", DSV4_DRAFTER_NONE},
                                                {"mtp", DSV4_DRAFTER_MTP},
                                                {"dspark", DSV4_DRAFTER_DSPARK},
                                                {"ngram", DSV4_DRAFTER_NGRAM}};
constexpr Named<Format> kFormats[] = {{"md", Format::kMarkdown},
                                      {"csv", Format::kCsv},
                                      {"json", Format::kJson},
                                      {"jsonl", Format::kJsonLines}};

template <const auto& known, auto field>
void AddNames(Options* o, const std::string& name, const std::string& list) {
  for (const std::string_view part : SplitAtCommas(list))
    (o->*field).push_back(ParseName(name, part, known));
}

// Texts that the library checks.
template <auto field>
void AddTexts(Options* o, const std::string&, const std::string& list) {
  for (const std::string_view part : SplitAtCommas(list)) (o->*field).emplace_back(part);
}

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

constexpr Option<Options> kOptions[] = {
    {"-m", "--model", "MODEL",
     "folder, GGUF file or OWNER/NAME (required; several times: one after the other)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->models.push_back(chat::ParseFolder(name, v));
     }},
    {"", "--synthetic-layers", "N", "random weights for N of its layers; MODEL needs no weights",
     chat::SetNumber<1, kMaxInt32, &Options::synthetic_layers>},
    {"", "--mix", "NAME", "their types: ds4-q2, ud-iq2_xxs, ud-q2_k_xl or ud-iq3_xxs",
     chat::SetText<&Options::mix>},
    {"-p", "--n-prompt", "N,...", "prompts of N tokens: ppN (default 512; 0 for none)",
     AddNumbers<0, kMaxTokens, &Options::prompts>},
    {"-n", "--n-gen", "N,...", "N tokens generated: tgN (default 128; 0 for none)",
     AddNumbers<0, kMaxTokens, &Options::generations>},
    {"-pg", "--prompt-gen", "P,N", "P tokens of prompt, then N generated: ppP+tgN",
     [](Options* o, const std::string& name, const std::string& v) {
       const std::vector<std::string_view> parts = SplitAtCommas(v);
       if (parts.size() != 2) Refuse(name, v, "two numbers, as in 512,128");
       o->prompts_with_generation.emplace_back(ParseNumber<int64_t>(name, parts[0], 1, kMaxTokens),
                                               ParseNumber<int64_t>(name, parts[1], 1, kMaxTokens));
     }},
    {"-d", "--n-depth", "N,...", "context before the test, @ dN (default 0)",
     AddNumbers<0, kMaxTokens, &Options::depths>},
    {"-r", "--repetitions", "N", "repetitions of each test (default 5)",
     chat::SetNumber<1, 1000000, &Options::repetitions>},
    {"-f", "--file", "FILE", "make prompts of this text, repeated (default: random tokens)",
     chat::SetParsed<chat::ParseFile, &Options::text_file>},
    {"", "--no-warmup", "", "do not run each test briefly before it is measured",
     chat::SetFlag<false, &Options::warmup>},
    {"", "--serve", "", "answer requests of -p prompt and -n generated tokens, several at a time",
     chat::SetFlag<true, &Options::serve>},
    {"", "--max-concurrency", "N,...", "of --serve: sessions at a time (default 4)",
     AddNumbers<1, 1024, &Options::concurrencies>},
    {"", "--num-prompts", "N", "of --serve: requests in all (default 32)",
     chat::SetNumber<1, 1000000, &Options::requests>},
    {"", "--backend", "B,...", "auto, cpu, cuda or reference",
     AddNames<kBackends, &Options::backends>},
    {"", "--numerics", "N,...", "published, fp32 or exact", AddTexts<&Options::numerics>},
    {"", "--cache-format", "F,...", "packed, bf16, fp8_per_tensor or f32",
     AddTexts<&Options::cache_formats>},
    {"", "--tuning", "DIR", "tuning tables to use instead of the library's (cuda)",
     chat::SetText<&Options::tuning_dir>},
    {"", "--devices", "N,...", "the backend's devices that split the model (default 0)",
     chat::SetParsed<chat::ParseDevices, &Options::devices>},
    {"", "--device-weights", "GB", "limit of the weights on each device; other experts on the host",
     chat::SetParsed<chat::ParseGigabytes, &Options::device_weights>},
    {"", "--host-weights", "GB", "limit of host memory for experts; others stay on disk",
     chat::SetParsed<chat::ParseGigabytes, &Options::host_weights>},
    {"", "--expert-profile", "FILE",
     "file that records the use of experts; read at start, then updated",
     chat::SetText<&Options::expert_profile>},
    {"-t", "--threads", "N,...", "CPU threads (default 0: one per core)",
     AddNumbers<0, kMaxInt32, &Options::threads>},
    {"-c", "--context", "N,...", "tokens of context (default 0: what the tests need)",
     AddNumbers<0, kMaxTokens, &Options::contexts>},
    {"", "--prefill-chunk", "N,...", "tokens of prompt in a step (default 0: the library's)",
     AddNumbers<0, kMaxInt32, &Options::prefill_chunks>},
    {"", "--draft", "N,...", "draft up to N tokens for each pass, at most 7 (default 0)",
     AddNumbers<0, 7, &Options::drafts>},
    {"", "--drafter", "D", "the drafter: auto (default: the model's own), mtp, dspark or ngram",
     [](Options* o, const std::string& name, const std::string& v) {
       if (SplitAtCommas(v).size() != 1) Refuse(name, v, "one drafter");
       o->drafter = ParseName(name, v, kAllDrafters);
     }},
    {"-md", "--model-draft", "MODEL", "take the drafter of this folder, GGUF file or OWNER/NAME",
     chat::SetParsed<chat::ParseFolder, &Options::drafter_model>},
    {"", "--temp", "X,...", "temperature (default 0: the most likely token)",
     [](Options* o, const std::string& name, const std::string& v) {
       for (const std::string_view part : SplitAtCommas(v))
         o->temperatures.push_back(ParseNumber<float>(name, part, 0, kMaxFloat));
     }},
    {"", "--top-k", "K", "sample from the K most likely tokens (default 0: all)",
     chat::SetNumber<0, kMaxInt32, &Options::top_k>},
    {"", "--top-p", "P", "sample from the most likely tokens that reach P (default 1)",
     [](Options* o, const std::string& name, const std::string& v) {
       o->top_p = ParseNumber<float>(name, v, std::numeric_limits<float>::min(), 1);
     }},
    {"", "--min-p", "P", "drop tokens below P times the most likely one (default 0)",
     chat::SetNumber<0, 1, &Options::min_p>},
    {"", "--seed", "N", "seed of sampling and of random tokens (default 0)",
     chat::SetNumber<0, std::numeric_limits<uint64_t>::max(), &Options::seed>},
    {"-o", "--output", "md|csv|json|jsonl", "form of the records (default md)",
     chat::SetName<kFormats, &Options::format>},
    {"", "--progress", "", "report each test on standard error, even if it is no terminal",
     chat::SetFlag<true, &Options::progress>},
    chat::kHelpOption<Options>,
    chat::kVersionOption<Options>,
};

constexpr char kHelpNotes[] =
    "\nLists are values and ranges with commas between them: 512,1024 or 0-4096+1024 or\n"
    "2048-1048576*2. Every combination of the lists is measured. -m, -pg and lists may be given\n"
    "several times.\n"
    "\n"
    "On standard output come the records alone; docs/benchmarks.md says what their fields mean.\n"
    "\n"
    "Exit codes: 0 done, 1 run time, 2 usage, 3 model or format, 4 memory, 5 device lost, "
    "130 interrupted.\n";

template <class T>
void Default(std::vector<T>* values, T value) {
  if (values->empty()) values->push_back(value);
}

// Lists that were not given, and what contradicts itself.
void Settle(Options* o) {
  if (o->models.empty())
    throw Failure{kUsageError, "no model: name a folder, a GGUF file or OWNER/NAME with -m"};
  if (!o->mix.empty() && o->synthetic_layers == 0)
    throw Failure{kUsageError, "--mix needs --synthetic-layers"};
  const bool only_both =
      !o->prompts_with_generation.empty() && o->prompts.empty() && o->generations.empty();
  if (!only_both) {
    Default<int64_t>(&o->prompts, 512);
    Default<int64_t>(&o->generations, 128);
  }
  if (o->serve) {
    if (!o->prompts_with_generation.empty() || !o->depths.empty())
      throw Failure{kUsageError, "--serve takes lengths by -p and -n, and no -pg or -d"};
    for (const std::vector<int64_t>* lengths : {&o->prompts, &o->generations}) {
      for (const int64_t length : *lengths) {
        if (length == 0) throw Failure{kUsageError, "--serve: -p and -n must be above 0"};
      }
    }
  } else if (!o->concurrencies.empty()) {
    throw Failure{kUsageError, "--max-concurrency needs --serve"};
  }
  Default<int64_t>(&o->depths, 0);
  Default<int32_t>(&o->concurrencies, 4);
  Default<dsv4_backend>(&o->backends, DSV4_BACKEND_AUTO);
  Default<std::string>(&o->numerics, "");
  Default<std::string>(&o->cache_formats, "");
  for (std::vector<int32_t>* list : {&o->threads, &o->prefill_chunks, &o->drafts})
    Default<int32_t>(list, 0);
  Default<int64_t>(&o->contexts, 0);
  Default<float>(&o->temperatures, 0);
}

}  // namespace

Options ParseOptions(int argc, const char* const* argv) {
  Options options;
  chat::ParseOptions<Options>(argc, argv, {kOptions}, &options);
  if (!options.help && !options.version) Settle(&options);
  return options;
}

std::string HelpText() {
  return "usage: dsv4-bench -m MODEL [options]\n"
         "Measures how fast a model reads prompts and generates tokens.\n\n" +
         chat::HelpLines<Options>(kOptions) + kHelpNotes;
}

}  // namespace bench
