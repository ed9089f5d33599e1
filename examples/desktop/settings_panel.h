// SPDX-License-Identifier: Apache-2.0
// How the next answer is sampled, and what the model is told before the conversation.
#pragma once

#include <dsv4/dsv4.hpp>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QPlainTextEdit>
#include <QSpinBox>
#include <QWidget>

#include "examples/desktop/chat.h"

namespace desktop {

class SettingsPanel : public QWidget {
  Q_OBJECT

 public:
  explicit SettingsPanel(QWidget* parent = nullptr);

  // Shows the defaults of a model that was opened.
  void SetModel(const dsv4::EngineInfo& info, const dsv4::Sampling& defaults);
  // Shows the system message and the tools of a conversation.
  void ShowChat(const Chat& chat);

  // A seed of 0 is a new random one for each answer.
  dsv4::Sampling sampling() const;
  dsv4_thinking_mode thinking() const;
  QString system() const { return system_->toPlainText(); }
  QString tools() const { return tools_->toPlainText().trimmed(); }

 private:
  dsv4::Sampling defaults_;
  QDoubleSpinBox *temperature_, *top_p_;
  QSpinBox *seed_, *most_tokens_, *drafts_;
  QComboBox* thinking_;
  QPlainTextEdit *system_, *tools_;
};

}  // namespace desktop
