// SPDX-License-Identifier: Apache-2.0
// Matches byte strings by derivatives of expressions (Brzozowski). An expression is a language of
// byte strings. Its derivative by a byte is the expression for the rest of the string, so the state
// of a match is one expression, a number. Equal expressions are stored once; derivatives are
// cached. Union, intersection and complement are exact; recursion is allowed.
//
// Memory and time are bounded by kMaxPoolBytes and kMaxWork. No function needs more than 64 KiB of
// the stack.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/hash_table.h"

namespace dsv4::grammar {

using ByteSet = std::bitset<256>;

// A language: an index into its pool.
using Expr = uint32_t;
inline constexpr Expr kFail = 0;      // no string
inline constexpr Expr kEmpty = 1;     // only the empty string
inline constexpr Expr kAnything = 2;  // all strings

inline constexpr uint32_t kUnbounded = ~uint32_t{0};
// Bytes of the expressions and cached derivatives of one pool.
inline constexpr int64_t kMaxPoolBytes = int64_t{64} << 20;
// The most expressions visited to compile a grammar, and to compute a mask. About 50 ns each.
inline constexpr int64_t kMaxWork = int64_t{20} << 20;
// What threads that others wait for may spend on one: about 16 ms.
inline constexpr int64_t kQuickWork = kMaxWork / 64;

// The members of an object in any order. Each named member occurs at most once. The front end adds
// the opening brace.
//   gap (close | member gap (separator gap member gap)* close)
struct ObjectSpec {
  struct Member {
    Expr text;
    bool required;
  };
  std::vector<Member> named{};
  std::vector<Expr> others{};  // may be repeated
  Expr gap = kEmpty, separator = kEmpty, close = kEmpty;
  uint32_t min_members = 0, max_members = kUnbounded;
};

class ExpressionPool {
 public:
  ExpressionPool();

  Expr Bytes(const ByteSet& set);
  Expr Literal(absl::string_view text);
  Expr Concat(Expr first, Expr second);
  Expr Concat(absl::Span<const Expr> parts);
  Expr AnyOf(std::vector<Expr> parts);
  Expr AllOf(std::vector<Expr> parts);
  Expr Not(Expr part);
  Expr Repeat(Expr part, uint32_t min, uint32_t max);  // max may be kUnbounded
  Expr Optional(Expr part) { return Repeat(part, 0, 1); }
  // A rule may be used before it is defined. `name` is for messages.
  Expr DeclareRule(std::string name);
  void DefineRule(Expr rule, Expr body);
  Expr Object(ObjectSpec spec);

  // Ends building: finds expressions that match nothing, and checks that the grammar can be matched
  // byte by byte. Errors: InvalidArgument for left recursion and for a `root` that matches nothing;
  // Unsupported beyond kMaxWork or kMaxPoolBytes, for nesting that is too deep, and if the search
  // for a text that matches an intersection takes too long.
  absl::Status Compile(Expr root);

  // The derivative of `state` by `byte`; kFail exactly if no string of `state` begins with it.
  // REQUIRES: Compile.
  Expr Next(Expr state, uint8_t byte);
  // Whether the empty string matches.
  bool Accepts(Expr state) const { return nodes_[state].nullable; }

  // Whether any string matches.
  bool Matches(Expr state) { return Alive(state); }

  // Splits a state into `first` followed by `second`. `first` ends with the first part that cannot
  // be empty. False if the state is not such a sequence.
  bool Split(Expr state, Expr* first, Expr* second);
  // The parts of a union; empty for any other state.
  absl::Span<const Expr> Alternatives(Expr state) const;
  // An expression with the same strings of up to `bytes` bytes and the same prefixes of them. More
  // states share it.
  Expr Shortened(Expr state, uint32_t bytes);

  // True if the pool exceeds kMaxPoolBytes, or a limit of work or depth was hit. Results since then
  // are undefined. The pool can be used again only if nothing but work lacks and AllowWork gives
  // more: what it has cached stays right.
  bool exhausted() const { return exhausted_ || out_of_work_; }
  bool lacks_only_work() const { return out_of_work_ && !exhausted_; }
  // Marks the pool as exhausted after an exception.
  void Abandon() { exhausted_ = true; }
  // Sets the limit of further work. Without a call, building and Compile have kMaxWork.
  void AllowWork(int64_t work = kMaxWork) {
    work_left_ = work;
    out_of_work_ = work < 0;
  }
  int64_t work_left() const { return work_left_; }
  // Counts work of a front end. False if the pool is exhausted.
  bool Spend(int64_t work = 1);
  int64_t bytes() const;

 private:
  enum class Kind : uint8_t {
    kFail,
    kEmpty,
    kBytes,   // a: set
    kConcat,  // a, b
    kAnyOf,   // a: first child, b: children
    kAllOf,
    kNot,      // a
    kRepeat,   // a, b: min, c: max
    kRule,     // a: rule
    kMembers,  // a: object, b: seen, c: phase
  };
  enum class Life : uint8_t { kUnknown, kAlive, kDead };
  static constexpr uint32_t kInfinite = ~uint32_t{0};
  struct Node {
    Kind kind = Kind::kFail;
    bool nullable = false;
    bool boolean = false;  // holds an intersection or complement that decides whether it is empty
    Life life = Life::kUnknown;
    uint32_t a = 0, b = 0, c = 0;
    uint32_t length = 0;  // at least that of the shortest string; kInfinite: none
    uint32_t row = 0;     // of rows_, from 1
    uint32_t expansion = 0;
  };
  struct Rule {
    std::string name;
    Expr body = kFail;
    bool defined = false;
  };
  // Which members of an object there are.
  struct Seen {
    std::vector<uint64_t> named;
    uint32_t count = 0;  // counted up to what matters
  };
  enum Phase : uint32_t { kFirst, kAfterMember, kAfterSeparator };

  static uint32_t Plus(uint32_t a, uint32_t b);  // of lengths
  static uint32_t Times(uint32_t count, uint32_t length);
  Expr Intern(Node node);
  Expr InternList(Kind kind, std::vector<Expr> parts);
  uint64_t HashOf(const Node& node) const;
  bool Same(const Node& a, const Node& b) const;
  void Rehash(size_t size);
  void Describe(Node* node) const;  // nullable, boolean, length
  absl::Span<const Expr> Children(const Node& node) const {
    return absl::MakeConstSpan(lists_).subspan(node.a, node.b);
  }
  Expr Members(uint32_t object, const Seen& seen, Phase phase);
  Expr ExpansionOf(Expr members);
  uint32_t MembersLength(uint32_t object, const Seen& seen, uint32_t phase) const;
  bool Complete(uint32_t object, const Seen& seen) const;

  Expr Derive(Expr e, uint8_t byte);
  Expr DeriveConcat(Expr e, uint8_t byte);
  Expr Join(Expr first, Expr second);
  Expr ShortenedPart(Expr part, uint32_t bytes);
  bool Alive(Expr e);
  bool Search(Expr e, bool* decided);

  absl::Status Measure();
  absl::Status VisitLeft(Expr e, std::vector<uint8_t>* colors, int depth);
  void FindByteClasses();
  void Truncate(size_t nodes, size_t lists, size_t seen);
  static int64_t BytesOf(const Seen& seen) {
    return static_cast<int64_t>(sizeof(Seen) + 2 * seen.named.size() * sizeof(uint64_t) + 64);
  }

  std::vector<Node> nodes_;
  std::vector<uint8_t> dead_;  // of the first nodes: found to match nothing
  std::vector<Expr> lists_;
  std::vector<ByteSet> sets_;
  HashMap<ByteSet, uint32_t> set_index_;
  std::vector<Rule> rules_;
  std::vector<ObjectSpec> objects_;
  std::vector<Seen> seen_;
  StringMap<size_t> seen_index_;
  int64_t seen_bytes_ = 0;
  std::vector<uint32_t> table_;        // of nodes_, open addressing; kFail: free
  std::vector<Expr> rows_;             // derivatives by byte class
  std::vector<uint8_t> class_bytes_;   // one byte of each class
  std::vector<uint8_t> search_bytes_;  // the same, those first that end texts
  uint8_t byte_class_[256] = {};
  bool compiled_ = false, exhausted_ = false, out_of_work_ = false;
  int64_t work_left_ = kMaxWork;
  int depth_ = 0;
};

}  // namespace dsv4::grammar
