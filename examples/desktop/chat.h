// SPDX-License-Identifier: Apache-2.0
// A conversation as the window keeps it. Branches are conversations of their own.
#pragma once

#include <dsv4/dsv4.hpp>

#include <QJsonArray>
#include <QJsonObject>
#include <QSet>
#include <QString>
#include <QStringList>

namespace desktop {

// An assistant's message while it streams.
struct StreamingReply {
  void Add(const dsv4::Event& event);
  // In the form of the library's JSON.
  QJsonObject ToMessage() const;

  QString reasoning, text;
  QList<QJsonObject> calls;
};

struct Chat {
  int id = 0;
  int parent = 0;  // the conversation that it branched from; 0: none
  QString title;
  QString system, tools;     // tools: a JSON array, or empty
  QJsonArray messages;       // without the system message
  bool answering = false;    // the model computes the next message
  StreamingReply reply;      // while answering
  QSet<qsizetype> unfolded;  // messages whose reasoning is shown
  QString statistics;        // of the last answer

  // All messages, with the system message. Throws std::runtime_error if the tools are not JSON.
  QJsonArray AllMessages() const;
  // The ids of tool calls at the end that have no result yet.
  QStringList OpenCalls() const;
};

// Writes a conversation to a JSON file. Throws std::runtime_error, and leaves an old file
// unchanged.
void Save(const Chat& chat, const QString& path);
// Reads the title and messages that Save wrote. Throws std::runtime_error.
Chat Load(const QString& path);

}  // namespace desktop
