// SPDX-License-Identifier: Apache-2.0
// The open engine and the objects that serve requests with it.
#pragma once

#include <dsv4/dsv4.hpp>

#include <functional>
#include <utility>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/scheduler.h"

namespace server {

struct Served {
  // `model_of`: how the engine's model is served. The others: see Scheduler.
  Served(dsv4::Engine opened, const std::function<Model(const dsv4::Engine&)>& model_of,
         Metrics* metrics, const SchedulerLimits& limits, std::function<void()> on_lost)
      : engine(std::move(opened)),
        model(model_of(engine)),
        quick_model(model),
        scheduler(engine, metrics, limits, std::move(on_lost)) {
    quick_model.quick_grammars = true;
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  const dsv4::Engine engine;
  const Model model;
  Model quick_model;  // the same with quick_grammars
  Scheduler scheduler;
};

}  // namespace server
