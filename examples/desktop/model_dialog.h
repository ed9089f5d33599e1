// SPDX-License-Identifier: Apache-2.0
// Chooses a model folder and how it is opened, and shows the memory that it would take.
#pragma once

#include <QComboBox>
#include <QDialog>
#include <QLabel>
#include <QLineEdit>
#include <QListWidget>
#include <QPushButton>
#include <QSpinBox>
#include <QTimer>
#include <vector>

#include "examples/desktop/worker.h"

namespace desktop {

class ModelDialog : public QDialog {
  Q_OBJECT

 public:
  // The worker plans, and must outlive the dialog.
  explicit ModelDialog(Worker* worker, QWidget* parent = nullptr);

  // The choice, valid once the dialog is accepted.
  Model model() const;
  void SetFolder(const QString& folder);

 private:
  void Browse();
  void ShowDevices(const std::vector<dsv4::Device>& devices);
  void ShowPlan(const dsv4::EngineInfo& info, const QString& error, const QString& expected);

  Worker* worker_;
  QLineEdit* folder_;
  QComboBox* backend_;
  QListWidget* devices_;  // GPUs; data: their indices
  QSpinBox *context_, *cache_, *drafts_;
  QLabel* plan_;
  QPushButton* open_;
  QTimer timer_;  // plans once the input rests
};

}  // namespace desktop
