// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <map>

#include "tools/gates/gates.h"
#include "tools/gates/prompts.h"

namespace gates {
namespace {

constexpr int64_t kResidues = 8;
constexpr size_t kAnswerTokens = 32;

struct Share {
  int asked = 0, found = 0;
  double value() const { return static_cast<double>(found) / asked; }
};

// Whether `text` has the number, and not as a part of a longer one.
bool HasNumber(const std::string& text, const std::string& number) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  for (size_t at = text.find(number); at != std::string::npos; at = text.find(number, at + 1)) {
    if ((at == 0 || !is_digit(at - 1)) && !is_digit(at + number.size())) return true;
  }
  return false;
}

// One share by what was asked for, with the limit that it must keep.
Json Judge(const char* what, const std::map<size_t, Share>& shares, Findings* findings) {
  Json all = Json::object();
  for (const auto& [key, share] : shares) {
    all[std::to_string(key)] = share.value();
    findings->Expect(share.value() >= findings->options.least_recall,
                     std::string(what) + " " + std::to_string(key) + ": " +
                         std::to_string(share.found) + " of " + std::to_string(share.asked) +
                         " needles were found");
  }
  return all;
}

}  // namespace

void Recall(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  std::map<size_t, Share> by_depth, by_residue;
  Json missed = Json::array();
  for (const size_t depth : options.depths) {
    for (size_t i = 0; i < options.needles; ++i) {
      const double place = options.needles == 1
                               ? 0.5
                               : static_cast<double>(i) / static_cast<double>(options.needles - 1);
      for (int64_t residue = 0; residue < kResidues; ++residue) {
        const uint64_t variant =
            options.seed + (depth * options.needles + i) * 8 + static_cast<uint64_t>(residue);
        const Needle needle = MakeNeedle(client, depth, place, residue, variant);
        const Answer answer = client.Stream(
            kChat, {{"messages", Json::array({{{"role", "user"}, {"content", needle.message}}})},
                    {"chat_template_kwargs", {{"thinking", false}}},
                    {"max_tokens", kAnswerTokens},
                    {"temperature", 0}});
        const std::string who = "needle at " + std::to_string(needle.position) + " of " +
                                std::to_string(answer.prompt_tokens);
        if (!findings->Expect(answer.error.empty(), who + ": " + answer.error)) return;
        const bool found = HasNumber(answer.text, needle.number);
        for (Share* share : {&by_depth[depth], &by_residue[static_cast<size_t>(residue)]}) {
          ++share->asked;
          share->found += found;
        }
        if (!found)
          missed.push_back({{"position", needle.position},
                            {"prompt_tokens", answer.prompt_tokens},
                            {"expected", needle.number},
                            {"answer", answer.text}});
      }
    }
  }
  findings->measured["found_by_depth"] = Judge("depth", by_depth, findings);
  findings->measured["found_by_position_modulo_8"] =
      Judge("position modulo 8 =", by_residue, findings);
  findings->measured["missed"] = std::move(missed);
}

}  // namespace gates
