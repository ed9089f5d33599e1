// SPDX-License-Identifier: Apache-2.0
// The endpoints.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/http_server.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/scheduler.h"

namespace server {

class Service {
 public:
  // All must outlive this, and this the server that is routed to it. `api_key`: "" for none.
  Service(const Model& model, Scheduler* scheduler, Metrics* metrics, std::string api_key);

  void Route(HttpServer* server);
  // Requests are refused from now on.
  void Drain() { draining_ = true; }

 private:
  using Response = httplib::Response;

  // Refuses requests without the key, packed ones, and all when the server stops; their bodies
  // are not read.
  bool Admits(const httplib::Request& request, Response* response) const;
  void Post(HttpServer* server, const std::string& path,
            std::function<void(const Json& body, Response* response)> answer);

  void Health(Response* response) const;

  const Model& model_;
  Scheduler* const scheduler_;
  Metrics* const metrics_;
  const std::string api_key_;
  std::atomic<bool> draining_ = false;
};

}  // namespace server
