// SPDX-License-Identifier: Apache-2.0
// The open engine, and what serves requests with it. Once the device is lost the model is opened
// again.
#pragma once

#include <dsv4/dsv4.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/scheduler.h"

namespace server {

// The answers of requests refer to it: who answers one holds it until then.
struct Opened {
  // `model_of`: how the engine's model is served.
  Opened(dsv4::Engine opened, const std::function<Model(const dsv4::Engine&)>& model_of,
         Metrics* metrics, const SchedulerLimits& limits)
      : engine(std::move(opened)), model(model_of(engine)), scheduler(engine, metrics, limits) {}

  const dsv4::Engine engine;
  const Model model;
  Scheduler scheduler;
};

class Host {
 public:
  // Opens the model. Throws what `open` does.
  // - reopens: how many times it may be opened again.
  // - on_lost: called by any thread when the device is lost, before any request is told. Has Reopen
  //   called.
  Host(std::function<std::unique_ptr<Opened>()> open, int reopens, std::function<void()> on_lost,
       Metrics* metrics);
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Any thread.
  // Waits while the model is being opened again. Throws ClientGone, and an ApiError with status 503
  // when the device is lost for good or the server stops.
  std::shared_ptr<Opened> Get(const std::function<bool()>& client_is_gone);
  // Null where Get would wait or throw.
  std::shared_ptr<Opened> Current() const;
  // A call on `opened` has failed with DEVICE_LOST. Whoever still holds it is to give it back.
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

  const std::function<std::unique_ptr<Opened>()> open_;
  const std::function<void()> on_lost_;
  Metrics* const metrics_;
  int reopens_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool exists_ = false;  // an Opened, which somebody may hold; Open sets it
  std::shared_ptr<Opened> current_;
  bool lost_ = false;  // current_ is, or there is none
  bool given_up_ = false, draining_ = false;
  std::string loss_;  // what was said when the device was lost
  size_t waiting_ = 0;
};

}  // namespace server
