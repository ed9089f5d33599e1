// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/gates_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/engine/engine.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/session/conversation.h"
#include "lib/session/session.h"
#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"
#include "tools/verify/gate_check.h"

namespace dsv4 {
namespace {

constexpr OptionSpec kOptions[] = {{"--backend"},        {"--threads"},      {"--devices"},
                                   {"--draft"},          {"--draft-length"}, {"--first-drafts"},
                                   {"--device-weights"}, {"--cache-format"}};
constexpr int64_t kMaxGatesBytes = int64_t{64} << 20;
constexpr int64_t kAnswerTokens = 160;  // the limit that the recorded answers were made with
constexpr double kTolerance = 0.01;     // below the recorded pass rate

struct Gate {
  std::string id, kind, check;
  bool thinking = false;
  std::vector<ChatMessage> messages;
  const JsonValue* expected = nullptr;
  std::vector<int32_t> greedy_tokens;
};

struct KindScore {
  std::string kind{};
  double recorded_rate = 0;
  int64_t cases = 0, passed = 0, same_tokens = 0;

  double rate() const { return static_cast<double>(passed) / static_cast<double>(cases); }
};

absl::StatusOr<std::string> StringOf(const JsonValue& object, absl::string_view key,
                                     const std::string& source) {
  const JsonValue* value = object.Find(key);
  if (value == nullptr || value->AsString() == nullptr) {
    return Corrupt(source, ": ", key, " is not a string");
  }
  return *value->AsString();
}

absl::StatusOr<Gate> ReadGate(const JsonValue& value, const std::string& path) {
  Gate gate;
  DSV4_ASSIGN_OR_RETURN(gate.id, StringOf(value, "id", path));
  const std::string source = absl::StrCat(path, ": case ", gate.id);
  DSV4_ASSIGN_OR_RETURN(gate.kind, StringOf(value, "kind", source));
  DSV4_ASSIGN_OR_RETURN(gate.check, StringOf(value, "check", source));
  if (gate.check != "exact" && gate.check != "json" && gate.check != "tool") {
    return Unsupported(source, ": check is ", gate.check, ", not exact, json or tool");
  }
  const JsonValue* messages = value.Find("messages");
  gate.expected = value.Find("expected");
  if (messages == nullptr || gate.expected == nullptr) {
    return Corrupt(source, ": messages or expected is missing");
  }
  absl::StatusOr<std::vector<ChatMessage>> read = MessagesFromJson(*messages);
  if (!read.ok()) return Corrupt(source, ": ", read.status().message());
  gate.messages = *std::move(read);
  const JsonValue* thinking = value.Find("thinking");
  gate.thinking = thinking != nullptr && thinking->AsBool().value_or(false);
  const JsonValue* tokens = value.Find("greedy_tokens");
  if (tokens != nullptr && tokens->AsArray() != nullptr) {
    for (const JsonValue& token : *tokens->AsArray()) {
      gate.greedy_tokens.push_back(static_cast<int32_t>(token.AsInt64().value_or(-1)));
    }
  }
  return gate;
}

// The recorded pass rates, one score per kind ("all" counts every case).
absl::StatusOr<std::vector<KindScore>> ReadRates(const JsonValue& root, const std::string& path) {
  const JsonValue* rates = root.Find("pass_rate");
  if (rates == nullptr || rates->AsObject() == nullptr) {
    return Corrupt(path, ": pass_rate is not an object");
  }
  std::vector<KindScore> scores;
  for (const JsonMember& member : *rates->AsObject()) {
    const JsonValue* rate = member.value.Find("pass_rate");
    KindScore score{.kind = member.key};
    if (rate == nullptr || rate->AsNumberText() == nullptr ||
        !absl::SimpleAtod(*rate->AsNumberText(), &score.recorded_rate)) {
      return Corrupt(path, ": pass_rate.", member.key, ".pass_rate is not a number");
    }
    scores.push_back(score);
  }
  return scores;
}

// An answer of the model to a gate's messages.
struct Answer {
  GateAnswer told;
  std::vector<int32_t> tokens;
};

ChatOptions OptionsFor(bool thinking) {
  return {.mode = thinking ? ThinkingMode::kThinking : ThinkingMode::kChat};
}

// Through a conversation, as hosts get it.
absl::StatusOr<Answer> Ask(Session& session, const Gate& gate, bool thinking) {
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Conversation> conversation,
                        Conversation::Create(&session));
  DSV4_RETURN_IF_ERROR(conversation->Sync(gate.messages, OptionsFor(thinking)).status());
  Answer answer;
  const auto add = [&](const ParserEvent& event) { answer.told.Add(event); };
  Finish finish = Finish::kNone;
  while (finish == Finish::kNone && static_cast<int64_t>(answer.tokens.size()) < kAnswerTokens) {
    if (InterruptedBySignal()) return Cancelled("interrupted");
    DSV4_ASSIGN_OR_RETURN(const StepResult step, conversation->Step(add));
    answer.tokens.push_back(step.token);
    finish = step.finish;
  }
  conversation->EndTurn(add);
  return answer;
}

// What drafts come to, of the recorded answers, and must come to.
struct DraftTotals {
  int32_t drafts = 0;  // asked for a step; 0: none
  double least_length = 0, least_first = 0;
  int64_t tokens = 0, steps = 0, first_right = 0, given_up = 0;

  // Of an answer whose first token the prompt's last row gave.
  void Add(const SpeculationStats& stats, int64_t answer_tokens) {
    steps += stats.steps();
    tokens += answer_tokens - 1;
    first_right += stats.steps() - stats.steps_by_accepted[0];
    given_up += !stats.fall_back.empty();
  }
  double length() const { return static_cast<double>(tokens) / static_cast<double>(steps); }
  double first() const { return static_cast<double>(first_right) / static_cast<double>(steps); }
};

class GatesRun {
 public:
  GatesRun(std::string folder, EngineOptions options, const DraftTotals& drafts)
      : path_(folder + "/gates.json"),
        folder_(std::move(folder)),
        options_(std::move(options)),
        drafts_(drafts) {
    options_.max_sessions = 1;
    options_.max_draft_tokens = drafts.drafts;
    options_.progress = [](int64_t, int64_t) { return !InterruptedBySignal(); };
  }

  absl::StatusOr<bool> Run() {
    DSV4_RETURN_IF_ERROR(Read());
    DSV4_RETURN_IF_ERROR(EncodePrompts());
    DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<Engine> engine, Engine::Open(folder_, options_));
    DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                          Session::Open(engine, {.draft_tokens = engine->info().max_draft_tokens}));
    for (const Gate& gate : gates_) {
      for (const bool thinking : {gate.thinking, !gate.thinking}) {
        // Tools are to be called in both modes; a text was recorded in one.
        if (thinking != gate.thinking && gate.check != "tool") continue;
        DSV4_ASSIGN_OR_RETURN(const Answer answer, Ask(*session, gate, thinking));
        DSV4_RETURN_IF_ERROR(Score(gate, thinking, answer));
        if (thinking == gate.thinking) {
          drafts_.Add(session->stats().speculation, static_cast<int64_t>(answer.tokens.size()));
        }
      }
    }
    return Print();
  }

 private:
  absl::Status Read() {
    DSV4_ASSIGN_OR_RETURN(const std::string text, ReadFile(path_, kMaxGatesBytes));
    DSV4_ASSIGN_OR_RETURN(root_, ParseJson(text, path_, kMaxGatesBytes));
    DSV4_ASSIGN_OR_RETURN(scores_, ReadRates(root_, path_));
    const JsonValue* cases = root_.Find("cases");
    if (cases == nullptr || cases->AsArray() == nullptr || cases->AsArray()->empty()) {
      return Corrupt(path_, ": cases is not a list of cases");
    }
    for (const JsonValue& value : *cases->AsArray()) {
      DSV4_ASSIGN_OR_RETURN(Gate gate, ReadGate(value, path_));
      if (FindScore(gate.kind) == nullptr) {
        return Corrupt(path_, ": pass_rate has no kind ", gate.kind);
      }
      gates_.push_back(std::move(gate));
    }
    return absl::OkStatus();
  }

  // Before the model is loaded: prompts that fail, and room for the longest.
  absl::Status EncodePrompts() {
    DSV4_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Load(folder_ + "/tokenizer.json"));
    size_t longest = 0;
    for (const Gate& gate : gates_) {
      const absl::StatusOr<std::vector<int32_t>> prompt =
          RenderChat(*tokenizer_, gate.messages, OptionsFor(gate.thinking));
      if (!prompt.ok()) {
        return Corrupt(path_, ": case ", gate.id, ": ", prompt.status().message());
      }
      longest = std::max(longest, prompt->size());
    }
    options_.context_tokens = static_cast<int64_t>(longest) + kAnswerTokens;
    return absl::OkStatus();
  }

  KindScore* FindScore(absl::string_view kind) {
    for (KindScore& score : scores_) {
      if (score.kind == kind) return &score;
    }
    return nullptr;
  }

  absl::Status Score(const Gate& gate, bool thinking, const Answer& answer) {
    const bool recorded = thinking == gate.thinking;
    const bool passed = answer.told.Passes(gate.check, *gate.expected);
    const bool same_tokens = recorded && answer.tokens == gate.greedy_tokens;
    std::vector<KindScore*> scores;
    // First: it may move the others.
    if (gate.check == "tool") scores.push_back(ModeScore(gate, thinking));
    if (recorded) scores.insert(scores.end(), {FindScore(gate.kind), FindScore("all")});
    for (KindScore* score : scores) {
      if (score == nullptr) continue;
      ++score->cases;
      score->passed += passed;
      score->same_tokens += same_tokens;
    }
    if (passed && (same_tokens || !recorded)) return absl::OkStatus();
    DSV4_ASSIGN_OR_RETURN(const std::string text, tokenizer_->Decode(answer.tokens));
    std::printf("%s%s: %s: %s\n", gate.id.c_str(), recorded ? "" : ", thinking the other way",
                passed ? "other tokens than recorded" : "WRONG", text.c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  // The calls of one kind with thinking on or off, held to what was recorded for the kind.
  KindScore* ModeScore(const Gate& gate, bool thinking) {
    const std::string kind = absl::StrCat(gate.kind, thinking ? ", thinking" : ", at once");
    if (KindScore* score = FindScore(kind)) return score;
    scores_.push_back({.kind = kind, .recorded_rate = FindScore(gate.kind)->recorded_rate});
    return &scores_.back();
  }

  // True when every kind keeps its recorded pass rate.
  bool Print() const {
    bool kept = true;
    for (const KindScore& score : scores_) {
      if (score.cases == 0) continue;
      const bool enough = score.rate() >= score.recorded_rate - kTolerance;
      kept = kept && enough;
      std::printf(
          "%-20s %4lld/%-4lld %5.1f %% (recorded %5.1f %%), %lld with the recorded tokens%s\n",
          score.kind.c_str(), static_cast<long long>(score.passed),
          static_cast<long long>(score.cases), 100 * score.rate(), 100 * score.recorded_rate,
          static_cast<long long>(score.same_tokens), enough ? "" : "  TOO LOW");
    }
    if (drafts_.drafts == 0) return kept;
    const bool enough = drafts_.steps > 0 && drafts_.given_up == 0 &&
                        drafts_.length() >= drafts_.least_length &&
                        drafts_.first() >= drafts_.least_first;
    std::printf("drafts: %.3f tokens a step, first ones right in %.2f %% of %lld steps%s\n",
                drafts_.length(), 100 * drafts_.first(), static_cast<long long>(drafts_.steps),
                enough ? "" : "  TOO LOW");
    return kept && enough;
  }

  const std::string path_, folder_;
  EngineOptions options_;
  DraftTotals drafts_;
  JsonValue root_;  // holds what gates_ points into
  std::vector<KindScore> scores_;
  std::vector<Gate> gates_;
  std::unique_ptr<const Tokenizer> tokenizer_;
};

absl::StatusOr<EngineOptions> EngineOptionsOf(const Arguments& arguments) {
  EngineOptions options;
  DSV4_RETURN_IF_ERROR(ReadDevices(arguments, "cpu", &options));
  DSV4_ASSIGN_OR_RETURN(options.weight_budgets, ParseBudgets(arguments));
  DSV4_ASSIGN_OR_RETURN(options.cache_format, ParseCacheFormat(arguments));
  return options;
}

absl::StatusOr<DraftTotals> DraftsOf(const Arguments& arguments) {
  DraftTotals drafts;
  DSV4_RETURN_IF_ERROR(arguments.Number<int32_t>("--draft", 0, kMaxDraftTokens, &drafts.drafts));
  for (const auto& [name, least] : {std::pair("--draft-length", &drafts.least_length),
                                    std::pair("--first-drafts", &drafts.least_first)}) {
    DSV4_RETURN_IF_ERROR(arguments.Number<double>(name, 0, kMaxDraftTokens + 1, least));
    if (arguments.Has(name) && drafts.drafts == 0) {
      return InvalidArgument("option ", name, " is of drafts: --draft is needed");
    }
  }
  return drafts;
}

}  // namespace

int RunGatesCommand(absl::Span<char* const> arguments) {
  const absl::StatusOr<Arguments> parsed = ParseArguments(arguments, kOptions, 1);
  if (!parsed.ok()) return ReportUsage(parsed.status());
  const absl::StatusOr<EngineOptions> options = EngineOptionsOf(*parsed);
  if (!options.ok()) return ReportUsage(options.status());
  const absl::StatusOr<DraftTotals> drafts = DraftsOf(*parsed);
  if (!drafts.ok()) return ReportUsage(drafts.status());
  CatchSignals();
  const absl::StatusOr<std::string> model = FoundModel(parsed->files[0]);
  if (!model.ok()) return ReportError(model.status());
  return ExitCodeOf(GatesRun(*model, *options, *drafts).Run());
}

}  // namespace dsv4
