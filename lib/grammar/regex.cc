// SPDX-License-Identifier: Apache-2.0
// A sequence with assertions is built from its end. Where its end is that of the pattern, what
// follows an assertion is known as one language, the rest of the whole text, so that a look-ahead
// is an intersection with it. What stands before an assertion is known as far as the last one.
#include "lib/grammar/regex.h"

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/grammar/regex_syntax.h"

namespace dsv4::grammar {
namespace {

using Kind = RegexTree::Kind;
using Parts = absl::Span<const RegexTree* const>;

// Where a part of the pattern lies: at an edge of the text (kAnchored), where any text may stand
// between it and that edge (kOpen), or next to another part (kNone).
enum class Edge { kNone, kAnchored, kOpen };

class Builder {
 public:
  Builder(ExpressionPool* pool, Encoding encoding)
      : pool_(pool),
        encoding_(encoding),
        any_text_(pool->Repeat(CharOf(pool, CharSet::All(), encoding), 0, kUnbounded)) {}

  absl::StatusOr<Expr> Build(const RegexTree& tree, Edge start, Edge end) {
    if ((start == Edge::kOpen || end == Edge::kOpen) && !tree.HasAssertion()) {
      DSV4_ASSIGN_OR_RETURN(const Expr e, Build(tree, Edge::kNone, Edge::kNone));
      return Between(start, e, end);
    }
    switch (tree.kind) {
      case Kind::kChoice: {
        std::vector<Expr> parts;
        for (const RegexTree& part : tree.parts) {
          DSV4_ASSIGN_OR_RETURN(const Expr e, Build(part, start, end));
          parts.push_back(e);
        }
        return pool_->AnyOf(std::move(parts));
      }
      case Kind::kSequence: {
        std::vector<const RegexTree*> parts;
        for (const RegexTree& part : tree.parts) parts.push_back(&part);
        return Sequence(parts, start, end);
      }
      case Kind::kRepeat: {
        if (tree.HasAssertion()) return Unsupported("repeated assertions are not supported");
        DSV4_ASSIGN_OR_RETURN(const Expr part, Build(tree.parts[0], Edge::kNone, Edge::kNone));
        return pool_->Repeat(part, tree.min, tree.max);
      }
      case Kind::kChar:
        return CharOf(pool_, tree.set, encoding_);
      default: {
        const RegexTree* part = &tree;
        return Sequence({&part, 1}, start, end);
      }
    }
  }

 private:
  // `e` and the text that may stand around it.
  Expr Between(Edge start, Expr e, Edge end) {
    return pool_->Concat(
        {start == Edge::kOpen ? any_text_ : kEmpty, e, end == Edge::kOpen ? any_text_ : kEmpty});
  }

  absl::StatusOr<Expr> Sequence(Parts parts, Edge start, Edge end) {
    std::vector<const RegexTree*> rest(parts.begin(), parts.end());
    // Anchors at the ends, also beside other assertions there.
    for (size_t i = 0; start != Edge::kNone && i < rest.size() && rest[i]->IsAssertion();) {
      if (rest[i]->kind == Kind::kStart) {
        start = Edge::kAnchored;
        rest.erase(rest.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    for (size_t i = rest.size(); end != Edge::kNone && i > 0 && rest[i - 1]->IsAssertion(); --i) {
      if (rest[i - 1]->kind != Kind::kEnd) continue;
      end = Edge::kAnchored;
      rest.erase(rest.begin() + static_cast<ptrdiff_t>(i - 1));
    }
    // From the end: the parts after the assertions at one place, then what stands before them.
    size_t begin = rest.size();
    while (begin > 0 && !rest[begin - 1]->IsAssertion()) --begin;
    DSV4_ASSIGN_OR_RETURN(Expr after, Plain(absl::MakeConstSpan(rest).subspan(begin),
                                            begin == 0 ? start : Edge::kNone, end));
    while (begin > 0) {
      const size_t assertions_end = begin;
      while (begin > 0 && rest[begin - 1]->IsAssertion()) --begin;
      const Parts assertions = absl::MakeConstSpan(rest).subspan(begin, assertions_end - begin);
      const size_t before_end = begin;
      while (begin > 0 && !rest[begin - 1]->IsAssertion()) --begin;
      const Parts before = absl::MakeConstSpan(rest).subspan(begin, before_end - begin);
      const Edge before_start = begin == 0 ? start : Edge::kNone;
      DSV4_ASSIGN_OR_RETURN(const Expr text, Plain(before, before_start, Edge::kNone));
      const bool whole = before_start != Edge::kNone;  // all that stands before
      const bool at_start = before.empty() && before_start == Edge::kAnchored;
      DSV4_ASSIGN_OR_RETURN(after,
                            Joined(text, whole, at_start, assertions, after, end != Edge::kNone));
    }
    return after;
  }

  // `before` and `after`, where the assertions between them hold. `to_end`: `after` is all the rest
  // of the text.
  absl::StatusOr<Expr> Joined(Expr before, bool whole, bool at_start, Parts assertions, Expr after,
                              bool to_end) {
    for (const RegexTree* assertion : assertions) {
      const auto add = [&](Expr* side, Expr e) {
        *side = pool_->AllOf({*side, assertion->negated ? pool_->Not(e) : e});
      };
      if (assertion->kind == Kind::kStart || assertion->kind == Kind::kEnd) {
        return Unsupported("^ and $ inside the pattern are not supported");
      }
      if (assertion->kind == Kind::kLookAhead) {
        if (!to_end) return Unsupported("look-ahead inside a part of the pattern is not supported");
        DSV4_ASSIGN_OR_RETURN(
            const Expr e,
            Build(assertion->parts[0], at_start ? Edge::kAnchored : Edge::kNone, Edge::kOpen));
        add(&after, e);
      } else if (assertion->kind == Kind::kLookBehind) {
        if (!whole) return Unsupported("look-behind inside the pattern is not supported");
        DSV4_ASSIGN_OR_RETURN(const Expr e, Build(assertion->parts[0], Edge::kOpen, Edge::kNone));
        add(&before, e);
      }
    }
    Expr joined = pool_->Concat(before, after);
    for (const RegexTree* assertion : assertions) {
      if (assertion->kind != Kind::kBoundary) continue;
      if (!to_end || (!whole && pool_->Accepts(before)))
        return Unsupported("\\b and \\B inside a part of the pattern are not supported");
      const Expr word = CharOf(pool_, kWordChars, encoding_);
      const Expr ends = pool_->Concat(any_text_, word), begins = pool_->Concat(word, any_text_);
      const Expr in = pool_->AllOf({before, ends}), out = pool_->AllOf({before, pool_->Not(ends)});
      const Expr next = pool_->AllOf({after, begins});
      const Expr other = pool_->AllOf({after, pool_->Not(begins)});
      const bool same = assertion->negated;  // \B: inside or outside a word
      joined = pool_->AllOf({joined, pool_->AnyOf({pool_->Concat(in, same ? next : other),
                                                   pool_->Concat(out, same ? other : next)})});
    }
    return joined;
  }

  // A sequence without assertions of its own. Those of a group at an edge are of that edge.
  absl::StatusOr<Expr> Plain(Parts parts, Edge start, Edge end) {
    if (parts.empty()) {
      return start == Edge::kOpen || end == Edge::kOpen ? any_text_ : kEmpty;
    }
    std::vector<Expr> exprs;
    for (size_t i = 0; i < parts.size(); ++i) {
      DSV4_ASSIGN_OR_RETURN(const Expr e, Build(*parts[i], i == 0 ? start : Edge::kNone,
                                                i + 1 == parts.size() ? end : Edge::kNone));
      exprs.push_back(e);
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
  DSV4_ASSIGN_OR_RETURN(const RegexTree tree, ReadRegex(pattern));
  const Edge edge = anchoring == Anchoring::kSearch ? Edge::kOpen : Edge::kAnchored;
  return Builder(pool, encoding).Build(tree, edge, edge);
}

}  // namespace dsv4::grammar
