// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/host.h"

#include <utility>

#include "examples/console/failure.h"
#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/log.h"

namespace server {

Host::Host(std::function<std::unique_ptr<Opened>()> open, int reopens,
           std::function<void()> on_lost, Metrics* metrics)
    : open_(std::move(open)),
      on_lost_(std::move(on_lost)),
      metrics_(metrics),
      reopens_(reopens),
      current_(Open()) {}

std::shared_ptr<Opened> Host::Open() {
  std::unique_ptr<Opened> opened = open_();
  {
    const std::lock_guard lock(mutex_);
    exists_ = true;
  }
  return {opened.release(), [this](Opened* last) {
            delete last;
            const std::lock_guard lock(mutex_);
            exists_ = false;
            changed_.notify_all();
          }};
}

std::shared_ptr<Opened> Host::Get(std::function<void()> on_change) {
  const std::lock_guard lock(mutex_);
  if (given_up_) throw DeviceLost(loss_);
  if (!lost_) return current_;
  if (draining_) throw Stopping();
  waiting_.push_back(std::move(on_change));
  return nullptr;
}

void Host::Announce() {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& call : waiting) call();
}

std::shared_ptr<Opened> Host::Current() const {
  const std::lock_guard lock(mutex_);
  return lost_ ? nullptr : current_;
}

bool Host::given_up() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
}

void Host::Lost(const std::shared_ptr<Opened>& opened, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (lost_ || opened != current_) return;
  lost_ = true;
  loss_ = message;
  given_up_ = reopens_ == 0;
  Log("the device was lost: " + message);
  on_lost_();
}

void Host::Reopen() {
  std::shared_ptr<Opened> last;
  {
    const std::lock_guard lock(mutex_);
    if (!lost_ || !current_) return;
    last = std::move(current_);
  }
  // Closes it, unless another one does.
  last.reset();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !exists_; });
    if (given_up_) return;
    --reopens_;
  }
  std::shared_ptr<Opened> next;
  std::string failure;
  try {
    next = Open();
    metrics_->CountReopening();
    Log("the model is open again");
  } catch (...) {
    failure = chat::CurrentFailure().message;
    Log("the model could not be opened again: " + failure);
  }
  {
    const std::lock_guard lock(mutex_);
    if (next) {
      current_ = std::move(next);
      lost_ = false;
    } else {
      loss_ += "; the model could not be opened again: " + failure;
      given_up_ = true;
    }
  }
  Announce();
}

bool Host::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Host::Drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    if (current_) current_->scheduler.Drain();
  }
  Announce();
}

void Host::CancelAll() {
  const std::lock_guard lock(mutex_);
  if (current_) current_->scheduler.CancelAll();
}

bool Host::idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty() && (!current_ || current_->scheduler.idle());
}

}  // namespace server
