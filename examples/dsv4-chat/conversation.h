// SPDX-License-Identifier: Apache-2.0
// One conversation with a model: the engine and the session on its messages, and how an answer is
// made.
#pragma once

#include <dsv4/dsv4.h>

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

struct ToolCall {
  std::string id, name, arguments;
};

class Conversation {
 public:
  // Opens the model, with a progress bar on a terminal. Throws a Failure. `output` gets what the
  // model says.
  Conversation(const Options& options, Screen* screen, TurnOutput* output);

  enum class End { kDone, kInterrupted };

  // Answers `text`: streams to the output and keeps the turn, also of an answer that Ctrl-C
  // stopped. Throws a Failure; the conversation is then as before the call.
  End Reply(const std::string& text);

  // Calls of the last answer that are whole and wait for results.
  const std::vector<ToolCall>& open_calls() const { return open_calls_; }
  // Answers their results, one for each, in the same way. What comes of no results is a Reply.
  End ReplyToResults(const std::vector<std::string>& results);
  void DropCalls() { open_calls_.clear(); }

  // Answers the last question once more, from other random numbers. Throws a Failure when there is
  // none.
  End Regenerate();
  // Forgets the last question and its answer; false when there is none.
  bool Undo();
  // Forgets all turns but the system message.
  void Restart();
  // From the next answer on. An empty text removes it. Throws a Failure for what is no text.
  void set_system(const std::string& text);
  void set_thinking(dsv4_thinking_mode mode);

  // One line about the last answer; empty before the first.
  const std::string& statistics() const { return statistics_; }

 private:
  struct Message {
    dsv4_role role;  // of a user or a tool
    std::string content;
    std::string call = {};  // tool: the id of the call that it answers
  };
  struct Turn {
    size_t begin;   // in messages_
    size_t answer;  // in messages_, the assistant's
  };
  struct Close {
    void operator()(dsv4_engine* engine) const { dsv4_engine_close(engine); }
    void operator()(dsv4_session* session) const { dsv4_session_close(session); }
  };

  static void OnEvent(void* self, const dsv4_parser_event* event);
  void OpenEngine(const Options& options);
  void SetUpSampling(const Options& options);
  void ReadTools(const std::string& path);
  std::string SystemMessage() const;
  // Opens the session on what the conversation holds unless it is open.
  void OpenSession();
  void Truncate(size_t messages);
  End Send(const std::vector<Message>& messages);
  // The assistant's turn after the last message.
  End Generate();
  void Record(const dsv4_parser_event& event);
  void RethrowFromCallback();
  void KeepReply();

  Screen* screen_;
  TurnOutput* output_;
  std::unique_ptr<dsv4_engine, Close> engine_;
  std::unique_ptr<dsv4_session, Close> session_;
  dsv4_sampling sampling_ = DSV4_SAMPLING_INIT;
  dsv4_chat_options chat_options_ = DSV4_CHAT_OPTIONS_INIT;
  std::string system_, tools_;  // tools: a JSON array, or empty
  // As JSON objects, without the system message.
  std::vector<std::string> messages_;
  std::vector<Turn> turns_;
  std::vector<ToolCall> open_calls_;
  std::exception_ptr callback_failure_;
  std::string statistics_;
};

}  // namespace chat
