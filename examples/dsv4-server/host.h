// SPDX-License-Identifier: Apache-2.0
// The open engine and the objects that serve requests with it. If the device is lost, the model is
// opened again.
#pragma once

#include <dsv4/dsv4.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/scheduler.h"

namespace server {

// Held by each request until it is answered.
struct Opened {
  // `model_of`: how the engine's model is served.
  Opened(dsv4::Engine opened, const std::function<Model(const dsv4::Engine&)>& model_of,
         Metrics* metrics, const SchedulerLimits& limits)
      : engine(std::move(opened)),
        model(model_of(engine)),
        quick_model(model),
        scheduler(engine, metrics, limits) {
    quick_model.quick_grammars = true;
  }

  const dsv4::Engine engine;
  const Model model;
  Model quick_model;  // the same with quick_grammars
  Scheduler scheduler;
};

class Host {
 public:
  // Opens the model. Throws what `open` does.
  // - reopens: how many times it may be opened again.
  // - on_lost: called by any thread if the device is lost, before any request learns of it. It must
  //   cause a call of Reopen.
  Host(std::function<std::unique_ptr<Opened>()> open, int reopens, std::function<void()> on_lost,
       Metrics* metrics);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Any thread.
  // Null while the model is opened again; then `on_change` is called once by any thread, when Get
  // can be called again; it must not block. Throws an ApiError with status 503 if the device is
  // lost for good or the server is stopping.
  std::shared_ptr<Opened> Get(std::function<void()> on_change);
  // Null if Get would return null or throw.
  std::shared_ptr<Opened> Current() const;
  // The device is lost, and the model will not be opened again.
  bool given_up() const;
  // Reports that a call on `opened` failed with DEVICE_LOST. All holders must release it.
  void Lost(const std::shared_ptr<Opened>& opened, const std::string& message);

  // One thread.
  // Waits until no request holds the engine that was lost, closes it, and opens the model again
  // unless the limit of reopenings is reached. Reports on standard error.
  void Reopen();
  bool lost() const;

  // See Scheduler.
  void Drain();
  void CancelAll();
  bool idle() const;

 private:
  std::shared_ptr<Opened> Open();
  // Calls those who wait. REQUIRES: the lock is not held.
  void Announce();

  const std::function<std::unique_ptr<Opened>()> open_;
  const std::function<void()> on_lost_;
  Metrics* const metrics_;
  int reopens_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool exists_ = false;  // an Opened exists, and requests may hold it; Open sets it
  std::shared_ptr<Opened> current_;
  bool lost_ = false;  // current_ is, or there is none
  bool given_up_ = false, draining_ = false;
  std::string loss_;  // the error message of the lost device
  std::vector<std::function<void()>> waiting_;
};

}  // namespace server
