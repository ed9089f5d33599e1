// SPDX-License-Identifier: Apache-2.0
// One conversation with a model: the engine and session, the turns so far, and how an answer is
// made.
#pragma once

#include <dsv4/dsv4.h>

#include <memory>
#include <string>
#include <vector>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"

namespace chat {

class Conversation {
 public:
  // Opens the model, with a progress bar on a terminal. Throws a Failure.
  Conversation(const Options& options, Screen* screen);

  enum class End { kDone, kInterrupted };

  // Answers `text`: streams to the screen and keeps the turn, also of an answer that Ctrl-C
  // stopped. Throws a Failure; the conversation is then as before the call.
  End Reply(const std::string& text);

  // Forgets all turns but the system message.
  void Restart() { turns_.clear(); }
  // From the next answer on. An empty text removes it.
  void set_system(const std::string& text) { system_ = text; }
  void set_thinking(dsv4_thinking_mode mode) { thinking_ = mode; }

  // One line about the last answer; empty before the first.
  const std::string& statistics() const { return statistics_; }

 private:
  struct Turn {
    dsv4_role role;
    std::string content, reasoning;
  };
  struct Close {
    void operator()(dsv4_engine* engine) const { dsv4_engine_close(engine); }
    void operator()(dsv4_session* session) const { dsv4_session_close(session); }
  };

  void OpenEngine(const Options& options);
  void OpenSession(const Options& options);
  std::vector<int32_t> Render() const;
  End Generate(Turn* answer);

  Screen* screen_;
  std::unique_ptr<dsv4_engine, Close> engine_;
  std::unique_ptr<dsv4_session, Close> session_;
  const dsv4_tokenizer* tokenizer_ = nullptr;  // the engine's
  int32_t reasoning_end_ = -1;                 // the token </think>
  dsv4_thinking_mode thinking_;
  std::string system_;
  std::vector<Turn> turns_;
  std::string statistics_;
};

}  // namespace chat
