// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/dsv4-bench/statistics.h"
#include "tools/gates/gates.h"
#include "tools/gates/prompts.h"
#include "tools/gates/stream.h"

namespace gates {
namespace {

// As `vllm bench serve` names them.
void AddTimes(const std::string& name, const std::vector<double>& seconds, Json* cell) {
  (*cell)["mean_" + name + "_ms"] = 1e3 * bench::Mean(seconds);
  (*cell)["median_" + name + "_ms"] = 1e3 * bench::Percentile(seconds, 50);
  (*cell)["p99_" + name + "_ms"] = 1e3 * bench::Percentile(seconds, 99);
}

void CheckLimit(double limit_ms, const char* what, const Json& cell, const std::string& who,
                Findings* findings) {
  const double value = cell.at(std::string("p99_") + what + "_ms").get<double>();
  if (limit_ms > 0)
    findings->Expect(value <= limit_ms, who + ": p99_" + what + "_ms is " + std::to_string(value) +
                                            ", above " + std::to_string(limit_ms));
}

}  // namespace

void Latency(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  Json cells = Json::array();
  for (const size_t depth : options.depths) {
    for (const size_t concurrency : options.concurrencies) {
      const std::string who =
          "depth " + std::to_string(depth) + ", " + std::to_string(concurrency) + " at a time";
      std::vector<Json> requests;
      for (size_t i = 0; i < concurrency; ++i)
        requests.push_back(Continue(Prompt(client, depth, options.seed + i), options.output));
      const std::vector<Answer> answers = StreamAll(client, kCompletions, requests);
      std::vector<double> ttft, itl, e2el;
      for (const Answer& answer : answers) {
        if (!findings->ExpectWhole(answer, options.output, who)) continue;
        findings->Expect(answer.prompt_tokens == static_cast<int64_t>(depth),
                         who + ": prompt_tokens is " + std::to_string(answer.prompt_tokens));
        ttft.push_back(answer.first() - answer.begin);
        e2el.push_back(answer.arrivals.back().seconds - answer.begin);
        for (size_t i = 1; i < answer.arrivals.size(); ++i)
          itl.push_back(answer.arrivals[i].seconds - answer.arrivals[i - 1].seconds);
      }
      Json cell = {{"depth", depth}, {"max_concurrency", concurrency}, {"completed", ttft.size()}};
      AddTimes("ttft", ttft, &cell);
      AddTimes("itl", itl, &cell);
      AddTimes("e2el", e2el, &cell);
      CheckLimit(options.most_ttft_ms, "ttft", cell, who, findings);
      CheckLimit(options.most_itl_ms, "itl", cell, who, findings);
      cells.push_back(std::move(cell));
    }
  }
  findings->measured["cells"] = std::move(cells);
}

}  // namespace gates
