// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/pattern_reader.h"
#include "lib/grammar/regex_syntax.h"
#include "lib/grammar/unicode_property.h"

namespace dsv4::grammar {
namespace {

constexpr int kMaxGroupDepth = 32;  // about 1.4 KiB of the stack each

const CharSet kDigits = {{'0', '9'}};
const CharSet kSpaces = {{9, 13},          {32, 32},         {0xA0, 0xA0},     {0x1680, 0x1680},
                         {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                         {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

class Reader final : private PatternReader {
 public:
  explicit Reader(absl::string_view pattern) : PatternReader(pattern) {}

  absl::StatusOr<RegexTree> Read() {
    DSV4_ASSIGN_OR_RETURN(RegexTree tree, Choice());
    if (!rest_.empty()) return Bad("unmatched \")\"");
    return tree;
  }

 private:
  std::string Located(absl::string_view what) const override {
    return absl::StrCat("byte ", Place() + 1, " of the pattern: ", what);
  }

  // What "(?i)" and its like set, from there to the end of the group.
  struct Flags {
    bool ignore_case = false, dot_all = false, multiline = false;
  };

  absl::StatusOr<RegexTree> Choice() {
    const Flags outside = flags_;
    absl::StatusOr<RegexTree> choice = ChoiceHere();
    flags_ = outside;
    return choice;
  }

  absl::StatusOr<RegexTree> ChoiceHere() {
    RegexTree choice{.kind = RegexTree::Kind::kChoice};
    do {
      RegexTree sequence;
      while (!rest_.empty() && !At("|") && !At(")")) {
        DSV4_ASSIGN_OR_RETURN(const bool only_flags, CommentOrFlags());
        if (only_flags) continue;
        DSV4_ASSIGN_OR_RETURN(RegexTree term, Term());
        sequence.parts.push_back(std::move(term));
      }
      choice.parts.push_back(std::move(sequence));
    } while (Take("|"));
    if (choice.parts.size() == 1) {
      RegexTree only = std::move(choice.parts.front());
      return only;
    }
    return choice;
  }

  absl::StatusOr<RegexTree> Term() {
    const bool is_line_anchor = At("^") || At("$");
    if (is_line_anchor && flags_.multiline) return Refused("^ and $ with the flag m are");
    // The others are Python's.
    if (Take("^") || Take("\\A")) return RegexTree{.kind = RegexTree::Kind::kStart};
    if (Take("$") || Take("\\Z") || Take("\\z")) return RegexTree{.kind = RegexTree::Kind::kEnd};
    if (At("\\b") || At("\\B")) {
      const bool negated = At("\\B");
      rest_.remove_prefix(2);
      DSV4_RETURN_IF_ERROR(NoQuantifier());
      return RegexTree{.kind = RegexTree::Kind::kBoundary, .negated = negated};
    }
    DSV4_ASSIGN_OR_RETURN(RegexTree atom, Atom());
    if (atom.IsAssertion()) {
      DSV4_RETURN_IF_ERROR(NoQuantifier());
      return atom;
    }
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
    RegexTree repeat{.kind = RegexTree::Kind::kRepeat, .min = min, .max = max};
    repeat.parts.push_back(std::move(atom));
    return repeat;
  }

  absl::Status NoQuantifier() const {
    if (!At("*") && !At("+") && !At("?") && !At("{")) return absl::OkStatus();
    return Bad(absl::StrCat(Quoted(rest_.substr(0, 1)), " has nothing to repeat"));
  }

  absl::StatusOr<RegexTree> Atom() {
    DSV4_RETURN_IF_ERROR(NoQuantifier());
    if (At("}") || At("]")) {
      return Bad(absl::StrCat("unmatched ", Quoted(rest_.substr(0, 1))));
    }
    if (At("(")) return Group();
    RegexTree atom{.kind = RegexTree::Kind::kChar};
    if (Take(".")) {
      atom.set = flags_.dot_all ? CharSet::All() : kLineEnds.Complement();
    } else if (Take("[")) {
      DSV4_RETURN_IF_ERROR(Class(&atom.set));
    } else if (Take("\\")) {
      DSV4_RETURN_IF_ERROR(Escape(false, &atom.set));
    } else {
      DSV4_RETURN_IF_ERROR(Literal(&atom.set));
    }
    return atom;
  }

  // Takes a comment or flags for the rest of the group, and returns whether there was one.
  absl::StatusOr<bool> CommentOrFlags() {
    if (At("(?#")) {
      const size_t end = rest_.find(')');
      if (end == absl::string_view::npos) return Bad("missing \")\"");
      rest_.remove_prefix(end + 1);
      return true;
    }
    if (!AtFlags()) return false;
    const absl::string_view all = rest_;
    Flags flags = flags_;
    DSV4_RETURN_IF_ERROR(ReadFlags(&flags));
    if (Take(":")) {  // a group of its own
      rest_ = all;
      return false;
    }
    if (!Take(")")) return Bad("expected \")\" or \":\" after the flags");
    flags_ = flags;
    return true;
  }

  bool AtFlags() const {
    return At("(?") && rest_.size() > 2 &&
           (absl::ascii_islower(static_cast<unsigned char>(rest_[2])) || rest_[2] == '-');
  }

  // "(?i-s", for example.
  absl::Status ReadFlags(Flags* flags) {
    Take("(?");
    for (bool on = true; !At(")") && !At(":"); rest_.remove_prefix(1)) {
      const char flag = rest_.empty() ? '\0' : rest_[0];
      if (flag == '-' && on) {
        on = false;
      } else if (flag == 'i') {
        flags->ignore_case = on;
      } else if (flag == 's') {
        flags->dot_all = on;
      } else if (flag == 'm') {
        flags->multiline = on;
      } else if (flag == 'x' || flag == 'a') {
        return Refused(absl::StrCat("the flag ", std::string(1, flag), " is"));
      } else if (flag != 'u') {  // which is how patterns are read anyway
        return Bad("expected one of the flags i, m, s and u");
      }
    }
    return absl::OkStatus();
  }

  absl::Status GroupName() {
    const size_t end = rest_.find('>');
    const auto is_of_name = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
             static_cast<uint8_t>(c) >= 0x80;
    };
    if (end == absl::string_view::npos || end == 0 ||
        !std::all_of(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(end), is_of_name)) {
      return Bad("expected a group name of letters, digits, \"_\" and \"$\", and \">\"");
    }
    rest_.remove_prefix(end + 1);
    return absl::OkStatus();
  }

  absl::StatusOr<RegexTree> Group() {
    if (++depth_ > kMaxGroupDepth)
      return Refused(absl::StrCat("groups nested deeper than ", kMaxGroupDepth, " are"));
    const Flags outside = flags_;
    RegexTree look;
    const auto looks = [&](absl::string_view sign, RegexTree::Kind kind, bool negated) {
      if (!Take(sign)) return false;
      look.kind = kind;
      look.negated = negated;
      return true;
    };
    const bool is_look = looks("(?=", RegexTree::Kind::kLookAhead, false) ||
                         looks("(?!", RegexTree::Kind::kLookAhead, true) ||
                         looks("(?<=", RegexTree::Kind::kLookBehind, false) ||
                         looks("(?<!", RegexTree::Kind::kLookBehind, true);
    if (is_look) {
      // Nothing to name.
    } else if (Take("(?<") || Take("(?P<")) {
      DSV4_RETURN_IF_ERROR(GroupName());
    } else if (At("(?P=") || At("(?P>")) {
      return Refused("back references are");
    } else if (At("(?>")) {
      return Refused("atomic groups are");
    } else if (AtFlags()) {
      DSV4_RETURN_IF_ERROR(ReadFlags(&flags_));
      Take(":");
    } else if (!Take("(?:")) {
      Take("(");
      if (At("?")) return Bad("expected \"(\", \"(?:\" or \"(?<name>\"");
    }
    DSV4_ASSIGN_OR_RETURN(RegexTree tree, Choice());
    flags_ = outside;
    --depth_;
    if (!Take(")")) return Bad("missing \")\"");
    if (!is_look) return tree;
    look.parts.push_back(std::move(tree));
    return look;
  }

  // Adds the other cases of its letters, where the flag i says so.
  absl::Status FoldCase(CharSet* set) const {
    if (!flags_.ignore_case) return absl::OkStatus();
    std::vector<std::pair<uint32_t, uint32_t>> ranges = set->ranges();
    for (const auto& [low, high] : set->ranges()) {
      if (high >= 0x80) return Refused("the flag i with characters outside ASCII is");
      for (uint32_t c = low; c <= high; ++c) {
        const auto byte = static_cast<unsigned char>(c);
        if (absl::ascii_isalpha(byte)) ranges.push_back({c ^ 32, c ^ 32});
      }
    }
    *set = CharSet(std::move(ranges));
    return absl::OkStatus();
  }

  // A character that stands for itself.
  absl::Status Literal(CharSet* set) {
    *set = One(TakeCodePoint(&rest_));
    return FoldCase(set);
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
        break;
      case 'p':
      case 'P':
        return Property(set);
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
        return FoldCase(set);
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
    return Literal(set);
  }

  // At the letter of \p{...} or \P{...}.
  absl::Status Property(CharSet* set) {
    const bool negated = rest_[0] == 'P';
    rest_.remove_prefix(1);
    const size_t end = rest_.find('}');
    if (!Take("{") || end == absl::string_view::npos) return Bad("expected {NAME} after \\p");
    const absl::StatusOr<CharSet> chars = CharsOfProperty(rest_.substr(0, end - 1));
    if (!chars.ok()) return absl::Status(chars.status().code(), Located(chars.status().message()));
    rest_.remove_prefix(end);
    *set = negated ? chars->Complement() : *chars;
    return absl::OkStatus();
  }

  absl::Status ClassItem(CharSet* set) {
    if (rest_.empty()) return Bad("missing \"]\"");
    if (!Take("\\")) {
      *set = One(TakeCodePoint(&rest_));
      return absl::OkStatus();
    }
    // The case is folded when it is known whether this ends a range.
    const bool ignore_case = std::exchange(flags_.ignore_case, false);
    const absl::Status status = Escape(true, set);
    flags_.ignore_case = ignore_case;
    return status;
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
        if (is_char(low)) DSV4_RETURN_IF_ERROR(FoldCase(&low));
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
      CharSet range = {{low.ranges()[0].first, high.ranges()[0].first}};
      DSV4_RETURN_IF_ERROR(FoldCase(&range));
      ranges.insert(ranges.end(), range.ranges().begin(), range.ranges().end());
    }
    const CharSet all(std::move(ranges));
    *out = negated ? all.Complement() : all;
    return absl::OkStatus();
  }

  Flags flags_;
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<RegexTree> ReadRegex(absl::string_view pattern) { return Reader(pattern).Read(); }

}  // namespace dsv4::grammar
