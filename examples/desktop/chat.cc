// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/chat.h"

#include <QFile>
#include <QFileInfo>
#include <QJsonDocument>
#include <QSaveFile>
#include <stdexcept>

namespace desktop {
namespace {

constexpr int kVersion = 1;

[[noreturn]] void Fail(const QString& message) { throw std::runtime_error(message.toStdString()); }

}  // namespace

void StreamingReply::Add(const dsv4::Event& event) {
  const QString piece = QString::fromStdString(event.text);
  switch (event.type) {
    case DSV4_PARSER_REASONING:
      reasoning += piece;
      break;
    case DSV4_PARSER_TEXT:
      text += piece;
      break;
    case DSV4_PARSER_TOOL_CALL_START:
      calls.append({{"id", QString::fromStdString(event.id)},
                    {"function", QJsonObject{{"name", piece}, {"arguments", ""}}}});
      break;
    case DSV4_PARSER_TOOL_CALL_ARGUMENTS: {
      QJsonObject function = calls.back()["function"].toObject();
      function["arguments"] = function["arguments"].toString() + piece;
      calls.back()["function"] = function;
      break;
    }
    case DSV4_PARSER_MALFORMED:
    case DSV4_PARSER_END:
      if (event.call >= 0) calls.removeLast();  // incomplete
      break;
    default:
      break;
  }
}

QJsonObject StreamingReply::ToMessage() const {
  QJsonArray list;
  for (const QJsonObject& call : calls) list.append(call);
  return {{"role", "assistant"},
          {"reasoning_content", reasoning},
          {"content", text},
          {"tool_calls", list}};
}

QJsonArray Chat::AllMessages() const {
  QJsonArray all = messages;
  if (system.isEmpty() && tools.isEmpty()) return all;
  QJsonObject message = {{"role", "system"}, {"content", system}};
  if (!tools.isEmpty()) {
    QJsonParseError error;
    const QJsonDocument list = QJsonDocument::fromJson(tools.toUtf8(), &error);
    if (!list.isArray())
      Fail("the tools are not a JSON array: " + error.errorString() + " at byte " +
           QString::number(error.offset));
    message["tools"] = list.array();
  }
  all.prepend(message);
  return all;
}

QStringList Chat::OpenCalls() const {
  qsizetype answer = messages.size() - 1;
  while (answer >= 0 && messages[answer]["role"] == "tool") --answer;
  QStringList open;
  if (answer < 0) return open;
  for (const QJsonValue& call : messages[answer]["tool_calls"].toArray())
    open.append(call["id"].toString());
  for (qsizetype i = answer + 1; i < messages.size(); ++i)
    open.removeOne(messages[i]["tool_call_id"].toString());
  return open;
}

void Save(const Chat& chat, const QString& path) {
  const QJsonObject root = {
      {"dsv4_desktop", kVersion}, {"title", chat.title}, {"messages", chat.AllMessages()}};
  const QByteArray text = QJsonDocument(root).toJson();
  QSaveFile file(path);
  if (!file.open(QIODevice::WriteOnly) || file.write(text) != text.size() || !file.commit())
    Fail(path + ": " + file.errorString());
}

Chat Load(const QString& path) {
  QFile file(path);
  if (!file.open(QIODevice::ReadOnly)) Fail(path + ": " + file.errorString());
  QJsonParseError error;
  const QJsonObject root = QJsonDocument::fromJson(file.readAll(), &error).object();
  if (error.error != QJsonParseError::NoError) Fail(path + ": " + error.errorString());
  if (root["dsv4_desktop"] != kVersion)
    Fail(path + ": \"dsv4_desktop\" is not " + QString::number(kVersion) +
         ", so this is not a conversation that this version saved");
  Chat chat;
  chat.title = root["title"].toString(QFileInfo(path).completeBaseName());
  chat.messages = root["messages"].toArray();
  for (const QJsonValue& message : chat.messages)
    if (!message["role"].isString()) Fail(path + ": a message has no \"role\"");
  if (!chat.messages.isEmpty() && chat.messages.at(0)["role"] == "system") {
    const QJsonObject system = chat.messages.takeAt(0).toObject();
    chat.system = system["content"].toString();
    const QJsonArray tools = system["tools"].toArray();
    if (!tools.isEmpty()) chat.tools = QString::fromUtf8(QJsonDocument(tools).toJson());
  }
  return chat;
}

}  // namespace desktop
