// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/settings_panel.h"

#include <QFormLayout>
#include <QVBoxLayout>
#include <algorithm>
#include <limits>

namespace desktop {

SettingsPanel::SettingsPanel(QWidget* parent) : QWidget(parent) {
  auto* column = new QVBoxLayout(this);
  auto* form = new QFormLayout;
  column->addLayout(form);
  column->addStretch();
  // A row that screen readers name by its label.
  const auto add = [&](auto* widget, const QString& label, const char* name) {
    widget->setObjectName(name);
    widget->setAccessibleName(QString(label).remove('&'));
    form->addRow(label, widget);
    return widget;
  };
  temperature_ = add(new QDoubleSpinBox, "Te&mperature", "temperature");
  temperature_->setRange(0, 5);
  temperature_->setSingleStep(0.1);
  temperature_->setSpecialValueText("0 (greedy)");
  top_p_ = add(new QDoubleSpinBox, "Top-&p", "top_p");
  top_p_->setRange(0.01, 1);
  top_p_->setSingleStep(0.05);
  top_p_->setValue(1);
  seed_ = add(new QSpinBox, "See&d", "seed");
  seed_->setRange(0, std::numeric_limits<int>::max());
  seed_->setSpecialValueText("random");
  thinking_ = add(new QComboBox, "T&hinking", "thinking");
  thinking_->addItem("off", DSV4_THINKING_OFF);
  thinking_->addItem("low", DSV4_THINKING_LOW);
  thinking_->addItem("high", DSV4_THINKING_HIGH);
  thinking_->addItem("max", DSV4_THINKING_MAX);
  most_tokens_ = add(new QSpinBox, "Lon&gest answer", "most_tokens");
  most_tokens_->setRange(0, std::numeric_limits<int>::max());
  most_tokens_->setSpecialValueText("no limit");
  most_tokens_->setSuffix(" tokens");
  drafts_ = add(new QSpinBox, "Draft to&kens", "drafts");
  drafts_->setRange(0, 0);
  system_ = add(new QPlainTextEdit, "&System message", "system");
  tools_ = add(new QPlainTextEdit, "Too&ls", "tools");
  tools_->setPlaceholderText("A JSON array of functions in the form of OpenAI's chat API");
  for (QPlainTextEdit* edit : {system_, tools_}) {
    edit->setTabChangesFocus(true);
    edit->setMinimumWidth(120);
    edit->setMaximumHeight(8 * edit->fontMetrics().lineSpacing());
  }
}

void SettingsPanel::SetModel(const dsv4::EngineInfo& info, const dsv4::Sampling& defaults) {
  defaults_ = defaults;
  temperature_->setValue(std::max(defaults.temperature, 0.0f));
  top_p_->setValue(defaults.top_p > 0 ? defaults.top_p : 1);
  most_tokens_->setValue(static_cast<int>(std::max<int64_t>(defaults.max_tokens, 0)));
  drafts_->setRange(0, info.max_draft_tokens);
  drafts_->setValue(info.max_draft_tokens);
}

void SettingsPanel::ShowChat(const Chat& chat) {
  system_->setPlainText(chat.system);
  tools_->setPlainText(chat.tools);
}

dsv4::Sampling SettingsPanel::sampling() const {
  dsv4::Sampling sampling = defaults_;
  const double temperature = temperature_->value();
  sampling.temperature = temperature == 0 ? DSV4_GREEDY : static_cast<float>(temperature);
  sampling.top_p = static_cast<float>(top_p_->value());
  sampling.seed =
      seed_->value() != 0 ? static_cast<uint64_t>(seed_->value()) : uint64_t{DSV4_SEED_RANDOM};
  sampling.max_tokens = most_tokens_->value() == 0 ? -1 : most_tokens_->value();
  sampling.draft_tokens = drafts_->value() == 0 ? -1 : drafts_->value();
  return sampling;
}

dsv4_thinking_mode SettingsPanel::thinking() const { return thinking_->currentData().toInt(); }

}  // namespace desktop
