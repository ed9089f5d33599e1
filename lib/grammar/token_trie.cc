// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

namespace dsv4::grammar {
namespace {

// Longer tokens are left out. No vocabulary has them.
constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& bytes)
    : vocab_size_(static_cast<int32_t>(bytes.size())) {
  std::vector<int32_t> order;
  for (size_t id = 0; id < bytes.size(); ++id) {
    if (bytes[id].empty() || bytes[id].size() > kMaxTokenBytes) continue;
    order.push_back(static_cast<int32_t>(id));
    longest_ = std::max(longest_, static_cast<uint32_t>(bytes[id].size()));
  }
  const auto text = [&](int32_t id) -> const std::string& {
    return bytes[static_cast<size_t>(id)];
  };
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return text(a) != text(b) ? text(a) < text(b) : a < b; });
  std::vector<uint32_t> path;  // nodes from the root to the last one
  const std::string* last = nullptr;
  const auto leave = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const int32_t id : order) {
    const std::string& token = text(id);
    size_t common = 0;
    if (last != nullptr) {
      common = static_cast<size_t>(
          std::mismatch(token.begin(), token.end(), last->begin(), last->end()).first -
          token.begin());
    }
    leave(common);
    for (size_t depth = common; depth < token.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.tokens = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(depth + 1),
                        .byte = static_cast<uint8_t>(token[depth])});
    }
    tokens_.push_back(id);
    last = &token;
  }
  leave(0);
  size_ = nodes_.size();
  nodes_.push_back({.tokens = static_cast<uint32_t>(tokens_.size())});
}

}  // namespace dsv4::grammar
