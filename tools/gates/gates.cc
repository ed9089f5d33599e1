// SPDX-License-Identifier: Apache-2.0
#include "tools/gates/gates.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>
#include <utility>

namespace gates {
namespace {

constexpr size_t kMostFailures = 20;  // of a gate that are told

std::string Today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// Never the same twice, also in another run against the same server.
std::string NewSalt() {
  static std::random_device device;
  return "gates-" + std::to_string(uint64_t{device()} << 32 | device());
}

// Where two texts part.
std::string Difference(const std::string& a, const std::string& b) {
  const size_t at = static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(std::min(a.size(), b.size())),
                    b.begin())
          .first -
      a.begin());
  return "byte " + std::to_string(at) + ": " +
         Json(a.substr(at, 40)).dump(-1, ' ', false, Json::error_handler_t::replace) + ", alone " +
         Json(b.substr(at, 40)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

bool Findings::Expect(bool holds, const std::string& failure) {
  if (!holds) failures_.push_back(failure);
  return holds;
}

bool Findings::ExpectWhole(const Answer& answer, size_t tokens, const std::string& who) {
  const auto count = static_cast<int64_t>(tokens);
  return Expect(answer.error.empty(), who + ": " + answer.error) &&
         Expect(answer.finish == "length", who + ": finish_reason is " + answer.finish) &&
         Expect(answer.completion_tokens == count, who + ": completion_tokens is " +
                                                       std::to_string(answer.completion_tokens) +
                                                       ", not " + std::to_string(count)) &&
         Expect(answer.tokens() == count, who + ": " + std::to_string(answer.tokens()) +
                                              " tokens were streamed, not " +
                                              std::to_string(count));
}

bool Findings::ExpectSame(const Answer& answer, const Answer& alone, const std::string& who) {
  return Expect(answer.text == alone.text,
                who + ": another text than alone from " + Difference(answer.text, alone.text));
}

Json Continue(std::vector<int32_t> tokens, size_t output, std::string salt) {
  return {{"prompt", std::move(tokens)},
          {"max_tokens", output},
          {"temperature", 0},
          {"ignore_eos", true},
          {"cache_salt", salt.empty() ? NewSalt() : std::move(salt)}};
}

const std::vector<Gate>& AllGates() {
  static const std::vector<Gate> gates = {
      {"latency", "each depth at each concurrency: every token comes; times within their limits",
       &Latency},
      {"recall", "a needle is found at every depth and position modulo 8", &Recall},
      {"decode_then_long", "a session decodes on while a long prompt is computed", &DecodeThenLong},
      {"long_then_short", "a short request is answered before the long one before it",
       &LongThenShort},
      {"streaming_pressure", "many streams, slow readers and clients that leave",
       &StreamingPressure},
      {"prefix_stress", "prompts with a shared prefix reuse it, with the texts of cold ones",
       &PrefixStress},
      {"concurrency_identity", "the same texts alone and together, greedy and sampled",
       &ConcurrencyIdentity},
      {"fairness", "decoding sessions get equal shares while long prompts are computed", &Fairness},
  };
  return gates;
}

const Gate* FindGate(std::string_view name) {
  for (const Gate& gate : AllGates()) {
    if (name == gate.name) return &gate;
  }
  return nullptr;
}

Json RunGates(const Client& client, const Options& options) {
  Json report = {{"url", options.url},       {"model", client.model()},
                 {"time", Today()},          {"passed", true},
                 {"depths", options.depths}, {"concurrency", options.concurrencies},
                 {"output", options.output}, {"requests", options.requests},
                 {"seed", options.seed},     {"gates", Json::array()}};
  for (const Gate& gate : AllGates()) {
    const auto& asked = options.gates;
    if (!asked.empty() && std::find(asked.begin(), asked.end(), gate.name) == asked.end()) continue;
    Findings findings(options);
    const double begin = Now();
    gate.run(client, &findings);
    const double seconds = Now() - begin;
    std::vector<std::string> failures = findings.failures();
    const bool passed = failures.empty();
    std::fprintf(stderr, "%s: %s, %.1f s\n", gate.name, passed ? "passed" : "FAILED", seconds);
    if (failures.size() > kMostFailures) {
      const size_t more = failures.size() - kMostFailures;
      failures.resize(kMostFailures);
      failures.push_back("and " + std::to_string(more) + " more");
    }
    for (const std::string& failure : failures) std::fprintf(stderr, "  %s\n", failure.c_str());
    if (!passed) report["passed"] = false;
    report["gates"].push_back({{"name", gate.name},
                               {"passed", passed},
                               {"seconds", seconds},
                               {"failures", failures},
                               {"measured", std::move(findings.measured)}});
  }
  return report;
}

}  // namespace gates
