// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/ebnf.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/pattern_reader.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {
namespace {

constexpr int kMaxGroupDepth = 24;  // about 3 KiB of the stack each

bool IsNameChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

class Reader final : private PatternReader {
 public:
  Reader(ExpressionPool* pool, absl::string_view text) : PatternReader(text), pool_(pool) {}

  absl::StatusOr<Expr> Read() {
    for (Skip(); !rest_.empty(); Skip()) DSV4_RETURN_IF_ERROR(Definition());
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined) {
        return InvalidArgument("line ", LineOf(rule.place), ": the rule ", Quoted(name),
                               " is not defined");
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return InvalidArgument("there is no rule \"root\"");
    return root->second.expr;
  }

 private:
  struct Rule {
    Expr expr = kFail;
    bool defined = false;
    size_t place = 0;  // of its first use
  };

  int64_t LineOf(size_t place) const {
    return 1 + std::count(all_.begin(), all_.begin() + place, '\n');
  }
  std::string Located(absl::string_view what) const override {
    return absl::StrCat("line ", LineOf(Place()), ": ", what);
  }
  void Skip() {
    while (!rest_.empty()) {
      if (rest_[0] == '#') {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\n' || rest_[0] == '\r') {
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }
  absl::string_view Name() {
    size_t length = 0;
    while (length < rest_.size() && IsNameChar(rest_[length])) ++length;
    const absl::string_view name = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return name;
  }
  Rule* RuleOf(absl::string_view name) {
    const auto known = rules_.find(name);
    if (known != rules_.end()) return &known->second;
    const Expr expr = pool_->DeclareRule(absl::StrCat("the rule ", Quoted(name)));
    return &(rules_[std::string(name)] = {.expr = expr, .place = Place()});
  }

  absl::Status Definition() {
    const absl::string_view name = Name();
    if (name.empty()) return Bad("expected a rule name");
    Skip();
    if (!Take("::="))
      return Bad(absl::StrCat("expected \"::=\" after the rule name ", Quoted(name)));
    if (RuleOf(name)->defined) {
      return Bad(absl::StrCat("the rule ", Quoted(name), " is defined twice"));
    }
    DSV4_ASSIGN_OR_RETURN(const Expr body, Choice());
    Rule* const rule = RuleOf(name);
    pool_->DefineRule(rule->expr, body);
    rule->defined = true;
    if (!rest_.empty() && At(")")) return Bad("unmatched \")\"");
    return absl::OkStatus();
  }

  // Whether a name with "::=" comes: the next rule.
  bool AtDefinition() {
    const absl::string_view before = rest_;
    const bool named = !Name().empty();
    Skip();
    const bool defines = named && At("::=");
    rest_ = before;
    return defines;
  }

  absl::StatusOr<Expr> Choice() {
    std::vector<Expr> choices;
    do {
      std::vector<Expr> parts;
      for (Skip(); !rest_.empty() && !At("|") && !At(")") && !AtDefinition(); Skip()) {
        DSV4_ASSIGN_OR_RETURN(const Expr part, Term());
        parts.push_back(part);
      }
      choices.push_back(pool_->Concat(parts));
    } while (Take("|"));
    return pool_->AnyOf(std::move(choices));
  }

  absl::StatusOr<Expr> Term() {
    DSV4_ASSIGN_OR_RETURN(Expr e, Atom());
    for (;;) {
      if (Take("*")) {
        e = pool_->Repeat(e, 0, kUnbounded);
      } else if (Take("+")) {
        e = pool_->Repeat(e, 1, kUnbounded);
      } else if (Take("?")) {
        e = pool_->Optional(e);
      } else if (Take("{")) {
        uint32_t min = 0, max = 0;
        DSV4_RETURN_IF_ERROR(Repetitions(&min, &max));
        e = pool_->Repeat(e, min, max);
      } else {
        return e;
      }
    }
  }

  absl::StatusOr<Expr> Atom() {
    if (Take("(")) {
      if (++depth_ > kMaxGroupDepth)
        return Bad(
            absl::StrCat("groups are nested too deeply; at most ", kMaxGroupDepth, " levels"));
      DSV4_ASSIGN_OR_RETURN(const Expr e, Choice());
      --depth_;
      if (!Take(")")) return Bad("missing \")\"");
      return e;
    }
    if (Take("[")) return Class();
    if (Take(".")) return CharOf(pool_, CharSet::All(), Encoding::kUtf8);
    if (At("\"") || At("'")) return Text();
    const absl::string_view name = Name();
    if (name.empty()) return Bad(absl::StrCat("unexpected ", Quoted(rest_.substr(0, 1))));
    return RuleOf(name)->expr;
  }

  absl::StatusOr<Expr> Text() {
    const char quote = rest_[0];
    rest_.remove_prefix(1);
    std::vector<Expr> parts;
    while (!rest_.empty() && rest_[0] != quote) {
      DSV4_ASSIGN_OR_RETURN(const uint32_t c, Character());
      parts.push_back(CharOf(pool_, {{c, c}}, Encoding::kUtf8));
    }
    if (rest_.empty()) return Bad("unterminated string literal");
    rest_.remove_prefix(1);
    return pool_->Concat(parts);
  }

  absl::StatusOr<Expr> Class() {
    const bool negated = Take("^");
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    while (!Take("]")) {
      if (rest_.empty()) return Bad("unterminated character class");
      DSV4_ASSIGN_OR_RETURN(const uint32_t low, Character());
      uint32_t high = low;
      if (At("-") && !At("-]")) {
        Take("-");
        if (rest_.empty()) return Bad("unterminated character class");
        DSV4_ASSIGN_OR_RETURN(high, Character());
        if (low > high) return Bad("the first character of a range is above its last");
      }
      ranges.push_back({low, high});
    }
    const CharSet set(std::move(ranges));
    return CharOf(pool_, negated ? set.Complement() : set, Encoding::kUtf8);
  }

  // REQUIRES: there is one.
  absl::StatusOr<uint32_t> Character() {
    if (!Take("\\")) return TakeCodePoint(&rest_);
    if (rest_.empty()) return Bad("expected a character after the backslash");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    size_t digits = 0;
    switch (c) {
      case 'n':
        return uint32_t{'\n'};
      case 'r':
        return uint32_t{'\r'};
      case 't':
        return uint32_t{'\t'};
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      case '\\':
      case '"':
      case '\'':
      case '[':
      case ']':
      case '^':
      case '-':
        return static_cast<uint32_t>(c);
      default:
        return Bad(absl::StrCat("unknown escape \\", Quoted(absl::string_view(&c, 1))));
    }
    DSV4_ASSIGN_OR_RETURN(const uint32_t value, Hex(digits));
    return value <= kMaxCodePoint ? absl::StatusOr<uint32_t>(value)
                                  : Bad("the escape is above U+10FFFF");
  }

  ExpressionPool* pool_;
  StringMap<Rule> rules_;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<Expr> EbnfLanguage(ExpressionPool* pool, absl::string_view text) {
  if (text.size() > kMaxEbnfBytes) {
    return Unsupported("the grammar has ", text.size(), " bytes; at most ", kMaxEbnfBytes,
                       " are supported");
  }
  return Reader(pool, text).Read();
}

}  // namespace dsv4::grammar
