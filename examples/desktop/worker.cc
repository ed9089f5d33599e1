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

// The message of an exception.
QString MessageOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const dsv4::Error& error) {
    return QString::fromUtf8(error.what()) + " (" + error.name() + ")";
  } catch (const std::exception& error) {
    return QString::fromUtf8(error.what());
  }
}

}  // namespace

Worker::Worker(Calls calls) : calls_(std::move(calls)) {
  moveToThread(&thread_);
  thread_.start();
}

Worker::~Worker() {
  closing_ = true;
  QMetaObject::invokeMethod(this, [this] {
    queue_.reset();
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
      none.reason = MessageOf(std::current_exception()).toStdString();
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
      emit Planned(dsv4::EngineInfo(), MessageOf(std::current_exception()), QString());
    }
  });
}

void Worker::Open(Model model) {
  cancel_open_ = false;
  Post([this, model = std::move(model)] { OpenNow(model); });
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
  opening_ = true;
  queue_.reset();
  opening_ = gone_ = false;
  engine_.reset();
  tickets_.clear();
  dsv4::EngineOptions options = model.options;
  options.progress = LoadProgress();
  chat::KeepProfiles(&options);
  try {
    engine_ = calls_.open(chat::FindModel(model.folder), options);
    engine_->tokenizer();  // a folder without one opens, but cannot chat
    dsv4::QueueOptions queue;
    queue.resume = [this](const dsv4::Error& error) { Recover(error); };
    queue_.emplace(*engine_, std::move(queue));
    emit Opened(engine_->info(), engine_->default_sampling());
  } catch (...) {
    engine_.reset();
    emit OpenFailed(MessageOf(std::current_exception()));
  }
}

void Worker::Answer(Turn turn) {
  Post([this, turn = std::move(turn)] { AnswerNow(turn); });
}

void Worker::AnswerNow(const Turn& turn) {
  if (!queue_) {
    emit Ended(turn.chat, QJsonObject(), dsv4::SessionStats(), "no model is open");
    return;
  }
  dsv4::QueueRequest request;
  request.json = QJsonDocument(turn.messages).toJson(QJsonDocument::Compact).toStdString();
  request.chat.thinking = turn.thinking;
  request.sampling = turn.sampling;
  request.keep_as = std::to_string(turn.chat);
  if (turn.parent != 0) request.continues = std::to_string(turn.parent);
  request.on_event = [this, chat = turn.chat](const dsv4::QueueEvent& event) {
    Deliver(chat, event);
  };
  tickets_[turn.chat] = queue_->Submit(std::move(request));
}

void Worker::Stop(int chat) {
  // After the command that submits the answer.
  Post([this, chat] {
    const auto at = tickets_.find(chat);
    if (queue_ && at != tickets_.end()) queue_->Cancel(at->second);
  });
}

void Worker::Deliver(int chat, const dsv4::QueueEvent& event) {
  if (event.type == dsv4::QueueEvent::kStarted) emit Started(chat);
  for (const dsv4::Event& part : event.events) emit Streamed(chat, part);
  if (event.type != dsv4::QueueEvent::kEnded) return;
  // OpenFailed has told why.
  if (gone_) return emit Ended(chat, QJsonObject(), dsv4::SessionStats(), QString());
  const QByteArray reply = QByteArray::fromStdString(event.reply_json);
  QString error = opening_ ? "another model was opened" : "";
  if (event.failure) error = MessageOf(event.failure);
  emit Ended(chat, QJsonDocument::fromJson(reply).object(), event.stats, error);
}

void Worker::Recover(const dsv4::Error& error) {
  if (gone_) throw error;
  emit DeviceLost(MessageOf(std::make_exception_ptr(error)));
  cancel_open_ = false;
  try {
    engine_->Resume(LoadProgress());
    emit Opened(engine_->info(), engine_->default_sampling());
  } catch (...) {
    gone_ = true;
    emit OpenFailed(MessageOf(std::current_exception()));
    Post([this] {
      if (!gone_) return;  // another engine is open
      queue_.reset();
      engine_.reset();
    });
    throw;
  }
}

}  // namespace desktop
