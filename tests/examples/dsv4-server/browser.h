// SPDX-License-Identifier: Apache-2.0
// A headless Chromium with one page, led by the DevTools protocol over a pair of pipes.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dsv4::test {

class Browser {
 public:
  using Json = nlohmann::ordered_json;

  // The program's path; "" where there is none.
  static std::string Find();

  // Opens the page. Fails the test when that does not work, as all functions here do.
  Browser(const std::string& program, const std::string& url);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  // The value of an expression, a promise's when it is kept.
  Json Evaluate(const std::string& script);
  // Waits until an expression is true; at most 20 seconds.
  void Await(const std::string& script);
  // As if the user preferred "dark" or "light".
  void PreferColors(const std::string& scheme);
  // Opens the page again.
  void Reload();
  // The page as PNG.
  std::string Screenshot();
  // Uncaught exceptions of the page's scripts.
  const std::vector<std::string>& exceptions() const { return exceptions_; }

 private:
  Json Call(const std::string& method, const Json& params);
  Json Receive();

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_, session_, folder_;
  int next_id_ = 1;
  std::vector<std::string> exceptions_;
};

}  // namespace dsv4::test
