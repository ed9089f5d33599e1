// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/interactive.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/console/engine_options.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/terminal.h"
#include "examples/dsv4-chat/line_editor.h"

namespace chat {
namespace {

constexpr char kHelp[] =
    "/help                this list\n"
    "/new                 forget the conversation\n"
    "/system [TEXT]       set the system message; without TEXT: remove it\n"
    "/think [LEVEL]       off, or reason first: low, high, max; without LEVEL: low\n"
    "/read FILE           send the text of FILE as a message\n"
    "/save FILE           save the conversation\n"
    "/load FILE           continue the conversation saved in FILE\n"
    "/set NAME=VALUE      set a sampling option of --help, as in temp=0.5\n"
    "/regen               answer the last question again\n"
    "/undo                remove the last question and its answer\n"
    "/skip                continue without the results of the called tools\n"
    "/stats [on|off]      print statistics of each answer; no value: of the last\n"
    "/suspend [DIR]       free the model's memory until the next message; the conversation is\n"
    "                     kept in host memory, or in a file in DIR\n"
    "/quit                leave, as do Ctrl-D and Ctrl-C\n"
    "Ctrl-C stops an answer. Put a message of several lines between two lines of \"\"\". Put a\n"
    "space before a message that begins with /.";

constexpr std::string_view kQuotes = "\"\"\"";

class Loop {
 public:
  Loop(const Options& options, Conversation* conversation, Screen* screen)
      : conversation_(conversation),
        screen_(screen),
        editor_(options.history),
        stats_(options.stats) {}

  int Run() {
    screen_->Notice(std::string("dsv4 ") + dsv4_get_version() + ": /help lists the commands");
    std::string message;
    while (!quit_ && ReadMessage(&message)) {
      if (message.find_first_not_of(" \t\r\n") != std::string::npos) {
        try {
          message[0] == '/' ? Obey(message) : Take(message);
        } catch (...) {
          Recover(CurrentFailure());
        }
      }
      ClearInterrupt();
    }
    return kOk;
  }

 private:
  // A line, or several between quotes. False when the user leaves.
  bool ReadMessage(std::string* message) {
    if (!ReadLine(PromptText(), message)) return false;
    if (!message->starts_with(kQuotes)) return true;
    message->erase(0, kQuotes.size());
    while (!message->ends_with(kQuotes)) {
      std::string line;
      if (!ReadLine("... ", &line)) return false;
      *message += "\n" + line;
    }
    message->erase(message->size() - kQuotes.size());
    // Text, whatever it begins with.
    if (message->starts_with('/')) message->insert(0, 1, '\n');
    return true;
  }

  bool ReadLine(const std::string& prompt, std::string* line) {
    if (editor_.Read(prompt, line) == LineEditor::Result::kLine) return true;
    WriteErr("\n");
    return false;
  }

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
    const auto is_command = [&](const Command& command) { return name == command.name; };
    const auto found = std::find_if(std::begin(kCommands), std::end(kCommands), is_command);
    if (found == std::end(kCommands)) {
      std::vector<std::string_view> names;
      for (const Command& command : kCommands) names.push_back(command.name);
      const std::string suggestion = Suggestion(name, names);
      throw Failure{kUsageError, "unknown command " + name +
                                     (suggestion.empty() ? ": /help lists them" : suggestion)};
    }
    if (found->needs_value && value.empty())
      throw Failure{kUsageError, name + " needs a value: /help says which"};
    (this->*found->obey)(value);
  }

  void Stats(const std::string& value) {
    if (value.empty()) {
      const std::string& last = conversation_->statistics();
      screen_->Notice(last.empty() ? "no answer yet" : last);
    } else if (value == "on" || value == "off") {
      stats_ = value == "on";
    } else {
      throw Failure{kUsageError, "/stats: \"" + value + "\" is not on or off"};
    }
  }

  void Help(const std::string&) { screen_->Notice(kHelp); }

  void New(const std::string&) {
    results_.clear();
    conversation_->Restart();
    screen_->Notice("a new conversation");
  }

  void System(const std::string& text) {
    conversation_->set_system(text);
    screen_->Notice(text.empty() ? "no system message" : "system message set");
  }

  void Think(const std::string& value) {
    const dsv4_thinking_mode mode =
        ParseName("/think", value.empty() ? "low" : value, kThinkingModes);
    conversation_->set_thinking(mode);
    screen_->Notice(mode == DSV4_THINKING_OFF ? "answers at once" : "reasons first");
  }

  void Read(const std::string& file) {
    const std::string text = ReadWholeFile(file);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos)
      throw Failure{kUsageError, file + " is empty"};
    Take(text);
  }

  void Save(const std::string& file) {
    conversation_->Save(file);
    screen_->Notice("saved in " + file + " and " + file + ".messages.json");
  }

  void Load(const std::string& file) {
    conversation_->Load(file);
    results_.clear();
    screen_->Notice("continues after " + std::to_string(conversation_->message_count()) +
                    " messages");
  }

  void Set(const std::string& assignment) {
    conversation_->Set(assignment);
    screen_->Notice(assignment);
  }

  void Regen(const std::string&) {
    results_.clear();
    Show(conversation_->Regenerate());
  }

  void Undo(const std::string&) {
    results_.clear();
    screen_->Notice(conversation_->Undo() ? "the last question is forgotten" : "no question yet");
  }

  void Skip(const std::string&) {
    results_.clear();
    conversation_->DropCalls();
  }

  void Suspend(const std::string& folder) {
    conversation_->Suspend(folder);
    screen_->Notice("the model's memory is given back; the next message loads it again");
  }

  void Quit(const std::string&) { quit_ = true; }

  // Says why a line had no effect; passes on what ends the program.
  void Recover(const Failure& failure) {
    switch (failure.status) {
      case DSV4_OK:  // not the library's
        if (failure.exit_code != kUsageError) throw failure;
        break;
      case DSV4_ERR_CANCELLED:
        return screen_->Notice("(stopped; nothing has changed)");
      case DSV4_ERR_CONTEXT_FULL:
        return screen_->Notice(failure.message + "; nothing has changed, /new starts over");
      case DSV4_ERR_DEVICE_LOST:
      case DSV4_ERR_OUT_OF_HOST_MEMORY:
      case DSV4_ERR_INTERNAL:
        throw failure;
    }
    screen_->Notice(failure.message);
  }

  struct Command {
    const char* name;
    void (Loop::*obey)(const std::string& value);
    bool needs_value = false;
  };
  static const Command kCommands[14];

  Conversation* conversation_;
  Screen* screen_;
  std::vector<std::string> results_;  // of the first open calls
  LineEditor editor_;
  bool stats_;
  bool quit_ = false;
};

const Loop::Command Loop::kCommands[] = {
    {"/help", &Loop::Help},       {"/new", &Loop::New},         {"/system", &Loop::System},
    {"/think", &Loop::Think},     {"/read", &Loop::Read, true}, {"/save", &Loop::Save, true},
    {"/load", &Loop::Load, true}, {"/set", &Loop::Set, true},   {"/regen", &Loop::Regen},
    {"/undo", &Loop::Undo},       {"/skip", &Loop::Skip},       {"/stats", &Loop::Stats},
    {"/suspend", &Loop::Suspend}, {"/quit", &Loop::Quit}};

}  // namespace

int RunInteractive(const Options& options, Conversation* conversation, Screen* screen) {
  return Loop(options, conversation, screen).Run();
}

}  // namespace chat
