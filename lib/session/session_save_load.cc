// SPDX-License-Identifier: Apache-2.0
// Saves and loads sessions: which fields of a session go where in the saved form.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/io/mapped_file.h"
#include "lib/io/replaced_file.h"
#include "lib/session/session.h"

namespace dsv4 {

namespace {

// The grammar of a saved session: how many outputs come before it, as i64, and its source.
int64_t GrammarBytes(const TokenChooser& chooser) {
  const auto& grammar = chooser.params().grammar;
  return grammar == nullptr ? 0 : static_cast<int64_t>(sizeof(int64_t) + grammar->source().size());
}

}  // namespace

SessionCounts Timeline::Counts() const {
  // The next token is chosen from the logits of the last one delivered.
  const int64_t computed =
      kv_.ImagePosition(ahead() > 0 ? std::max<int64_t>(delivered_ - 1, 0) : kv_.length());
  return {.tokens = computed < delivered_ ? delivered_ : size(),
          .delivered_tokens = delivered_,
          .computed_tokens = computed,
          .prompt_tokens = prompt_tokens_,
          .logits = static_cast<int64_t>(kept_logits().size()),
          .cache_bytes = kv_.ImageBytes(computed),
          .grammar_bytes = GrammarBytes(chooser_)};
}

absl::Span<const float> Timeline::kept_logits() const {
  if (!has_logits_ || kv_.length() != size()) return {};
  return logits_;
}

absl::Status Timeline::CheckSaved(const SessionCounts& counts,
                                  absl::Span<const int32_t> tokens) const {
  if (counts.tokens > context_) {
    return ContextFull("the saved session has ", counts.tokens, " tokens; the context holds ",
                       context_);
  }
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab_) {
      return Corrupt("the saved session has token ", token, ", not in 0..", vocab_ - 1);
    }
  }
  const int64_t ahead = counts.tokens - counts.delivered_tokens;
  // All tokens ahead have rows, except the last one.
  if ((ahead > 0 && counts.computed_tokens != counts.tokens - 1) ||
      (counts.logits != 0 &&
       (counts.logits != vocab_ || ahead > 0 || counts.computed_tokens != counts.tokens)) ||
      (counts.computed_tokens == counts.tokens && counts.tokens > 0 && counts.logits == 0)) {
    return Corrupt("the saved session is inconsistent: ", counts.tokens, " tokens, ",
                   counts.delivered_tokens, " delivered, ", counts.computed_tokens, " computed, ",
                   counts.logits, " logits");
  }
  return absl::OkStatus();
}

absl::StatusOr<SavedGrammar> Timeline::ReadGrammar(const SessionCounts& counts,
                                                   absl::Span<const uint8_t> image,
                                                   const EngineText& text) const {
  const std::shared_ptr<const grammar::Grammar>& own = chooser_.params().grammar;
  // Without a saved one, its own begins with the next token.
  SavedGrammar saved{own, counts.delivered_tokens - counts.prompt_tokens};
  if (image.empty()) return saved;
  int64_t free_outputs = -1;
  if (image.size() >= sizeof free_outputs) {
    std::memcpy(&free_outputs, image.data(), sizeof free_outputs);
  }
  if (free_outputs < 0 || free_outputs > saved.free_outputs) {
    return Corrupt("the saved session is inconsistent: its grammar begins ", free_outputs,
                   " tokens into ", saved.free_outputs, " tokens of output");
  }
  saved.free_outputs = free_outputs;
  image.remove_prefix(sizeof free_outputs);
  const absl::string_view source(reinterpret_cast<const char*>(image.data()), image.size());
  if (own != nullptr && own->source() == source) return saved;
  DSV4_ASSIGN_OR_RETURN(const auto tokens, text.grammar_tokens());
  DSV4_ASSIGN_OR_RETURN(saved.grammar, grammar::Grammar::Restore(source, tokens));
  return saved;
}

absl::Status Timeline::Restore(const SessionCounts& counts, absl::Span<const int32_t> tokens,
                               absl::Span<const uint8_t> logits, absl::Span<const uint8_t> cache,
                               const SavedGrammar& grammar) {
  // A grammar allocates as it follows the output: all of that before the first change.
  TokenChooser chooser = chooser_;
  const auto prompt = static_cast<size_t>(counts.prompt_tokens);
  chooser.Reset(tokens.subspan(0, prompt), grammar.free_outputs, grammar.grammar);
  for (const int32_t token : tokens.subspan(prompt)) chooser.Push(token);
  DSV4_RETURN_IF_ERROR(kv_.ReadImage(
      counts.computed_tokens, {reinterpret_cast<const std::byte*>(cache.data()), cache.size()}));
  tokens_.assign(tokens.begin(), tokens.end());
  delivered_ = counts.delivered_tokens;
  prompt_tokens_ = counts.prompt_tokens;
  RowsChanged();
  if (counts.logits > 0) {
    std::memcpy(logits_.data(), logits.data(), logits.size());
    has_logits_ = true;
  }
  chooser_ = std::move(chooser);
  speculation_.Reset();
  watch_.Reset();
  prompt_log_probs_wanted_ = {};
  prompt_log_probs_.clear();
  DropAhead();
  return absl::OkStatus();
}

int64_t Session::SaveBytes() const { return SessionImageBytes(timeline_.Counts()); }

absl::Status Session::SaveTo(absl::Span<uint8_t> image) const {
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  const SessionCounts counts = timeline_.Counts();
  const SessionSections<uint8_t> sections = SectionsOf(counts, image);
  const absl::Span<const int32_t> tokens = timeline_.all_tokens();
  const absl::Span<const float> logits = timeline_.kept_logits();
  if (!tokens.empty()) std::memcpy(sections.tokens.data(), tokens.data(), sections.tokens.size());
  if (!logits.empty()) std::memcpy(sections.logits.data(), logits.data(), sections.logits.size());
  DSV4_RETURN_IF_ERROR(timeline_.kv().WriteImage(
      counts.computed_tokens,
      {reinterpret_cast<std::byte*>(sections.cache.data()), sections.cache.size()}));
  if (!sections.grammar.empty()) {
    const TokenChooser& chooser = timeline_.chooser();
    const int64_t free_outputs = chooser.free_outputs();
    const std::string& source = chooser.params().grammar->source();
    std::memcpy(sections.grammar.data(), &free_outputs, sizeof free_outputs);
    std::memcpy(sections.grammar.data() + sizeof free_outputs, source.data(), source.size());
  }
  SealSessionImage(engine_->identity(), counts, image);
  return absl::OkStatus();
}

absl::Status Session::SaveFile(const std::string& path, const Progress& progress) const {
  const int64_t bytes = SaveBytes();
  DSV4_ASSIGN_OR_RETURN(ReplacedFile file, ReplacedFile::Create(path, bytes));
  DSV4_RETURN_IF_ERROR(SaveTo(file.bytes()));
  for (int64_t begin = 0; progress && begin < bytes; begin += kImagePartBytes) {
    const int64_t end = std::min(begin + kImagePartBytes, bytes);
    DSV4_RETURN_IF_ERROR(file.Flush(begin, end));
    if (!progress(end, bytes)) {
      return Cancelled(path, ": saving was cancelled after ", end, " of ", bytes, " bytes");
    }
  }
  return file.Commit();
}

absl::Status Session::Load(absl::Span<const uint8_t> image, absl::string_view source,
                           const Progress& progress, const BeforeLoad& before) {
  DSV4_ASSIGN_OR_RETURN(const EngineGate::Visit visit, engine_->gate().Enter());
  ImageProgress report;
  if (progress) {
    report = [&](int64_t done) -> absl::Status {
      const int64_t bytes = static_cast<int64_t>(image.size());
      if (progress(done, bytes)) return absl::OkStatus();
      return Cancelled(source, ": loading was cancelled after ", done, " of ", bytes, " bytes");
    };
  }
  DSV4_ASSIGN_OR_RETURN(
      const ParsedSession parsed,
      ParseSessionImage(image, engine_->identity(), source, report, engine_->other_caches()));
  std::vector<int32_t> tokens(static_cast<size_t>(parsed.counts.tokens));
  if (!tokens.empty()) {
    std::memcpy(tokens.data(), parsed.sections.tokens.data(), parsed.sections.tokens.size());
  }
  const auto with_source = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(source, ": ", status.message()));
  };
  const absl::Status good = timeline_.CheckSaved(parsed.counts, tokens);
  if (!good.ok()) return with_source(good);
  const absl::StatusOr<SavedGrammar> grammar =
      timeline_.ReadGrammar(parsed.counts, parsed.sections.grammar, engine_->text());
  if (!grammar.ok()) return with_source(grammar.status());
  if (before) {
    DSV4_RETURN_IF_ERROR(before(absl::MakeConstSpan(tokens).subspan(
        0, static_cast<size_t>(parsed.counts.delivered_tokens))));
  }
  const absl::Status restored = timeline_.Restore(parsed.counts, tokens, parsed.sections.logits,
                                                  parsed.sections.cache, *grammar);
  if (!restored.ok()) return with_source(restored);
  ++generation_;
  log_probs_position_ = -1;
  stats_ = {};
  stats_.prompt_tokens = parsed.counts.prompt_tokens;
  stats_.cached_tokens = std::min(timeline_.kv().length(), parsed.counts.prompt_tokens);
  stats_.generated_tokens = parsed.counts.delivered_tokens - parsed.counts.prompt_tokens;
  ReplayText();
  return absl::OkStatus();
}

absl::Status Session::LoadFile(const std::string& path, const Progress& progress,
                               const BeforeLoad& before) {
  DSV4_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  return Load(file.bytes(), path, progress, before);
}

}  // namespace dsv4
