// SPDX-License-Identifier: Apache-2.0
// Derivatives of expressions (Brzozowski, "Derivatives of regular expressions"), and whether a
// string is left that matches one.
#include <algorithm>
#include <queue>
#include <utility>

#include "lib/base/hash_table.h"
#include "lib/grammar/expression_pool.h"

namespace dsv4::grammar {
namespace {

// The deepest recursion; each level needs about 400 bytes of the stack. Derivatives of
// intersections grow with the nesting of the text.
constexpr int kMaxDepth = 150;
// States that a search for a matching string looks at.
constexpr size_t kMaxSearched = 4000;

class Deeper {
 public:
  explicit Deeper(int* depth) : depth_(depth) { ++*depth_; }
  ~Deeper() { --*depth_; }

 private:
  int* depth_;
};

}  // namespace

// `first` is a derivative: a sequence of it becomes a chain to the right.
Expr ExpressionPool::Join(Expr first, Expr second) {
  std::vector<Expr> parts;
  while (nodes_[first].kind == Kind::kConcat) {
    parts.push_back(nodes_[first].a);
    first = nodes_[first].b;
  }
  Expr joined = Concat(first, second);
  while (!parts.empty()) {
    joined = Concat(parts.back(), joined);
    parts.pop_back();
  }
  return joined;
}

Expr ExpressionPool::DeriveConcat(Expr e, uint8_t byte) {
  std::vector<Expr> results;
  for (;;) {
    const Node node = nodes_[e];
    if (node.kind != Kind::kConcat) {
      results.push_back(Derive(e, byte));
      break;
    }
    if (const Expr first = Derive(node.a, byte); first != kFail) {
      results.push_back(Join(first, node.b));
    }
    if (!nodes_[node.a].nullable || !Spend()) break;
    e = node.b;
  }
  return AnyOf(std::move(results));
}

Expr ExpressionPool::Derive(Expr e, uint8_t byte) {
  const Deeper deeper(&depth_);
  if (depth_ > kMaxDepth) exhausted_ = true;
  if (!Spend()) return kFail;
  const Node node = nodes_[e];
  if (node.length == kInfinite) return kFail;
  switch (node.kind) {
    case Kind::kFail:
    case Kind::kEmpty:
      return kFail;
    case Kind::kBytes:
      return sets_[node.a][byte] ? kEmpty : kFail;
    case Kind::kConcat:
      return DeriveConcat(e, byte);
    case Kind::kAnyOf:
    case Kind::kAllOf: {
      const bool all = node.kind == Kind::kAllOf;
      std::vector<Expr> parts;
      parts.reserve(node.b);
      for (uint32_t i = 0; i < node.b; ++i) {
        const Expr part = Derive(lists_[node.a + i], byte);
        if (part != kFail) parts.push_back(part);
        if (part == kFail && all) return kFail;
      }
      return all ? AllOf(std::move(parts)) : AnyOf(std::move(parts));
    }
    case Kind::kNot:
      return e == kAnything ? kAnything : Not(Derive(node.a, byte));
    case Kind::kRepeat: {
      const Expr first = Derive(node.a, byte);
      if (first == kFail) return kFail;
      const uint32_t max = node.c == kUnbounded ? kUnbounded : node.c - 1;
      return Join(first, Repeat(node.a, node.b == 0 ? 0 : node.b - 1, max));
    }
    case Kind::kRule:
      return Derive(rules_[node.a].body, byte);
    case Kind::kMembers:
      return Derive(ExpansionOf(e), byte);
  }
  return kFail;
}

// What holds no intersection has a string if its length says so: Compile found the others.
bool ExpressionPool::Alive(Expr e) {
  const Deeper deeper(&depth_);
  if (depth_ > kMaxDepth) exhausted_ = true;
  if (!Spend()) return false;
  const Node node = nodes_[e];
  if (node.length == kInfinite) return false;
  if (node.nullable || !node.boolean || node.life == Life::kAlive) return true;
  if (node.life == Life::kDead) return false;
  bool alive = false;
  switch (node.kind) {
    case Kind::kConcat: {
      alive = true;
      Expr rest = e;
      for (; alive && nodes_[rest].kind == Kind::kConcat && nodes_[rest].boolean;
           rest = nodes_[rest].b) {
        alive = Alive(nodes_[rest].a);
      }
      alive = alive && (nodes_[rest].kind == Kind::kConcat || Alive(rest));
      break;
    }
    case Kind::kAnyOf:
      for (uint32_t i = 0; i < node.b && !alive; ++i) alive = Alive(lists_[node.a + i]);
      break;
    case Kind::kRepeat:
      alive = Alive(node.a);
      break;
    case Kind::kAllOf:
    case Kind::kNot: {
      bool decided;
      alive = Search(e, &decided);
      break;
    }
    default:
      alive = true;
  }
  if (exhausted()) return false;
  nodes_[e].life = alive ? Life::kAlive : Life::kDead;
  return alive;
}

// Searches the shortest strings first, by lower bounds of lengths. A state that is not decided
// counts as dead. A state counts as alive only if a way to a match was found, so a way always
// remains.
bool ExpressionPool::Search(Expr e, bool* decided) {
  *decided = true;
  if (nodes_[e].life == Life::kAlive || nodes_[e].nullable) return true;
  if (nodes_[e].life == Life::kDead) return false;
  struct Visit {
    Expr from;
    uint32_t steps;
  };
  // A state comes back to the queue until all of its bytes were tried: mostly the first few of them
  // lead to the end.
  struct Item {
    uint64_t length;  // of the whole string, at least
    uint32_t steps;
    Expr state;
    uint32_t next_byte;
    bool operator<(const Item& other) const {
      return length != other.length ? length > other.length : steps < other.steps;
    }
  };
  HashMap<Expr, Visit> visits;
  std::priority_queue<Item> queue;
  visits[e] = {kFail, 0};
  queue.push({nodes_[e].length, 0, e, 0});
  Expr found = kFail;
  // The derivative of an intersection is mostly another one, or a union of them.
  const auto consider = [&](Expr to, uint32_t steps) {
    const Kind kind = nodes_[to].kind;
    if (nodes_[to].nullable || nodes_[to].life == Life::kAlive) {
      found = to;
    } else if (kind == Kind::kAllOf || kind == Kind::kNot) {
      if (nodes_[to].life != Life::kDead) {
        queue.push({uint64_t{steps} + nodes_[to].length, steps, to, 0});
      }
    } else if (kind != Kind::kAnyOf && Alive(to)) {
      found = to;
    }
  };
  while (found == kFail && !queue.empty()) {
    Item item = queue.top();
    queue.pop();
    if (!Spend()) return false;
    if (visits.size() > kMaxSearched) {
      *decided = false;
      break;
    }
    const Expr from = item.state;
    const uint32_t steps = item.steps + 1;
    // Until something better is found: one that is no longer than this, and nearer to its end.
    for (bool better = false; !better && item.next_byte < search_bytes_.size();) {
      const Expr to = Derive(from, search_bytes_[item.next_byte++]);
      if (to == kFail || !visits.try_emplace(to, Visit{from, steps}).second) continue;
      consider(to, steps);
      const uint32_t parts = nodes_[to].kind == Kind::kAnyOf ? nodes_[to].b : 0;
      for (uint32_t child = 0; child < parts && found == kFail; ++child) {
        const Expr part = lists_[nodes_[to].a + child];
        if (visits.try_emplace(part, Visit{to, steps}).second) consider(part, steps);
      }
      better = found != kFail || (!queue.empty() && item < queue.top());
    }
    if (exhausted()) return false;
    if (item.next_byte < search_bytes_.size()) queue.push(item);
  }
  for (Expr at = found; at != kFail; at = visits[at].from) nodes_[at].life = Life::kAlive;
  if (found != kFail) return true;
  if (*decided) {
    for (const auto& [visited, visit] : visits) nodes_[visited].life = Life::kDead;
  }
  nodes_[e].life = Life::kDead;
  return false;
}

Expr ExpressionPool::Next(Expr state, uint8_t byte) {
  if (state == kFail || exhausted()) return kFail;
  constexpr Expr kNotYet = ~Expr{0};
  const size_t width = class_bytes_.size();
  if (nodes_[state].row == 0) {
    rows_.resize(rows_.size() + width, kNotYet);
    nodes_[state].row = static_cast<uint32_t>(rows_.size() / width);
  }
  const size_t slot = (nodes_[state].row - 1) * width + byte_class_[byte];
  if (rows_[slot] != kNotYet) return rows_[slot];
  Expr next = Derive(state, byte);
  if (next != kFail && !Alive(next)) next = kFail;
  if (exhausted()) return kFail;
  rows_[slot] = next;
  return next;
}

bool ExpressionPool::Split(Expr state, Expr* first, Expr* second) {
  std::vector<Expr> parts;
  while (nodes_[state].kind == Kind::kConcat) {
    parts.push_back(nodes_[state].a);
    state = nodes_[state].b;
    if (!nodes_[parts.back()].nullable) break;
  }
  if (parts.empty() || nodes_[parts.back()].nullable) return false;
  *second = state;
  *first = kEmpty;
  for (size_t i = parts.size(); i-- > 0;) *first = Concat(parts[i], *first);
  return true;
}

absl::Span<const Expr> ExpressionPool::Alternatives(Expr state) const {
  const Node& node = nodes_[state];
  return node.kind == Kind::kAnyOf ? Children(node) : absl::Span<const Expr>();
}

Expr ExpressionPool::Shortened(Expr state, uint32_t bytes) {
  std::vector<Expr> parts;  // shortened ones that begin the sequence
  while (nodes_[state].kind == Kind::kConcat) {
    const Node node = nodes_[state];
    const Expr first = ShortenedPart(node.a, bytes);
    if (first == node.a && nodes_[node.b].kind != Kind::kRepeat) break;
    parts.push_back(first);
    state = node.b;
  }
  state = ShortenedPart(state, bytes);
  for (; !parts.empty(); parts.pop_back()) state = Concat(parts.back(), state);
  return state;
}

Expr ExpressionPool::ShortenedPart(Expr part, uint32_t bytes) {
  const Node node = nodes_[part];
  if (node.kind != Kind::kRepeat || nodes_[node.a].nullable) return part;
  const uint32_t min = std::min(node.b, bytes + 1);
  const uint32_t max = node.c > bytes ? kUnbounded : node.c;
  return Repeat(node.a, min, max);
}

}  // namespace dsv4::grammar
