// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/model.h"

#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "examples/console/amounts.h"
#include "examples/console/expectation.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/hub_models.h"
#include "examples/console/json_text.h"
#include "examples/console/progress_bar.h"
#include "examples/console/start_group.h"
#include "examples/console/struct_fields.h"
#include "examples/console/terminal.h"
#include "examples/console/user_cache.h"

namespace chat {
namespace {

dsv4::EngineOptions EngineOptionsOf(const Options& options) {
  dsv4::EngineOptions out = options.engine;
  // A conversation that is saved or loaded is a second one for a moment.
  out.max_sessions = 2;
  out.max_draft_tokens = options.sampling.drafts;
  return out;
}

uint64_t TotalBytes(const dsv4::EngineInfo& info) {
  return info.weight_bytes + info.cache_bytes + info.workspace_bytes;
}

// Of the device that has most.
uint64_t DeviceBytes(const dsv4::EngineInfo& info) {
  return info.device_weight_bytes + info.device_cache_bytes + info.device_workspace_bytes;
}

uint64_t TotalBytes(const dsv4::DeviceInfo& device) {
  return device.weight_bytes + device.cache_bytes + device.workspace_bytes;
}

// The fields of a struct of the library, under their names.
template <class Struct>
JsonObject JsonOf(const Struct& in, JsonObject object = {}) {
  ForEachField(in, [&](const char* name, auto value) {
    if constexpr (std::is_same_v<decltype(value), bool>) {
      object.Bool(name, value);
    } else if constexpr (std::is_pointer_v<decltype(value)>) {
      object.String(name, value);
    } else if constexpr (std::is_floating_point_v<decltype(value)>) {
      object.Number(name, value);
    } else {
      object.Number(name, static_cast<int64_t>(value));
    }
  });
  return object;
}

std::string JsonOf(const dsv4::EngineInfo& info, const std::vector<dsv4::DeviceInfo>& devices) {
  std::vector<std::string> each;
  for (const dsv4::DeviceInfo& device : devices) each.push_back(JsonOf(device).text());
  return JsonOf(info, JsonObject().String("event", "plan"))
      .Number("total_bytes", static_cast<int64_t>(TotalBytes(info)))
      .Number("device_bytes", static_cast<int64_t>(DeviceBytes(info)))
      .Json("each_device", JsonArray(each))
      .text();
}

std::string TableOf(const dsv4::EngineInfo& info, const std::vector<dsv4::DeviceInfo>& devices) {
  char line[256];
  std::snprintf(line, sizeof line, "backend %s, %s numerics, %d threads; context %lld tokens\n",
                BackendName(info.backend), info.numerics, info.threads,
                static_cast<long long>(info.context_tokens));
  std::string table = line;
  const auto row = [&](const char* name, uint64_t bytes) {
    std::snprintf(line, sizeof line, "%-22s %18llu bytes %12s\n", name,
                  static_cast<unsigned long long>(bytes),
                  BytesText(static_cast<double>(bytes)).c_str());
    table += line;
  };
  row("weights", info.weight_bytes);
  row(("cache (" + std::string(info.cache_format) + ")").c_str(), info.cache_bytes);
  row("  window rows", info.cache_window_bytes);
  row("  compressed rows", info.cache_compressed_bytes);
  row("  index keys", info.cache_index_bytes);
  row("  compressor states", info.cache_state_bytes);
  row("workspace", info.workspace_bytes);
  row("total", TotalBytes(info));
  if (info.device_count > 1) {
    row(("most of " + std::to_string(info.device_count) + " devices").c_str(), DeviceBytes(info));
    for (const dsv4::DeviceInfo& device : devices) {
      const std::string name =
          device.index < 0 ? "  a worker's" : "  device " + std::to_string(device.index);
      row(name.c_str(), TotalBytes(device));
    }
    row("exchanged per token", info.token_exchange_bytes);
  }
  if (info.host_experts > 0 || info.disk_experts > 0) {
    row("experts on the host", info.host_weight_bytes);
    row("experts of a token", info.token_expert_bytes);
    std::snprintf(
        line, sizeof line, "%lld routed experts on the device, %lld on the host, %lld on disk\n",
        static_cast<long long>(info.device_experts), static_cast<long long>(info.host_experts),
        static_cast<long long>(info.disk_experts));
    table += line;
  }
  table += SpeedText(info) + "\n";
  // One alternative a line.
  for (std::string_view reason = info.backend_reason; !reason.empty();) {
    const size_t end = std::min(reason.find("; "), reason.size());
    table += std::string(reason.substr(0, end)) + "\n";
    reason.remove_prefix(std::min(end + 2, reason.size()));
  }
  return table;
}

// A line for each member, those of objects below them.
std::string LinesOf(const simdjson::dom::object& object, const std::string& indent) {
  std::string lines;
  for (const auto [key, value] : object) {
    lines += indent + std::string(key) + ":";
    if (value.is_object()) {
      lines += "\n" + LinesOf(value.get_object(), indent + "  ");
      continue;
    }
    std::string_view text;
    lines += " " + (value.get(text) ? simdjson::minify(value) : std::string(text)) + "\n";
  }
  return lines;
}

// Empty where answers are free.
dsv4::Grammar GrammarOf(const dsv4::Engine& engine, const SamplingOptions& given) {
  if (!given.schema_file.empty() && !given.regex.empty())
    throw Failure{kUsageError, "--schema and --regex exclude each other"};
  const std::string place =
      given.schema_file.empty() ? "--regex: " : "--schema " + given.schema_file + ": ";
  try {
    if (!given.schema_file.empty())
      return engine.OpenGrammar(DSV4_GRAMMAR_SCHEMA, ReadWholeFile(given.schema_file));
    return given.regex.empty() ? dsv4::Grammar()
                               : engine.OpenGrammar(DSV4_GRAMMAR_REGEX, given.regex);
  } catch (const dsv4::Error&) {
    Failure failure = CurrentFailure();
    failure.message = place + failure.message;
    failure.exit_code = kUsageError;
    throw failure;
  }
}

}  // namespace

dsv4::Engine OpenEngine(const Options& options, const Screen& screen) {
  dsv4::EngineOptions open = EngineOptionsOf(options);
  if (screen.shows_progress()) {
    const std::string expected = ExpectationOf(options.model, open);
    if (!expected.empty()) WriteErr(expected + "\n");
  }
  ProgressBar bar("loading", screen.shows_progress());
  KeepProfiles(&open);
  if (open.group.size > 0) WriteErr(StartGroup(&open));
  open.progress = bar.Callback();
  return dsv4::Engine(options.model, open);
}

void Recover(const dsv4::Engine& engine, const dsv4::Error& loss, Screen* screen) {
  const std::string lost = std::string("the device was lost: ") + loss.what();
  screen->Notice(lost + "; the model is loaded again");
  try {
    ProgressBar bar("loading", screen->shows_progress());
    engine.Resume(bar.Callback());
  } catch (...) {
    throw Failure{kDeviceLost,
                  lost + "; the model could not be loaded again: " + CurrentFailure().message,
                  DSV4_ERR_DEVICE_LOST};
  }
}

dsv4::Sampling SamplingOf(const dsv4::Engine& engine, const SamplingOptions& given) {
  // 0 on the command line turns a step off; in the library it is the model's value.
  const auto given_or_models = [](auto value, auto off) {
    return !value ? typename decltype(value)::value_type{0} : *value == 0 ? off : *value;
  };
  dsv4::Sampling sampling;
  sampling.temperature = given_or_models(given.temperature, DSV4_GREEDY);
  sampling.top_k = given_or_models(given.top_k, -1);
  sampling.top_p = given_or_models(given.top_p, 1.0f);
  sampling.min_p = given_or_models(given.min_p, -1.0f);
  sampling.repetition_penalty = given_or_models(given.repetition_penalty, 1.0f);
  sampling.presence_penalty = given.presence_penalty;
  sampling.frequency_penalty = given.frequency_penalty;
  sampling.stop_strings = given.stop_strings;
  sampling.max_tokens = given_or_models(given.max_tokens, int64_t{-1});
  sampling.max_thinking_tokens = given.think_budget;
  // A DSpark drafter drafts no more than its block.
  sampling.draft_tokens = std::min(given.drafts, engine.info().max_draft_tokens);
  sampling.grammar = GrammarOf(engine, given);
  if (given.seed) {
    sampling.seed = *given.seed;
  } else {
    std::random_device device;
    sampling.seed = uint64_t{device()} << 32 | device();
  }
  return sampling;
}

void ListModels(const Options& options) {
  const std::vector<HubModel> models = ListHubModels();
  std::vector<std::string> json;
  std::string table;
  int others = 0;
  for (const HubModel& model : models) {
    if (!model.known) {
      ++others;
      continue;
    }
    std::string format, place = model.problem;
    bool runs = false;
    if (!model.path.empty()) {
      try {
        const dsv4::EngineInfo plan = dsv4::Plan(model.path, EngineOptionsOf(options));
        place = PlaceText(plan) + ": " + SpeedText(plan);
        simdjson::dom::parser parser;
        std::string_view name;
        if (!parser.parse(dsv4::Inspect(model.path))["weight_format"].get(name)) format = name;
        runs = true;
      } catch (const dsv4::Error& error) {
        place = error.what();
      }
    }
    json.push_back(JsonObject()
                       .String("name", model.name)
                       .String("path", model.path)
                       .Number("bytes", model.bytes)
                       .String("weight_format", format)
                       .Bool("runs", runs)
                       .String("place", place)
                       .text());
    table += model.name + "  " + BytesText(static_cast<double>(model.bytes)) +
             (format.empty() ? "" : "  " + format) + "  " + (runs ? "" : "does not run: ") + place +
             "\n";
  }
  if (options.json) {
    return WriteOut(JsonObject().String("event", "models").Json("models", JsonArray(json)).text() +
                    "\n");
  }
  if (table.empty()) {
    table = "no model in the hub's cache (" + HubCache() +
            "); to download one: " + DownloadCommand("deepseek-ai/DeepSeek-V4-Flash") + "\n";
  }
  if (others > 0) table += std::to_string(others) + " models of other families\n";
  WriteOut(table);
}

void Describe(const Options& options) {
  if (options.inspect) {
    const std::string json = dsv4::Inspect(options.model);
    simdjson::dom::parser parser;
    WriteOut(options.json ? "{\"event\": \"inspect\", " + json.substr(1) + "\n"
                          : LinesOf(parser.parse(json).get_object(), ""));
  }
  if (options.plan) {
    const dsv4::EngineInfo info = dsv4::Plan(options.model, EngineOptionsOf(options));
    const std::vector<dsv4::DeviceInfo> devices =
        dsv4::PlanDevices(options.model, EngineOptionsOf(options));
    WriteOut(options.json ? JsonOf(info, devices) + "\n" : TableOf(info, devices));
  }
}

}  // namespace chat
