// SPDX-License-Identifier: Apache-2.0
// One conversation with a model: keeps its messages and computes answers.
#pragma once

#include <dsv4/dsv4.hpp>
#include <optional>
#include <string>
#include <vector>

#include "examples/dsv4-chat/options.h"
#include "examples/dsv4-chat/screen.h"
#include "examples/dsv4-chat/turn_output.h"

namespace chat {

// Throws Failures and the library's Errors.
class Conversation {
 public:
  // Opens the model, with a progress bar on a terminal. `output` receives the answers. The
  // arguments must outlive this object.
  Conversation(const Options& options, Screen* screen, TurnOutput* output);

  enum class End { kDone, kInterrupted };

  // Answers `text`: streams the answer to the output and keeps the turn, also if Ctrl-C stopped it.
  // If it throws, the conversation is unchanged.
  End Reply(const std::string& text);

  // The complete tool calls of the last answer, which wait for results.
  const std::vector<dsv4::ToolCall>& open_calls() const { return open_calls_; }
  // Answers the results of the calls, one for each. Without results use Reply.
  End ReplyToResults(const std::vector<std::string>& results);
  void DropCalls() { open_calls_.clear(); }

  // Answers the last question again with another seed. Throws if there is none.
  End Regenerate();
  // Removes the last question and its answer. False if there is none.
  bool Undo();
  // Removes all messages except the system message.
  void Restart();
  // Sets the system message from the next answer on. An empty text removes it.
  void set_system(const std::string& text);
  void set_thinking(dsv4_thinking_mode mode);
  // "temp=0.5": see SetSampling in options.h.
  void Set(const std::string& assignment);

  // Saves the conversation in two files: the computed state in `path`, and the messages in
  // `path`.messages.json. Replaces a saved conversation there; throws for any other file.
  void Save(const std::string& path);
  // Continues the conversation that was saved there. When it throws, nothing has changed.
  void Load(const std::string& path);

  // Frees the model's memory. The conversation is kept in host memory, or in a file in `folder`.
  // The next call that needs the model loads it again.
  void Suspend(const std::string& folder) { engine_.Suspend(folder); }

  size_t message_count() const { return messages_.size(); }
  // One line about the last answer; empty before the first.
  const std::string& statistics() const { return statistics_; }

 private:
  // Sets the session's messages to the system message and `messages`.
  void Sync(dsv4::Conversation* session, const std::vector<std::string>& messages) const;
  // Loads the model again if it was suspended or its device was lost, with a progress bar on a
  // terminal.
  void Wake();
  // Opens the library's conversation unless it is open. Wakes.
  dsv4::Conversation& session();
  void ReadTools(const std::string& path);
  void Truncate(size_t messages);
  End Send(const std::vector<dsv4::Message>& messages);
  // The assistant's turn after the last message.
  End Generate();
  // Polls the events.
  void Deliver();
  void Record(const dsv4::Event& event);

  Screen* screen_;
  TurnOutput* output_;
  const dsv4::Engine engine_;
  SamplingOptions sampling_options_;
  dsv4::Sampling sampling_;
  dsv4_thinking_mode thinking_;
  const dsv4_chat_encoder chat_encoder_;
  std::string system_, tools_;  // tools: a JSON array, or empty
  // The messages as JSON objects, without the system message.
  std::vector<std::string> messages_;
  std::optional<dsv4::Conversation> session_;
  std::vector<dsv4::ToolCall> open_calls_;
  std::string statistics_;
};

}  // namespace chat
