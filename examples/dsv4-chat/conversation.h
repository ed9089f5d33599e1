// SPDX-License-Identifier: Apache-2.0
// One conversation with a model: its messages, and how an answer is made.
#pragma once

#include <dsv4/dsv4.hpp>
#include <optional>
#include <string>
#include <vector>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/replay.h"
#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// What is thrown: Failures and the library's Errors.
class Conversation {
 public:
  // Opens the model, with a progress bar on a terminal. `output` gets what the model says. All must
  // outlive this.
  Conversation(const Options& options, Screen* screen, TurnOutput* output);

  enum class End { kDone, kInterrupted };

  // Answers `text`: streams to the output and keeps the turn, also of an answer that Ctrl-C
  // stopped. When it throws, the conversation is as before the call.
  End Reply(const std::string& text);

  // Calls of the last answer that are whole and wait for results.
  const std::vector<dsv4::ToolCall>& open_calls() const { return open_calls_; }
  // Answers their results, one for each, in the same way. What comes of no results is a Reply.
  End ReplyToResults(const std::vector<std::string>& results);
  void DropCalls() { open_calls_.clear(); }

  // Answers the last question once more, from other random numbers. Throws when there is none.
  End Regenerate();
  // Forgets the last question and its answer; false when there is none.
  bool Undo();
  // Forgets all turns but the system message.
  void Restart();
  // From the next answer on. An empty text removes it.
  void set_system(const std::string& text);
  void set_thinking(dsv4_thinking_mode mode);
  // "temp=0.5": see SetSampling in options.h.
  void Set(const std::string& assignment);

  // Keeps the conversation in two files: what was computed in `path`, and the messages in
  // `path`.messages.json. Another conversation there is replaced; anything else throws.
  void Save(const std::string& path);
  // Continues the conversation that was saved there. When it throws, nothing has changed.
  void Load(const std::string& path);

  // Gives the model's memory back. The conversation goes to the host's memory, or to a file of
  // `folder`. What needs the model next loads it again.
  void Suspend(const std::string& folder) { engine_->Suspend(folder); }

  size_t message_count() const { return messages_.size(); }
  // One line about the last answer; empty before the first.
  const std::string& statistics() const { return statistics_; }

 private:
  dsv4::Conversation Open(const std::string& system_message,
                          const std::vector<std::string>& messages,
                          dsv4_thinking_mode thinking) const;
  // Loads the model again if it was suspended, with a progress bar on a terminal.
  void Wake();
  // Opens the library's conversation on what this one holds unless it is open. Wakes.
  dsv4::Conversation& session();
  void ReadTools(const std::string& path);
  size_t system_messages() const;  // 0 or 1
  void Truncate(size_t messages);
  End Send(const std::vector<dsv4::Message>& messages);
  // The assistant's turn after the last message. The model is opened again if its device is lost
  // for the first time.
  End Generate();
  End GenerateOnce(Replay* replay);
  void Reopen(const dsv4::Error& loss);
  // Polls the events. `shown`: they were shown before.
  void Deliver(bool shown);
  void Record(const dsv4::Event& event);
  void KeepReply();

  const Options& options_;
  Screen* screen_;
  TurnOutput* output_;
  std::optional<dsv4::Engine> engine_;  // there is always one between calls
  bool reopened_ = false;
  SamplingOptions sampling_options_;
  dsv4::Sampling sampling_;
  dsv4_thinking_mode thinking_;
  const dsv4_chat_encoder chat_encoder_;
  std::string system_, tools_;  // tools: a JSON array, or empty
  // As JSON objects, without the system message, for when all is rendered anew.
  std::vector<std::string> messages_;
  std::optional<dsv4::Conversation> session_;
  std::vector<dsv4::ToolCall> open_calls_;
  std::string statistics_;
};

}  // namespace chat
