// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/host.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-server/api_error.h"

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

std::shared_ptr<Opened> Host::Get(const std::function<bool()>& client_is_gone) {
  using namespace std::chrono_literals;
  std::unique_lock lock(mutex_);
  ++waiting_;
  bool gone = false;
  const auto decided = [&] { return !lost_ || given_up_ || draining_; };
  while (!gone && !changed_.wait_for(lock, 50ms, decided)) gone = client_is_gone();
  --waiting_;
  if (gone) throw ClientGone();
  if (given_up_) throw DeviceLost(loss_);
  if (lost_) throw Stopping();
  return current_;
}

std::shared_ptr<Opened> Host::Current() const {
  const std::lock_guard lock(mutex_);
  return lost_ ? nullptr : current_;
}

void Host::Lost(const std::shared_ptr<Opened>& opened, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (lost_ || opened != current_) return;
  lost_ = true;
  loss_ = message;
  given_up_ = reopens_ == 0;
  changed_.notify_all();
  std::fprintf(stderr, "dsv4-server: the device was lost: %s\n", message.c_str());
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
    std::fprintf(stderr, "dsv4-server: the model is open again\n");
  } catch (...) {
    failure = chat::CurrentFailure().message;
    std::fprintf(stderr, "dsv4-server: the model could not be opened again: %s\n", failure.c_str());
  }
  const std::lock_guard lock(mutex_);
  if (next) {
    current_ = std::move(next);
    lost_ = false;
  } else {
    loss_ += "; the model could not be opened again: " + failure;
    given_up_ = true;
  }
  changed_.notify_all();
}

bool Host::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Host::Drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  if (current_) current_->scheduler.Drain();
  changed_.notify_all();
}

void Host::CancelAll() {
  const std::lock_guard lock(mutex_);
  if (current_) current_->scheduler.CancelAll();
}

bool Host::idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_ == 0 && (!current_ || current_->scheduler.idle());
}

}  // namespace server
