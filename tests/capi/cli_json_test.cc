// SPDX-License-Identifier: Apache-2.0
// What dsv4-chat writes for programs: one JSON object a line, each with an event.
#include <simdjson.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "tests/capi/cli_chat.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

namespace dom = simdjson::dom;

// Members of each event, by the help.
const std::map<std::string, std::set<std::string>> kMembers = {
    {"reasoning", {"text"}},
    {"text", {"text"}},
    {"tool_call_start", {"call", "id", "name"}},
    {"tool_call_arguments", {"call", "text", "repaired"}},
    {"tool_call_end", {"call", "repaired"}},
    {"malformed", {"call", "text", "reason"}},
    {"end",
     {"finish", "incomplete", "text", "prompt_tokens", "cached_tokens", "generated_tokens",
      "context_tokens", "drafted_tokens", "accepted_tokens", "first_token_seconds",
      "prefill_seconds", "decode_seconds", "prefill_tokens_per_second", "decode_tokens_per_second",
      "measured_decode_tokens_per_second", "predicted_decode_tokens_per_second", "context_limit",
      "cache_bytes"}},
    {"error", {"status", "exit_code", "message"}},
};

struct Events {
  int code;
  std::string err;
  std::vector<std::string> names{};
  std::map<std::string, std::string> texts{};  // joined, by event
  std::string last{};                          // line
};

Events EventsOf(std::vector<std::string> options, const std::string& input = "") {
  const TemporaryFolder home;
  options.push_back("--json");
  const CommandResult result = Run(Chat(options), HomeIn(home), input);
  Events events{.code = result.code, .err = result.err};
  std::istringstream lines(result.out);
  dom::parser parser;
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    events.last = line;
    const dom::object object = parser.parse(line).get_object();
    const std::string name(object["event"].get_string().value());
    std::set<std::string> members;
    for (const auto [key, value] : object) members.emplace(key);
    members.erase("event");
    if (kMembers.count(name) != 0) REQUIRE(members == kMembers.at(name));
    events.names.push_back(name);
    std::string_view text;
    if (!object["text"].get(text)) events.texts[name] += text;
  }
  return events;
}

double Rate(const std::string& line, const char* key) {
  dom::parser parser;
  return parser.parse(line)[key].get_double().value();
}

int64_t Number(const std::string& line, const char* key) {
  dom::parser parser;
  return parser.parse(line)[key].get_int64().value();
}

TEST_CASE("an answer as JSON") {
  const Events events = EventsOf({"-p", "Calculate 91 + 49.", "--think", "--no-stats"});
  REQUIRE(events.code == 0);
  REQUIRE(events.err.empty());
  REQUIRE(events.texts.at("text") == "91 + 49 = 140");
  REQUIRE(events.texts.at("reasoning").find("91 + 40 = 131") != std::string::npos);
  REQUIRE(events.names.back() == "end");
  REQUIRE(Number(events.last, "prompt_tokens") == 11);
  REQUIRE(Number(events.last, "context_limit") == 16384);
  REQUIRE(Number(events.last, "cache_bytes") > 0);
  const auto generated = static_cast<double>(Number(events.last, "generated_tokens"));
  // Both have six digits.
  REQUIRE(Rate(events.last, "decode_tokens_per_second") * Rate(events.last, "decode_seconds") ==
          Approx(generated).epsilon(1e-4));
  REQUIRE(Rate(events.last, "prefill_tokens_per_second") > 0);
  REQUIRE(Rate(events.last, "measured_decode_tokens_per_second") == 0);  // fewer than 256
  REQUIRE(Rate(events.last, "predicted_decode_tokens_per_second") > 0);
}

TEST_CASE("a call of a tool as JSON") {
  const TemporaryFolder folder;
  WriteFile(folder / "tools.json", R"([{"type": "function", "function": {"name": "set_light",
  "description": "Switch a light on or off", "parameters": {"type": "object", "properties":
  {"room": {"type": "string", "description": "The room"},
  "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}])");
  const Events events = EventsOf({"-p", "Turn off the light in the hall.", "--tools",
                                  folder / "tools.json", "-s", "You are a friendly assistant."});
  REQUIRE(events.code == 0);
  REQUIRE(events.names.front() == "tool_call_start");
  REQUIRE(events.texts.at("tool_call_arguments") == "{\"room\": \"hall\", \"on\": false}");
  REQUIRE(events.last.find("\"finish\": \"tool_call\"") != std::string::npos);
}

TEST_CASE("errors as JSON") {
  const Events usage = EventsOf({"--frobnicate"});
  REQUIRE(usage.code == 2);
  REQUIRE(usage.names == std::vector<std::string>{"error"});
  REQUIRE(Number(usage.last, "exit_code") == 2);
  const Events model = EventsOf({"-m", "/nonexistent", "-p", "Hi"});
  REQUIRE(model.code == 3);
  REQUIRE(model.last.find("\"status\": \"NOT_FOUND\"") != std::string::npos);
  REQUIRE(model.last.find("/nonexistent") != std::string::npos);
}

TEST_CASE("raw text as JSON") {
  const Events events = EventsOf({"--raw", "--temp", "0", "-n", "6"},
                                 "<｜User｜>What is the capital of France?<｜Assistant｜></think>");
  REQUIRE(events.code == 0);
  REQUIRE(events.texts.at("text").rfind("The capital of France", 0) == 0);
  REQUIRE(Number(events.last, "prompt_tokens") == 13);
}

// Tensors and bytes are those of the files' headers and index.
TEST_CASE("a model folder as JSON, without loading it") {
  const Events events = EventsOf({"--inspect", "--plan", "-c", "4096"});
  REQUIRE(events.code == 0);
  REQUIRE(events.err.empty());
  REQUIRE(events.names == std::vector<std::string>{"inspect", "plan"});
  REQUIRE(Number(events.last, "context_tokens") == 4096);
  REQUIRE(Number(events.last, "total_bytes") == Number(events.last, "weight_bytes") +
                                                    Number(events.last, "cache_bytes") +
                                                    Number(events.last, "workspace_bytes"));
  const TemporaryFolder home;
  const CommandResult people = Run(Chat({"--inspect", "--plan"}), HomeIn(home));
  REQUIRE(people.code == 0);
  for (const char* line :
       {"\n  count: 921\n", "\n  bytes: 20234756\n", "\n    F8_E4M3:\n", "\n  hidden_size: 256\n",
        "\n  vocab_size: 2048\n", "fingerprint: ", "\nweights ", "\ntotal "}) {
    CAPTURE(people.out, line);
    REQUIRE(people.out.find(line) != std::string::npos);
  }
}

}  // namespace
}  // namespace dsv4::test
