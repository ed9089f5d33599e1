// SPDX-License-Identifier: Apache-2.0
// Who may send requests: keys, and the pages of browsers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/http_message.h"

namespace server {

struct TrustOptions {
  std::string api_key;  // "" for none
  // The server listens on a loopback address. Then pages whose host name was rebound to that
  // address must not use it: Host and Origin are checked.
  bool loopback = false;
  // Origins whose pages may use the server, such as "https://chat.example.com"; "*": all.
  std::vector<std::string> origins;
};

// Whether `host`, as in --host, is a loopback address.
bool IsLoopback(std::string_view host);

class Trust {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  explicit Trust(TrustOptions options) : options_(std::move(options)) {}

  // Checks Host and Origin. Errors have the status 403.
  std::optional<ApiError> CheckPage(const HttpRequest& request) const;
  // Checks the key: status 401.
  std::optional<ApiError> CheckKey(const HttpRequest& request) const;

  // The headers that let a page of an allowed origin read the answer.
  Headers PageHeaders(const HttpRequest& request) const;
  // The answer to a browser that asks whether a page may send a request; none for other requests.
  std::optional<HttpResponse> Preflight(const HttpRequest& request) const;

 private:
  bool AllowsOrigin(std::string_view origin) const;
  bool AllowsHost(std::string_view host) const;

  const TrustOptions options_;
};

// The key of --api-key, else of the file, else of the environment variable DSV4_API_KEY, else of
// the credential `api-key` that systemd passed; "" if there is none. Throws a chat::Failure.
std::string ReadApiKey(const std::string& given, const std::string& file);

}  // namespace server
