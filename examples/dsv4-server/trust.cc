// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/trust.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "examples/console/failure.h"

namespace server {
namespace {

constexpr size_t kMostKeyBytes = 4096;

// In a time that does not tell how much of `given` is right.
bool SameKey(std::string_view given, std::string_view key) {
  unsigned different = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    different |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return different == 0;
}

// The host of "host:port", without its brackets if it is an IPv6 address.
std::string HostOf(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return LowerCase(authority.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  return LowerCase(authority.substr(0, authority.find(':')));
}

std::string_view AuthorityOf(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

std::string KeyOfFile(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::string key{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad())
    throw chat::Failure{chat::kUsageError, "the key's file " + file + " cannot be read"};
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  return key;
}

std::string Checked(const std::string& key, const std::string& source) {
  const bool printable =
      std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (key.empty() || key.size() > kMostKeyBytes || !printable)
    throw chat::Failure{chat::kUsageError,
                        source + " is not a key: one line of printable ASCII without spaces"};
  return key;
}

}  // namespace

bool IsLoopback(std::string_view host) {
  const std::string name = HostOf(host == "::1" ? "[::1]" : host);
  if (name == "localhost" || name.ends_with(".localhost") || name == "::1") return true;
  return name.starts_with("127.") && name.find_first_not_of("0123456789.") == std::string::npos;
}

bool Trust::AllowsHost(std::string_view authority) const {
  const std::string host = HostOf(authority);
  if (IsLoopback(authority)) return true;
  // Nobody can register a name without a dot; proxies and containers use such names.
  const bool bare = host.find_first_of(".:") == std::string::npos;
  return bare || std::any_of(options_.origins.begin(), options_.origins.end(),
                             [&](const std::string& origin) {
                               return !host.empty() && HostOf(AuthorityOf(origin)) == host;
                             });
}

bool Trust::AllowsOrigin(std::string_view origin) const {
  return std::any_of(
      options_.origins.begin(), options_.origins.end(),
      [&](const std::string& allowed) { return allowed == "*" || allowed == LowerCase(origin); });
}

std::optional<ApiError> Trust::CheckPage(const HttpRequest& request) const {
  if (!options_.loopback) return std::nullopt;
  const std::string_view host = request.Header("host");
  if (!AllowsHost(host))
    return ApiError{403, "invalid_request_error",
                    "the server listens for this machine only, and Host names another one: see "
                    "--cors-origin",
                    "", "host_not_allowed"};
  const std::string_view origin = request.Header("origin");
  const bool same =
      !AuthorityOf(origin).empty() && LowerCase(AuthorityOf(origin)) == LowerCase(host);
  if (!request.HasHeader("origin") || same || AllowsOrigin(origin)) return std::nullopt;
  return ApiError{403, "invalid_request_error",
                  "pages of other origins may not use the server: see --cors-origin", "",
                  "origin_not_allowed"};
}

std::optional<ApiError> Trust::CheckKey(const HttpRequest& request) const {
  if (options_.api_key.empty() ||
      SameKey(request.Header("authorization"), "Bearer " + options_.api_key) ||
      SameKey(request.Header("x-api-key"), options_.api_key))
    return std::nullopt;
  return ApiError{
      401, "invalid_request_error",
      "the header Authorization: Bearer KEY, or x-api-key: KEY, is missing or has another key", "",
      "invalid_api_key"};
}

Trust::Headers Trust::PageHeaders(const HttpRequest& request) const {
  const std::string_view origin = request.Header("origin");
  if (options_.origins.empty()) return {};
  if (!request.HasHeader("origin") || !AllowsOrigin(origin)) return {{"Vary", "Origin"}};
  return {{"Vary", "Origin"}, {"Access-Control-Allow-Origin", std::string(origin)}};
}

std::optional<HttpResponse> Trust::Preflight(const HttpRequest& request) const {
  const std::string_view origin = request.Header("origin");
  if (request.method != "OPTIONS" || !request.HasHeader("access-control-request-method") ||
      !AllowsOrigin(origin))
    return std::nullopt;
  HttpResponse response{.status = 204, .type = ""};
  response.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE"},
                      {"Access-Control-Max-Age", "600"}};
  // The names that the page asks for: the key's, and those of clients' libraries.
  std::string names;
  std::string_view list = request.Header("access-control-request-headers");
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view name = Trimmed(list.substr(0, comma));
    if (IsHttpToken(name)) names += (names.empty() ? "" : ", ") + std::string(name);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  if (!names.empty()) response.headers.emplace_back("Access-Control-Allow-Headers", names);
  if (request.HasHeader("access-control-request-private-network"))
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  return response;
}

std::string ReadApiKey(const std::string& given, const std::string& file) {
  if (!given.empty()) return Checked(given, "--api-key");
  if (!file.empty()) return Checked(KeyOfFile(file), file);
  if (const char* key = std::getenv("DSV4_API_KEY")) return Checked(key, "DSV4_API_KEY");
  if (const char* folder = std::getenv("CREDENTIALS_DIRECTORY")) {
    const std::string credential = std::string(folder) + "/api-key";
    if (std::filesystem::exists(credential)) return Checked(KeyOfFile(credential), credential);
  }
  return "";
}

}  // namespace server
