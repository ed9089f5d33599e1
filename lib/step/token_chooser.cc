// SPDX-License-Identifier: Apache-2.0
#include "lib/step/token_chooser.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/text/completion_markup.h"

namespace dsv4 {

namespace {

// 16 KiB each at a vocabulary of 128 Ki: a text alternates between few masks.
constexpr size_t kKnownSets = 32;

// On a mask behind drafts, which a step must wait for: about 2 ms.
constexpr int64_t kWorkInStep = grammar::kMaxWork / 512;
// On the state after a token, by the thread that prepares a step: about 0.2 ms.
constexpr int64_t kWorkBeforeStep = grammar::kMaxWork / 4096;

void Assign(int32_t token, bool allowed, std::vector<uint32_t>* mask) {
  const uint32_t bit = uint32_t{1} << (token % 32);
  uint32_t& word = (*mask)[static_cast<size_t>(token) / 32];
  word = allowed ? word | bit : word & ~bit;
}

}  // namespace

TokenChooser::TokenChooser(const EngineFacts& facts)
    : facts_(&facts),
      sampler_(facts.config.vocab_size, facts.token_limit, facts.token_gaps),
      history_(facts.config.vocab_size),
      allowed_next_(static_cast<size_t>(TokenMaskWords(facts.config.vocab_size))),
      allowed_(allowed_next_.size()) {}

absl::Status TokenChooser::SetParams(const SamplingParams& params) {
  const bool same_grammar = params.grammar == sampler_.params().grammar;
  DSV4_RETURN_IF_ERROR(sampler_.SetParams(params));
  known_sets_.clear();
  if (same_grammar) return absl::OkStatus();
  free_outputs_ = outputs_;
  StartGrammar();
  return absl::OkStatus();
}

void TokenChooser::StartGrammar() {
  using Start = grammar::Matcher::Start;
  matcher_.Reset(params().grammar, reasoning_ == kOpen ? Start::kReasoning : Start::kContent);
  job_ = nullptr;
  slice_ = 0;
  prepared_.reset();
}

std::shared_ptr<MaskJob> TokenChooser::Prepare(const MaskWorker& masks) {
  if (!matcher_.active()) return nullptr;
  if (job_ != nullptr) {
    const bool here = job_outputs_ == outputs_;
    if (masks.IsDone(*job_)) {
      const std::shared_ptr<MaskJob> job = std::exchange(job_, nullptr);
      matcher_.Adopt(job->matcher());
      slice_ = job->slice();
      if (here) {
        prepared_outputs_ = outputs_;
        if (job->status().ok()) {
          prepared_.emplace(job->following());
        } else {
          prepared_.emplace(job->status());
        }
        return nullptr;
      }
    } else if (here) {
      return job_;
    }
    job_ = nullptr;
  }
  // Without memory for a mask, the step failed; the next one tries again.
  if (prepared_ && prepared_outputs_ == outputs_ && !IsOutOfHostMemory(prepared_->status()))
    return nullptr;
  prepared_.reset();
  prepared_outputs_ = job_outputs_ = outputs_;
  if (auto known = matcher_.FollowNow(slow() ? 0 : kWorkBeforeStep, false)) {
    prepared_.emplace(*std::move(known));
    return nullptr;
  }
  job_ = std::make_shared<MaskJob>(matcher_, slice_);
  return job_;
}

void TokenChooser::Reset(absl::Span<const int32_t> prompt, int64_t free_outputs) {
  restricted_at_ = kNowhere;
  history_.Reset(prompt);
  outputs_ = 0;
  const bool reasons =
      facts_->think_end_token >= 0 && !prompt.empty() && prompt.back() == facts_->think_token;
  reasoning_ = reasons ? kOpen : 0;
  free_outputs_ = free_outputs;
  StartGrammar();
}

void TokenChooser::Reset(absl::Span<const int32_t> prompt, int64_t free_outputs,
                         std::shared_ptr<const grammar::Grammar> grammar) {
  sampler_.set_grammar(std::move(grammar));
  known_sets_.clear();
  Reset(prompt, free_outputs);
}

bool TokenChooser::Ends(int32_t token) const {
  const auto holds = [token](const std::vector<int32_t>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  return holds(facts_->eos_tokens) || holds(params().stop_tokens);
}

// A token that ends the turn gives no text.
absl::string_view TokenChooser::BytesOf(int32_t token) const {
  if (!matcher_.active() || Ends(token)) return {};
  return matcher_.grammar()->vocabulary().bytes[static_cast<size_t>(token)];
}

void TokenChooser::Push(int32_t token) {
  const bool ends_reasoning = reasoning_ == kOpen && token == facts_->think_end_token;
  if (outputs_ >= free_outputs_) {
    if (ends_reasoning) {
      matcher_.PushThinkEnd(markup::kThinkEnd);
    } else {
      matcher_.Push(BytesOf(token));
    }
  }
  history_.Push(token);
  if (ends_reasoning) reasoning_ = outputs_ + 1;
  ++outputs_;
  if (outputs_ == free_outputs_) StartGrammar();
}

void TokenChooser::Pop(int32_t token) {
  history_.Pop(token);
  if (reasoning_ == outputs_) reasoning_ = kOpen;
  --outputs_;
  // Another token may follow here.
  if (outputs_ < prepared_outputs_) prepared_.reset();
  if (outputs_ < job_outputs_) job_ = nullptr;
  if (outputs_ >= free_outputs_) {
    matcher_.Pop();
  } else {
    free_outputs_ = outputs_;
    StartGrammar();
  }
}

// The budget waits where the grammar has a tool call to complete.
int32_t TokenChooser::Forced(const TokenSet* allowed) const {
  const int32_t forced = sampler_.ForcedToken(outputs_);
  if (forced >= 0) return forced;
  const int64_t budget = params().max_thinking_tokens;
  const bool over = budget > 0 && reasoning_ == kOpen && outputs_ >= budget;
  return over && (allowed == nullptr || allowed->Holds(facts_->think_end_token))
             ? facts_->think_end_token
             : -1;
}

absl::StatusOr<std::shared_ptr<const TokenSet>> TokenChooser::Allowed() {
  std::shared_ptr<const TokenSet> none;
  if (!matcher_.active()) return none;
  std::optional<grammar::Following> following;
  if (prepared_ && prepared_outputs_ == outputs_) {
    DSV4_RETURN_IF_ERROR(prepared_->status());
    following = **prepared_;
  } else if (!(following = matcher_.FollowNow(slow() ? 0 : kWorkInStep, true))) {
    slice_ = std::max(slice_, 1);
    return Unsupported("a step has no time for the grammar's tokens behind drafts");
  }
  const std::shared_ptr<const grammar::MaskBits>& mask = following->mask;
  const bool may_end = following->may_end;
  const bool may_end_thinking = following->may_end_thinking && reasoning_ == kOpen;
  for (const KnownSet& known : known_sets_) {
    if (known.mask == mask && known.may_end == may_end &&
        known.may_end_thinking == may_end_thinking) {
      return known.set;
    }
  }
  auto set = std::make_shared<TokenSet>();
  if (mask != nullptr) {
    set->bits = *mask;
  } else {
    set->bits.assign(allowed_.size(), ~uint32_t{0});
  }
  for (const int32_t token : facts_->eos_tokens) Assign(token, may_end, &set->bits);
  for (const int32_t token : params().stop_tokens) Assign(token, may_end, &set->bits);
  if (facts_->think_end_token >= 0) Assign(facts_->think_end_token, may_end_thinking, &set->bits);
  sampler_.KeepChoosable(absl::MakeSpan(set->bits));
  set->id = Sampler::NewMaskId();
  KnownSet known{mask, may_end, may_end_thinking, set};
  if (known_sets_.size() < kKnownSets) {
    known_sets_.push_back(std::move(known));
  } else {
    known_sets_[oldest_set_++ % kKnownSets] = std::move(known);
  }
  return std::shared_ptr<const TokenSet>(std::move(set));
}

void TokenChooser::SetAllowedNext(absl::Span<const uint32_t> words) {
  std::copy(words.begin(), words.end(), allowed_next_.begin());
  restricted_at_ = words.empty() ? kNowhere : outputs_;
}

// A device does not have the caller's set.
std::optional<LogitQuestion> TokenChooser::Question(double uniform, const TokenSet* allowed) const {
  if (restricted() || (matcher_.active() && allowed == nullptr)) return std::nullopt;
  const std::optional<CandidateRule> rule = sampler_.Rule(uniform);
  if (!rule) return std::nullopt;
  if (allowed != nullptr) {
    return LogitQuestion{.rule = *rule, .allowed = allowed->bits, .allowed_id = allowed->id};
  }
  return LogitQuestion{
      .rule = *rule, .allowed = sampler_.choosable(), .allowed_id = sampler_.choosable_id()};
}

absl::Status TokenChooser::ComputeDistribution(LogitRows* logits, int32_t row, Distribution* out) {
  DSV4_ASSIGN_OR_RETURN(const std::shared_ptr<const TokenSet> set, Allowed());
  TokenRules rules{.forced = Forced(set.get())};
  if (set != nullptr) {
    rules.allowed = set->bits;
    if (std::all_of(set->bits.begin(), set->bits.end(), [](uint32_t word) { return word == 0; })) {
      return InvalidArgument("the grammar allows no token that has text and is not banned");
    }
  }
  if (restricted()) {
    allowed_ = allowed_next_;
    for (size_t word = 0; word < rules.allowed.size(); ++word) {
      allowed_[word] &= rules.allowed[word];
    }
    rules.allowed = allowed_;
  }
  if (const CandidateList* list = logits->Candidates(row)) {
    return sampler_.ComputeFromCandidates(*list, rules, out);
  }
  DSV4_ASSIGN_OR_RETURN(const absl::Span<const float> all, logits->Row(row));
  return sampler_.ComputeDistribution(all, history_, rules, out);
}

}  // namespace dsv4
