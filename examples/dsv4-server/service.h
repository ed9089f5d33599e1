// SPDX-License-Identifier: Apache-2.0
// The endpoints.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "examples/dsv4-server/host.h"
#include "examples/dsv4-server/http_server.h"
#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/metrics.h"

namespace server {

class Service {
 public:
  // The arguments must outlive this object, and this object the HTTP server. `api_key`: "" for
  // none.
  Service(Host* host, Metrics* metrics, std::string api_key);

  void Route(HttpServer* server);
  // Refuses requests from then on.
  void Drain() { draining_ = true; }

 private:
  using Response = httplib::Response;

  // Refuses requests without the key, compressed ones, and all if the server is stopping, without
  // reading their bodies.
  bool Admits(const httplib::Request& request, Response* response) const;
  void Post(HttpServer* server, const std::string& path,
            std::function<void(const Json& body, Response* response)> answer);
  // Endpoints that generate. `read` parses the request of an AnswerType.
  template <class AnswerType, class Request>
  void PostAnswer(HttpServer* server, const std::string& path,
                  Request (*read)(const Model&, const Json&));
  // Endpoints that do not generate.
  void PostText(HttpServer* server, const std::string& path,
                Json (*answer)(const Model&, const Json&));

  void Health(Response* response) const;

  Host* const host_;
  Metrics* const metrics_;
  const std::string api_key_;
  std::string name_;  // of the model
  Json models_;       // the answer of /v1/models
  std::atomic<bool> draining_ = false;
};

}  // namespace server
