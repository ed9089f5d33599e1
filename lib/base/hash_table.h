// SPDX-License-Identifier: Apache-2.0
// Hash tables that stay whole when memory runs out while they grow. Abseil's own do not: an
// exception of their allocator leaves them in a state that their destructor does not survive.
#pragma once

#include <cstddef>
#include <functional>
#include <memory_resource>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

// Keys come from files and from users, so the hash is one whose collisions cannot be foreseen.
template <class Key, class Value>
using HashMap = std::unordered_map<Key, Value, absl::Hash<Key>>;
template <class Key>
using HashSet = std::unordered_set<Key, absl::Hash<Key>>;
// For many keys that come and go together: in a std::pmr::monotonic_buffer_resource they are
// neither allocated nor freed one by one.
template <class Key, class Value>
using PooledHashMap = std::pmr::unordered_map<Key, Value, absl::Hash<Key>>;

// Tables of strings, in which views are looked up without a copy.
struct StringHash {
  using is_transparent = void;
  size_t operator()(absl::string_view text) const { return absl::Hash<absl::string_view>{}(text); }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;
using StringSet = std::unordered_set<std::string, StringHash, std::equal_to<>>;

}  // namespace dsv4
