// SPDX-License-Identifier: Apache-2.0
// dsv4-chat on a terminal. Questions and answers are those of models/dsv4-tiny/gates.json; what the
// line editor made of keys is read from the messages that /save writes.
#include <sys/stat.h>

#include <string>

#include "tests/capi/cli_chat.h"
#include "tests/support/catch.h"

namespace dsv4::test {
namespace {

const std::string kUp = "\x1b[A", kLeft = "\x1b[D", kHome = "\x1b[H", kDelete = "\x1b[3~";
const std::string kControlA = "\x01", kControlC = "\x03", kControlD = "\x04", kControlK = "\x0b",
                  kControlR = "\x12", kBackspace = "\x7f";

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A chat that is asked and saved.
class Talk {
 public:
  explicit Talk(std::vector<std::string> options = {})
      : program_(Chat(std::move(options)), HomeIn(home_)) {
    program_.Await("\n> ");
  }

  // Types a line at the prompt; returns what comes before the next one.
  std::string Say(const std::string& line, const std::string& prompt = "\n> ") {
    program_.Type(line + "\n");
    return program_.Await(prompt);
  }

  // The messages so far, as JSON.
  std::string Messages() {
    Say("/save " + (home_ / "messages"));
    return ReadFile(home_ / "messages.messages.json");
  }

  int Quit() {
    program_.Type("/quit\n");
    return program_.Exit();
  }

  TerminalProgram& program() { return program_; }
  const TemporaryFolder& home() const { return home_; }

 private:
  TemporaryFolder home_;
  TerminalProgram program_;
};

TEST_CASE("a conversation on a terminal") {
  Talk talk;
  REQUIRE(Contains(talk.program().shown(), "loading ["));
  REQUIRE(Contains(talk.Say("/help"), "/system [TEXT]"));
  const std::string first = talk.Say("What is the capital of France?");
  REQUIRE(Contains(first, "reading ["));
  REQUIRE(Contains(first, "The capital of France is Paris."));
  REQUIRE(Contains(first, "prompt 13 tokens (0 cached + 13 new)"));
  const std::string second = talk.Say("And of Germany?");
  REQUIRE(Contains(second, "(23 cached + "));
  REQUIRE(Contains(talk.Say("/stats"), "(23 cached + "));
  talk.Say("/stats off");
  REQUIRE(Contains(talk.Say("/frob"), "unknown command /frob"));
  REQUIRE(Contains(talk.Say("/sate x"), "did you mean /save?"));
  REQUIRE(Contains(talk.Say("/save"), "/save needs a value"));
  REQUIRE(Contains(talk.Say("/think medium"), "\"medium\" is not off, low, high or max"));
  talk.Say("/think");
  const std::string reasoned = talk.Say("Calculate 91 + 49.");
  REQUIRE(Contains(reasoned, "\x1b[2m91 + 40 = 131"));
  REQUIRE(Contains(reasoned, "\n91 + 49 = 140"));
  REQUIRE_FALSE(Contains(reasoned, "cached"));
  talk.Say("/think off");
  talk.Say("/system You are a friendly assistant.");
  talk.Say("/new");
  REQUIRE(Contains(talk.Say("What is the capital of Italy?"), "The capital of Italy is Rome"));
  REQUIRE(Contains(talk.Messages(), "\"system\": \"You are a friendly assistant.\""));
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("memory is given back, and the conversation continues") {
  Talk talk({"--temp", "0"});
  REQUIRE(Contains(talk.Say("What is the capital of France?"), "France is Paris"));
  REQUIRE(Contains(talk.Say("/suspend"), "the next message loads it again"));
  REQUIRE(Contains(talk.Say("/stats"), "generated "));
  const std::string second = talk.Say("And of Germany?");
  CAPTURE(second);
  REQUIRE(Contains(second, "(23 cached + "));
  REQUIRE(Contains(talk.Say("/suspend " + (talk.home() / ".")), "the next message loads it again"));
  REQUIRE(Contains(talk.Say("/suspend"), "the next message loads it again"));
  REQUIRE(Contains(talk.Say("/undo"), "the last question is forgotten"));
  REQUIRE(Contains(talk.Say("/suspend " + (talk.home() / "nowhere")), "nowhere"));
  // The same 32 tokens again: all but the last, whose logits are needed.
  const std::string third = talk.Say("And of Germany?");
  CAPTURE(third);
  REQUIRE(Contains(third, "(31 cached + 1 new)"));
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("questions are taken back and answered again") {
  Talk talk({"--temp", "0"});
  REQUIRE(Contains(talk.Say("/undo"), "no question yet"));
  REQUIRE(Contains(talk.Say("/regen"), "there is no answer yet"));
  REQUIRE(Contains(talk.Say("What is the capital of France?"), "France is Paris"));
  REQUIRE(Contains(talk.Say("/regen"), "France is Paris"));
  REQUIRE(Contains(talk.Say("/undo"), "the last question is forgotten"));
  REQUIRE(Contains(talk.Say("/undo"), "no question yet"));
  const std::string other = talk.Say("What is the capital of Italy?");
  REQUIRE(Contains(other, "Italy is Rome"));
  CAPTURE(other);
  REQUIRE(Contains(other, "prompt 12 tokens"));
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("files are read, and tokens chosen otherwise") {
  Talk talk;
  WriteFile(talk.home() / "question", "What is the capital of France?\n");
  REQUIRE(Contains(talk.Say("/set max-tokens=2"), "max-tokens=2"));
  REQUIRE(Contains(talk.Say("/read " + (talk.home() / "question")), "generated 2 at "));
  REQUIRE(Contains(talk.Say("/set temp=hot"), "\"hot\" is not a number"));
  REQUIRE(Contains(talk.Say("/set frob=1"), "there is no frob to set; there are max-tokens, temp"));
  REQUIRE(Contains(talk.Say("/set temp"), "is not NAME=VALUE"));
  REQUIRE(Contains(talk.Say("/set draft=7"), "draft"));
  REQUIRE(Contains(talk.Say("/read nowhere"), "cannot read nowhere"));
  REQUIRE(Contains(talk.Messages(), "What is the capital of France?"));
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("lines are edited by characters, whatever their bytes and columns") {
  Talk talk({"-n", "1"});
  const std::vector<std::string> typed = {
      // Wide, combining and four-byte characters are one each.
      "h\u00e4lo" + kLeft + "l",
      "\u4e16\u754c!" + kLeft + kLeft + kBackspace + "\u65b0",
      "a\U0001f600\U0001f680b" + kLeft + kBackspace,
      "capital" + kControlA + "The " + kControlA + kDelete + "t",
      "one two" + kHome + kLeft + "zero " + kControlK + "three",
      "/nothing" + kControlA + " ",
  };
  for (const std::string& line : typed) talk.Say(line);
  const std::string messages = talk.Messages();
  for (const char* expected : {"\"h\u00e4llo\"", "\"\u65b0\u754c!\"", "\"a\U0001f600b\"",
                               "\"the capital\"", "\"zero three\"", "\" /nothing\""}) {
    CAPTURE(messages, expected);
    REQUIRE(Contains(messages, std::string("\"content\": ") + expected));
  }
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("a message of several lines stands between quotes, or is pasted") {
  Talk talk({"-n", "1"});
  talk.Say("\"\"\"first", "... ");
  talk.Say("/second", "... ");
  talk.Say("\"third\"\"\"\"");
  talk.Say("\"\"\"/all in one\"\"\"");
  talk.Say("This: \x1b[200~one\rtwo\nthree\x1b[201~!");
  const std::string messages = talk.Messages();
  CAPTURE(messages);
  REQUIRE(Contains(messages, "\"content\": \"first\\n/second\\n\\\"third\\\"\""));
  REQUIRE(Contains(messages, "\"content\": \"\\n/all in one\""));
  REQUIRE(Contains(messages, "\"content\": \"This: one\\ntwo\\nthree!\""));
  REQUIRE(talk.Quit() == 0);
}

TEST_CASE("lines are kept for later runs, unless they are not to be") {
  TemporaryFolder home;
  const std::string file = home / ".local/state/dsv4/chat_history";
  struct stat state;
  {
    TerminalProgram chat(Chat({"-n", "1", "--no-history"}), HomeIn(home));
    chat.Await("\n> ");
    chat.Type("secret\n");
    chat.Await("\n> ");
    chat.Type("/quit\n");
    REQUIRE(chat.Exit() == 0);
    REQUIRE(stat(file.c_str(), &state) != 0);
  }
  {
    TerminalProgram chat(Chat({"-n", "1"}), HomeIn(home));
    for (const std::string line : {"gr\u00fcn eins", "zwei"}) {
      chat.Await("\n> ");
      chat.Type(line + "\n");
    }
    chat.Await("\n> ");
    chat.Type(kControlD);
    REQUIRE(chat.Exit() == 0);
    REQUIRE(stat(file.c_str(), &state) == 0);
    REQUIRE((state.st_mode & 0777) == 0600);
  }
  TerminalProgram chat(Chat({"-n", "1"}), HomeIn(home));
  chat.Await("\n> ");
  chat.Type(kUp + kUp + " plus\n");
  chat.Await("\n> ");
  chat.Type(kControlR + "zw\x1b");
  chat.Await("zwei");
  chat.Type(" drei\n");
  chat.Await("\n> ");
  chat.Type("/save " + (home / "kept") + "\n");
  chat.Await("saved in");
  const std::string messages = ReadFile(home / "kept.messages.json");
  CAPTURE(messages, chat.shown());
  REQUIRE(Contains(messages, "\"gr\u00fcn eins plus\""));
  REQUIRE(Contains(messages, "zwei"));
  REQUIRE_FALSE(Contains(messages, "secret"));
}

// Without a terminal that moves its cursor: the prompt and the line, nothing else.
TEST_CASE("a dumb terminal gets plain lines") {
  TemporaryFolder home;
  TerminalProgram chat(Chat({"--color", "never", "--no-stats"}),
                       {"HOME=" + home.path(), "TERM=dumb"});
  chat.Await("\n> ");
  chat.Type("What is the capital of France?\n");
  chat.Await("The capital of France is Paris.");
  chat.Await("\n> ");
  chat.Type(kControlD);
  REQUIRE(chat.Exit() == 0);
}

TEST_CASE("the window changes its size while a line is edited") {
  Talk talk({"-n", "1"});
  talk.program().Type("What is the capital");
  talk.program().Await("capital");
  for (const int columns : {60, 132}) {
    talk.program().Resize(columns, 10);
    talk.program().Await("capital");  // drawn again
  }
  talk.Say(" of France?");
  REQUIRE(Contains(talk.Messages(), "\"What is the capital of France?\""));
  REQUIRE(talk.Quit() == 0);
}

// Long answers of random words from the slow backend.
const std::vector<std::string> kSlow = {"--temp", "100", "--seed", "2", "--backend", "reference"};

TEST_CASE("Ctrl-C stops an answer, and at the prompt the program") {
  Talk talk(kSlow);
  TerminalProgram& program = talk.program();
  for (const std::string question :
       {"Write a short story about Ralf and a ring.", "Another one."}) {
    program.Type(question + "\n");
    program.Await("reading [");
    program.Await("\r\x1b[K");  // the bar is wiped: the answer begins
    program.Type(kControlC);
    program.Await("(stopped");
    program.Await("\n> ");
  }
  const std::string messages = talk.Messages();
  REQUIRE(Contains(messages, "Ralf and a ring"));
  REQUIRE(Contains(messages, "Another one."));
  program.Type("half a line" + kControlC);
  REQUIRE(program.Exit() == 0);
}

// It finds the program still at it, or at the prompt. The system may take two for one.
TEST_CASE("Ctrl-C again and again ends the program") {
  Talk talk(kSlow);
  talk.program().Type("Write a short story about Ralf and a ring.\n");
  talk.program().Await("reading [");
  const int code = talk.program().Exit(kControlC);
  CAPTURE(code, talk.program().shown());
  REQUIRE((code == 130 || code == 0));
}

TEST_CASE("results of tools are typed") {
  TemporaryFolder folder;
  WriteFile(folder / "tools.json", R"([{"type": "function", "function": {"name": "set_light",
  "description": "Switch a light on or off", "parameters": {"type": "object", "properties":
  {"room": {"type": "string", "description": "The room"},
  "on": {"type": "boolean", "description": "Light on"}}, "required": ["room", "on"]}}}])");
  Talk talk({"--tools", folder / "tools.json", "-s", "You are a friendly assistant."});
  const std::string call = talk.Say("Turn off the light in the hall.", "\nresult of set_light> ");
  REQUIRE(Contains(call, "call_2_0: set_light {\"room\": \"hall\", \"on\": false}"));
  // The open call is kept, too.
  talk.Say("/save " + (folder / "kept"), "\nresult of set_light> ");
  const std::string answer = talk.Say("{\"status\": \"ok\"}");
  REQUIRE(Contains(answer, "The light in the hall is now off"));
  REQUIRE_FALSE(Contains(answer, "(0 cached"));
  talk.Say("Turn off the light in the hall.", "\nresult of set_light> ");
  talk.Say("/skip");
  REQUIRE(talk.Quit() == 0);

  Talk loaded;
  loaded.Say("/load " + (folder / "kept"), "\nresult of set_light> ");
  REQUIRE(Contains(loaded.Say("{\"status\": \"ok\"}"), "The light in the hall is now off"));
}

TEST_CASE("a conversation continues in another process") {
  TemporaryFolder folder;
  const std::string kept = folder / "kept";
  {
    Talk talk({"--temp", "0", "-s", "You are a friendly assistant."});
    talk.Say("What is the capital of France?");
    talk.Say("What is the capital of Italy?");
    REQUIRE(Contains(talk.Say("/save " + kept), "saving ["));
    REQUIRE(talk.Quit() == 0);
  }
  Talk talk({"--temp", "0"});
  const std::string loaded = talk.Say("/load " + kept);
  REQUIRE(Contains(loaded, "restoring ["));
  REQUIRE(Contains(loaded, "continues after 4 messages"));
  const std::string answer = talk.Say("What is the capital of Russia?");
  REQUIRE(Contains(answer, "The capital of Russia is Moscow."));
  CAPTURE(answer);
  REQUIRE_FALSE(Contains(answer, "(0 cached"));
  REQUIRE(Contains(answer, " cached + 1"));  // of 60 tokens and more
  REQUIRE(Contains(talk.Say("/undo"), "forgotten"));
  REQUIRE(Contains(talk.Say("/regen"), "The capital of Italy is Rome"));
  talk.Say("/undo");
  REQUIRE(Contains(talk.Say("/regen"), "The capital of France is Paris"));
  const std::string messages = talk.Messages();
  REQUIRE(Contains(messages, "You are a friendly assistant."));
  REQUIRE(Contains(messages, "France"));
  REQUIRE_FALSE(Contains(messages, "Italy"));

  // What is refused changes nothing.
  REQUIRE(
      Contains(talk.Say("/load " + (folder / "nowhere")), "nowhere.messages.json: No such file"));
  WriteFile(folder / "broken.messages.json", "{\"dsv4_chat\": 1");
  REQUIRE(Contains(talk.Say("/load " + (folder / "broken")),
                   "broken.messages.json: not a saved conversation"));
  WriteFile(folder / "newer.messages.json", "{\"dsv4_chat\": 2}");
  REQUIRE(Contains(talk.Say("/load " + (folder / "newer")), "another version"));
  WriteFile(folder / "damaged.messages.json", ReadFile(kept + ".messages.json"));
  REQUIRE(Contains(talk.Say("/load " + (folder / "damaged")), "damaged"));
  std::string rows = ReadFile(kept);
  rows[rows.size() / 2] ^= 1;
  WriteFile(folder / "damaged", rows);
  REQUIRE(Contains(talk.Say("/load " + (folder / "damaged")), "its checksum does not match"));
  REQUIRE(Contains(talk.Say("/save /nonexistent/file"), "/nonexistent/file"));
  WriteFile(folder / "notes", "mine");
  REQUIRE(Contains(talk.Say("/save " + (folder / "notes")), "is not a saved conversation"));
  REQUIRE(ReadFile(folder / "notes") == "mine");
  REQUIRE(talk.Messages() == messages);
  REQUIRE(Contains(talk.Say("What is the capital of Russia?"), "Moscow"));
}

// The next question drops the reasoning; the rows behind it are computed again.
TEST_CASE("a conversation with reasoning continues from the rows that can be reused") {
  TemporaryFolder folder;
  std::string live;
  {
    Talk talk({"--temp", "0", "--think"});
    talk.Say("What is the capital of France?");
    talk.Say("Calculate 91 + 49.");
    talk.Say("/save " + (folder / "kept"));
    live = talk.Say("Calculate 5 + 4.");
  }
  const auto reused = [](const std::string& answer) {
    const size_t end = answer.find(" cached");
    return answer.substr(answer.rfind('(', end), end - answer.rfind('(', end));
  };
  Talk talk({"--temp", "0", "--load", folder / "kept"});
  const std::string answer = talk.Say("Calculate 5 + 4.");
  CAPTURE(live, answer);
  REQUIRE(reused(answer) == reused(live));
  REQUIRE(reused(answer) != "(0");
}

TEST_CASE("reasoning of a single answer is on the terminal alone") {
  TemporaryFolder home;
  const std::vector<std::string> question = {"-p", "Calculate 91 + 49.", "--think", "--no-stats"};
  const auto shown = [&](std::vector<std::string> more) {
    more.insert(more.begin(), question.begin(), question.end());
    TerminalProgram chat(Chat(more), HomeIn(home));
    REQUIRE(chat.Exit() == 0);
    return chat.shown();
  };
  REQUIRE(Contains(shown({}), "\x1b[2m91 + 40 = 131"));
  REQUIRE(Contains(shown({"--color", "never"}), "[reasoning] 91 + 40 = 131"));
  const std::string hidden = shown({"--hide-thinking"});
  REQUIRE_FALSE(Contains(hidden, "= 131"));  // progress may read "131 MB/s"
  REQUIRE(Contains(hidden, "91 + 49 = 140"));
}

// Random text holds every byte there is.
TEST_CASE("no control character of the model reaches the terminal") {
  TemporaryFolder home;
  TerminalProgram chat(
      {"/bin/sh", "-c",
       "exec " DSV4_CHAT " -m " + kModel + " -p Hello --temp 100 --seed 3 -n 160 2>/dev/null"},
      HomeIn(home));
  REQUIRE(chat.Exit() == 0);
  REQUIRE(chat.shown().size() > 300);
  for (const char byte : chat.shown()) {
    const auto value = static_cast<unsigned char>(byte);
    REQUIRE((value >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t'));
    REQUIRE(value != 0x7f);
  }
}

}  // namespace
}  // namespace dsv4::test
