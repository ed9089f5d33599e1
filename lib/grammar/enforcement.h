// SPDX-License-Identifier: Apache-2.0
// What the grammar of a schema does not enforce, and whether it may leave anything out.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace dsv4::grammar {

// A constraint that a grammar does not enforce.
struct NotEnforced {
  std::string place;   // as in errors: "schema#/properties/a/format"
  std::string reason;  // on one line
};

class Enforcement {
 public:
  enum class Effort {
    kStrict,  // what cannot be enforced is an error
    kBest,    // what cannot be enforced is left out, keyword by keyword
    kSimple,  // as kBest, and complements are left out: "not", "if", and that oneOf allows only one
    kTypes,   // only the type of an answer and the names of tools are enforced
  };

  explicit Enforcement(Effort effort = Effort::kStrict) : effort_(effort) {}

  Effort effort() const { return effort_; }

  // Adds a place, unless it is there. Of many, the first ones are kept.
  void Add(std::string place, std::string reason) {
    const bool known = std::any_of(list_.begin(), list_.end(),
                                   [&](const NotEnforced& one) { return one.place == place; });
    if (known || list_.size() == kMost) return;
    list_.push_back({std::move(place), std::move(reason)});
  }
  void AddAll(const Enforcement& other) {
    for (const NotEnforced& one : other.list()) Add(one.place, one.reason);
  }
  // A complement of a language that was widened lacks values. Whether there may be one: then the
  // schema is to be compiled again, as kSimple.
  bool ComplementsWidened() const {
    return effort_ == Effort::kBest && complements_ && !list_.empty();
  }
  bool complements() const { return complements_; }
  void AddComplement() { complements_ = true; }
  const std::vector<NotEnforced>& list() const { return list_; }

 private:
  static constexpr size_t kMost = 64;
  Effort effort_;
  bool complements_ = false;
  std::vector<NotEnforced> list_;
};

}  // namespace dsv4::grammar
