// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/main_window.h"

#include <QDockWidget>
#include <QFileDialog>
#include <QHBoxLayout>
#include <QKeyEvent>
#include <QMenuBar>
#include <QScrollArea>
#include <QSplitter>
#include <QStatusBar>
#include <QToolButton>
#include <QVBoxLayout>
#include <stdexcept>
#include <utility>

namespace desktop {
namespace {

constexpr int kTitleLength = 32;

// Empty for an answer that did not begin.
QString StatisticsOf(const dsv4::SessionStats& stats) {
  if (stats.context_tokens == 0) return {};
  const double rate =
      stats.decode_seconds > 0 ? double(stats.generated_tokens) / stats.decode_seconds : 0;
  return QString("Prompt %1 tokens, %2 cached. Answer %3 tokens, %4 tokens/s. Context %5 of %6.")
      .arg(stats.prompt_tokens)
      .arg(stats.cached_tokens)
      .arg(stats.generated_tokens)
      .arg(rate, 0, 'f', 1)
      .arg(stats.used_tokens)
      .arg(stats.context_tokens);
}

template <class T>
T* Named(T* widget, const char* object, const QString& accessible_name) {
  widget->setObjectName(object);
  widget->setAccessibleName(accessible_name);
  return widget;
}

}  // namespace

MainWindow::MainWindow(Calls calls) : worker_(std::make_unique<Worker>(std::move(calls))) {
  setWindowTitle("dsv4");
  resize(1000, 640);
  AddActions();
  AddWidgets();
  ConnectWorker();
  NewChat();
  ShowNotice("Open a model folder (Ctrl+O) to begin.");
}

QAction* MainWindow::AddAction(QMenu* menu, const char* name, const QString& text,
                               const QKeySequence& keys, void (MainWindow::*function)()) {
  QAction* action = menu->addAction(text, this, function);
  action->setObjectName(name);
  action->setShortcut(keys);
  return action;
}

void MainWindow::AddActions() {
  QMenu* file = menuBar()->addMenu("&File");
  AddAction(file, "open", "&Open a model\u2026", QKeySequence::Open, &MainWindow::ChooseModel);
  AddAction(file, "save", "&Save the conversation\u2026", QKeySequence::Save,
            &MainWindow::ChooseSave);
  AddAction(file, "load", "&Load a conversation\u2026", QKeySequence("Ctrl+L"),
            &MainWindow::ChooseLoad);
  file->addSeparator();
  file->addAction("&Quit", QKeySequence::Quit, this, &QWidget::close);
  QMenu* chat = menuBar()->addMenu("&Conversation");
  AddAction(chat, "new", "&New", QKeySequence::New, &MainWindow::NewChat);
  send_ = AddAction(chat, "send", "&Send", QKeySequence("Ctrl+Return"), &MainWindow::Send);
  stop_ = AddAction(chat, "stop", "S&top", QKeySequence("Esc"), &MainWindow::Stop);
  regenerate_ =
      AddAction(chat, "regenerate", "&Regenerate", QKeySequence("Ctrl+R"), &MainWindow::Regenerate);
  edit_ = AddAction(chat, "edit", "&Edit the last question", QKeySequence("Ctrl+E"),
                    &MainWindow::EditLast);
  AddAction(chat, "thinking", "Show or hide t&hinking", QKeySequence("Ctrl+T"),
            &MainWindow::ToggleReasoning);
}

void MainWindow::AddWidgets() {
  list_ = Named(new QListWidget, "chats", "Conversations");
  list_->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);  // long titles are elided
  notice_ = Named(new QLabel, "notice", "Notice");
  notice_->setWordWrap(true);
  notice_->setTextFormat(Qt::PlainText);
  notice_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
  notice_->setStyleSheet("background: #fff4ce; color: black; padding: 6px;");
  transcript_ = new Transcript;
  transcript_->setObjectName("transcript");
  composer_ = Named(new QPlainTextEdit, "composer", "Message");
  composer_->setMaximumHeight(5 * composer_->fontMetrics().lineSpacing());
  composer_->setTabChangesFocus(true);
  composer_->installEventFilter(this);

  auto* buttons = new QVBoxLayout;
  for (QAction* action : {send_, stop_, regenerate_}) {
    auto* button = new QToolButton;
    button->setDefaultAction(action);
    button->setFocusPolicy(Qt::StrongFocus);
    button->setSizePolicy(QSizePolicy::Minimum, QSizePolicy::Fixed);
    buttons->addWidget(button);
  }
  auto* bottom = new QHBoxLayout;
  bottom->addWidget(composer_, 1);
  bottom->addLayout(buttons);
  auto* page = new QWidget;
  auto* column = new QVBoxLayout(page);
  column->addWidget(notice_);
  column->addWidget(transcript_);
  column->addLayout(bottom);
  auto* splitter = new QSplitter;
  splitter->addWidget(list_);
  splitter->addWidget(page);
  splitter->setSizes({190, 510});
  splitter->setStretchFactor(1, 1);
  setCentralWidget(splitter);

  settings_ = new SettingsPanel;
  auto* scroll = new QScrollArea;
  scroll->setWidget(settings_);
  scroll->setWidgetResizable(true);
  scroll->setFrameShape(QFrame::NoFrame);
  scroll->setFocusPolicy(Qt::NoFocus);
  auto* dock = new QDockWidget("Settings");
  dock->setObjectName("settings");
  dock->setFeatures(QDockWidget::DockWidgetMovable | QDockWidget::DockWidgetFloatable);
  dock->setWidget(scroll);
  addDockWidget(Qt::RightDockWidgetArea, dock);
  resizeDocks({dock}, {290}, Qt::Horizontal);

  statistics_ = Named(new QLabel, "statistics", "Statistics");
  progress_ = Named(new QProgressBar, "progress", "Progress of opening the model");
  cancel_open_ = Named(new QPushButton("Cancel"), "cancel_open", "Cancel opening the model");
  statusBar()->addWidget(statistics_, 1);
  statusBar()->addPermanentWidget(progress_);
  statusBar()->addPermanentWidget(cancel_open_);
  ShowProgress(false);

  connect(list_, &QListWidget::currentItemChanged, this, [this](QListWidgetItem* item) {
    if (item != nullptr) Select(item->data(Qt::UserRole).toInt());
  });
  connect(composer_, &QPlainTextEdit::textChanged, this, &MainWindow::UpdateActions);
  connect(transcript_, &Transcript::EditRequested, this, &MainWindow::BeginEdit);
  connect(transcript_, &Transcript::BranchRequested, this,
          [this](int message) { Branch(message + 1); });
}

void MainWindow::ConnectWorker() {
  const Worker* worker = worker_.get();
  connect(cancel_open_, &QPushButton::clicked, this, [this] { worker_->CancelOpen(); });
  connect(worker, &Worker::Progress, this, [this](int percent, const QString& text) {
    progress_->setFormat(text);
    progress_->setValue(percent);
  });
  connect(worker, &Worker::Opened, this, &MainWindow::OnOpened);
  connect(worker, &Worker::OpenFailed, this, &MainWindow::OnOpenFailed);
  connect(worker, &Worker::Started, this, &MainWindow::OnStarted);
  connect(worker, &Worker::Streamed, this, [this](int id, const dsv4::Event& event) {
    chats_.at(id).reply.Add(event);
    if (id == current_) transcript_->Grow();
  });
  connect(worker, &Worker::Ended, this, &MainWindow::OnEnded);
  connect(worker, &Worker::DeviceLost, this, &MainWindow::OnDeviceLost);
}

// Models.

void MainWindow::ChooseModel() {
  if (dialog_ == nullptr) {
    dialog_ = new ModelDialog(worker_.get(), this);
    connect(dialog_, &QDialog::accepted, this, [this] { Open(dialog_->model()); });
  }
  dialog_->open();
}

void MainWindow::Open(const Model& model) {
  is_open_ = false;
  setWindowTitle("dsv4 \u2013 " + QString::fromStdString(model.folder));
  ShowNotice({});
  ShowProgress(true);
  UpdateActions();
  worker_->Open(model);
}

void MainWindow::OnOpened(const dsv4::EngineInfo& info, const dsv4::Sampling& defaults) {
  is_open_ = true;
  ShowProgress(false);
  if (lost_.isEmpty()) {
    settings_->SetModel(info, defaults);
  } else {
    ShowNotice("The device was lost: " + lost_ +
               ". The model was loaded again, and the conversations continue.");
    lost_.clear();
  }
  UpdateActions();
}

void MainWindow::OnOpenFailed(const QString& error) {
  is_open_ = false;
  ShowProgress(false);
  ShowNotice(lost_.isEmpty() ? error
                             : "The device was lost: " + lost_ +
                                   ". The model could not be loaded again: " + error +
                                   ". The conversations are kept. Open a model to continue them, "
                                   "for example on another device.");
  lost_.clear();
  UpdateActions();
}

void MainWindow::OnDeviceLost(const QString& error) {
  lost_ = error;
  is_open_ = false;
  ShowNotice("The device was lost: " + error + ". The model is being loaded again.");
  ShowProgress(true);
  UpdateActions();
}

// Conversations.

Chat& MainWindow::Add(Chat chat) {
  chat.id = ++last_id_;
  const int id = chat.id, parent = chat.parent;
  chats_[id] = std::move(chat);
  auto* item = new QListWidgetItem;
  item->setData(Qt::UserRole, id);
  int row = list_->count();
  for (int i = 0; i < list_->count(); ++i)
    if (list_->item(i)->data(Qt::UserRole).toInt() == parent) row = i + 1;
  list_->insertItem(row, item);
  Update(chats_[id]);
  list_->setCurrentItem(item);
  return chats_[id];
}

void MainWindow::NewChat() {
  Add(Chat());
  composer_->setFocus();
}

void MainWindow::Select(int id) {
  if (id == current_) return;
  if (current_ != 0) KeepSettings();
  LeaveEdit();
  current_ = id;
  settings_->ShowChat(Current());
  Update(Current());
}

void MainWindow::KeepSettings() {
  Current().system = settings_->system();
  Current().tools = settings_->tools();
}

Chat& MainWindow::Branch(qsizetype count) {
  KeepSettings();
  Chat branch;
  branch.parent = current_;
  branch.title = Current().title;
  branch.system = Current().system;
  branch.tools = Current().tools;
  branch.unfolded = Current().unfolded;
  for (qsizetype i = 0; i < count; ++i) branch.messages.append(Current().messages.at(i));
  return Add(std::move(branch));
}

void MainWindow::Update(const Chat& chat) {
  QString indent;
  for (int id = chat.parent; id != 0; id = chats_.at(id).parent) indent += "   ";
  for (int i = 0; i < list_->count(); ++i) {
    if (list_->item(i)->data(Qt::UserRole).toInt() != chat.id) continue;
    list_->item(i)->setText(indent + (chat.parent != 0 ? "\u21b3 " : "") +
                            (chat.title.isEmpty() ? "New conversation" : chat.title) +
                            (chat.answering ? " \u2026" : ""));
  }
  if (chat.id != current_) return;
  transcript_->Show(&Current());
  statistics_->setText(chat.statistics);
  UpdateActions();
}

// Turns.

void MainWindow::Send() {
  const QString text = composer_->toPlainText().trimmed();
  if (!send_->isEnabled() || text.isEmpty()) return;
  KeepSettings();
  const int edited = std::exchange(editing_, -1);
  Chat& chat = edited >= 0 ? Branch(edited) : Current();
  const QStringList calls = chat.OpenCalls();
  chat.messages.append(
      calls.isEmpty()
          ? QJsonObject{{"role", "user"}, {"content", text}}
          : QJsonObject{{"role", "tool"}, {"tool_call_id", calls[0]}, {"content", text}});
  if (chat.title.isEmpty() || edited >= 0) chat.title = text.simplified().left(kTitleLength);
  composer_->clear();
  if (chat.OpenCalls().isEmpty()) {
    Answer(chat);
  } else {
    Update(chat);
  }
}

void MainWindow::Answer(Chat& chat) {
  try {
    Turn turn;
    turn.chat = chat.id;
    turn.parent = chat.parent;
    turn.messages = chat.AllMessages();
    turn.thinking = settings_->thinking();
    turn.sampling = settings_->sampling();
    chat.reply = {};
    chat.answering = true;
    chat.statistics = "Answering\u2026";
    ShowNotice({});
    worker_->Answer(std::move(turn));
  } catch (const std::runtime_error& error) {
    ShowNotice(error.what());
  }
  Update(chat);
}

void MainWindow::OnStarted(int id) {
  Chat& chat = chats_.at(id);
  chat.reply = {};
  Update(chat);
}

void MainWindow::OnEnded(int id, const QJsonObject& reply, const dsv4::SessionStats& stats,
                         const QString& error) {
  Chat& chat = chats_.at(id);
  chat.answering = false;
  chat.reply = {};
  if (!reply.isEmpty()) chat.messages.append(reply);
  chat.statistics = StatisticsOf(stats);
  if (!error.isEmpty()) ShowNotice(error);
  Update(chat);
}

void MainWindow::Stop() {
  if (editing_ >= 0) {
    LeaveEdit();
  } else if (Current().answering) {
    worker_->Stop(current_);
  }
}

// Also answers a question that an error left without an answer.
void MainWindow::Regenerate() {
  Chat& chat = Current();
  KeepSettings();
  if (std::as_const(chat).messages.last()["role"] == "assistant") chat.messages.removeLast();
  if (!chat.messages.isEmpty()) Answer(chat);
}

void MainWindow::BeginEdit(int message) {
  editing_ = message;
  composer_->setPlainText(Current().messages.at(message)["content"].toString());
  composer_->moveCursor(QTextCursor::End);
  composer_->setFocus();
  ShowNotice("Editing a question. Sending it begins a branch; Esc leaves.");
  UpdateActions();
}

void MainWindow::EditLast() {
  for (qsizetype i = Current().messages.size(); i-- > 0;) {
    if (Current().messages.at(i)["role"] != "user") continue;
    BeginEdit(static_cast<int>(i));
    return;
  }
}

void MainWindow::LeaveEdit() {
  if (editing_ < 0) return;
  editing_ = -1;
  composer_->clear();
  ShowNotice({});
}

bool MainWindow::eventFilter(QObject* object, QEvent* event) {
  if (object == composer_ && event->type() == QEvent::KeyPress) {
    const auto* key = static_cast<QKeyEvent*>(event);
    const bool is_return = key->key() == Qt::Key_Return || key->key() == Qt::Key_Enter;
    if (is_return && !(key->modifiers() & Qt::ShiftModifier)) {
      Send();
      return true;
    }
  }
  return QMainWindow::eventFilter(object, event);
}

// Files.

void MainWindow::ChooseSave() {
  const QString path =
      QFileDialog::getSaveFileName(this, "Save the conversation", {}, "Conversations (*.json)");
  if (!path.isEmpty()) SaveTo(path);
}

void MainWindow::ChooseLoad() {
  const QString path =
      QFileDialog::getOpenFileName(this, "Load a conversation", {}, "Conversations (*.json)");
  if (!path.isEmpty()) LoadFrom(path);
}

void MainWindow::SaveTo(const QString& path) {
  KeepSettings();
  try {
    Save(Current(), path);
    ShowNotice("Saved " + path + ".");
  } catch (const std::runtime_error& error) {
    ShowNotice(error.what());
  }
}

void MainWindow::LoadFrom(const QString& path) {
  try {
    Add(Load(path));
    ShowNotice({});
  } catch (const std::runtime_error& error) {
    ShowNotice(error.what());
  }
}

// What is shown besides.

void MainWindow::ShowNotice(const QString& text) {
  notice_->setText(text);
  notice_->setVisible(!text.isEmpty());
}

void MainWindow::ShowProgress(bool visible) {
  progress_->setFormat("%p%");
  progress_->setValue(0);
  progress_->setVisible(visible);
  cancel_open_->setVisible(visible);
}

void MainWindow::UpdateActions() {
  const Chat& chat = Current();
  const bool idle = is_open_ && !chat.answering;
  const QStringList calls = chat.OpenCalls();
  send_->setEnabled((idle || (is_open_ && editing_ >= 0)) &&
                    !composer_->toPlainText().trimmed().isEmpty());
  stop_->setEnabled(chat.answering || editing_ >= 0);
  regenerate_->setEnabled(idle && !chat.messages.isEmpty() && calls.isEmpty());
  edit_->setEnabled(is_open_ && !chat.messages.isEmpty());
  composer_->setPlaceholderText(calls.isEmpty() ? "Ask something"
                                                : "The result of the tool call " + calls[0]);
}

}  // namespace desktop
