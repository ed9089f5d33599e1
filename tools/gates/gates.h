// SPDX-License-Identifier: Apache-2.0
// The gates: each tests a property of a server that users rely on, and reports failures.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/gates/client.h"
#include "tools/gates/options.h"

namespace gates {

inline constexpr char kCompletions[] = "/v1/completions";
inline constexpr char kChat[] = "/v1/chat/completions";

// The findings of a gate.
class Findings {
 public:
  explicit Findings(const Options& given) : options(given) {}

  const Options& options;
  Json measured = Json::object();

  // Records `failure` unless `holds`. Returns `holds`.
  bool Expect(bool holds, const std::string& failure);
  // Checks that the answer has no error and `tokens` streamed tokens. `who`: a name of the request.
  bool ExpectWhole(const Answer& answer, size_t tokens, const std::string& who);
  // Checks that the text equals that of the same request alone.
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

// A request to continue the tokens by so many, ignoring end tokens. Requests with the same `salt`
// may share prefixes; "": it shares none.
Json Continue(std::vector<int32_t> tokens, size_t output, std::string salt = {});

// Runs the gates that the options name, with a line for each on standard error. Returns the report;
// its `passed` is true if all passed. Throws a ServerError.
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
