// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/grammar.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lib/base/contained.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/grammar/ebnf.h"
#include "lib/grammar/json_schema.h"
#include "lib/grammar/regex.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {
namespace {

// The first byte of a source.
// - kTools: then the choice, whether it is strict, and a name before a NUL
// - kBoth: the same, then the length of the tools before a NUL, the tools, and the schema
constexpr char kSchema = 'S', kLenientSchema = 's', kRegex = 'R', kEbnf = 'E', kTools = 'T',
               kBoth = 'B';

absl::Status CheckUtf8(absl::string_view text, absl::string_view what) {
  return ValidUtf8Prefix(text) == text.size() ? absl::OkStatus()
                                              : InvalidArgument(what, " is not UTF-8");
}

std::string SourceOf(const ToolOptions& options) {
  std::string source =
      absl::StrCat(static_cast<int>(options.choice), options.strict ? 1 : 0, options.name);
  source.push_back('\0');
  return source;
}

// Whether a function says that it need not be strict.
bool AnyLenient(const JsonValue& tools) {
  if (tools.AsArray() == nullptr) return false;
  return absl::c_any_of(*tools.AsArray(), [](const JsonValue& tool) {
    const JsonValue* function = tool.Find("function");
    const JsonValue* strict = (function != nullptr ? function : &tool)->Find("strict");
    return strict != nullptr && strict->AsBool() && !*strict->AsBool();
  });
}

using Effort = Enforcement::Effort;

// Compiles with less and less effort until that succeeds; if `strict` or `quick`, once. `place`: of
// notes about everything.
template <class Compile>
auto WithEffort(bool strict, bool quick, absl::string_view place, Compile&& compile)
    -> decltype(compile(std::declval<Enforcement*>(), int64_t{})) {
  int64_t work = quick ? kQuickWork : kMaxWork;
  Enforcement enforcement(strict ? Effort::kStrict : Effort::kBest);
  auto compiled = compile(&enforcement, work);
  if (strict || (quick && IsUnsupported(compiled.status()))) return compiled;
  // What takes long with all effort is not to take several times as long.
  work /= 4;
  for (const Effort effort : {Effort::kSimple, Effort::kTypes}) {
    const absl::Status status = compiled.status();
    const bool useless = status.ok() ? enforcement.ComplementsWidened()
                                     : IsUnsupported(status) || (absl::IsInvalidArgument(status) &&
                                                                 !enforcement.list().empty());
    if (!useless) break;
    enforcement = Enforcement(effort);
    if (effort == Effort::kTypes)
      enforcement.Add(std::string(place), std::string(status.message()));
    compiled = compile(&enforcement, work);
  }
  return compiled;
}

// JSON texts of the schema.
absl::StatusOr<Expr> JsonLanguage(ExpressionPool* pool, const JsonValue& schema, bool in_markup,
                                  Enforcement* enforcement) {
  const JsonValue* root = &schema;
  std::vector<JsonMember> members;
  JsonValue only_type;
  if (enforcement->effort() == Effort::kTypes) {
    const JsonValue* type = schema.Find("type");
    if (type != nullptr && type->AsString() != nullptr) members.push_back({"type", *type});
    only_type = JsonValue::FromObject(std::move(members));
    root = &only_type;
  }
  SchemaCompiler compiler(pool, *root, "schema#", in_markup, enforcement);
  DSV4_ASSIGN_OR_RETURN(const Expr value,
                        compiler.Language(*root, "", SchemaCompiler::Part::kValues,
                                          in_markup ? Encoding::kJsonInMarkup : Encoding::kJson));
  const Expr space = JsonSpace(pool);
  return pool->Concat({space, value, space});
}

}  // namespace

Grammar::Compiled Grammar::Create(ExpressionPool pool, Expr content, Expr reasoning, bool markup,
                                  std::string source,
                                  std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_RETURN_IF_ERROR(pool.Compile(content));
  std::shared_ptr<Grammar> grammar(new Grammar());
  DSV4_ASSIGN_OR_RETURN(grammar->base_share_,
                        MemoryBudget::Reserve(vocabulary->budget, pool.bytes()));
  grammar->base_ = pool;  // a copy, without what Compile needed for itself
  grammar->content_ = content;
  grammar->reasoning_ = reasoning;
  grammar->markup_ = markup;
  grammar->source_ = std::move(source);
  grammar->vocabulary_ = std::move(vocabulary);
  return grammar;
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfSchema(
    absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary) {
  return CompileSchema(json, true, false, std::move(vocabulary));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfAnswer(
    absl::string_view json, const ToolOptions& options,
    std::shared_ptr<const Vocabulary> vocabulary) {
  return CompileSchema(json, options.strict, options.quick, std::move(vocabulary));
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::CompileSchema(
    absl::string_view json, bool strict, bool quick, std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue schema, ParseSchema(json, "schema"));
  const auto compile = [&](Enforcement* enforcement, int64_t work) -> Compiled {
    ExpressionPool pool;
    pool.AllowWork(work);
    DSV4_ASSIGN_OR_RETURN(const Expr root, JsonLanguage(&pool, schema, false, enforcement));
    const char kind = strict ? kSchema : kLenientSchema;
    Compiled grammar = Create(std::move(pool), root, kFail, false,
                              absl::StrCat(std::string(1, kind), json), vocabulary);
    if (!grammar.ok()) {
      return absl::Status(grammar.status().code(),
                          absl::StrCat("schema#: ", grammar.status().message()));
    }
    (*grammar)->not_enforced_ = enforcement->list();
    return grammar;
  };
  return WithEffort(strict, quick, "schema#", compile);
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
  return WithEffort(
      options.strict && !AnyLenient(tools), options.quick, "tools#",
      [&](Enforcement* enforcement, int64_t work) -> Compiled {
        ExpressionPool pool;
        pool.AllowWork(work);
        DSV4_ASSIGN_OR_RETURN(const ToolLanguage language,
                              ToolCallLanguage(&pool, tools, options, std::nullopt, enforcement));
        Compiled grammar =
            Create(std::move(pool), language.content, language.reasoning, true,
                   absl::StrCat(std::string(1, kTools), SourceOf(options), json), vocabulary);
        if (grammar.ok()) (*grammar)->not_enforced_ = enforcement->list();
        return grammar;
      });
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::OfToolsOrSchema(
    absl::string_view tools_json, absl::string_view schema_json, const ToolOptions& options,
    std::shared_ptr<const Vocabulary> vocabulary) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue tools, ParseSchema(tools_json, "tools"));
  DSV4_ASSIGN_OR_RETURN(const JsonValue schema, ParseSchema(schema_json, "schema"));
  std::string source = absl::StrCat(std::string(1, kBoth), SourceOf(options), tools_json.size());
  source.push_back('\0');
  absl::StrAppend(&source, tools_json, schema_json);
  return WithEffort(
      options.strict && !AnyLenient(tools), options.quick, "schema#",
      [&](Enforcement* enforcement, int64_t work) -> Compiled {
        ExpressionPool pool;
        pool.AllowWork(work);
        Enforcement strict(Effort::kStrict);
        DSV4_ASSIGN_OR_RETURN(
            const Expr answer,
            JsonLanguage(&pool, schema, true, options.strict ? &strict : enforcement));
        enforcement->AddAll(strict);
        DSV4_ASSIGN_OR_RETURN(const ToolLanguage language,
                              ToolCallLanguage(&pool, tools, options, answer, enforcement));
        Compiled grammar =
            Create(std::move(pool), language.content, language.reasoning, true, source, vocabulary);
        if (grammar.ok()) (*grammar)->not_enforced_ = enforcement->list();
        return grammar;
      });
}

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Restore(
    absl::string_view source, std::shared_ptr<const Vocabulary> vocabulary) {
  const char kind = source.empty() ? '\0' : source[0];
  const absl::string_view text = source.substr(source.empty() ? 0 : 1);
  if (kind == kSchema || kind == kLenientSchema)
    return CompileSchema(text, kind == kSchema, false, std::move(vocabulary));
  if (kind == kRegex) return OfRegex(text, std::move(vocabulary));
  if (kind == kEbnf) return OfEbnf(text, std::move(vocabulary));
  const size_t end = text.find('\0');
  const bool tools = (kind == kTools || kind == kBoth) && end != absl::string_view::npos &&
                     end >= 2 && text[0] >= '0' && text[0] <= '2' &&
                     (text[1] == '0' || text[1] == '1');
  if (!tools) return Corrupt("not a grammar");
  const ToolOptions options = {.choice = static_cast<ToolChoice>(text[0] - '0'),
                               .name = std::string(text.substr(2, end - 2)),
                               .strict = text[1] == '1'};
  const absl::string_view rest = text.substr(end + 1);
  if (kind == kTools) return OfTools(rest, options, std::move(vocabulary));
  const size_t length_end = rest.find('\0');
  size_t length = 0;
  if (length_end == absl::string_view::npos ||
      !absl::SimpleAtoi(rest.substr(0, length_end), &length) ||
      length > rest.size() - length_end - 1) {
    return Corrupt("not a grammar");
  }
  return OfToolsOrSchema(rest.substr(length_end + 1, length), rest.substr(length_end + 1 + length),
                         options, std::move(vocabulary));
}

bool Grammar::Memory::TryFree() {
  if (!mutex.TryLock()) return false;
  exhausted = true;
  masks.Clear();
  const absl::Status status = Contained([&] {
    mutex.AssertHeld();
    pool = ExpressionPool();
    return absl::OkStatus();
  });
  pool.Abandon();
  mutex.Unlock();
  return status.ok();
}

std::shared_ptr<Grammar::Memory> Grammar::CurrentMemory() const {
  const MutexLock lock(&mutex_);
  if (memory_ == nullptr || memory_->exhausted.load(std::memory_order_relaxed)) {
    memory_ = std::make_shared<Memory>(base_, *vocabulary_, markup_);
  }
  return memory_;
}

void Matcher::Reset(std::shared_ptr<const Grammar> grammar, Start start) {
  grammar_ = std::move(grammar);
  memory_ = nullptr;
  steps_.clear();
  text_.clear();
  known_ = 0;
  if (grammar_ == nullptr) return;
  memory_ = grammar_->CurrentMemory();
  const bool content = start == Start::kContent;
  steps_.push_back({content ? grammar_->content_ : grammar_->reasoning_, 0, content});
  known_ = 1;
}

Expr Matcher::Advance(Expr state, absl::string_view bytes) {
  for (size_t i = 0; i < bytes.size() && state != kFail; ++i) {
    state = memory_->pool.Next(state, static_cast<uint8_t>(bytes[i]));
  }
  return state;
}

bool Matcher::Resolve() {
  for (; known_ < steps_.size(); ++known_) {
    const Step& before = steps_[known_ - 1];
    Step& step = steps_[known_];
    step.state = step.content != before.content
                     ? grammar_->content_
                     : Advance(before.state, absl::string_view(text_).substr(
                                                 before.text_end, step.text_end - before.text_end));
    if (memory_->pool.exhausted()) return false;
  }
  return true;
}

template <class Fn>
absl::Status Matcher::WithMemory(Fn&& fn, int64_t work, bool* lacks_work) {
  // Known derivatives cost nothing; a long output that is matched again has many that are not.
  constexpr int64_t kWorkOfByte = 64;
  *lacks_work = false;
  for (int attempt = 0; attempt < 2;) {
    {
      const MutexLock lock(&memory_->mutex);
      ExpressionPool& pool = memory_->pool;
      if (!memory_->exhausted.load(std::memory_order_relaxed)) {
        ++attempt;
        const auto bytes = static_cast<int64_t>(text_.size() - steps_[known_ - 1].text_end);
        const absl::Status status = Contained([&] {
          memory_->mutex.AssertHeld();
          pool.AllowWork(work + kWorkOfByte * bytes);
          if (!Resolve()) return absl::OkStatus();
          pool.AllowWork(work);
          fn();
          return absl::OkStatus();
        });
        if (!status.ok()) pool.Abandon();
        *lacks_work = pool.lacks_only_work();
        memory_->exhausted = pool.exhausted() && !*lacks_work;
        memory_->Count();
        if (!status.ok() || !pool.exhausted()) return status;
        if (*lacks_work)
          return Unsupported("the grammar needs more than ", work >> 20, " Mi steps");
      }
    }
    // The states of the exhausted pool say nothing in another.
    memory_ = grammar_->CurrentMemory();
    known_ = 1;
  }
  return Unsupported("the grammar needs more than ", kMaxPoolBytes >> 20,
                     " MiB, or a deeper stack");
}

void Matcher::Push(absl::string_view bytes) {
  if (grammar_ != nullptr) Add(bytes, steps_.back().content);
}

void Matcher::PushThinkEnd(absl::string_view bytes) {
  if (grammar_ != nullptr) Add(bytes, true);
}

// Changes nothing where it finds no memory.
void Matcher::Add(absl::string_view bytes, bool content) {
  if (steps_.size() == steps_.capacity()) steps_.reserve(2 * steps_.size() + 64);
  text_.append(bytes.data(), bytes.size());
  steps_.push_back({kFail, static_cast<uint32_t>(text_.size()), content});
}

void Matcher::Pop() {
  if (grammar_ == nullptr) return;
  steps_.pop_back();
  text_.resize(steps_.back().text_end);
  known_ = std::min(known_, steps_.size());
}

void Matcher::Adopt(const Matcher& copy) {
  if (memory_ == copy.memory_ && known_ >= copy.known_) return;
  memory_ = copy.memory_;
  known_ = copy.known_;
  for (size_t i = 0; i < known_; ++i) steps_[i].state = copy.steps_[i].state;
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
  bool accepts = false, lacks_work;
  const auto ask = [&] {
    memory_->mutex.AssertHeld();
    accepts = memory_->pool.Accepts(state());
  };
  DSV4_RETURN_IF_ERROR(WithMemory(ask, kMaxWork, &lacks_work));
  return accepts;
}

absl::StatusOr<std::shared_ptr<const MaskBits>> Matcher::Mask() {
  std::shared_ptr<const MaskBits> mask;
  if (free()) return mask;
  bool lacks_work;
  const auto build = [&] {
    memory_->mutex.AssertHeld();
    mask = memory_->masks.MaskOf(state());
  };
  DSV4_RETURN_IF_ERROR(WithMemory(build, kMaxWork, &lacks_work));
  return mask;
}

Following Matcher::FollowingOf(std::shared_ptr<const MaskBits> mask, bool accepts) const {
  const bool content = steps_.back().content;
  return {.mask = std::move(mask),
          .may_end = content && accepts,
          .may_end_thinking = !content && accepts};
}

absl::StatusOr<std::optional<Following>> Matcher::Follow(int64_t work) {
  if (grammar_ == nullptr) return Following{.may_end = true, .may_end_thinking = true};
  if (free()) return Following{.may_end_thinking = true};
  std::shared_ptr<const MaskBits> mask;
  bool accepts = false, lacks_work;
  const auto build = [&] {
    memory_->mutex.AssertHeld();
    mask = memory_->masks.MaskOf(state());
    accepts = memory_->pool.Accepts(state());
  };
  const absl::Status status = WithMemory(build, work, &lacks_work);
  if (lacks_work) return std::nullopt;
  DSV4_RETURN_IF_ERROR(status);
  return FollowingOf(std::move(mask), accepts);
}

std::optional<Following> Matcher::FollowNow(int64_t work, bool build) {
  if (grammar_ == nullptr) return Following{.may_end = true, .may_end_thinking = true};
  if (free()) return Following{.may_end_thinking = true};
  if (!memory_->mutex.TryLock()) return std::nullopt;
  std::shared_ptr<const MaskBits> mask;
  bool accepts = false;
  if (!memory_->exhausted.load(std::memory_order_relaxed)) {
    ExpressionPool& pool = memory_->pool;
    const absl::Status status = Contained([&] {
      memory_->mutex.AssertHeld();
      pool.AllowWork(work);
      if (!Resolve()) return absl::OkStatus();
      accepts = pool.Accepts(state());
      mask = memory_->masks.KnownMaskOf(state());
      if (mask == nullptr && build) mask = memory_->masks.MaskOf(state());
      return absl::OkStatus();
    });
    if (!status.ok()) pool.Abandon();
    memory_->exhausted = pool.exhausted() && !pool.lacks_only_work();
    memory_->CountNow();
  }
  memory_->mutex.Unlock();
  if (mask == nullptr) return std::nullopt;
  return FollowingOf(std::move(mask), accepts);
}

}  // namespace dsv4::grammar
