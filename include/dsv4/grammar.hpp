// SPDX-License-Identifier: Apache-2.0
//
// Grammars: what an output must match. Engine opens them.
#ifndef DSV4_GRAMMAR_HPP_
#define DSV4_GRAMMAR_HPP_

#include <dsv4/grammar.h>
#include <dsv4/error.hpp>

#include <memory>
#include <string>

namespace dsv4 {

// Which turns a grammar of tools allows: dsv4_tool_options.
struct ToolOptions {
  dsv4_tool_choice choice = DSV4_TOOL_CHOICE_AUTO;
  std::string name = {};  // the only tool that may be called; empty: any
  bool lenient = false;   // parameters are not held to the schemas
};

// A grammar that copies share. One that is empty allows everything.
class Grammar {
 public:
  Grammar() = default;
  // Takes a handle that C opened.
  explicit Grammar(dsv4_grammar* grammar) : handle_(grammar, dsv4_grammar_close) {}

  // The C handle; null where it is empty.
  const dsv4_grammar* get() const noexcept { return handle_.get(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  std::shared_ptr<const dsv4_grammar> handle_;
};

}  // namespace dsv4

#endif  // DSV4_GRAMMAR_HPP_
