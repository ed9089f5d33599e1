// SPDX-License-Identifier: Apache-2.0
// Conversations: asked, stopped, edited, saved, and closed while they are answered. The answers are
// those of models/dsv4-tiny/gates.json.
#include <QTemporaryDir>
#include <QThread>
#include <atomic>
#include <limits>
#include <thread>

#include "examples/desktop/transcript.h"
#include "tests/examples/desktop/window.h"
#include "tests/support/catch.h"

namespace desktop {
namespace {

const char kStoryQuestion[] = "Write a short story about Ralf and a ring.";
const char kStory[] =
    "Ralf had a ring. One night the ring was gone. Ralf looked in the village and asked every dog. "
    "In the morning the ring lay at the door, and Ralf smiled.";

// Holds the worker before a step until the gate is opened, so that a user can do something
// meanwhile.
struct Gate {
  std::atomic<int> steps{0};  // that began
  std::atomic<int> most{std::numeric_limits<int>::max()};

  void Open() { most = std::numeric_limits<int>::max(); }
  LibraryCalls calls() {
    LibraryCalls calls;
    calls.loses_device = [this] {
      ++steps;
      while (steps > most) QThread::msleep(1);
      return false;
    };
    return calls;
  }
};

TEST_CASE("A question is answered, with statistics") {
  Window window;
  window.OpenBundled();
  window.Ask("What is the capital of France?");
  CHECK(window.text().contains("The capital of France is Paris."));
  CHECK(window.statistics().contains("0 cached"));
  CHECK(window.statistics().contains("tokens/s"));
  window.Ask("What is the capital of Russia?");
  CHECK(window.text().contains("The capital of Russia is Moscow."));
  CHECK_FALSE(window.statistics().contains(" 0 cached"));
}

TEST_CASE("An answer that is stopped keeps its text, and can be computed once more") {
  Gate gate;
  const WithLibraryCalls with(gate.calls());
  Window window;
  window.OpenBundled();
  gate.most = 6;
  window.Type(kStoryQuestion);
  REQUIRE(Wait([&] { return window.text().contains("Ralf had a"); }));
  REQUIRE(Wait([&] { return gate.steps > 6; }));
  window.Trigger("stop");
  gate.Open();
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains("Ralf had a"));
  CHECK_FALSE(window.text().contains("smiled"));
  CHECK(window.notice().toStdString() == "");
  window.Trigger("regenerate");
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains(kStory));
  CHECK(window.text().count("Ralf had a") == 1);
}

TEST_CASE("A stop also meets an answer that has not begun") {
  Gate gate;
  const WithLibraryCalls with(gate.calls());
  Window window;
  window.OpenBundled();
  gate.most = 2;
  window.Type("I live in Brussels.");
  REQUIRE(Wait([&] { return gate.steps > 2; }));
  window.Trigger("new");
  window.Type(kStoryQuestion);
  window.Trigger("stop");
  gate.Open();
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK_FALSE(window.text().contains("Ralf had"));
  window.Trigger("regenerate");
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains(kStory));
}

TEST_CASE("Editing a question begins a branch, and both branches stay") {
  Window window;
  window.OpenBundled();
  window.Ask("I live in Brussels.");
  window.Ask("What is the capital of France?");
  REQUIRE(window.text().contains("Paris"));
  window.Click("edit:2");
  window.Type("Where do I live?");
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.chats() == 2);
  CHECK(window.text().contains("You live in Brussels."));
  CHECK_FALSE(window.text().contains("Paris"));
  CHECK_FALSE(window.statistics().contains(" 0 cached"));
  window.Select(0);
  CHECK(window.text().contains("Paris"));
  CHECK_FALSE(window.text().contains("You live"));
  window.Ask("Where do I live?");
  CHECK(window.text().contains("You live in Brussels."));
  window.Click("branch:1");
  CHECK(window.chats() == 3);
  CHECK(window.text().contains("Brussels"));
  CHECK_FALSE(window.text().contains("Paris"));
}

TEST_CASE("Conversations are answered at the same time, also more than the engine holds") {
  Gate gate;
  const WithLibraryCalls with(gate.calls());
  Window window;
  window.OpenBundled();
  gate.most = 2;
  window.Type(kStoryQuestion);
  REQUIRE(Wait([&] { return gate.steps > 2; }));
  const QStringList countries = {"France", "Russia", "Italy", "Spain"};
  const QStringList capitals = {"Paris", "Moscow", "Rome", "Madrid"};
  for (const QString& country : countries) {
    window.Trigger("new");
    window.Type("What is the capital of " + country + "?");
    if (country == "Russia") {
      gate.Open();
      REQUIRE(Wait([&] { return !window.answering(); }));
    }
  }
  for (int i = 0; i < 4; ++i) {
    window.Select(i + 1);
    REQUIRE(Wait([&] { return !window.answering(); }));
    CHECK(window.text().contains(capitals[i]));
  }
  window.Select(0);
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains(kStory));
}

TEST_CASE("Thinking is folded until it is asked for") {
  Window window;
  window.OpenBundled();
  auto& thinking = window.Child<QComboBox>("thinking");
  thinking.setCurrentIndex(thinking.findData(DSV4_THINKING_HIGH));
  window.Ask("Calculate 91 + 49.");
  CHECK(window.text().contains("91 + 49 = 140"));
  CHECK(window.text().contains("Thinking ("));
  CHECK_FALSE(window.text().contains("91 + 40 = 131"));
  window.Click("reasoning:1");
  CHECK(window.text().contains("91 + 40 = 131"));
  window.Trigger("thinking");
  CHECK_FALSE(window.text().contains("91 + 40 = 131"));
}

TEST_CASE("Tool calls are shown, and the user gives their results") {
  Window window;
  window.OpenBundled();
  window.Child<QPlainTextEdit>("system").setPlainText("You are a friendly assistant.");
  auto& tools = window.Child<QPlainTextEdit>("tools");
  tools.setPlainText("[{");
  window.Type("Turn off the light in the hall.");
  CHECK_FALSE(window.answering());
  CHECK(window.notice().startsWith("the tools are not a JSON array"));
  tools.setPlainText(R"([{"type": "function", "function": {"name": "set_light",
      "description": "Switch a light on or off", "parameters": {"type": "object", "properties": {
      "room": {"type": "string", "description": "The room"},
      "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}])");
  window.Trigger("regenerate");
  REQUIRE(Wait([&] { return !window.answering(); }));
  CHECK(window.text().contains(R"(set_light {"room": "hall", "on": false})"));
  CHECK(window.Child<QPlainTextEdit>("composer").placeholderText().contains("call_2_0"));
  window.Ask(R"({"status": "ok"})");
  CHECK(window.text().trimmed().section('\n', -1).contains("hall"));
}

TEST_CASE("A conversation that was saved continues") {
  const QTemporaryDir folder;
  const QString path = folder.filePath("brussels.json");
  Window window;
  window.OpenBundled();
  window.Ask("I live in Brussels.");
  window.window->SaveTo(path);
  CHECK(window.notice() == "Saved " + path + ".");
  window.window->LoadFrom(path);
  CHECK(window.chats() == 2);
  window.Ask("Where do I live?");
  CHECK(window.text().contains("You live in Brussels."));
  const QString missing = folder.filePath("missing.json");
  window.window->LoadFrom(missing);
  CHECK(window.notice().startsWith(missing + ": "));
  QFile other(folder.filePath("other.json"));
  REQUIRE(other.open(QIODevice::WriteOnly));
  other.write("{}");
  other.close();
  window.window->LoadFrom(other.fileName());
  CHECK(window.notice().startsWith(other.fileName() + ": \"dsv4_desktop\" is not 1"));
  CHECK(window.chats() == 2);
}

TEST_CASE("The window closes while a prompt is computed") {
  Gate gate;
  const WithLibraryCalls with(gate.calls());
  Window window;
  window.OpenBundled();
  QString question = "Please read the following.";
  for (int i = 0; i < 900; ++i) question += " The calm river stands near the station at noon.";
  window.Child<QPlainTextEdit>("composer").setPlainText(question);
  gate.most = 2;
  window.Trigger("send");
  REQUIRE(Wait([&] { return gate.steps > 2; }));
  std::thread opens([&] {
    QThread::msleep(100);
    gate.Open();
  });
  window.window->close();
  window.window.reset();
  opens.join();
  CHECK(gate.steps < 20);  // of some 40 for the prompt
}

TEST_CASE("Answers are shown as Markdown, which is never HTML and has no links of the window") {
  Chat chat;
  Window window;
  chat.messages = QJsonArray{
      QJsonObject{{"role", "user"}, {"content", "**as typed**"}},
      QJsonObject{{"role", "assistant"},
                  {"content",
                   "## Title\n\n**bold** `code`\n\n```\nint a;\n  int b;\n```\n\n- one\n- two\n\n"
                   "[web](https://a.example/) [own](edit:0) [file](file:///etc/passwd)\n\n"
                   "![picture](file:///etc/passwd)\n\n<b>x</b> <a href=\"branch:1\">y</a>\n"}}};
  Transcript& transcript = static_cast<Transcript&>(window.Child<QTextBrowser>("transcript"));
  transcript.Show(&chat);
  const QString text = transcript.toPlainText(), html = transcript.toHtml();
  INFO(text.toStdString() << html.toStdString());
  CHECK(text.contains("**as typed**"));
  CHECK(text.contains("\nTitle\n"));
  CHECK(text.contains("bold code"));
  CHECK(text.contains("int a;\n  int b;"));
  CHECK(text.contains("one\ntwo"));
  CHECK(text.contains("web own file"));
  CHECK(text.contains("<a href=\"branch:1\">y</a>"));
  CHECK(html.contains("href=\"https://a.example/\""));
  CHECK(html.count("href=\"edit:0\"") == 1);    // of the question
  CHECK(html.count("href=\"branch:1\"") == 1);  // of the answer
  CHECK(!html.contains("file:"));
  CHECK(!html.contains("<img"));
}

}  // namespace
}  // namespace desktop
