// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/regex.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/pattern_reader.h"

namespace dsv4::grammar {
namespace {

constexpr int kMaxGroupDepth = 32;  // about 1.4 KiB of the stack each

struct Ast {
  enum class Kind { kChar, kSequence, kChoice, kRepeat, kStart, kEnd };
  Kind kind = Kind::kSequence;
  CharSet set{};
  std::vector<Ast> parts{};
  uint32_t min = 0, max = 0;

  bool HasAnchor() const {
    if (kind == Kind::kStart || kind == Kind::kEnd) return true;
    for (const Ast& part : parts) {
      if (part.HasAnchor()) return true;
    }
    return false;
  }
};

const CharSet kDigits = {{'0', '9'}};
const CharSet kWordChars = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                         {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                         {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Reader final : private PatternReader {
 public:
  explicit Reader(absl::string_view pattern) : PatternReader(pattern) {}

  absl::StatusOr<Ast> Read() {
    DSV4_ASSIGN_OR_RETURN(Ast ast, Choice());
    if (!rest_.empty()) return Bad("unmatched \")\"");
    return ast;
  }

 private:
  std::string Located(absl::string_view what) const override {
    return absl::StrCat("byte ", Place() + 1, " of the pattern: ", what);
  }

  absl::StatusOr<Ast> Choice() {
    Ast choice{.kind = Ast::Kind::kChoice};
    do {
      Ast sequence;
      while (!rest_.empty() && !At("|") && !At(")")) {
        DSV4_ASSIGN_OR_RETURN(Ast term, Term());
        sequence.parts.push_back(std::move(term));
      }
      choice.parts.push_back(std::move(sequence));
    } while (Take("|"));
    if (choice.parts.size() == 1) {
      Ast only = std::move(choice.parts.front());
      return only;
    }
    return choice;
  }

  absl::StatusOr<Ast> Term() {
    if (Take("^")) return Ast{.kind = Ast::Kind::kStart};
    if (Take("$")) return Ast{.kind = Ast::Kind::kEnd};
    DSV4_ASSIGN_OR_RETURN(Ast atom, Atom());
    uint32_t min = 0, max = 0;
    if (Take("*")) {
      min = 0, max = kUnbounded;
    } else if (Take("+")) {
      min = 1, max = kUnbounded;
    } else if (Take("?")) {
      min = 0, max = 1;
    } else if (Take("{")) {
      DSV4_RETURN_IF_ERROR(Repetitions(&min, &max));
    } else {
      return atom;
    }
    Take("?");
    DSV4_RETURN_IF_ERROR(NoQuantifier());
    Ast repeat{.kind = Ast::Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  absl::Status NoQuantifier() const {
    if (!At("*") && !At("+") && !At("?") && !At("{")) return absl::OkStatus();
    return Bad(absl::StrCat(Quoted(rest_.substr(0, 1)), " has nothing to repeat"));
  }

  absl::StatusOr<Ast> Atom() {
    DSV4_RETURN_IF_ERROR(NoQuantifier());
    if (At("}") || At("]")) {
      return Bad(absl::StrCat("unmatched ", Quoted(rest_.substr(0, 1))));
    }
    if (At("(")) return Group();
    Ast atom{.kind = Ast::Kind::kChar};
    if (Take(".")) {
      atom.set = kLineEnds.Complement();
    } else if (Take("[")) {
      DSV4_RETURN_IF_ERROR(Class(&atom.set));
    } else if (Take("\\")) {
      DSV4_RETURN_IF_ERROR(Escape(false, &atom.set));
    } else {
      atom.set = One(TakeCodePoint(&rest_));
    }
    return atom;
  }

  absl::StatusOr<Ast> Group() {
    for (const absl::string_view look : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (At(look)) return Refused("look-around is");
    }
    if (++depth_ > kMaxGroupDepth)
      return Refused(absl::StrCat("groups nested deeper than ", kMaxGroupDepth, " are"));
    if (Take("(?<")) {
      const size_t end = rest_.find('>');
      const auto is_of_name = [](char c) {
        return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
               static_cast<uint8_t>(c) >= 0x80;
      };
      if (end == absl::string_view::npos || end == 0 ||
          !std::all_of(rest_.begin(), rest_.begin() + end, is_of_name)) {
        return Bad("expected a group name of letters, digits, \"_\" and \"$\", and \">\"");
      }
      rest_.remove_prefix(end + 1);
    } else if (!Take("(?:")) {
      Take("(");
      if (At("?")) return Bad("expected \"(\", \"(?:\" or \"(?<name>\"");
    }
    DSV4_ASSIGN_OR_RETURN(Ast ast, Choice());
    --depth_;
    if (!Take(")")) return Bad("missing \")\"");
    return ast;
  }

  absl::StatusOr<uint32_t> UnicodeEscape() {
    uint32_t value = 0;
    if (Take("{")) {
      do {
        DSV4_ASSIGN_OR_RETURN(const uint32_t digit, Hex(1));
        value = value * 16 + digit;
        if (value > kMaxCodePoint) return Bad("the escape is above U+10FFFF");
      } while (!Take("}"));
      return value;
    }
    DSV4_ASSIGN_OR_RETURN(value, Hex(4));
    if (value >= 0xD800 && value < 0xDC00 && Take("\\u")) {
      DSV4_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
      if (low < 0xDC00 || low > 0xDFFF) return Bad("expected a low surrogate, DC00 to DFFF");
      value = 0x10000 + (value - 0xD800) * 1024 + (low - 0xDC00);
    }
    return value;
  }

  static CharSet One(uint32_t code_point) { return {{code_point, code_point}}; }

  // After the backslash.
  absl::Status Escape(bool in_class, CharSet* set) {
    if (rest_.empty()) return Bad("expected a character after the backslash");
    const char c = rest_[0];
    const auto take_set = [&](const CharSet& chars) {
      rest_.remove_prefix(1);
      *set = chars;
      return absl::OkStatus();
    };
    const auto take_char = [&](uint32_t code_point) { return take_set(One(code_point)); };
    switch (c) {
      case 'd':
        return take_set(kDigits);
      case 'D':
        return take_set(kDigits.Complement());
      case 'w':
        return take_set(kWordChars);
      case 'W':
        return take_set(kWordChars.Complement());
      case 's':
        return take_set(kSpaces);
      case 'S':
        return take_set(kSpaces.Complement());
      case 't':
        return take_char('\t');
      case 'n':
        return take_char('\n');
      case 'v':
        return take_char('\v');
      case 'f':
        return take_char('\f');
      case 'r':
        return take_char('\r');
      case 'b':
        if (in_class) return take_char('\b');
        return Refused("\\b is");
      case 'B':
        return Refused("\\B is");
      case 'p':
      case 'P':
        return Refused("\\p is");
      case 'k':
        return Refused("back references are");
      case 'c': {
        rest_.remove_prefix(1);
        const int letter = rest_.empty() ? 0 : rest_[0] | 32;
        if (letter < 'a' || letter > 'z') return Bad("expected a letter after \\c");
        return take_char(static_cast<uint32_t>(letter - 'a' + 1));
      }
      case 'x':
      case 'u': {
        rest_.remove_prefix(1);
        DSV4_ASSIGN_OR_RETURN(const uint32_t code_point, c == 'x' ? Hex(2) : UnicodeEscape());
        *set = One(code_point);
        return absl::OkStatus();
      }
      case '0':
        if (rest_.size() == 1 || rest_[1] < '0' || rest_[1] > '9') return take_char(0);
        return Bad("octal escapes are not allowed");
      default:
        break;
    }
    if (c >= '1' && c <= '9') return Refused("back references are");
    const int letter = c | 32;
    if ((letter >= 'a' && letter <= 'z') || c == '_') {
      return Bad(absl::StrCat("unknown escape \\", rest_.substr(0, 1)));
    }
    *set = One(TakeCodePoint(&rest_));
    return absl::OkStatus();
  }

  absl::Status ClassItem(CharSet* set) {
    if (rest_.empty()) return Bad("missing \"]\"");
    if (Take("\\")) {
      return Escape(true, set);
    }
    *set = One(TakeCodePoint(&rest_));
    return absl::OkStatus();
  }

  absl::Status Class(CharSet* out) {
    const bool negated = Take("^");
    std::vector<std::pair<uint32_t, uint32_t>> ranges;
    while (!Take("]")) {
      CharSet low;
      DSV4_RETURN_IF_ERROR(ClassItem(&low));
      const auto is_char = [](const CharSet& set) {
        return set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].second;
      };
      if (!At("-") || At("-]")) {
        ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
        continue;
      }
      Take("-");
      CharSet high;
      DSV4_RETURN_IF_ERROR(ClassItem(&high));
      if (!is_char(low) || !is_char(high)) return Bad("both ends of a range must be characters");
      if (low.ranges()[0].first > high.ranges()[0].first) {
        return Bad("the first character of a range is above its last");
      }
      ranges.push_back({low.ranges()[0].first, high.ranges()[0].first});
    }
    const CharSet all(std::move(ranges));
    *out = negated ? all.Complement() : all;
    return absl::OkStatus();
  }

  int depth_ = 0;
};

// Where a part of the pattern lies: an edge is open where text may stand before or after it.
enum class Edge { kNone, kAnchored, kOpen };

class Builder {
 public:
  Builder(ExpressionPool* pool, Encoding encoding)
      : pool_(pool),
        encoding_(encoding),
        any_text_(pool->Repeat(CharOf(pool, CharSet::All(), encoding), 0, kUnbounded)) {}

  absl::StatusOr<Expr> Build(const Ast& ast, Edge start, Edge end) {
    switch (ast.kind) {
      case Ast::Kind::kChoice: {
        std::vector<Expr> parts;
        for (const Ast& part : ast.parts) {
          DSV4_ASSIGN_OR_RETURN(const Expr e, Build(part, start, end));
          parts.push_back(e);
        }
        return pool_->AnyOf(std::move(parts));
      }
      case Ast::Kind::kSequence:
        return Sequence(ast.parts, start, end);
      case Ast::Kind::kStart:
      case Ast::Kind::kEnd: {
        const bool at_edge = (ast.kind == Ast::Kind::kStart ? start : end) != Edge::kNone;
        if (!at_edge) return Unsupported("^ and $ inside the pattern are not supported");
        // The other edge may be this one's, too: an anchor alone.
        const Edge other = ast.kind == Ast::Kind::kStart ? end : start;
        return other == Edge::kOpen ? any_text_ : kEmpty;
      }
      case Ast::Kind::kRepeat:
        if (ast.HasAnchor()) return Unsupported("repeated ^ and $ are not supported");
        break;
      case Ast::Kind::kChar:
        break;
    }
    Expr e;
    if (ast.kind == Ast::Kind::kChar) {
      e = CharOf(pool_, ast.set, encoding_);
    } else {
      DSV4_ASSIGN_OR_RETURN(const Expr part, Build(ast.parts[0], Edge::kNone, Edge::kNone));
      e = pool_->Repeat(part, ast.min, ast.max);
    }
    return pool_->Concat(
        {start == Edge::kOpen ? any_text_ : kEmpty, e, end == Edge::kOpen ? any_text_ : kEmpty});
  }

 private:
  absl::StatusOr<Expr> Sequence(const std::vector<Ast>& parts, Edge start, Edge end) {
    size_t first = 0, last = parts.size();
    while (start != Edge::kNone && first < last && parts[first].kind == Ast::Kind::kStart) {
      start = Edge::kAnchored;
      ++first;
    }
    while (end != Edge::kNone && first < last && parts[last - 1].kind == Ast::Kind::kEnd) {
      end = Edge::kAnchored;
      --last;
    }
    if (first == last) {
      return start == Edge::kOpen || end == Edge::kOpen ? any_text_ : kEmpty;
    }
    std::vector<Expr> exprs;
    for (size_t i = first; i < last; ++i) {
      // Anchors within a group at an edge are of that edge; other parts leave it to the sequence.
      const bool own_edges = parts[i].HasAnchor();
      Edge left = i == first ? start : Edge::kNone, right = i + 1 == last ? end : Edge::kNone;
      if (!own_edges && left == Edge::kOpen) exprs.push_back(any_text_);
      DSV4_ASSIGN_OR_RETURN(const Expr e, Build(parts[i], own_edges ? left : Edge::kNone,
                                                own_edges ? right : Edge::kNone));
      exprs.push_back(e);
      if (!own_edges && right == Edge::kOpen) exprs.push_back(any_text_);
    }
    return pool_->Concat(exprs);
  }

  ExpressionPool* pool_;
  const Encoding encoding_;
  const Expr any_text_;
};

}  // namespace

absl::StatusOr<Expr> RegexLanguage(ExpressionPool* pool, absl::string_view pattern,
                                   Encoding encoding, Anchoring anchoring) {
  if (pattern.size() > kMaxPatternBytes) {
    return Unsupported("the pattern has ", pattern.size(), " bytes; at most ", kMaxPatternBytes,
                       " are supported");
  }
  DSV4_ASSIGN_OR_RETURN(const Ast ast, Reader(pattern).Read());
  const Edge edge = anchoring == Anchoring::kSearch ? Edge::kOpen : Edge::kAnchored;
  return Builder(pool, encoding).Build(ast, edge, edge);
}

}  // namespace dsv4::grammar
