// SPDX-License-Identifier: Apache-2.0
//
// A queue: answers requests on one engine, many at once, with one thread of its own.
//
//   dsv4::Queue queue(engine);
//   dsv4::QueueRequest request;
//   request.messages = {{DSV4_ROLE_USER, "What is the capital of France?"}};
//   queue.Submit(std::move(request));
//   while (std::optional<dsv4::QueueEvent> event = queue.Next()) {
//     for (const dsv4::Event& part : event->events)
//       if (part.type == DSV4_PARSER_TEXT) std::cout << part.text;
//   }
#ifndef DSV4_QUEUE_HPP_
#define DSV4_QUEUE_HPP_

#include <dsv4/conversation.hpp>
#include <dsv4/kept_conversations.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// What happened to a request: it STARTED, then it has one TOKEN after another, then it has ENDED. A
// request that never had a session has only ENDED.
struct QueueEvent {
  enum Type { kStarted, kToken, kEnded };

  uint64_t ticket = 0;
  Type type = kStarted;
  std::chrono::steady_clock::time_point time = {};  // when it happened
  // TOKEN: the token. ENDED: only the finish, which is CANCELLED after Cancel() and ERROR with a
  // failure.
  StepResult step = {};
  // Of a request on messages. TOKEN: what the token completes. ENDED: the text that a turn held
  // back which was cancelled or failed.
  std::vector<Event> events = {};
  // TOKEN: of this token, if Sampling::log_probs asks for it; with the first token also those of
  // the prompt that SyncOptions ask for, in order.
  std::optional<LogProbs> log_probs = {};
  std::vector<LogProbs> prompt_log_probs = {};
  // STARTED: of the prompt. Otherwise: so far.
  SessionStats stats = DSV4_SESSION_STATS_INIT;
  // ENDED: the assistant's message, in the form in which the request has its messages.
  Message reply = {DSV4_ROLE_ASSISTANT};
  std::string reply_json = {};
  // ENDED: why the request failed: an Error, or what `on_event` threw.
  std::exception_ptr failure = nullptr;
  // ENDED: the failure is that others need the request's part of the cache. Only of requests that
  // came with an open session; others begin again by themselves.
  bool preempted = false;
  // ENDED: the session that the request came with, unless others needed its part of the cache
  // (OUT_OF_BLOCKS): then it is closed.
  std::optional<Conversation> conversation = {};
  std::optional<Session> session = {};
};

// A prompt, and how it is answered.
struct QueueRequest {
  // The prompt, in one of these forms: messages; messages in the form of OpenAI's chat API; tokens;
  // a session that the host opened and synced.
  std::vector<Message> messages = {};
  std::string json = {};
  std::vector<int32_t> tokens = {};
  std::optional<Conversation> conversation = {};
  std::optional<Session> session = {};

  ChatOptions chat = {};       // of messages
  SyncOptions sync = {};       // of tokens
  Sampling sampling = {};      // not used with an open session, except log_probs
  uint64_t cache_salt = 0;     // not used with an open session
  std::string keep_as = {};    // conversations: the name under which it is kept; "": it is closed
  std::string continues = {};  // the kept conversation that it branches from, if none has its name
  // Requests with the same group are preempted together: the ticket of the first of them. 0: alone.
  uint64_t group = 0;
  // Receives the request's events in place of Next(), on the queue's thread. It may submit and
  // cancel, but not wait for the queue. What it throws ends the request.
  std::function<void(QueueEvent event)> on_event = nullptr;
};

// Options of a queue.
struct QueueOptions {
  // The most requests that are answered at once, and conversations that are kept: no more than
  // EngineInfo::max_sessions.
  std::size_t sessions = ~std::size_t{0};
  std::size_t kept = ~std::size_t{0};
  // Brings back an engine that lost its device or is suspended. `failure` says which. Called on the
  // queue's thread. What it throws ends the requests that were being answered. By default
  // Engine::Resume().
  std::function<void(const Error& failure)> resume = nullptr;
  // Called on the queue's thread after each step of the engine.
  std::function<void()> on_step = nullptr;
};

// Requests wait for a session, first come, first served. All that have one are stepped together,
// and each result has the same bits as alone.
// - A request that fails does not affect others.
// - Prompts share steps evenly, as in dsv4_engine_step.
// - A full cache: kept conversations are closed; then requests wait until others end; if all wait,
//   the longest one other than the oldest is preempted. It begins again, with the same tokens. Its
//   host learns of it only by the time that it takes.
// - A lost device: the engine is resumed, and requests continue where they were. A request ends
//   with the error if the device is lost again before its next token.
// Threads: all functions may be called from any thread. No lock is held in a callback.
class Queue {
 public:
  // `engine` must outlive the queue.
  explicit Queue(const Engine& engine, QueueOptions options = {})
      : engine_(engine),
        options_(std::move(options)),
        max_sessions_(engine.info().max_sessions),
        most_(std::min(options_.sessions, static_cast<std::size_t>(max_sessions_))),
        allowed_(most_),
        kept_(std::min(options_.kept, static_cast<std::size_t>(max_sessions_))),
        thread_([this] { Run(); }) {}
  // Closes the queue.
  ~Queue() { Close(); }
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Puts a request into the queue, and returns its ticket: 1, 2, 3, ... Errors of the request are
  // events. Throws CANCELLED if the queue is closed.
  uint64_t Submit(QueueRequest request) {
    std::list<Entry> entry(1);
    entry.front().request = std::move(request);
    entry.front().Begin();
    const std::lock_guard lock(mutex_);
    if (closed_) throw Error(DSV4_ERR_CANCELLED, "the queue is closed");
    entry.front().ticket = ++last_ticket_;
    entries_.splice(entries_.end(), entry);
    work_.notify_all();
    return last_ticket_;
  }

  // Ends a request early. A turn on messages keeps its text. Does nothing if the request has ended.
  void Cancel(uint64_t ticket) noexcept {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_)
      if (entry.ticket == ticket) entry.Cancel();
    work_.notify_all();
  }

  // Waits for the next event of the requests without `on_event`. Returns nothing after `timeout`,
  // or if all requests have ended and no event is left.
  std::optional<QueueEvent> Next(std::chrono::milliseconds timeout = std::chrono::hours(24 * 365)) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return !events_.empty() || entries_.empty(); });
    if (events_.empty()) return std::nullopt;
    std::optional<QueueEvent> event(std::move(events_.front()));
    events_.pop_front();
    return event;
  }

  // Waits until all requests have ended. False after `timeout`.
  bool Drain(std::chrono::milliseconds timeout = std::chrono::hours(24 * 365)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return entries_.empty(); });
  }

  // Cancels all requests, waits until they have ended, and ends the thread. Next() still returns
  // their events.
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      for (Entry& entry : entries_) entry.Cancel();
      work_.notify_all();
    }
    const std::lock_guard join(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  // The conversations of requests with keep_as. The host may add to them.
  KeptConversations& kept() noexcept { return kept_; }

  // How many requests are answered or wait.
  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return entries_.size();
  }

  // How long the running step has taken; 0 without one.
  double seconds_in_step() const {
    const std::lock_guard lock(mutex_);
    if (!stepping_) return 0;
    return std::chrono::duration<double>(Clock::now() - step_begin_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Members are the thread's, but for those that Cancel() uses, which change under the lock.
  struct Entry {
    QueueRequest request;
    uint64_t ticket = 0;
    std::optional<Conversation> chat;  // `chat` or `plain` while it is answered
    std::optional<Session> plain;
    bool cancelled = false;
    bool given = false;           // the request came with its session
    bool started = false;         // STARTED was delivered
    bool parked = false;          // the cache was full: continues when another request has ended
    bool lost = false;            // the device was lost since the last token
    std::size_t prompt = 0;       // tokens
    std::vector<int32_t> tokens;  // that were delivered
    std::size_t again = 0;        // of `tokens`: computed again since it was preempted
    std::exception_ptr failure;   // what `on_event` threw

    // True while it is answered.
    bool open() const { return chat || plain; }
    // Its group, or the ticket.
    uint64_t group() const { return request.group != 0 ? request.group : ticket; }
    // The open session.
    Session& session() { return chat ? chat->session() : *plain; }
    // Takes the session that the request came with.
    void Begin() {
      chat.swap(request.conversation);
      plain.swap(request.session);
      given = open();
    }
    // REQUIRES: the lock is held.
    void Cancel() noexcept {
      cancelled = true;
      if (open()) session().Stop();
    }
  };

  static dsv4_status CodeOf(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      return error.code();
    } catch (...) {
      return DSV4_ERR_INTERNAL;
    }
  }
  // A call that fails so can be repeated when the engine has been resumed.
  static bool NeedsResume(dsv4_status status) {
    return status == DSV4_ERR_DEVICE_LOST || status == DSV4_ERR_SUSPENDED;
  }

  void Run() {
    for (;;) {
      try {
        std::vector<Entry*> entries;
        {
          std::unique_lock lock(mutex_);
          work_.wait(lock, [this] { return closed_ || !entries_.empty(); });
          if (entries_.empty()) return;
          // Others only add entries.
          for (Entry& entry : entries_) entries.push_back(&entry);
        }
        Round(entries);
      } catch (...) {
        // No memory for the lists of a round, or on_step threw.
        EndAll(std::current_exception());
      }
    }
  }

  void EndAll(const std::exception_ptr& failure) {
    for (;;) {
      Entry* first = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (entries_.empty()) return;
        first = &entries_.front();
      }
      End(first, DSV4_FINISH_ERROR, failure);
    }
  }

  // Ends cancelled requests, opens sessions, and computes a step.
  void Round(std::vector<Entry*>& entries) {
    const auto end = std::remove_if(entries.begin(), entries.end(), [this](Entry* entry) {
      const bool cancelled = IsCancelled(*entry);
      if (cancelled) End(entry, DSV4_FINISH_CANCELLED, nullptr);
      return cancelled;
    });
    entries.erase(end, entries.end());
    if (std::exchange(room_, false))
      for (Entry* entry : entries) entry->parked = false;
    auto open = static_cast<std::size_t>(std::count_if(
        entries.begin(), entries.end(), [](const Entry* entry) { return entry->open(); }));
    bool full = false;  // the first that waits has no session
    std::vector<Entry*> batch;
    for (Entry* entry : entries) {
      try {
        if (!entry->open()) {
          if (full || open >= allowed_ || !Open(entry, open)) {
            full = true;
            continue;
          }
          ++open;
        }
        if (!std::exchange(entry->started, true)) Start(entry);
        if (entry->failure) std::rethrow_exception(entry->failure);
        batch.push_back(entry);
      } catch (...) {
        End(entry, DSV4_FINISH_ERROR, std::current_exception());
      }
    }
    if (batch.empty()) return;
    const auto is_parked = [](const Entry* entry) { return entry->parked; };
    if (kept_.size() > 0 && std::any_of(batch.begin(), batch.end(), is_parked)) {
      // Their part of the cache is for those that compute.
      while (kept_.DropOldest()) {
      }
      for (Entry* entry : batch) entry->parked = false;
    }
    std::vector<Entry*> ready;
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(ready),
                 [](const Entry* entry) { return !entry->parked; });
    if (ready.empty()) return MakeRoom(batch);
    Step(ready);
  }

  bool IsCancelled(const Entry& entry) const {
    const std::lock_guard lock(mutex_);
    return entry.cancelled;
  }

  bool IsFull() const { return engine_.metrics().sessions >= max_sessions_; }

  // Opens a session for the request. False if it has to wait for one of the `others`.
  bool Open(Entry* entry, std::size_t others) {
    const QueueRequest& request = entry->request;
    std::optional<Conversation> chat;
    std::optional<Session> plain;
    for (bool again = false;; again = true) {
      try {
        if (!chat && !plain) {
          chat = TakeKept(request);
          if (chat) {
            chat->session().SetSampling(request.sampling);
          } else if (IsFull() && others > 0) {
            return false;
          } else if (request.tokens.empty()) {
            chat.emplace(engine_, SessionOptions{request.sampling, request.cache_salt});
          } else {
            plain.emplace(engine_, SessionOptions{request.sampling, request.cache_salt});
          }
        }
        if (plain)
          plain->Sync(request.tokens, request.sync);
        else if (request.json.empty())
          chat->Sync(request.messages, request.chat);
        else
          chat->SyncJson(request.json, request.chat);
        break;
      } catch (const Error& error) {
        if (again || !NeedsResume(error.code())) throw;
        Resume(error);
      }
    }
    Session& session = chat ? chat->session() : *plain;
    // A random seed stays, should the request begin again.
    entry->request.sampling.seed = session.stats().seed;
    entry->prompt = session.tokens().size();
    entry->again = 0;
    const std::lock_guard lock(mutex_);
    chat.swap(entry->chat);
    plain.swap(entry->plain);
    if (entry->cancelled) entry->session().Stop();
    return true;
  }

  // The kept conversation that the request continues, if there is one. Makes room for a session.
  std::optional<Conversation> TakeKept(const QueueRequest& request) {
    std::optional<Conversation> kept;
    if (!request.keep_as.empty()) kept = kept_.Take(request.keep_as, request.cache_salt);
    if (kept) return kept;
    while (IsFull() && kept_.DropOldest(request.continues)) {
    }
    if (request.continues.empty()) return kept;
    return IsFull() ? kept_.Take(request.continues, request.cache_salt)
                    : kept_.Fork(request.continues, request.cache_salt);
  }

  void Start(Entry* entry) {
    QueueEvent event;
    event.type = QueueEvent::kStarted;
    event.stats = entry->session().stats();
    if (entry->prompt == 0) entry->prompt = entry->session().tokens().size();  // a given session
    Emit(entry, std::move(event));
  }

  // Steps the requests of `batch`.
  void Step(const std::vector<Entry*>& batch) {
    std::vector<Conversation*> conversations;
    std::vector<Session*> sessions;
    for (Entry* entry : batch) {
      conversations.push_back(entry->chat ? &*entry->chat : nullptr);
      sessions.push_back(entry->plain ? &*entry->plain : nullptr);
    }
    std::vector<StepOutcome> outcomes(batch.size());
    SetStepping(true);
    try {
      outcomes = detail::StepMixed(engine_, conversations, std::move(sessions));
    } catch (const Error&) {
      for (StepOutcome& outcome : outcomes) outcome.failure = std::current_exception();
    }
    SetStepping(false);
    if (options_.on_step) options_.on_step();
    std::vector<std::pair<Entry*, std::exception_ptr>> lost;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Entry* const entry = batch[i];
      const std::exception_ptr failure = outcomes[i].failure;
      const dsv4_status code = failure ? CodeOf(failure) : DSV4_OK;
      if (code == DSV4_ERR_OUT_OF_BLOCKS) {
        entry->parked = true;
      } else if (NeedsResume(code)) {
        lost.emplace_back(entry, failure);
      } else if (code == DSV4_ERR_CANCELLED && IsCancelled(*entry)) {
        End(entry, DSV4_FINISH_CANCELLED, nullptr);
      } else if (failure) {
        End(entry, DSV4_FINISH_ERROR, failure);
      } else {
        Deliver(entry, std::move(outcomes[i].result));
      }
    }
    if (!lost.empty()) Recover(lost);
  }

  // Resumes the engine for these, which failed so.
  void Recover(const std::vector<std::pair<Entry*, std::exception_ptr>>& lost) {
    std::exception_ptr failure;
    try {
      std::rethrow_exception(lost[0].second);
    } catch (const Error& error) {
      try {
        Resume(error);
      } catch (...) {
        failure = std::current_exception();
      }
    }
    for (const auto& [entry, loss] : lost) {
      const bool again = std::exchange(entry->lost, CodeOf(loss) == DSV4_ERR_DEVICE_LOST);
      if (failure || (again && entry->lost))
        End(entry, DSV4_FINISH_ERROR, failure ? failure : loss);
    }
  }

  void Resume(const Error& failure) {
    if (options_.resume) return options_.resume(failure);
    engine_.Resume([this](const ProgressReport&) {
      const std::lock_guard lock(mutex_);
      return !closed_;
    });
  }

  void SetStepping(bool stepping) {
    const std::lock_guard lock(mutex_);
    stepping_ = stepping;
    step_begin_ = Clock::now();
  }

  void Deliver(Entry* entry, StepResult result) {
    if (result.token < 0) return;
    entry->lost = false;
    const dsv4_finish finish = result.finish;
    try {
      QueueEvent event;
      event.type = QueueEvent::kToken;
      if (entry->chat) {
        while (std::optional<Event> part = entry->chat->Poll())
          event.events.push_back(std::move(*part));
      }
      if (entry->again < entry->tokens.size()) {
        // As before it was preempted.
        if (entry->tokens[entry->again++] != result.token)
          throw Error(DSV4_ERR_OUT_OF_BLOCKS, "the answer was computed again and is another one");
        return;
      }
      if (!entry->given) {
        entry->tokens.push_back(result.token);
        ++entry->again;
      }
      event.step = std::move(result);
      event.stats = entry->session().stats();
      AddLogProbs(entry, &event);
      Emit(entry, std::move(event));
      if (entry->failure) std::rethrow_exception(entry->failure);
    } catch (...) {
      return End(entry, DSV4_FINISH_ERROR, std::current_exception());
    }
    if (finish != DSV4_FINISH_NONE) End(entry, finish, nullptr);
  }

  void AddLogProbs(Entry* entry, QueueEvent* event) {
    const Session& session = entry->session();
    if (entry->request.sampling.log_probs > 0)
      event->log_probs = session.log_probs(static_cast<int64_t>(session.tokens().size()) - 1);
    const int64_t first = entry->request.sync.log_probs_begin;
    if (first == 0 || event->stats.generated_tokens != 1) return;
    for (int64_t i = first; i < static_cast<int64_t>(entry->prompt); ++i)
      event->prompt_log_probs.push_back(session.log_probs(i));
  }

  // Closes, keeps or gives back the session, and removes the request. `closes`: others need its
  // part of the cache, before the host takes the event.
  void End(Entry* entry, dsv4_finish finish, std::exception_ptr failure, bool closes = false,
           bool preempted = false) {
    QueueEvent event;
    event.type = QueueEvent::kEnded;
    event.step.finish = finish;
    event.failure = std::move(failure);
    event.preempted = preempted;
    std::optional<Conversation> chat;
    std::optional<Session> plain;
    {
      const std::lock_guard lock(mutex_);
      chat.swap(entry->chat);
      plain.swap(entry->plain);
    }
    try {
      if (chat || plain) (chat ? chat->session() : *plain).Resume();
      if (chat && (finish == DSV4_FINISH_CANCELLED || (event.failure && !entry->given))) {
        chat->EndTurn();
        while (std::optional<Event> part = chat->Poll()) event.events.push_back(std::move(*part));
      }
      if (chat || plain) event.stats = (chat ? chat->session() : *plain).stats();
      if (chat && event.stats.generated_tokens > 0) {
        if (entry->request.json.empty())
          event.reply = chat->reply();
        else
          event.reply_json = chat->reply_json();
      }
      if (chat && !event.failure && !entry->request.keep_as.empty()) {
        kept_.Put(entry->request.keep_as, std::move(*chat), entry->request.cache_salt);
        chat.reset();
      }
    } catch (...) {
      if (!event.failure) event.failure = std::current_exception();
    }
    if (entry->given && !closes) {
      event.conversation.swap(chat);
      event.session.swap(plain);
    }
    chat.reset();
    plain.reset();
    if (!preempted && allowed_ < most_) ++allowed_;
    room_ = true;
    Emit(entry, std::move(event));
    std::list<Entry> ended;
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(entries_.begin(), entries_.end(),
                                 [&](const Entry& other) { return &other == entry; });
    ended.splice(ended.end(), entries_, at);
    changed_.notify_all();
  }

  void Emit(Entry* entry, QueueEvent event) {
    try {
      event.ticket = entry->ticket;
      event.time = Clock::now();
      if (entry->request.on_event) return entry->request.on_event(std::move(event));
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    } catch (...) {
      entry->failure = std::current_exception();
    }
  }

  // The cache has no room for a token of any session: closes those of the longest group of requests
  // but for the oldest one.
  void MakeRoom(const std::vector<Entry*>& open) {
    const Error failure(DSV4_ERR_OUT_OF_BLOCKS,
                        "the cache has no room for another token of this request");
    std::map<uint64_t, std::size_t> sizes;  // of groups, in tokens
    for (Entry* entry : open) sizes[entry->group()] += entry->session().tokens().size();
    const uint64_t oldest = open[0]->group();
    if (sizes.size() == 1) {
      return End(open.back(), DSV4_FINISH_ERROR, std::make_exception_ptr(failure), open.size() > 1);
    }
    uint64_t longest = oldest;
    for (const Entry* entry : open) {
      const uint64_t group = entry->group();
      if (group != oldest && (longest == oldest || sizes[group] >= sizes[longest])) longest = group;
    }
    std::vector<Entry*> leaving;
    std::copy_if(open.begin(), open.end(), std::back_inserter(leaving),
                 [&](const Entry* entry) { return entry->group() == longest; });
    for (Entry* entry : leaving) {
      if (entry->given) {
        End(entry, DSV4_FINISH_ERROR, std::make_exception_ptr(failure), true, true);
        continue;
      }
      std::optional<Conversation> chat;
      std::optional<Session> plain;
      const std::lock_guard lock(mutex_);
      chat.swap(entry->chat);
      plain.swap(entry->plain);
    }
    allowed_ = std::max<std::size_t>(open.size() - leaving.size(), 1);
    room_ = true;
  }

  const Engine& engine_;
  const QueueOptions options_;
  const int32_t max_sessions_;
  const std::size_t most_;  // that are answered at once
  // How many may be: fewer after a request was preempted, and one more with each that ends.
  std::size_t allowed_;
  bool room_ = false;  // a request has ended or was preempted
  KeptConversations kept_;
  std::mutex join_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable work_;     // for the thread
  std::condition_variable changed_;  // an event came, or a request has ended
  std::list<Entry> entries_;         // in order
  std::deque<QueueEvent> events_;
  uint64_t last_ticket_ = 0;
  bool closed_ = false;
  bool stepping_ = false;
  Clock::time_point step_begin_ = {};
  std::thread thread_;
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_QUEUE_HPP_
