// SPDX-License-Identifier: Apache-2.0
// The gates: each asks a server for what its users rely on, and says what does not hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/gates/client.h"
#include "tools/gates/options.h"

namespace gates {

inline constexpr char kCompletions[] = "/v1/completions";
inline constexpr char kChat[] = "/v1/chat/completions";

// What a gate has found.
class Findings {
 public:
  explicit Findings(const Options& given) : options(given) {}

  const Options& options;
  Json measured = Json::object();

  // Notes `failure` unless `holds`, which it returns.
  bool Expect(bool holds, const std::string& failure);
  // The answer has no error and `tokens` tokens, which were streamed. `who`: the request, in words.
  bool ExpectWhole(const Answer& answer, size_t tokens, const std::string& who);
  // The text is that of the same request alone.
  bool ExpectSame(const Answer& answer, const Answer& alone, const std::string& who);

  const std::vector<std::string>& failures() const { return failures_; }

 private:
  std::vector<std::string> failures_;
};

struct Gate {
  const char* name;
  const char* what;  // one line
  void (*run)(const Client& client, Findings* findings);
};

const std::vector<Gate>& AllGates();
// nullptr when there is none.
const Gate* FindGate(std::string_view name);

// A request to continue the tokens by so many, without an end before. Requests with the same `salt`
// may share what was computed; "": it shares nothing with any other.
Json Continue(std::vector<int32_t> tokens, size_t output, std::string salt = {});

// All gates that the options name, with a line for each on standard error: the report, whose
// `passed` tells whether all did. Throws a ServerError.
Json RunGates(const Client& client, const Options& options);

// The gates.
void Latency(const Client& client, Findings* findings);
void Recall(const Client& client, Findings* findings);
void DecodeThenLong(const Client& client, Findings* findings);
void LongThenShort(const Client& client, Findings* findings);
void StreamingPressure(const Client& client, Findings* findings);
void PrefixStress(const Client& client, Findings* findings);
void ConcurrencyIdentity(const Client& client, Findings* findings);
void Fairness(const Client& client, Findings* findings);

}  // namespace gates
