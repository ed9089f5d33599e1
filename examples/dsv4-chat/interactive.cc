// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/interactive.h"

#include <string>
#include <utility>
#include <vector>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/terminal.h"

namespace chat {
namespace {

constexpr char kHelp[] =
    "/help                this list\n"
    "/new                 forget the conversation\n"
    "/system [TEXT]       set the system message; alone: remove it\n"
    "/think off|high|max  answer at once, or reason first; alone: high\n"
    "/regen               answer the last question again\n"
    "/undo                forget the last question and its answer\n"
    "/skip                go on without the results of the tools that were called\n"
    "/stats [on|off]      print statistics of each answer; alone: of the last one\n"
    "/quit                leave, as does Ctrl-D\n"
    "Ctrl-C stops an answer. A message may begin with / after a space.";

class Loop {
 public:
  Loop(const Options& options, Conversation* conversation, Screen* screen)
      : conversation_(conversation), screen_(screen), stats_(options.stats) {}

  int Run() {
    screen_->Notice(std::string("dsv4 ") + dsv4_version() + ": /help lists the commands");
    LineReader reader;
    std::string line;
    while (!quit_) {
      screen_->Prompt(PromptText());
      if (reader.Read(&line) != LineReader::Result::kLine) {
        WriteErr("\n");
        return kOk;
      }
      const bool blank = line.find_first_not_of(" \t\r") == std::string::npos;
      if (blank) continue;
      try {
        line[0] == '/' ? Obey(line) : Take(line);
      } catch (const Failure& failure) {
        Recover(failure);
      }
      ClearInterrupt();
    }
    return kOk;
  }

 private:
  // While calls of tools wait for their results, those are what is typed.
  std::string PromptText() const {
    const auto& calls = conversation_->open_calls();
    return calls.empty() ? "> " : "result of " + calls[results_.size()].name + "> ";
  }

  void Take(const std::string& text) {
    if (conversation_->open_calls().empty()) return Show(conversation_->Reply(text));
    results_.push_back(text);
    if (results_.size() < conversation_->open_calls().size()) return;
    const std::vector<std::string> results = std::move(results_);
    results_.clear();
    Show(conversation_->ReplyToResults(results));
  }

  void Show(Conversation::End end) {
    if (end == Conversation::End::kInterrupted)
      screen_->Notice("(stopped; what stands above is kept)");
    if (stats_) screen_->Notice(conversation_->statistics());
  }

  void Obey(const std::string& line) {
    const size_t name_end = line.find_first_of(" \t\r");
    const std::string name = line.substr(0, name_end);
    std::string value;
    if (name_end != std::string::npos) {
      const size_t begin = line.find_first_not_of(" \t\r", name_end);
      const size_t end = line.find_last_not_of(" \t\r");
      if (begin != std::string::npos) value = line.substr(begin, end - begin + 1);
    }
    if (name == "/help") {
      screen_->Notice(kHelp);
    } else if (name == "/quit") {
      quit_ = true;
    } else if (name == "/regen") {
      results_.clear();
      Show(conversation_->Regenerate());
    } else if (name == "/undo") {
      results_.clear();
      screen_->Notice(conversation_->Undo() ? "the last question is forgotten" : "no question yet");
    } else if (name == "/skip") {
      results_.clear();
      conversation_->DropCalls();
    } else if (name == "/new") {
      results_.clear();
      conversation_->Restart();
      screen_->Notice("a new conversation");
    } else if (name == "/system") {
      conversation_->set_system(value);
      screen_->Notice(value.empty() ? "no system message" : "system message set");
    } else if (name == "/think") {
      const dsv4_thinking_mode mode = ParseThinking(name, value.empty() ? "high" : value);
      conversation_->set_thinking(mode);
      screen_->Notice(mode == DSV4_THINKING_OFF ? "answers at once" : "reasons first");
    } else if (name == "/stats") {
      ObeyStats(value);
    } else {
      throw Failure{kUsageError, "unknown command " + name + ": /help lists the commands"};
    }
  }

  void ObeyStats(const std::string& value) {
    if (value.empty()) {
      const std::string& last = conversation_->statistics();
      screen_->Notice(last.empty() ? "no answer yet" : last);
    } else if (value == "on" || value == "off") {
      stats_ = value == "on";
    } else {
      throw Failure{kUsageError, "/stats: \"" + value + "\" is not on or off"};
    }
  }

  // Says why a line had no effect; passes on what ends the program.
  void Recover(const Failure& failure) {
    if (failure.status == DSV4_ERR_CANCELLED) {
      screen_->Notice("(stopped before the answer began; the message is dropped)");
    } else if (failure.status == DSV4_ERR_CONTEXT_FULL) {
      screen_->Notice(failure.message + "; the message is dropped, /new starts over");
    } else if (failure.exit_code == kUsageError) {
      screen_->Notice(failure.message);
    } else {
      throw failure;
    }
  }

  Conversation* conversation_;
  Screen* screen_;
  std::vector<std::string> results_;  // of the first open calls
  bool stats_;
  bool quit_ = false;
};

}  // namespace

int RunInteractive(const Options& options, Conversation* conversation, Screen* screen) {
  return Loop(options, conversation, screen).Run();
}

}  // namespace chat
