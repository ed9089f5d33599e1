// SPDX-License-Identifier: Apache-2.0
// The tokens of a vocabulary as a trie of their bytes. A walk visits each common prefix once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace dsv4::grammar {

// Immutable.
class TokenTrie {
 public:
  // `bytes` [vocab] by id; tokens with empty bytes are left out.
  explicit TokenTrie(const std::vector<std::string>& bytes);

  // The nodes in depth-first order. The root has depth 0 and no node.
  struct Node {
    uint32_t end = 0;     // the first node after this one's descendants
    uint32_t tokens = 0;  // index of its first token; those of the next node follow
    uint16_t depth = 0;   // from 1
    uint8_t byte = 0;
  };
  absl::Span<const Node> nodes() const { return absl::MakeConstSpan(nodes_).first(size_); }
  // The tokens that end at a node.
  absl::Span<const int32_t> Tokens(uint32_t node) const {
    return absl::MakeConstSpan(tokens_).subspan(nodes_[node].tokens,
                                                nodes_[node + 1].tokens - nodes_[node].tokens);
  }
  int32_t vocab_size() const { return vocab_size_; }
  uint32_t longest() const { return longest_; }

 private:
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<int32_t> tokens_;
  size_t size_ = 0;
  int32_t vocab_size_ = 0;
  uint32_t longest_ = 0;
};

}  // namespace dsv4::grammar
