// SPDX-License-Identifier: Apache-2.0
// The server's page in Chromium: a question, thinking, a tool's call and its result, a stop;
// Markdown, editing, and conversations that are kept.
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
  // Writes a screenshot beside the test.
  void Picture(const std::string& name) {
    const std::string picture = Screenshot();
    CHECK(picture.substr(1, 3) == "PNG");
    std::ofstream(DSV4_SCREENSHOT + name + ".png", std::ios::binary) << picture;
  }
  // The elements that showMarkdown makes of a text, as HTML.
  std::string HtmlOf(const std::string& markdown) {
    return Evaluate(
        "(() => { const element = document.createElement('div'); showMarkdown(element, " +
        Json(markdown).dump() + "); return element.innerHTML; })()");
  }
  // Clicks on the last of these elements.
  void Click(const std::string& selector) {
    Evaluate("[...document.querySelectorAll('" + selector + "')].pop().click()");
  }
  // What the page takes for the server's next answers.
  void AnswerAlways(const std::string& content) {
    const Json chunks[] = {{{"choices", Json::array({{{"delta", {{"content", content}}}}})}},
                           {{"choices", Json::array()},
                            {"usage",
                             {{"prompt_tokens", 9},
                              {"completion_tokens", 200},
                              {"prompt_tokens_details", {{"cached_tokens", 0}}}}}}};
    std::string events;
    for (const Json& chunk : chunks) events += "data: " + chunk.dump() + "\n\n";
    Evaluate(
        "window.asked = []; window.fetch = (path, options) => { "
        "asked.push(JSON.parse(options.body));"
        " return Promise.resolve(new Response(" +
        Json(events).dump() + ")); }");
  }
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
  page.Picture("");

  // What is wrong is said, and the question may be asked again.
  page.Set("tools", "[1]");
  page.Ask("Hi");
  CHECK(page.Last(".error") == "tools[0] must be an object");
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

TEST_CASE("The page shows Markdown, and text of the model is never HTML") {
  const ServerProgram server({"--context", "1024"});
  Page page(Browser::Find(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");
  // Examples of the CommonMark specification 0.30 and of GitHub's, without line ends between
  // blocks.
  const std::pair<const char*, const char*> kExamples[] = {
      {"# foo", "<h1>foo</h1>"},
      {"> # Foo\n> bar", "<blockquote><h1>Foo</h1><p>bar</p></blockquote>"},
      {"***strong** in emph*", "<p><em><strong>strong</strong> in emph</em></p>"},
      {"foo*bar*", "<p>foo<em>bar</em></p>"},
      {"`foo`", "<p><code>foo</code></p>"},
      {"`&ouml;<a>`", "<p><code>&amp;ouml;&lt;a&gt;</code></p>"},
      {"&copy \\*not emphasized* &lt;", "<p>&amp;copy *not emphasized* &lt;</p>"},
      {"2. foo\n3. bar", "<ol start=\"2\"><li>foo</li><li>bar</li></ol>"},
      {"- foo\n  - bar", "<ul><li>foo<ul><li>bar</li></ul></li></ul>"},
      {"~~Hi~~ Hello", "<p><del>Hi</del> Hello</p>"},
      {"* * *", "<hr>"},
      {"| a | b |\n| - | -: |\n| c<br>d | `e` |",
       "<table><thead><tr><th>a</th><th class=\"right\">b</th></tr></thead><tbody><tr>"
       "<td>c<br>d</td><td class=\"right\"><code>e</code></td></tr></tbody></table>"},
  };
  for (const auto& [markdown, html] : kExamples) {
    INFO(markdown);
    CHECK(page.HtmlOf(markdown) == html);
  }
  // A block of code that does not end yet.
  const std::string code = page.HtmlOf("```c++ x\nif (a < b) {\n  *p*");
  CHECK(code.find("<span>c++</span>") != std::string::npos);
  CHECK(code.find("<pre><code>if (a &lt; b) {\n  *p*</code></pre>") != std::string::npos);
  CHECK(page.HtmlOf("[a](https://b.example/c)") ==
        "<p><a href=\"https://b.example/c\" title=\"https://b.example/c\" target=\"_blank\" "
        "rel=\"noopener noreferrer\">a</a></p>");
  for (const char* hostile :
       {"<script>window.hurt = 1</script>", "<img src=x onerror='window.hurt = 1'>",
        "a <b onclick=x>c</b>", "[a](javascript:window.hurt=1)",
        "[a](JaVaScRiPt&colon;window.hurt=1)", "[a](data:text/html,x)", "[a](/v1/models)",
        "![a](x.png)", "<svg/onload=window.hurt=1>", "<!-- a -->", "[a]: javascript:b\n\n[a]",
        "&lt;script&gt;", "```<script>\n</code><script>"}) {
    INFO(hostile);
    const std::string made = page.Evaluate(
        "(() => { const element = document.createElement('div'); showMarkdown(element, " +
        Page::Json(hostile).dump() +
        "); return [...element.querySelectorAll('*')].map(made => made.localName + '/' + "
        "made.getAttributeNames().filter(name => name !== 'class').join()).sort().join(' '); })()");
    CHECK((made == "" || made == "p/" ||
           made == "button/type,aria-label code/ div/ div/ pre/ span/"));
  }
  CHECK(page.Evaluate("window.hurt === undefined") == true);
  // What is nested too deeply is text.
  CHECK(page.HtmlOf(std::string(20000, '>') + "a").find("&gt;&gt;") != std::string::npos);

  page.AnswerAlways(
      "## Binary search\n\nIt halves a *sorted* list until `value` is found:\n\n```python\n"
      "def find(values, value):\n    low, high = 0, len(values)\n    while low < high:\n"
      "        middle = (low + high) // 2\n        if values[middle] < value:\n"
      "            low = middle + 1\n        else:\n            high = middle\n    return "
      "low\n```\n\n"
      "| entries | steps |\n| ---: | ---: |\n| 1,000 | 10 |\n| 1,000,000 | 20 |\n\n"
      "1. **Sorted** input is needed.\n2. See [the "
      "standard](https://docs.python.org/3/library/bisect.html).\n");
  page.Ask("How does binary search work?");
  CHECK(page.Last(".text h2") == "Binary search");
  page.Evaluate(
      "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => "
      "{ window.copied = text; }}})");
  page.Click(".code .copy");
  CHECK(page.Evaluate("copied.startsWith('def find(values, value):\\n')") == true);
  page.Click(".turn .actions .copy");
  CHECK(page.Evaluate("copied.startsWith('## Binary search')") == true);
  page.PreferColors("light");
  const auto background = [&] {
    return page.Evaluate("getComputedStyle(document.body).backgroundColor");
  };
  CHECK(background() == "rgb(255, 255, 255)");
  page.Picture("-light");
  page.PreferColors("dark");
  CHECK(background() == "rgb(18, 18, 18)");
  page.Picture("-dark");
  CHECK(page.exceptions().empty());
}

TEST_CASE("Conversations are edited, asked again, and kept in the browser") {
  const ServerProgram server({"--context", "1024"});
  Page page(Browser::Find(), "http://127.0.0.1:" + std::to_string(server.port()) + "/");
  const auto contents = [&] { return page.Evaluate("messages.map(m => m.content).join('|')"); };
  page.AnswerAlways("one");
  page.Ask("First");
  page.AnswerAlways("two");
  page.Ask("Second");
  CHECK(contents() == "First|one|Second|two");
  // Statistics are not sent.
  CHECK(page.Evaluate("asked[0].messages[1]") ==
        Page::Json{{"role", "assistant"}, {"content", "one"}});

  page.AnswerAlways("three");
  page.Click(".turn .regenerate");
  page.AwaitAnswer();
  CHECK(contents() == "First|one|Second|three");
  CHECK(page.Evaluate("asked[0].messages.length") == 3);

  // The up arrow edits the last message; Escape leaves it as it was.
  const auto press = [&](const std::string& key) {
    page.Evaluate("document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '" +
                  key + "', bubbles: true, cancelable: true}))");
  };
  page.Evaluate("document.getElementById('question').focus()");
  press("ArrowUp");
  CHECK(page.Evaluate("document.activeElement.value") == "Second");
  press("Escape");
  CHECK(page.Evaluate("document.activeElement.id") == "question");
  CHECK(contents() == "First|one|Second|three");
  page.Evaluate("document.querySelector('.user .edit').click()");
  page.Evaluate("document.activeElement.value = 'Other'");
  page.AnswerAlways("four");
  press("Enter");
  page.AwaitAnswer();
  CHECK(contents() == "Other|four");
  CHECK(page.Evaluate("asked[0].messages.length") == 1);

  page.Click("#clear");
  CHECK(contents() == "");
  page.AnswerAlways("five");
  page.Ask("Another");
  page.Reload();
  const auto titles = [&] {
    return page.Evaluate(
        "[...document.querySelectorAll('#chats option')].map(o => o.text).join('|')");
  };
  CHECK(titles() == "New chat|Another|Other");
  page.Evaluate(
      "(chats => { chats.selectedIndex = 2; chats.onchange(); "
      "})(document.getElementById('chats'))");
  CHECK(contents() == "Other|four");
  CHECK(page.Last(".text") == "four");
  CHECK(page.Last(".notes").find("9 tokens read") == 0);
  page.Click("#delete");
  CHECK(titles() == "New chat|Another");

  // Where the browser has no more room, the oldest conversation goes.
  page.Evaluate(
      "localStorage.setItem('dsv4.chat.old', JSON.stringify("
      "{title: 'Old', time: 1, messages: [], more: 'x'.repeat(5000000)}))");
  page.AnswerAlways("y");
  page.Ask(std::string(400000, 'z'));
  CHECK(page.Evaluate("localStorage.getItem('dsv4.chat.old')").is_null());
  CHECK(page.Evaluate("localStorage.getItem('dsv4.chat.' + chat.id).length > 400000") == true);
  CHECK(page.exceptions().empty());
}

}  // namespace

const char* CannotRun() {
  return Browser::Find().empty() ? "chromium is not installed (apt-get install chromium)" : nullptr;
}

}  // namespace dsv4::test
