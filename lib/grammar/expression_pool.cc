// SPDX-License-Identifier: Apache-2.0
// Building, measuring and storing of expressions; expression_steps.cc walks them.
#include "lib/grammar/expression_pool.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4::grammar {
namespace {

// Deepest nesting of expressions that begin each other; keeps recursion within the stack.
constexpr int kMaxStaticDepth = 300;
constexpr size_t kMaxAlternatives = 1 << 16;
constexpr size_t kSmallestTable = 1024;

}  // namespace

// Lengths that are too large to count are not infinite.
uint32_t ExpressionPool::Plus(uint32_t a, uint32_t b) {
  if (a == kInfinite || b == kInfinite) return kInfinite;
  uint32_t sum;
  return __builtin_add_overflow(a, b, &sum) ? kInfinite - 1 : std::min(sum, kInfinite - 1);
}

uint32_t ExpressionPool::Times(uint32_t count, uint32_t length) {
  if (length == kInfinite) return kInfinite;
  uint32_t product;
  return __builtin_mul_overflow(count, length, &product) ? kInfinite - 1
                                                         : std::min(product, kInfinite - 1);
}

ExpressionPool::ExpressionPool() {
  table_.resize(kSmallestTable);
  nodes_.push_back({.kind = Kind::kFail, .length = kInfinite});
  nodes_.push_back({.kind = Kind::kEmpty, .nullable = true});
  nodes_.push_back({.kind = Kind::kNot, .nullable = true, .life = Life::kAlive, .a = kFail});
}

int64_t ExpressionPool::bytes() const {
  return static_cast<int64_t>(nodes_.size() * sizeof(Node) + lists_.size() * sizeof(Expr) +
                              sets_.size() * 4 * sizeof(ByteSet) +
                              table_.size() * sizeof(uint32_t) + rows_.size() * sizeof(Expr)) +
         seen_bytes_;
}

uint64_t ExpressionPool::HashOf(const Node& node) const {
  if (node.kind == Kind::kAnyOf || node.kind == Kind::kAllOf) {
    return absl::HashOf(static_cast<int>(node.kind), Children(node));
  }
  return absl::HashOf(static_cast<int>(node.kind), node.a, node.b, node.c);
}

bool ExpressionPool::Same(const Node& a, const Node& b) const {
  if (a.kind != b.kind) return false;
  if (a.kind == Kind::kAnyOf || a.kind == Kind::kAllOf) return Children(a) == Children(b);
  return a.a == b.a && a.b == b.b && a.c == b.c;
}

void ExpressionPool::Rehash(size_t size) {
  table_.assign(size, kFail);
  for (Expr e = kAnything + 1; e < nodes_.size(); ++e) {
    size_t slot = HashOf(nodes_[e]) & (size - 1);
    while (table_[slot] != kFail) slot = (slot + 1) & (size - 1);
    table_[slot] = e;
  }
}

bool ExpressionPool::Spend(int64_t work) {
  work_left_ -= work;
  if (work_left_ < 0) out_of_work_ = true;
  return !exhausted();
}

Expr ExpressionPool::Intern(Node node) {
  if (!Spend()) return kFail;
  size_t slot = HashOf(node) & (table_.size() - 1);
  while (table_[slot] != kFail) {
    if (Same(nodes_[table_[slot]], node)) return table_[slot];
    slot = (slot + 1) & (table_.size() - 1);
  }
  Describe(&node);
  if (compiled_ && node.length == kInfinite) return kFail;
  if (bytes() > kMaxPoolBytes) {
    exhausted_ = true;
    return kFail;
  }
  const Expr e = static_cast<Expr>(nodes_.size());
  nodes_.push_back(node);
  table_[slot] = e;
  if (nodes_.size() * 2 > table_.size()) Rehash(table_.size() * 2);
  return e;
}

Expr ExpressionPool::InternList(Kind kind, std::vector<Expr> parts) {
  const uint32_t begin = static_cast<uint32_t>(lists_.size());
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  const size_t nodes = nodes_.size();
  const Expr e = Intern({.kind = kind, .a = begin, .b = static_cast<uint32_t>(parts.size())});
  if (nodes_.size() == nodes) lists_.resize(begin);
  return e;
}

void ExpressionPool::Describe(Node* node) const {
  const auto child = [&](Expr e) -> const Node& { return nodes_[e]; };
  switch (node->kind) {
    case Kind::kFail:
      node->length = kInfinite;
      break;
    case Kind::kEmpty:
      node->nullable = true;
      break;
    case Kind::kBytes:
      node->length = 1;
      break;
    case Kind::kConcat:
      node->nullable = child(node->a).nullable && child(node->b).nullable;
      node->boolean = child(node->a).boolean || child(node->b).boolean;
      node->length = Plus(child(node->a).length, child(node->b).length);
      break;
    case Kind::kAnyOf:
      node->nullable = node->boolean = false;
      node->length = kInfinite;
      for (const Expr e : Children(*node)) {
        node->nullable |= child(e).nullable;
        node->boolean |= child(e).boolean;
        node->length = std::min(node->length, child(e).length);
      }
      break;
    case Kind::kAllOf:
      node->nullable = node->boolean = true;
      node->length = 0;
      for (const Expr e : Children(*node)) {
        node->nullable &= child(e).nullable;
        node->length = std::max(node->length, child(e).length);
      }
      break;
    case Kind::kNot:
      node->nullable = !child(node->a).nullable;
      node->boolean = true;
      node->length = node->nullable ? 0 : 1;
      break;
    case Kind::kRepeat:
      node->nullable = node->b == 0 || child(node->a).nullable;
      node->boolean = node->b > 0 && child(node->a).boolean;
      node->length = node->nullable ? 0 : Times(node->b, child(node->a).length);
      break;
    case Kind::kRule: {
      const Node& body = child(rules_[node->a].body);
      node->nullable = compiled_ && body.nullable;
      node->length = compiled_ ? body.length : 0;
      break;
    }
    case Kind::kMembers:
      node->length = MembersLength(node->a, seen_[node->b], node->c);
      break;
  }
}

Expr ExpressionPool::Bytes(const ByteSet& set) {
  if (set.none()) return kFail;
  if (exhausted()) return kFail;
  auto known = set_index_.find(set);
  if (known == set_index_.end()) {
    sets_.push_back(set);
    known = set_index_.emplace(set, static_cast<uint32_t>(sets_.size() - 1)).first;
  }
  return Intern({.kind = Kind::kBytes, .a = known->second});
}

Expr ExpressionPool::Literal(absl::string_view text) {
  Expr e = kEmpty;
  for (size_t i = text.size(); i-- > 0;) {
    ByteSet one;
    one.set(static_cast<uint8_t>(text[i]));
    e = Concat(Bytes(one), e);
  }
  return e;
}

Expr ExpressionPool::Concat(Expr first, Expr second) {
  if (first == kFail || second == kFail) return kFail;
  if (first == kEmpty) return second;
  if (second == kEmpty) return first;
  return Intern({.kind = Kind::kConcat, .a = first, .b = second});
}

Expr ExpressionPool::Concat(absl::Span<const Expr> parts) {
  Expr e = kEmpty;
  for (auto part = parts.end(); part != parts.begin();) e = Concat(*--part, e);
  return e;
}

Expr ExpressionPool::AnyOf(std::vector<Expr> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Node node = nodes_[parts[i]];
    if (node.kind != Kind::kAnyOf) continue;
    const absl::Span<const Expr> children = Children(node);
    parts[i] = kFail;
    parts.insert(parts.end(), children.begin(), children.end());
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (!parts.empty() && parts.front() == kFail) parts.erase(parts.begin());
  if (std::binary_search(parts.begin(), parts.end(), kAnything)) return kAnything;
  if (parts.empty()) return kFail;
  if (parts.size() == 1) return parts.front();
  if (parts.size() > kMaxAlternatives) {
    exhausted_ = true;
    return kFail;
  }
  return InternList(Kind::kAnyOf, std::move(parts));
}

Expr ExpressionPool::AllOf(std::vector<Expr> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Node node = nodes_[parts[i]];
    if (node.kind != Kind::kAllOf) continue;
    const absl::Span<const Expr> children = Children(node);
    parts[i] = kAnything;
    parts.insert(parts.end(), children.begin(), children.end());
  }
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (!parts.empty() && parts.front() == kFail) return kFail;
  const auto anything = std::lower_bound(parts.begin(), parts.end(), kAnything);
  if (anything != parts.end() && *anything == kAnything) parts.erase(anything);
  if (parts.empty()) return kAnything;
  if (parts.size() == 1) return parts.front();
  if (parts.front() == kEmpty) {
    const bool all =
        std::all_of(parts.begin(), parts.end(), [&](Expr e) { return nodes_[e].nullable; });
    if (compiled_) return all ? kEmpty : kFail;
  }
  for (const Expr e : parts) {
    if (nodes_[e].kind == Kind::kNot &&
        std::binary_search(parts.begin(), parts.end(), nodes_[e].a)) {
      return kFail;
    }
  }
  return InternList(Kind::kAllOf, std::move(parts));
}

Expr ExpressionPool::Not(Expr part) {
  if (part == kFail) return kAnything;
  if (nodes_[part].kind == Kind::kNot) return nodes_[part].a;
  return Intern({.kind = Kind::kNot, .a = part});
}

Expr ExpressionPool::Repeat(Expr part, uint32_t min, uint32_t max) {
  if (part == kEmpty || max == 0) return kEmpty;
  if (part == kFail) return min == 0 ? kEmpty : kFail;
  if (nodes_[part].nullable) min = 0;
  if (min == 1 && max == 1) return part;
  return Intern({.kind = Kind::kRepeat, .a = part, .b = min, .c = max});
}

Expr ExpressionPool::DeclareRule(std::string name) {
  if (exhausted()) return kFail;
  rules_.push_back({.name = std::move(name)});
  return Intern({.kind = Kind::kRule, .a = static_cast<uint32_t>(rules_.size() - 1)});
}

void ExpressionPool::DefineRule(Expr rule, Expr body) {
  if (rule == kFail) return;  // exhausted
  rules_[nodes_[rule].a].body = body;
  rules_[nodes_[rule].a].defined = true;
}

Expr ExpressionPool::Object(ObjectSpec spec) {
  if (exhausted()) return kFail;
  const size_t named = spec.named.size();
  objects_.push_back(std::move(spec));
  return Members(static_cast<uint32_t>(objects_.size() - 1),
                 {.named = std::vector<uint64_t>((named + 63) / 64)}, kFirst);
}

Expr ExpressionPool::Members(uint32_t object, const Seen& seen, Phase phase) {
  const size_t members = objects_[object].named.size();
  if (!Spend(1 + static_cast<int64_t>(members) / 8)) return kFail;
  std::string key(reinterpret_cast<const char*>(seen.named.data()),
                  seen.named.size() * sizeof(uint64_t));
  key.append(reinterpret_cast<const char*>(&seen.count), sizeof seen.count);
  auto known = seen_index_.find(key);
  if (known == seen_index_.end()) {
    seen_.push_back(seen);
    known = seen_index_.emplace(std::move(key), seen_.size() - 1).first;
    seen_bytes_ += BytesOf(seen);
  }
  return Intern(
      {.kind = Kind::kMembers, .a = object, .b = static_cast<uint32_t>(known->second), .c = phase});
}

bool ExpressionPool::Complete(uint32_t object, const Seen& seen) const {
  const ObjectSpec& spec = objects_[object];
  if (seen.count < spec.min_members) return false;
  for (size_t i = 0; i < spec.named.size(); ++i) {
    if (spec.named[i].required && (seen.named[i / 64] >> (i % 64) & 1) == 0) return false;
  }
  return true;
}

// The members that must still come, and as many others as the fewest members ask for.
uint32_t ExpressionPool::MembersLength(uint32_t object, const Seen& seen, uint32_t phase) const {
  const ObjectSpec& spec = objects_[object];
  const uint32_t before = seen.count;
  uint32_t length = nodes_[spec.close].length, members = before, possible = 0;
  bool more = false;
  for (const Expr other : spec.others) more |= nodes_[other].length != kInfinite;
  for (size_t i = 0; i < spec.named.size(); ++i) {
    if ((seen.named[i / 64] >> (i % 64) & 1) != 0) continue;
    const uint32_t text = nodes_[spec.named[i].text].length;
    if (spec.named[i].required) {
      length = Plus(length, text);
      ++members;
    } else if (text != kInfinite) {
      ++possible;
    }
  }
  // After a separator one member must come.
  const bool one_more = members > before || possible > 0 || more;
  if (phase == kAfterSeparator && (!one_more || before >= spec.max_members)) return kInfinite;
  if (members > spec.max_members) return kInfinite;
  if (members < spec.min_members && !more && possible < spec.min_members - members) {
    return kInfinite;
  }
  return length;
}

Expr ExpressionPool::ExpansionOf(Expr members) {
  if (nodes_[members].expansion != 0) return nodes_[members].expansion;
  const Node node = nodes_[members];
  const ObjectSpec& spec = objects_[node.a];
  const Seen seen = seen_[node.b];
  const bool counts = spec.min_members > 0 || spec.max_members != kUnbounded;
  std::vector<Expr> choices;
  if (node.c == kAfterMember) {
    choices.push_back(Concat(spec.separator, Members(node.a, seen, kAfterSeparator)));
  } else if (seen.count < spec.max_members) {
    Seen next = seen;
    const uint32_t enough = spec.max_members == kUnbounded ? spec.min_members : kUnbounded;
    if (counts && next.count < enough) ++next.count;
    for (size_t i = 0; i < spec.named.size() && !exhausted(); ++i) {
      if ((seen.named[i / 64] >> (i % 64) & 1) != 0) continue;
      next.named[i / 64] |= uint64_t{1} << (i % 64);
      choices.push_back(Concat(spec.named[i].text, Members(node.a, next, kAfterMember)));
      next.named[i / 64] = seen.named[i / 64];
    }
    for (const Expr other : spec.others) {
      choices.push_back(Concat(other, Members(node.a, next, kAfterMember)));
    }
  }
  if (node.c != kAfterSeparator && Complete(node.a, seen)) choices.push_back(spec.close);
  const Expr expansion = Concat(spec.gap, AnyOf(std::move(choices)));
  if (exhausted()) return kFail;  // a part of it
  nodes_[members].expansion = expansion;
  return expansion;
}

// Lengths and what can be empty, as the least solution of all rules. Each pass goes the other way:
// chains of rules are mostly in one of the two orders.
absl::Status ExpressionPool::Measure() {
  compiled_ = true;
  for (Expr e = kAnything + 1; e < nodes_.size(); ++e) {
    nodes_[e].nullable = false;
    nodes_[e].length = kInfinite;
    nodes_[e].life = Life::kUnknown;
  }
  bool forward = false;
  for (bool changed = true; changed;) {
    changed = false;
    forward = !forward;
    if (!Spend(1 + static_cast<int64_t>(nodes_.size() + lists_.size()) / 8))
      return Unsupported("the grammar is too large to be compiled");
    const Expr end = static_cast<Expr>(nodes_.size());
    for (Expr i = kAnything + 1; i < end; ++i) {
      const Expr e = forward ? i : end + kAnything - i;
      if (dead_[e] != 0) continue;
      Node node = nodes_[e];
      Describe(&node);
      if (node.nullable == nodes_[e].nullable && node.length == nodes_[e].length) continue;
      nodes_[e] = node;
      changed = true;
    }
  }
  return absl::OkStatus();
}

absl::Status ExpressionPool::VisitLeft(Expr e, std::vector<uint8_t>* colors, int depth) {
  if (depth > kMaxStaticDepth) {
    return Unsupported("the grammar is nested too deeply; at most ", kMaxStaticDepth, " levels");
  }
  const Node node = nodes_[e];
  if ((*colors)[e] == 2) return absl::OkStatus();
  if ((*colors)[e] == 1) {
    return node.kind == Kind::kRule ? InvalidArgument(rules_[node.a].name, " is left-recursive")
                                    : absl::OkStatus();
  }
  (*colors)[e] = 1;
  switch (node.kind) {
    case Kind::kConcat:
      DSV4_RETURN_IF_ERROR(VisitLeft(node.a, colors, depth + 1));
      // Chains to the right are walked in a loop.
      for (Expr rest = node.b, before = node.a; nodes_[before].nullable;) {
        const Node next = nodes_[rest];
        const bool chain = next.kind == Kind::kConcat;
        DSV4_RETURN_IF_ERROR(VisitLeft(chain ? next.a : rest, colors, depth + 1));
        if (!chain) break;
        before = next.a;
        rest = next.b;
      }
      break;
    case Kind::kAnyOf:
    case Kind::kAllOf:
      for (const Expr child : Children(node)) {
        DSV4_RETURN_IF_ERROR(VisitLeft(child, colors, depth + 1));
      }
      break;
    case Kind::kNot:
    case Kind::kRepeat:
      DSV4_RETURN_IF_ERROR(VisitLeft(node.a, colors, depth + 1));
      break;
    case Kind::kRule:
      DSV4_RETURN_IF_ERROR(VisitLeft(rules_[node.a].body, colors, depth + 1));
      break;
    case Kind::kMembers: {
      const ObjectSpec& spec = objects_[node.a];
      DSV4_RETURN_IF_ERROR(VisitLeft(spec.gap, colors, depth + 1));
      DSV4_RETURN_IF_ERROR(VisitLeft(spec.close, colors, depth + 1));
      for (const ObjectSpec::Member& member : spec.named) {
        DSV4_RETURN_IF_ERROR(VisitLeft(member.text, colors, depth + 1));
      }
      for (const Expr other : spec.others) {
        DSV4_RETURN_IF_ERROR(VisitLeft(other, colors, depth + 1));
      }
      break;
    }
    default:
      break;
  }
  (*colors)[e] = 2;
  return absl::OkStatus();
}

// Bytes that no set tells apart have the same derivatives.
void ExpressionPool::FindByteClasses() {
  std::vector<uint32_t> class_of(256, 0);
  uint32_t classes = 1;
  for (const ByteSet& set : sets_) {
    std::vector<uint32_t> split(classes, kUnbounded);
    std::vector<bool> outside(classes, false);
    for (size_t byte = 0; byte < 256; ++byte) {
      if (!set[byte]) outside[class_of[byte]] = true;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t old = class_of[byte];
      if (!set[byte] || !outside[old]) continue;
      if (split[old] == kUnbounded) split[old] = classes++;
      class_of[byte] = split[old];
    }
  }
  class_bytes_.assign(classes, 0);
  for (size_t byte = 256; byte-- > 0;) {
    byte_class_[byte] = static_cast<uint8_t>(class_of[byte]);
    class_bytes_[class_of[byte]] = static_cast<uint8_t>(byte);
  }
  constexpr absl::string_view kEnds = "\"}],:0123456789";
  std::vector<bool> listed(classes, false);
  search_bytes_.clear();
  const auto list = [&](uint8_t byte) {
    if (!listed[byte_class_[byte]]) search_bytes_.push_back(byte);
    listed[byte_class_[byte]] = true;
  };
  for (const char byte : kEnds) list(static_cast<uint8_t>(byte));
  for (const uint8_t byte : class_bytes_) list(byte);
}

// Removes the expressions that the search created. They are not part of the grammar.
void ExpressionPool::Truncate(size_t nodes, size_t lists, size_t seen) {
  nodes_.resize(nodes);
  lists_.resize(lists);
  rows_.clear();
  for (Node& node : nodes_) node.row = node.expansion = 0;
  seen_.resize(seen);
  std::erase_if(seen_index_, [&](const auto& entry) { return entry.second >= seen; });
  seen_bytes_ = 0;
  for (const Seen& members : seen_) seen_bytes_ += BytesOf(members);
  while (table_.size() > kSmallestTable && table_.size() > nodes * 4)
    table_.resize(table_.size() / 2);
  Rehash(table_.size());
}

absl::Status ExpressionPool::Compile(Expr root) {
  const absl::Status too_large = Unsupported("the grammar is too large to be compiled");
  if (exhausted()) return too_large;
  for (const Rule& rule : rules_) {
    if (!rule.defined) return InvalidArgument(rule.name, " is not defined");
  }
  dead_.assign(nodes_.size(), 0);
  DSV4_RETURN_IF_ERROR(Measure());
  std::vector<uint8_t> colors(nodes_.size());
  DSV4_RETURN_IF_ERROR(VisitLeft(root, &colors, 0));
  FindByteClasses();
  const size_t nodes = nodes_.size(), lists = lists_.size(), seen = seen_.size();
  for (bool changed = true; changed;) {
    changed = false;
    for (Expr e = kAnything + 1; e < nodes; ++e) {
      if (nodes_[e].kind != Kind::kAllOf || nodes_[e].length == kInfinite) continue;
      bool decided = true;
      const bool alive = Search(e, &decided);
      if (exhausted()) return too_large;
      if (!decided) {
        return Unsupported("the search for a text that matches an intersection takes too long");
      }
      if (alive) continue;
      dead_[e] = 1;
      nodes_[e].length = kInfinite;
      changed = true;
    }
    Truncate(nodes, lists, seen);
    if (changed) DSV4_RETURN_IF_ERROR(Measure());
  }
  for (Node& node : nodes_) node.life = Life::kUnknown;
  nodes_[kAnything].life = Life::kAlive;
  const bool alive = Alive(root);
  if (exhausted()) return too_large;
  Truncate(nodes, lists, seen);
  return alive ? absl::OkStatus() : InvalidArgument("no text matches");
}

}  // namespace dsv4::grammar
