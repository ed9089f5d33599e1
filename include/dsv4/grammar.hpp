// SPDX-License-Identifier: Apache-2.0
//
// Grammars, which constrain the output of a session. Engine opens them.
#ifndef DSV4_GRAMMAR_HPP_
#define DSV4_GRAMMAR_HPP_

#include <dsv4/grammar.h>
#include <dsv4/error.hpp>

#include <memory>
#include <string>

namespace dsv4 {
inline namespace cpp {

// Options of a grammar of tools, with the fields of dsv4_tool_options.
struct ToolOptions {
  dsv4_tool_choice choice = DSV4_TOOL_CHOICE_AUTO;
  std::string name = {};  // the only tool that may be called; empty: any
  bool lenient = false;   // arguments need not match the schemas
};

// A reference-counted grammar: copies share it. An empty one allows everything.
class Grammar {
 public:
  Grammar() = default;
  // Takes ownership of a C handle.
  explicit Grammar(dsv4_grammar* grammar) : handle_(grammar, dsv4_grammar_close) {}

  // The C handle. Null for an empty grammar.
  const dsv4_grammar* get() const noexcept { return handle_.get(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  std::shared_ptr<const dsv4_grammar> handle_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_GRAMMAR_HPP_
