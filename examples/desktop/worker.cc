// SPDX-License-Identifier: Apache-2.0
#include "examples/desktop/worker.h"

#include <QJsonDocument>
#include <chrono>
#include <exception>
#include <utility>

#include "examples/console/expectation.h"
#include "examples/console/hub_models.h"
#include "examples/console/progress_bar.h"
#include "examples/console/user_cache.h"

namespace desktop {
namespace {

// The message of an exception, and whether it says that the device is lost or a call was cancelled.
struct Failure {
  explicit Failure(const std::exception_ptr& exception) {
    try {
      std::rethrow_exception(exception);
    } catch (const dsv4::Error& error) {
      message = QString::fromUtf8(error.what()) + " (" + error.name() + ")";
      code = error.code();
    } catch (const std::exception& error) {
      message = QString::fromUtf8(error.what());
    }
  }

  QString message;
  dsv4_status code = DSV4_ERR_INTERNAL;
};

std::string JsonOf(const QJsonArray& messages) {
  return QJsonDocument(messages).toJson(QJsonDocument::Compact).toStdString();
}

}  // namespace

Worker::Worker(Calls calls) : calls_(std::move(calls)), timer_(this) {
  connect(&timer_, &QTimer::timeout, this, &Worker::Step);
  moveToThread(&thread_);
  thread_.start();
}

Worker::~Worker() {
  closing_ = true;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [chat, session] : sessions_) session.conversation.session().Stop();
  }
  QMetaObject::invokeMethod(this, [this] {
    timer_.stop();
    CloseSessions();
    engine_.reset();
    thread_.quit();
  });
  thread_.wait();
}

void Worker::Post(std::function<void()> command) {
  QMetaObject::invokeMethod(this, [this, command = std::move(command)] {
    if (!closing_) command();
  });
}

void Worker::ListDevices() {
  Post([this] {
    try {
      emit DevicesListed(calls_.list_devices());
    } catch (...) {
      dsv4::Device none;
      none.backend = DSV4_BACKEND_CUDA;
      none.index = -1;
      none.reason = Failure(std::current_exception()).message.toStdString();
      emit DevicesListed({none});
    }
  });
}

void Worker::Plan(Model model) {
  Post([this, model = std::move(model)] {
    try {
      const dsv4::EngineInfo plan = dsv4::Plan(chat::FindModel(model.folder), model.options);
      const std::string expected = chat::PlaceText(plan) + ": " + chat::SpeedText(plan);
      emit Planned(plan, QString(), QString::fromStdString(expected));
    } catch (...) {
      emit Planned(dsv4::EngineInfo(), Failure(std::current_exception()).message, QString());
    }
  });
}

void Worker::Open(Model model) {
  cancel_open_ = false;
  Post([this, model = std::move(model)] {
    for (auto& [chat, session] : sessions_)
      if (session.running) EndAnswer(chat, session, "another model was opened");
    OpenNow(model);
  });
}

dsv4::Progress Worker::LoadProgress() {
  return [this, begin = std::chrono::steady_clock::now()](const dsv4::ProgressReport& report) {
    if (report.total > 0) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      emit Progress(static_cast<int>(100 * report.done / report.total),
                    QString::fromStdString(chat::ProgressText(report, seconds.count())));
    }
    return !closing_ && !cancel_open_;
  };
}

void Worker::OpenNow(const Model& model) {
  CloseSessions();
  engine_.reset();
  dsv4::EngineOptions options = model.options;
  options.progress = LoadProgress();
  chat::KeepProfiles(&options);
  try {
    engine_ = calls_.open(chat::FindModel(model.folder), options);
    engine_->tokenizer();  // a folder without one opens, but cannot chat
    const dsv4::EngineInfo info = engine_->info();
    max_sessions_ = info.max_sessions;
    emit Opened(info, engine_->default_sampling());
  } catch (...) {
    engine_.reset();
    emit OpenFailed(Failure(std::current_exception()).message);
  }
}

void Worker::Answer(Turn turn) {
  Post([this, turn = std::move(turn)] { AnswerNow(turn); });
}

void Worker::AnswerNow(Turn turn) {
  const int chat = turn.chat;
  if (!engine_) {
    emit Ended(chat, QJsonObject(), dsv4::SessionStats(), "no model is open");
    return;
  }
  try {
    Session& session = SessionOf(turn);
    dsv4::ChatOptions options;
    options.thinking = turn.thinking;
    session.conversation.SyncJson(JsonOf(turn.messages), options);
    session.conversation.session().SetSampling(turn.sampling);
    session.turn = turn;
    session.running = true;
    emit Started(chat);
    timer_.start(0);
  } catch (...) {
    const Failure failure(std::current_exception());
    {
      // What it holds now is not known.
      const std::lock_guard lock(mutex_);
      sessions_.erase(chat);
    }
    if (failure.code == DSV4_ERR_DEVICE_LOST) {
      Recover(failure.message);
      if (engine_ && !std::exchange(turn.recovered, true)) return AnswerNow(std::move(turn));
    }
    emit Ended(chat, QJsonObject(), dsv4::SessionStats(), failure.message);
  }
}

// The session of a conversation. A new one shares the cached tokens of its parent.
Worker::Session& Worker::SessionOf(const Turn& turn) {
  auto at = sessions_.find(turn.chat);
  if (at == sessions_.end()) {
    MakeRoom(turn.parent);
    const auto parent = sessions_.find(turn.parent);
    Session session = {parent != sessions_.end() ? parent->second.conversation.Fork()
                                                 : dsv4::Conversation(*engine_),
                       turn};
    const std::lock_guard lock(mutex_);
    at = sessions_.emplace(turn.chat, std::move(session)).first;
  }
  at->second.last_use = ++uses_;
  return at->second;
}

// Closes the session that was used least recently if the engine has no room for another one. Its
// conversation is computed again when it continues. Without an idle session the library refuses.
void Worker::MakeRoom(int parent) {
  if (sessions_.size() < static_cast<size_t>(max_sessions_)) return;
  auto oldest = sessions_.end();
  for (auto at = sessions_.begin(); at != sessions_.end(); ++at) {
    if (at->second.running || at->first == parent) continue;
    if (oldest == sessions_.end() || at->second.last_use < oldest->second.last_use) oldest = at;
  }
  if (oldest == sessions_.end()) return;
  const std::lock_guard lock(mutex_);
  sessions_.erase(oldest);
}

void Worker::Stop(int chat) {
  {
    // Ends the pass that is running.
    const std::lock_guard lock(mutex_);
    const auto at = sessions_.find(chat);
    if (at != sessions_.end()) at->second.conversation.session().Stop();
  }
  // Ends the turn, also of an answer whose command still waits, and lets later turns compute.
  Post([this, chat] {
    const auto at = sessions_.find(chat);
    if (at == sessions_.end()) return;
    if (at->second.running) EndAnswer(chat, at->second, QString());
    at->second.conversation.session().Resume();
  });
}

// Computes the next token of every answer.
void Worker::Step() {
  std::vector<int> chats;
  std::vector<dsv4::Conversation*> conversations;
  for (auto& [chat, session] : sessions_) {
    if (!session.running) continue;
    chats.push_back(chat);
    conversations.push_back(&session.conversation);
  }
  if (closing_ || chats.empty()) {
    timer_.stop();
    return;
  }
  std::vector<dsv4::StepOutcome> outcomes(chats.size());
  try {
    outcomes = calls_.step(*engine_, {conversations.data(), conversations.size()});
  } catch (...) {
    for (dsv4::StepOutcome& outcome : outcomes) outcome.failure = std::current_exception();
  }
  QString lost;
  std::vector<int> lost_again;
  for (size_t i = 0; i < chats.size(); ++i) {
    Session& session = sessions_.at(chats[i]);
    if (!outcomes[i].failure) {
      Deliver(chats[i], session);
      if (outcomes[i].result.finish != DSV4_FINISH_NONE) EndAnswer(chats[i], session, QString());
      continue;
    }
    const Failure failure(outcomes[i].failure);
    if (failure.code == DSV4_ERR_DEVICE_LOST) {
      lost = failure.message;
      if (std::exchange(session.turn.recovered, true)) lost_again.push_back(chats[i]);
    } else {
      EndAnswer(chats[i], session,
                failure.code == DSV4_ERR_CANCELLED ? QString() : failure.message);
    }
  }
  if (lost.isEmpty()) return;
  Recover(lost);
  if (!engine_) return;
  for (const int chat : lost_again) EndAnswer(chat, sessions_.at(chat), lost);
}

void Worker::Deliver(int chat, Session& session) {
  while (const std::optional<dsv4::Event> event = session.conversation.Poll())
    emit Streamed(chat, *event);
}

void Worker::EndAnswer(int chat, Session& session, const QString& error) {
  session.running = false;
  QJsonObject reply;
  dsv4::SessionStats stats = {};
  QString message = error;
  try {
    session.conversation.EndTurn();
    Deliver(chat, session);
    stats = session.conversation.session().stats();
    if (stats.generated_tokens > 0) {
      reply = QJsonDocument::fromJson(QByteArray::fromStdString(session.conversation.reply_json()))
                  .object();
    }
  } catch (...) {
    if (message.isEmpty()) message = Failure(std::current_exception()).message;
  }
  emit Ended(chat, reply, stats, message);
}

void Worker::Recover(const QString& error) {
  emit DeviceLost(error);
  cancel_open_ = false;
  try {
    calls_.resume(*engine_, LoadProgress());
    emit Opened(engine_->info(), engine_->default_sampling());
  } catch (...) {
    const Failure failure(std::current_exception());
    std::vector<int> running;
    for (const auto& [chat, session] : sessions_)
      if (session.running) running.push_back(chat);
    CloseSessions();
    engine_.reset();
    emit OpenFailed(failure.message);
    for (const int chat : running) emit Ended(chat, QJsonObject(), dsv4::SessionStats(), QString());
  }
}

void Worker::CloseSessions() {
  const std::lock_guard lock(mutex_);
  sessions_.clear();
}

}  // namespace desktop
