// SPDX-License-Identifier: Apache-2.0
#include "tests/lib/session/recorded_run.h"

#include <algorithm>
#include <array>

#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/chat_encoder.h"

namespace dsv4::test {
namespace {

// The single questions of gates.json, which the bundled model answers.
std::vector<std::string> Questions() {
  const std::string path = kBundledModel + "/gates.json";
  constexpr int64_t kMaxBytes = int64_t{1} << 20;
  const JsonValue gates = ParseJson(ReadFile(path, kMaxBytes).value(), path, kMaxBytes).value();
  std::vector<std::string> questions;
  for (const JsonValue& gate : *gates.Find("cases")->AsArray()) {
    const std::vector<JsonValue>& messages = *gate.Find("messages")->AsArray();
    if (messages.size() == 1 && *messages[0].Find("role")->AsString() == "user") {
      questions.push_back(*messages[0].Find("content")->AsString());
    }
  }
  return questions;
}

}  // namespace

void PlantDrafts(Session& session, int32_t count, const ChooseDrafts& choose) {
  const absl::Span<const int32_t> timeline = session.timeline().all_tokens();
  Speculation& speculation = session.timeline().speculation();
  // Drafts leave room for the token chosen after them.
  const int64_t room =
      session.engine()->info().context_tokens - static_cast<int64_t>(timeline.size()) - 1;
  std::array<int32_t, kMaxDraftTokens> drafts;
  const auto wanted = static_cast<size_t>(std::clamp<int64_t>(room, 0, count));
  const size_t chosen = choose(timeline, absl::MakeSpan(drafts).subspan(0, wanted));
  speculation.Clear();
  for (size_t i = 0; i < chosen; ++i) speculation.Add(drafts[i]);
}

std::vector<int32_t> ChatPrompt(const Engine& engine, const std::string& question,
                                ThinkingMode mode) {
  const ChatMessage message{.role = "user", .content = question, .reasoning_content = ""};
  return RenderChat(**engine.tokenizer(), {&message, 1}, mode).value();
}

std::vector<std::vector<int32_t>> VariedPrompts(const Engine& engine, size_t count) {
  const std::vector<std::string> questions = Questions();
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < count; ++i) {
    const bool asks = i % 2 == 0;
    if (asks) prompts.push_back(ChatPrompt(engine, questions[i * 7 % questions.size()]));
    // A question about a long text is left out.
    if (!asks || prompts.back().size() > 500) {
      if (asks) prompts.pop_back();
      const int64_t length = 1 + static_cast<int64_t>(i * i * 37 % 400);
      prompts.push_back(AnyTokens(length, 100 + static_cast<uint32_t>(i)));
    }
  }
  return prompts;
}

}  // namespace dsv4::test
