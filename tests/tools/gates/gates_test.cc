// SPDX-License-Identifier: Apache-2.0
// The gates against servers that keep their promises, and against such that break one.
#include "tools/gates/gates.h"

#include "examples/console/failure.h"
#include "tests/support/catch.h"
#include "tests/tools/gates/lying_server.h"
#include "tools/gates/arguments.h"

namespace gates {
namespace {

Options Small() {
  Options options;
  options.depths = {64, 1024};
  options.requests = 12;
  options.concurrencies = {1, 3};
  options.output = 12;
  options.needles = 1;
  options.chunk = 64;
  return options;
}

TEST_CASE("An honest server passes all gates") {
  const LyingServer server(Lie::kNone);
  Options options = Small();
  options.url = server.url();
  const Client client(options);
  CHECK(client.model() == "liar");
  const Json report = RunGates(client, options);
  INFO(report.dump(1));
  CHECK(report["passed"] == true);
  REQUIRE(report["gates"].size() == AllGates().size());
  for (size_t i = 0; i < AllGates().size(); ++i)
    CHECK(report["gates"][i]["name"] == AllGates()[i].name);
  CHECK(report["gates"][0]["measured"]["cells"].size() == 4);
  CHECK(report["gates"][7]["measured"]["decoded_meanwhile"].size() == 4);
}

TEST_CASE("Each gate fails on a server that breaks its promise, and says how") {
  const struct {
    Lie lie;
    const char* gate;
    const char* failure;
  } kCases[] = {
      {Lie::kShort, "latency", "completion_tokens is 11, not 12"},
      {Lie::kForgetsPosition3, "recall", "position modulo 8 = 3: 0 of 2 needles were found"},
      {Lie::kStalls, "decode_then_long", "while the long prompt was computed, not 16"},
      {Lie::kInOrder, "long_then_short", "the short request waited for the long prompt"},
      {Lie::kCutStream, "streaming_pressure", "the stream has no end"},
      {Lie::kNoReuse, "prefix_stress", "cached_tokens is 0 of 1024"},
      {Lie::kWrongReuse, "prefix_stress", "another text than alone"},
      {Lie::kMixes, "concurrency_identity", "another text than alone"},
      {Lie::kUnfair, "fairness", "the slowest decoding session got"},
  };
  for (const auto& its : kCases) {
    const LyingServer server(its.lie);
    Options options = Small();
    options.url = server.url();
    options.gates = {its.gate};
    const Json report = RunGates(Client(options), options);
    INFO(report.dump(1));
    CHECK(report["passed"] == false);
    REQUIRE(report["gates"].size() == 1);
    CHECK(report["gates"][0]["failures"].dump().find(its.failure) != std::string::npos);
  }
}

TEST_CASE("Limits of times are kept, or told") {
  const LyingServer server(Lie::kNone);
  Options options = Small();
  options.url = server.url();
  options.gates = {"latency"};
  // A prompt of 1024 tokens takes 128 steps of a millisecond.
  options.most_ttft_ms = 100;
  const Json report = RunGates(Client(options), options);
  CHECK(report["passed"] == false);
  CHECK(report["gates"][0]["failures"][0].get<std::string>().find(
            "depth 1024, 1 at a time: p99_ttft_ms is ") == 0);
}

TEST_CASE("Without a server there is no report") {
  Options options = Small();
  options.url = "http://127.0.0.1:1";
  CHECK_THROWS_AS(Client(options), ServerError);
  options.url = LyingServer(Lie::kNone).url();
  const LyingServer server(Lie::kNone);
  options.url = server.url();
  options.model = "another";
  CHECK_THROWS_AS(Client(options), ServerError);
}

TEST_CASE("Options are read, and refused by name") {
  const char* const given[] = {"dsv4-gates", "--depths=4096,512", "--gates", "recall,fairness"};
  const Options options = ParseOptions(4, given);
  CHECK(options.depths == std::vector<size_t>{512, 4096});
  CHECK(options.gates == std::vector<std::string>{"recall", "fairness"});
  const auto refusal = [](const char* name, const char* value) {
    const char* const arguments[] = {"dsv4-gates", name, value};
    try {
      ParseOptions(3, arguments);
    } catch (const chat::Failure& failure) {
      return failure.message;
    }
    return std::string("accepted");
  };
  CHECK(refusal("--gates", "recal") == "--gates: \"recal\" is not a gate; --list names them");
  CHECK(refusal("--url", "https://a") ==
        "--url: \"https://a\" is not an address that begins with http://");
  CHECK(refusal("--least-share", "2").find("--least-share: \"2\" is not a number from 0") == 0);
}

}  // namespace
}  // namespace gates
