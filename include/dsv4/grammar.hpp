// SPDX-License-Identifier: Apache-2.0
//
// Grammars, which constrain the output of a session. Engine opens them.
#ifndef DSV4_GRAMMAR_HPP_
#define DSV4_GRAMMAR_HPP_

#include <dsv4/grammar.h>
#include <dsv4/error.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace dsv4 {
inline namespace cpp {

// Options of a grammar of tools, with the fields of dsv4_tool_options.
struct ToolOptions {
  dsv4_tool_choice choice = DSV4_TOOL_CHOICE_AUTO;
  std::string name = {};  // the only tool that may be called; empty: any
  bool lenient = false;   // constraints of schemas that are not supported are left out
  bool quick = false;     // UNSUPPORTED if compiling takes more than about 20 ms
};

namespace detail {

// `options` must outlive the result.
inline dsv4_tool_options ToolOptionsView(const ToolOptions& options) {
  dsv4_tool_options view = DSV4_TOOL_OPTIONS_INIT;
  view.choice = options.choice;
  view.name = options.name.empty() ? nullptr : options.name.c_str();
  view.lenient = options.lenient ? 1 : 0;
  view.quick = options.quick ? 1 : 0;
  return view;
}

}  // namespace detail

// A reference-counted grammar: copies share it. An empty one allows everything.
class Grammar {
 public:
  Grammar() = default;
  // Takes ownership of a C handle.
  explicit Grammar(dsv4_grammar* grammar) : handle_(grammar, dsv4_grammar_close) {}

  // The C handle. Null for an empty grammar.
  const dsv4_grammar* get() const noexcept { return handle_.get(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

  // What the grammar does not enforce of its schemas, as dsv4_grammar_get_unenforced returns it.
  std::string unenforced_json() const {
    if (handle_ == nullptr) return "[]";
    return detail::ReadAll<std::string>(
        256, [&](char* json, std::size_t capacity, std::size_t* needed) {
          detail::Call(dsv4_grammar_get_unenforced, handle_.get(), json, capacity, needed);
        });
  }

 private:
  std::shared_ptr<const dsv4_grammar> handle_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_GRAMMAR_HPP_
