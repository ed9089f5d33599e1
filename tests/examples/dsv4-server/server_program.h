// SPDX-License-Identifier: Apache-2.0
// A dsv4-server that runs while this does, and a client of it.
#pragma once

#include <httplib.h>
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dsv4::test {

using Json = nlohmann::ordered_json;

class ServerProgram {
 public:
  // On the bundled model, or the one in `model`, and a free port. Fails the test when it does not
  // come up.
  explicit ServerProgram(const std::vector<std::string>& options, const std::string& model = {});
  ~ServerProgram();
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;

  int port() const { return port_; }
  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // The exit code; 128 and the signal that ended it.
  int Wait();

  httplib::Client Client() const;
  // What the server answers, by its status and its JSON.
  Json Post(const std::string& path, const Json& body, int status = 200) const;
  Json Get(const std::string& path) const;
  // A line of /metrics, by all that stands before its value. 0 without one.
  double Metric(const std::string& name) const;
  // Waits until a metric has this value; fails the test after 5 seconds.
  void AwaitMetric(const std::string& name, double value) const;

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

// The one that test cases share: 8 sessions.
const ServerProgram& SharedServer();

// A stream's chunks. The mark at its end must be there.
std::vector<Json> ChunksOf(const std::string& stream);
// The same of the request's answer, asked for as a stream.
std::vector<Json> Stream(const ServerProgram& server, const std::string& path, Json body);

// The events of a stream that names them, asked for by `body`: each name is the type of its event.
std::vector<Json> Events(const ServerProgram& server, const std::string& path, Json body);

// A chat of one message of the user, greedy.
Json Ask(const std::string& question);

// Recorded answers of the bundled model of one kind.
std::vector<Json> Recorded(const std::string& kind);
// The request of a recorded case: its tools are the request's.
Json RequestOf(const Json& recorded);

}  // namespace dsv4::test
