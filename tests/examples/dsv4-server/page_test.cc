// SPDX-License-Identifier: Apache-2.0
// The server's page in Chromium: a question, thinking, a tool's call and its result, a stop.
#include <fstream>

#include "tests/examples/dsv4-server/browser.h"
#include "tests/examples/dsv4-server/server_program.h"
#include "tests/support/catch.h"
#include "tests/support/main.h"

namespace dsv4::test {
namespace {

constexpr char kTools[] = R"([{"type": "function", "function": {
  "name": "multiply", "description": "Multiply two numbers",
  "parameters": {"type": "object", "required": ["a", "b"], "properties": {
    "a": {"type": "integer", "description": "First number"},
    "b": {"type": "integer", "description": "Second number"}}}}}])";
constexpr char kRunning[] = "vllm:num_requests_running{model_name=\"dsv4-tiny\"}";
constexpr char kAborted[] =
    "vllm:request_success_total{model_name=\"dsv4-tiny\",finished_reason=\"abort\"}";

class Page : public Browser {
 public:
  using Browser::Browser;

  void Set(const std::string& id, const std::string& value) {
    Evaluate("document.getElementById('" + id + "').value = " + Json(value).dump());
  }
  // Asks, as by the Enter key, and waits for the answer.
  void Ask(const std::string& question) {
    Set("question", question);
    Evaluate(
        "document.getElementById('question').dispatchEvent(new KeyboardEvent('keydown', "
        "{key: 'Enter', cancelable: true}))");
    AwaitAnswer();
  }
  void AwaitAnswer() { Await("!document.getElementById('send').disabled"); }
  // The text of the last turn's element.
  std::string Last(const std::string& selector) {
    const Json text = Evaluate(
        "(([...document.querySelectorAll('.turn')].pop() || document)"
        ".querySelector('" +
        selector + "') || {}).textContent");
    return text.is_string() ? text.get<std::string>() : "";
  }
};

TEST_CASE("The page asks, thinks, calls tools, counts, and stops") {
  const ServerProgram server({"--context", "2048", "--max-sessions", "2"});
  Page page(Browser::Find(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");

  page.Ask("Do you know the capital of Russia?");
  CHECK(page.Last(".text") == "The capital of Russia is Moscow.");
  CHECK(page.Last(".notes").find("12 tokens read, 0 of them cached; first token after ") == 0);
  CHECK(page.Last(".notes").find("11 tokens written") != std::string::npos);
  CHECK(page.Last(".reasoning") == "");

  page.Set("effort", "high");
  page.Ask("Calculate 91 + 49.");
  CHECK(page.Last(".reasoning").find("Thinking91 + 40 = 131") == 0);
  CHECK(page.Evaluate("document.querySelector('.reasoning').open") == false);
  CHECK(page.Last(".text") == "91 + 49 = 140");

  // A tool, with the result that the user types.
  page.Set("effort", "none");
  page.Set("tools", kTools);
  page.Ask("Multiply 88 by 29.");
  CHECK(page.Last(".call code") == "multiply({\"a\": 88, \"b\": 29})");
  page.Evaluate("document.querySelector('.call input').value = '{\"result\": 2552}'");
  page.Evaluate("document.querySelector('.results').click()");
  page.AwaitAnswer();
  INFO(page.Evaluate("document.getElementById('turns').innerText").dump());
  CHECK(page.Last(".text") == "The result is 2552.");
  CHECK(page.Evaluate("messages.map(message => message.role).join()") ==
        "user,assistant,user,assistant,user,assistant,tool,assistant");
  page.Evaluate("document.querySelector('.reasoning').open = true");
  const std::string picture = page.Screenshot();
  CHECK(picture.substr(1, 3) == "PNG");
  std::ofstream(DSV4_SCREENSHOT, std::ios::binary) << picture;

  // What is wrong is said, and the question may be asked again.
  page.Set("tools", "[1]");
  page.Ask("Hi");
  CHECK(page.Last(".error").find("tools: tools#/0") == 0);
  CHECK(page.Evaluate("messages.length") == 8);
  page.Set("tools", "");

  page.Evaluate("document.getElementById('clear').click()");
  CHECK(page.Evaluate("messages.length") == 0);

  // An answer that would not end is stopped once some of it is there.
  server.AwaitMetric(kRunning, 0);
  const double aborted = server.Metric(kAborted);
  page.Evaluate(R"js(
    const send = window.fetch;
    window.fetch = (path, options) => send(path, {...options,
        body: JSON.stringify({...JSON.parse(options.body), ignore_eos: true})});
    new MutationObserver(() => {
      if ([...document.querySelectorAll('.turn')].pop().querySelector('.text'))
        document.getElementById('stop').click();
    }).observe(document.getElementById('turns'), {childList: true, subtree: true});)js");
  page.Ask("Write a short story about Ralf and a ring.");
  CHECK(page.Last(".notes") == "stopped");
  CHECK(page.Last(".text") != "");
  server.AwaitMetric(kRunning, 0);
  CHECK(server.Metric(kAborted) == aborted + 1);
  CHECK(page.exceptions().empty());
}

}  // namespace

const char* CannotRun() {
  return Browser::Find().empty() ? "chromium is not installed (apt-get install chromium)" : nullptr;
}

}  // namespace dsv4::test
