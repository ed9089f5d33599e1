// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/mask_builder.h"

#include <utility>

namespace dsv4::grammar {
namespace {

constexpr size_t kFewTokens = 256;

void Set(int32_t token, MaskBits* bits) {
  (*bits)[static_cast<size_t>(token) / 32] |= uint32_t{1} << (token % 32);
}

}  // namespace

template <class Visit>
void MaskBuilder::Walk(Expr state, uint32_t begin, uint32_t end, uint32_t depth, Visit&& visit) {
  const absl::Span<const TokenTrie::Node> nodes = trie_->nodes();
  path_.resize(trie_->longest() + 1);
  path_[depth] = state;
  for (uint32_t i = begin, visits = 0; i < end;) {
    // A visit takes about as long as an eighth of a derivative.
    if (++visits % 8 == 0 && !pool_->Spend()) return;
    const TokenTrie::Node& node = nodes[i];
    const Expr next = pool_->Next(path_[node.depth - 1], node.byte);
    if (next == kFail) {
      i = node.end;
      continue;
    }
    path_[node.depth] = next;
    visit(i, next);
    ++i;
  }
}

const MaskBuilder::Head& MaskBuilder::HeadOf(Expr first) {
  const auto known = heads_.find(first);
  if (known != heads_.end()) return known->second;
  Head head;
  head.bits.resize((static_cast<size_t>(trie_->vocab_size()) + 31) / 32);
  size_t count = 0;
  const uint32_t all = static_cast<uint32_t>(trie_->nodes().size());
  Walk(first, 0, all, 0, [&](uint32_t node, Expr state) {
    for (const int32_t token : trie_->Tokens(node)) {
      Set(token, &head.bits);
      if (++count <= kFewTokens) head.tokens.push_back(token);
    }
    if (pool_->Accepts(state) && trie_->nodes()[node].end > node + 1) head.exits.push_back(node);
  });
  if (pool_->exhausted()) {
    cut_short_ = {};
    return cut_short_;
  }
  // An exit may be one of few tokens, so the list alone is no measure.
  if (count <= kFewTokens) {
    head.bits = {};
  } else {
    head.tokens = {};
  }
  if (head_bytes_ > kMaxMaskBytes) {
    heads_.clear();
    head_bytes_ = 0;
  }
  head_bytes_ += head.bytes();
  return heads_[first] = std::move(head);
}

void MaskBuilder::AddTo(Expr state, MaskBits* bits) {
  if (pool_->exhausted()) return;
  const absl::Span<const Expr> alternatives = pool_->Alternatives(state);
  if (!alternatives.empty()) {
    // A copy, because the pool may move the elements of the span.
    const std::vector<Expr> parts(alternatives.begin(), alternatives.end());
    for (const Expr part : parts) {
      // One that matches nothing may begin like one that does.
      if (pool_->Matches(part)) AddTo(part, bits);
    }
    return;
  }
  const auto add = [&](uint32_t node, Expr) {
    for (const int32_t token : trie_->Tokens(node)) Set(token, bits);
  };
  Expr first, second;
  if (!pool_->Split(state, &first, &second) || second == kEmpty) {
    Walk(state, 0, static_cast<uint32_t>(trie_->nodes().size()), 0, add);
    return;
  }
  const Head& head = HeadOf(pool_->Shortened(first, trie_->longest()));
  for (size_t i = 0; i < head.bits.size(); ++i) (*bits)[i] |= head.bits[i];
  for (const int32_t token : head.tokens) Set(token, bits);
  for (const uint32_t exit : head.exits) {
    const TokenTrie::Node& node = trie_->nodes()[exit];
    Walk(second, exit + 1, node.end, node.depth, add);
  }
}

std::shared_ptr<const MaskBits> MaskBuilder::MaskOf(Expr state) {
  const auto known = masks_.find(state);
  if (known != masks_.end()) return known->second;
  auto bits = std::make_shared<MaskBits>((static_cast<size_t>(trie_->vocab_size()) + 31) / 32);
  AddTo(state, bits.get());
  if (pool_->exhausted()) return nullptr;
  if (left_out_ >= 0) {
    (*bits)[static_cast<size_t>(left_out_) / 32] &= ~(uint32_t{1} << (left_out_ % 32));
  }
  if (mask_bytes_ > kMaxMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  mask_bytes_ += static_cast<int64_t>(bits->size() * 4 + 64);
  masks_.emplace(state, bits);
  return bits;
}

void MaskBuilder::Clear() {
  masks_ = {};
  heads_ = {};
  path_ = {};
  mask_bytes_ = head_bytes_ = 0;
}

}  // namespace dsv4::grammar
