// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/transcript.h"

#include <QDesktopServices>
#include <QScrollBar>
#include <QTextBlock>
#include <QTextCursor>
#include <QTextDocument>
#include <QUrl>
#include <vector>

namespace desktop {
namespace {

constexpr int kDrawMilliseconds = 30;

QString Paragraph(const QString& text, const QString& style = QString()) {
  return "<p style=\"white-space: pre-wrap; margin: 2px 0 10px 12px; " + style + "\">" +
         text.toHtmlEscaped() + "</p>";
}

QString Link(const QString& action, qsizetype message, const QString& text) {
  return "<a href=\"" + action + ":" + QString::number(message) + "\">" + text + "</a>";
}

bool IsWebLink(const QString& address) {
  const QString scheme = QUrl(address).scheme();
  return scheme == "http" || scheme == "https";
}

// The model's text as HTML. What it writes as HTML stays text, nothing is loaded, and links lead to
// the web only: others would be taken for the window's own.
QString MarkdownHtml(const QString& text) {
  QTextDocument document;
  document.setMarkdown(text, QTextDocument::MarkdownFeatures(QTextDocument::MarkdownDialectGitHub) |
                                 QTextDocument::MarkdownNoHTML);
  std::vector<QTextFragment> fragments;
  for (QTextBlock block = document.begin(); block.isValid(); block = block.next()) {
    for (auto part = block.begin(); !part.atEnd(); ++part) fragments.push_back(part.fragment());
  }
  QTextCursor cursor(&document);
  // From the end, because text is replaced.
  for (auto fragment = fragments.rbegin(); fragment != fragments.rend(); ++fragment) {
    const QTextCharFormat format = fragment->charFormat();
    const bool is_image = format.isImageFormat();
    if (!is_image && (!format.isAnchor() || IsWebLink(format.anchorHref()))) continue;
    cursor.setPosition(fragment->position());
    cursor.setPosition(fragment->position() + fragment->length(), QTextCursor::KeepAnchor);
    if (is_image)
      cursor.insertText("[image]", QTextCharFormat());
    else
      cursor.setCharFormat(QTextCharFormat());
  }
  const QString html = document.toHtml();
  const qsizetype begin = html.indexOf('>', html.indexOf("<body")) + 1;
  return "<div style=\"margin: 2px 0 10px 12px\">" +
         html.mid(begin, html.lastIndexOf("</body>") - begin) + "</div>";
}

}  // namespace

Transcript::Transcript(QWidget* parent) : QTextBrowser(parent) {
  setAccessibleName("Conversation");
  setOpenLinks(false);
  setTextInteractionFlags(Qt::TextBrowserInteraction | Qt::TextSelectableByKeyboard);
  timer_.setSingleShot(true);
  timer_.setInterval(kDrawMilliseconds);
  connect(&timer_, &QTimer::timeout, this, &Transcript::DrawReply);
  connect(this, &QTextBrowser::anchorClicked, this, &Transcript::Follow);
}

void Transcript::Show(Chat* chat) {
  chat_ = chat;
  QString html;
  for (qsizetype i = 0; i < chat->messages.size(); ++i)
    html += HtmlOf(chat->messages[i].toObject(), i, true);
  setHtml(html);
  reply_position_ = document()->characterCount() - 1;
  DrawReply();
  verticalScrollBar()->setValue(verticalScrollBar()->maximum());
}

void Transcript::Grow() {
  if (!timer_.isActive()) timer_.start();
}

void Transcript::ToggleReasoning() {
  if (chat_ == nullptr) return;
  const bool show = chat_->unfolded.isEmpty();
  chat_->unfolded.clear();
  for (qsizetype i = 0; show && i <= chat_->messages.size(); ++i) chat_->unfolded.insert(i);
  Show(chat_);
}

void Transcript::DrawReply() {
  timer_.stop();
  const bool at_end = verticalScrollBar()->value() == verticalScrollBar()->maximum();
  QTextCursor cursor(document());
  cursor.setPosition(reply_position_);
  cursor.movePosition(QTextCursor::End, QTextCursor::KeepAnchor);
  cursor.removeSelectedText();
  if (chat_->answering)
    cursor.insertHtml(HtmlOf(chat_->reply.ToMessage(), chat_->messages.size(), false));
  if (at_end) verticalScrollBar()->setValue(verticalScrollBar()->maximum());
}

void Transcript::Follow(const QUrl& link) {
  const int message = link.path().toInt();
  if (link.scheme() == "edit") {
    emit EditRequested(message);
  } else if (link.scheme() == "branch") {
    emit BranchRequested(message);
  } else if (IsWebLink(link.toString())) {
    QDesktopServices::openUrl(link);
  } else {
    if (!chat_->unfolded.remove(message)) chat_->unfolded.insert(message);
    const int scrolled = verticalScrollBar()->value();
    Show(chat_);
    verticalScrollBar()->setValue(scrolled);
  }
}

QString Transcript::HtmlOf(const QJsonObject& message, qsizetype index, bool complete) const {
  const QString role = message["role"].toString();
  const QString content = message["content"].toString();
  const bool is_user = role == "user";
  const QString name = is_user ? "You" : role == "assistant" ? "Model" : role;
  QString html = "<p style=\"margin: 0\"><b>" + name.toHtmlEscaped() + "</b>";
  if (complete && is_user) html += " &nbsp; " + Link("edit", index, "edit");
  if (complete && role == "assistant") html += " &nbsp; " + Link("branch", index, "branch");
  html += "</p>";
  const QString reasoning = message["reasoning_content"].toString();
  if (!reasoning.isEmpty()) {
    const bool shown = chat_->unfolded.contains(index);
    html += "<p style=\"margin: 2px 0 4px 12px\">" +
            Link("reasoning", index,
                 QString(shown ? "&#9662;" : "&#9656;") +
                     QString(" Thinking (%1 characters)").arg(reasoning.size())) +
            "</p>";
    if (shown) html += Paragraph(reasoning, "color: gray; font-style: italic");
  }
  if (!content.isEmpty()) html += role == "assistant" ? MarkdownHtml(content) : Paragraph(content);
  for (const QJsonValue& call : message["tool_calls"].toArray()) {
    const QJsonValue function = call["function"];
    html +=
        Paragraph("Calls " + function["name"].toString() + " " + function["arguments"].toString(),
                  "font-family: monospace");
  }
  return html;
}

}  // namespace desktop
