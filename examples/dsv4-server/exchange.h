// SPDX-License-Identifier: Apache-2.0
// A request while it is answered: read, queued for its sessions, generated, sent. No thread waits
// for it. Where older requests need its part of the cache, it is parsed and computed again later.
// The tokens are the same. Tokens that were sent are not sent again.
#pragma once

#include <dsv4/dsv4.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "examples/dsv4-server/answer.h"
#include "examples/dsv4-server/http_message.h"
#include "examples/dsv4-server/identity.h"
#include "examples/dsv4-server/served.h"
#include "examples/dsv4-server/workers.h"

namespace server {

// The threads that requests are worked on by.
struct Threads {
  Workers* readers;    // read requests and open sessions
  Workers* compilers;  // read those whose texts or grammars take long
  Workers* writers;    // put tokens into answers
  Workers* texts;      // answer what needs no session: one thread bounds the memory of long texts
};

class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  // Reads the request. Called by a reader or compiler.
  using Read = std::function<std::unique_ptr<Answer>(const Model&, Identity*)>;
  // An error as a response.
  using ErrorResponse = HttpResponse (*)(const std::string& path, const ApiError& error);

  // Starts to answer `reply`. `path`: of the endpoint; `slow`: reading takes long. The objects
  // behind the pointers must outlive the answer.
  static void Start(Served* served, const Threads& threads, std::string path, bool slow, Read read,
                    ErrorResponse error_response, std::shared_ptr<HttpReply> reply);

 private:
  using Task = void (Exchange::*)();

  Exchange(Served* served, const Threads& threads, std::string path, Read read,
           ErrorResponse error_response, std::shared_ptr<HttpReply> reply);

  // Any thread. Tasks of an exchange run one after the other, each on its kind of thread.
  void Post(Workers* workers, Task task);
  void RunNext();

  // Tasks.
  void Begin();    // creates the answer, and queues for its sessions
  void Open();     // opens the sessions
  void Advance();  // gives the answer the tokens that have come
  void Leave();    // the client has gone

  // Posts Begin.
  void PostBegin() { Post(slow_ ? threads_.compilers : threads_.readers, &Exchange::Begin); }
  // Begins again, and computes the same tokens.
  void BeginAgain();
  // Calls `compute`, and handles what it throws.
  template <class Function>
  void Guard(const Function& compute);
  // Gives tokens to the answer until none is there. Whether the answer has ended.
  bool TakeTokens();
  // Goes to the next candidate that has not ended. False without one.
  bool NextCandidate();
  // The head of the answer.
  HttpResponse Head(std::string body) const;
  // Ends a stream with the error's event, or refuses the request.
  void Fail(const ApiError& error);
  // Sends events_, if the request wants a stream.
  void Send();
  // Nothing is left to do.
  void Finish();

  Served* const served_;
  const Threads threads_;
  const std::string path_;
  Read read_;  // guarded by mutex_ until reading_
  const ErrorResponse error_response_;
  std::shared_ptr<HttpReply> reply_;  // null: finished
  std::shared_ptr<Exchange> self_;    // until Finish

  std::mutex mutex_;
  std::deque<std::pair<Workers*, Task>> tasks_;
  bool busy_ = false;     // a task runs or is posted
  bool reading_ = false;  // Begin has begun
  std::atomic<bool> gone_ = false;
  std::atomic<bool> advancing_ = false;  // Advance is among the tasks and has not begun

  // For the tasks.
  Identity identity_;
  std::vector<uint64_t> seeds_;  // of the candidates
  std::vector<int32_t> tokens_;  // that were taken
  size_t again_ = 0;             // of tokens_ that were computed again
  std::string events_;           // not yet sent
  std::string unenforced_;       // places of the answer's schemas, for a header
  std::string failure_;          // ends a stream if there is no answer
  std::unique_ptr<Answer> answer_;
  std::unique_ptr<Scheduler::Place> place_;
  std::vector<Candidate> candidates_;
  Scheduler::Generations generations_;
  size_t candidate_ = 0;    // whose turn it is
  bool slow_ = false;       // to be read by a compiler
  bool begun_ = false;      // the answer has a token
  bool streaming_ = false;  // the head of a stream was sent
};

}  // namespace server
