// SPDX-License-Identifier: Apache-2.0
// The window: conversations, the one that is shown, and what can be done with it.
#pragma once

#include <QAction>
#include <QLabel>
#include <QListWidget>
#include <QMainWindow>
#include <QPlainTextEdit>
#include <QProgressBar>
#include <QPushButton>
#include <map>
#include <memory>

#include "examples/desktop/chat.h"
#include "examples/desktop/model_dialog.h"
#include "examples/desktop/settings_panel.h"
#include "examples/desktop/transcript.h"
#include "examples/desktop/worker.h"

namespace desktop {

class MainWindow : public QMainWindow {
  Q_OBJECT

 public:
  explicit MainWindow(Calls calls = {});

  // Opens a model. Another one that is open is closed.
  void Open(const Model& model);
  // Writes the shown conversation to a file, and shows one that was saved.
  void SaveTo(const QString& path);
  void LoadFrom(const QString& path);

 protected:
  // Return sends, Shift+Return begins a line.
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  QAction* AddAction(QMenu* menu, const char* name, const QString& text, const QKeySequence& keys,
                     void (MainWindow::*function)());
  void AddActions();
  void AddWidgets();
  void ConnectWorker();

  void ChooseModel();
  void NewChat();
  void Send();
  void Stop();
  void Regenerate();
  void EditLast();
  void ToggleReasoning() { transcript_->ToggleReasoning(); }
  void ChooseSave();
  void ChooseLoad();

  // Adds a conversation to the list and shows it.
  Chat& Add(Chat chat);
  Chat& Current() { return chats_.at(current_); }
  void Select(int id);
  // Takes system message and tools from the settings.
  void KeepSettings();
  // A new conversation with the first `count` messages of the shown one.
  Chat& Branch(qsizetype count);
  void BeginEdit(int message);
  void LeaveEdit();
  void Answer(Chat& chat);
  void Update(const Chat& chat);
  void ShowNotice(const QString& text);
  void ShowProgress(bool visible);
  void UpdateActions();

  void OnOpened(const dsv4::EngineInfo& info, const dsv4::Sampling& defaults);
  void OnOpenFailed(const QString& error);
  void OnStarted(int id);
  void OnEnded(int id, const QJsonObject& reply, const dsv4::SessionStats& stats,
               const QString& error);
  void OnDeviceLost(const QString& error);

  std::unique_ptr<Worker> worker_;
  std::map<int, Chat> chats_;
  int current_ = 0, last_id_ = 0;
  int editing_ = -1;  // the message of the shown conversation that is edited
  bool is_open_ = false;
  QString lost_;  // the error of a lost device until the model is open again

  ModelDialog* dialog_ = nullptr;
  QListWidget* list_;
  QLabel *notice_, *statistics_;
  Transcript* transcript_;
  QPlainTextEdit* composer_;
  SettingsPanel* settings_;
  QProgressBar* progress_;
  QPushButton* cancel_open_;
  QAction *send_, *stop_, *regenerate_, *edit_;
};

}  // namespace desktop
