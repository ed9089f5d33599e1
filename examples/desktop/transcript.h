// SPDX-License-Identifier: Apache-2.0
// The messages of a conversation. Reasoning is folded behind a link. Links are reachable by Tab.
#pragma once

#include <QTextBrowser>
#include <QTimer>

#include "examples/desktop/chat.h"

namespace desktop {

class Transcript : public QTextBrowser {
  Q_OBJECT

 public:
  explicit Transcript(QWidget* parent = nullptr);

  // Shows a conversation, which must outlive the object or the next call.
  void Show(Chat* chat);
  // The streaming reply has grown. Draws it soon, and not for every token.
  void Grow();
  // Shows the reasoning of all messages, or hides it if any is shown.
  void ToggleReasoning();

 signals:
  void EditRequested(int message);
  void BranchRequested(int message);

 private:
  void Follow(const QUrl& link);
  void DrawReply();
  QString HtmlOf(const QJsonObject& message, qsizetype index, bool complete) const;

  Chat* chat_ = nullptr;
  int reply_position_ = 0;  // of the document: where the streaming reply begins
  QTimer timer_;
};

}  // namespace desktop
