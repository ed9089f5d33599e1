// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/grammar.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/ebnf.h"
#include "lib/grammar/json_schema.h"
#include "lib/grammar/regex.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {
namespace {

// The first byte of a source. Tools have the choice, whether it is strict, and a name before a NUL.
constexpr char kSchema = 'S', kRegex = 'R', kEbnf = 'E', kTools = 'T';

absl::Status CheckUtf8(absl::string_view text, absl::string_view what) {
  return IsUtf8(text) ? absl::OkStatus() : InvalidArgument(what, " is not UTF-8");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Create(
    ExpressionPool pool, Expr content, Expr reasoning, bool markup, std::string source,
    std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_RETURN_IF_ERROR(pool.Compile(content));
  std::shared_ptr<Grammar> grammar(new Grammar());
  grammar->base_ = pool;  // a copy, without what Compile needed for itself
  grammar->content_ = content;
  grammar->reasoning_ = reasoning;
  grammar->markup_ = markup;
  grammar->source_ = std::move(source);
  grammar->vocabulary_ = std::move(vocabulary);
  return std::shared_ptr<const Grammar>(std::move(grammar));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfSchema(
    absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue schema, ParseSchema(json, "schema"));
  ExpressionPool pool;
  SchemaCompiler compiler(&pool, schema, "schema#", false);
  DSV4_ASSIGN_OR_RETURN(
      const Expr value,
      compiler.Language(schema, "", SchemaCompiler::Part::kValues, Encoding::kJson));
  const Expr space = JsonSpace(&pool);
  const Expr root = pool.Concat({space, value, space});
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar =
      Create(std::move(pool), root, kFail, false, absl::StrCat(std::string(1, kSchema), json),
             std::move(vocabulary));
  if (grammar.ok()) return grammar;
  return absl::Status(grammar.status().code(),
                      absl::StrCat("schema#: ", grammar.status().message()));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfRegex(
    absl::string_view pattern, std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_RETURN_IF_ERROR(CheckUtf8(pattern, "the pattern"));
  ExpressionPool pool;
  DSV4_ASSIGN_OR_RETURN(const Expr root,
                        RegexLanguage(&pool, pattern, Encoding::kUtf8, Anchoring::kWhole));
  return Create(std::move(pool), root, kFail, false, absl::StrCat(std::string(1, kRegex), pattern),
                std::move(vocabulary));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfEbnf(
    absl::string_view text, std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_RETURN_IF_ERROR(CheckUtf8(text, "the grammar"));
  ExpressionPool pool;
  DSV4_ASSIGN_OR_RETURN(const Expr root, EbnfLanguage(&pool, text));
  return Create(std::move(pool), root, kFail, false, absl::StrCat(std::string(1, kEbnf), text),
                std::move(vocabulary));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfTools(
    absl::string_view json, const ToolOptions& options,
    std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue tools, ParseSchema(json, "tools"));
  ExpressionPool pool;
  DSV4_ASSIGN_OR_RETURN(const ToolLanguage language, ToolCallLanguage(&pool, tools, options));
  std::string source(1, kTools);
  absl::StrAppend(&source, static_cast<int>(options.choice), options.strict ? 1 : 0, options.name);
  source.push_back('\0');
  source.append(json.data(), json.size());
  return Create(std::move(pool), language.content, language.reasoning, true, std::move(source),
                std::move(vocabulary));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Restore(
    absl::string_view source, std::shared_ptr<const Vocabulary> vocabulary) {
  const char kind = source.empty() ? '\0' : source[0];
  const absl::string_view text = source.substr(source.empty() ? 0 : 1);
  if (kind == kSchema) return OfSchema(text, std::move(vocabulary));
  if (kind == kRegex) return OfRegex(text, std::move(vocabulary));
  if (kind == kEbnf) return OfEbnf(text, std::move(vocabulary));
  const size_t end = text.find('\0');
  const bool tools = kind == kTools && end != absl::string_view::npos && end >= 2 &&
                     text[0] >= '0' && text[0] <= '2' && (text[1] == '0' || text[1] == '1');
  if (!tools) return Corrupt("not a grammar");
  return OfTools(text.substr(end + 1),
                 {.choice = static_cast<ToolChoice>(text[0] - '0'),
                  .name = std::string(text.substr(2, end - 2)),
                  .strict = text[1] == '1'},
                 std::move(vocabulary));
}

std::shared_ptr<Grammar::Memory> Grammar::CurrentMemory() const {
  const MutexLock lock(&mutex_);
  bool fresh = memory_ == nullptr;
  if (!fresh) {
    const MutexLock memory_lock(&memory_->mutex);
    fresh = memory_->pool.exhausted();
  }
  if (fresh) memory_ = std::make_shared<Memory>(base_, *vocabulary_, markup_);
  return memory_;
}

void Matcher::Reset(std::shared_ptr<const Grammar> grammar, Start start) {
  grammar_ = std::move(grammar);
  memory_ = nullptr;
  stale_ = false;
  steps_.clear();
  text_.clear();
  if (grammar_ == nullptr) return;
  memory_ = grammar_->CurrentMemory();
  const bool content = start == Start::kContent;
  steps_.push_back({content ? grammar_->content_ : grammar_->reasoning_, 0, content});
}

Expr Matcher::Advance(Expr state, absl::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != kFail; ++i) {
    state = memory_->pool.Next(state, static_cast<uint8_t>(bytes[i]));
  }
  return state;
}

void Matcher::Replay() {
  size_t begin = 0;
  for (size_t i = 1; i < steps_.size(); ++i) {
    const Step& before = steps_[i - 1];
    Step& step = steps_[i];
    memory_->pool.AllowWork();  // each push had as much
    if (step.content != before.content) {
      step.state = grammar_->content_;
    } else {
      step.state =
          Advance(before.state, absl::string_view(text_).substr(begin, step.text_end - begin));
    }
    begin = step.text_end;
  }
}

template <class Fn>
absl::Status Matcher::WithMemory(Fn&& fn) {
  for (int attempt = 0; attempt < 2;) {
    {
      const MutexLock lock(&memory_->mutex);
      if (!memory_->pool.exhausted()) {
        ++attempt;
        const absl::Status status = Contained([&] {
          memory_->mutex.AssertHeld();
          if (stale_) Replay();
          memory_->pool.AllowWork();
          fn();
          return absl::OkStatus();
        });
        if (!status.ok()) {
          memory_->pool.Abandon();
          stale_ = true;
          return status;
        }
        if (!memory_->pool.exhausted()) {
          stale_ = false;
          return absl::OkStatus();
        }
      }
    }
    // The states of the exhausted pool say nothing in another.
    stale_ = true;
    memory_ = grammar_->CurrentMemory();
  }
  return Unsupported("the grammar needs more than ", kMaxPoolBytes >> 20, " MiB, ", kMaxWork >> 20,
                     " Mi steps, or a deeper stack");
}

void Matcher::Push(absl::string_view bytes) {
  if (grammar_ == nullptr) return;
  Add(bytes, kFail, steps_.back().content);
  // What exhausts the memory fails again, as an error, where the state is asked for.
  if (free()) return;
  (void)WithMemory([&] {
    memory_->mutex.AssertHeld();
    steps_.back().state = Advance(steps_[steps_.size() - 2].state, bytes);
  });
}

void Matcher::PushThinkEnd(absl::string_view bytes) {
  if (grammar_ == nullptr) return;
  if (steps_.back().content) return Push(bytes);
  Add(bytes, grammar_->content_, true);
}

// Changes nothing where it finds no memory.
void Matcher::Add(absl::string_view bytes, Expr state, bool content) {
  if (steps_.size() == steps_.capacity()) steps_.reserve(2 * steps_.size() + 64);
  text_.append(bytes.data(), bytes.size());
  steps_.push_back({state, static_cast<uint32_t>(text_.size()), content});
}

void Matcher::Pop() {
  if (grammar_ == nullptr) return;
  steps_.pop_back();
  text_.resize(steps_.back().text_end);
}

bool Matcher::free() const {
  return grammar_ == nullptr || (!steps_.back().content && grammar_->reasoning_ == kFail);
}

absl::StatusOr<bool> Matcher::MayEnd() {
  if (grammar_ == nullptr) return true;
  return steps_.back().content ? Accepts() : false;
}

absl::StatusOr<bool> Matcher::MayEndThinking() {
  if (free()) return true;
  return steps_.back().content ? false : Accepts();
}

absl::StatusOr<bool> Matcher::Accepts() {
  bool accepts = false;
  DSV4_RETURN_IF_ERROR(WithMemory([&] {
    memory_->mutex.AssertHeld();
    accepts = memory_->pool.Accepts(state());
  }));
  return accepts;
}

absl::StatusOr<std::shared_ptr<const MaskBits>> Matcher::Mask() {
  std::shared_ptr<const MaskBits> mask;
  if (free()) return mask;
  DSV4_RETURN_IF_ERROR(WithMemory([&] {
    memory_->mutex.AssertHeld();
    mask = memory_->masks.MaskOf(state());
  }));
  return mask;
}

}  // namespace dsv4::grammar
