// SPDX-License-Identifier: Apache-2.0
// <dsv4/queue.hpp>. Answers are those of models/dsv4-tiny/gates.json, or of sessions alone.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/capi/hpp_expect.h"
#include "tests/support/wrapped_engine_step.h"

namespace {

// What the library's calls do first, which are linked to the functions below (--wrap).
struct Calls {
  std::function<void()> before_step = nullptr;
  std::atomic<int> lost_steps{0};    // so many of the next steps lose the device
  std::atomic<int> lost_resumes{0};  // so many of the next resumes fail
  std::atomic<int> resumes{0};
};
Calls* calls = nullptr;

struct WithCalls : Calls {
  WithCalls() { calls = this; }
  ~WithCalls() { calls = nullptr; }
};

dsv4_error* NewError() {
  dsv4_error* error = nullptr;
  dsv4_grammar* none = nullptr;
  dsv4_grammar_open(nullptr, 0, nullptr, 0, &none, &error);
  return error;
}

}  // namespace

dsv4_status dsv4::test::WrappedEngineStep(const EngineStep& step) {
  if (calls != nullptr && calls->before_step) calls->before_step();
  if (calls == nullptr || calls->lost_steps == 0) return step.Real();
  --calls->lost_steps;
  return step.Lose(NewError);
}

extern "C" {

dsv4_status __real_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error);
// The engine was not really lost: it is suspended first.
dsv4_status __wrap_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error) {
  if (calls != nullptr) {
    ++calls->resumes;
    if (calls->lost_resumes > 0) {
      --calls->lost_resumes;
      *error = NewError();
      return DSV4_ERR_DEVICE_LOST;
    }
  }
  const dsv4_status status = dsv4_engine_suspend(engine, nullptr, error);
  if (status != DSV4_OK) return status;
  return __real_dsv4_engine_resume(engine, progress, progress_user, error);
}

}  // extern "C"

namespace {

using namespace std::chrono_literals;

const char kStory[] = "Write a short story about Ralf and a ring.";

// What a request gave, event by event.
struct Got {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<dsv4::LogProbs> log_probs, prompt_log_probs;
  bool started = false;
  dsv4_finish finish = DSV4_FINISH_NONE;  // of ENDED
  dsv4_finish last = DSV4_FINISH_NONE;    // of the last token
  dsv4::SessionStats stats = {};
  dsv4::Message reply;
  std::string reply_json;
  std::exception_ptr failure;
  bool preempted = false;

  void Take(const dsv4::QueueEvent& event) {
    CHECK(finish == DSV4_FINISH_NONE);  // ENDED is the last event
    if (event.type == dsv4::QueueEvent::kToken) CHECK(started);
    if (event.type == dsv4::QueueEvent::kStarted) CHECK_FALSE(std::exchange(started, true));
    for (const dsv4::Event& part : event.events)
      if (part.type == DSV4_PARSER_TEXT) text += part.text;
    if (event.type == dsv4::QueueEvent::kToken) {
      tokens.push_back(event.step.token);
      last = event.step.finish;
      if (event.log_probs) log_probs.push_back(*event.log_probs);
      for (const dsv4::LogProbs& value : event.prompt_log_probs) prompt_log_probs.push_back(value);
    }
    stats = event.stats;
    if (event.type != dsv4::QueueEvent::kEnded) return;
    finish = event.step.finish;
    reply = event.reply;
    reply_json = event.reply_json;
    failure = event.failure;
    preempted = event.preempted;
  }

  dsv4_status code() const {
    if (!failure) return DSV4_OK;
    try {
      std::rethrow_exception(failure);
    } catch (const dsv4::Error& error) {
      return error.code();
    } catch (const std::exception&) {
      return DSV4_ERR_INTERNAL;
    }
  }
};

std::map<uint64_t, Got> TakeAll(dsv4::Queue& queue) {
  std::map<uint64_t, Got> got;
  while (std::optional<dsv4::QueueEvent> event = queue.Next()) got[event->ticket].Take(*event);
  return got;
}

dsv4::QueueRequest Ask(const std::string& question) {
  dsv4::QueueRequest request;
  request.messages = {{DSV4_ROLE_USER, question}};
  return request;
}

// Some story for each seed, of 40 tokens at most.
dsv4::QueueRequest Story(uint64_t seed) {
  dsv4::QueueRequest request = Ask(kStory);
  request.sampling.temperature = 8;
  request.sampling.top_p = 1;
  request.sampling.min_p = -1;
  request.sampling.seed = seed;
  request.sampling.max_tokens = 40;
  return request;
}

// The tokens of a request that is answered alone, without a queue.
std::vector<int32_t> Alone(const dsv4::Engine& engine, const dsv4::QueueRequest& request) {
  dsv4::Conversation chat(engine, {request.sampling, 0});
  chat.Sync(request.messages, request.chat);
  std::vector<int32_t> tokens;
  while (chat.finish() == DSV4_FINISH_NONE) tokens.push_back(chat.Step().token);
  return tokens;
}

// Holds the queue's thread before a step.
class Gate {
 public:
  // Lets so many steps pass.
  explicit Gate(int steps) : left_(steps) {}
  std::function<void()> function() {
    return [this] {
      std::unique_lock lock(mutex_);
      if (left_ <= 0) {
        waits_ = true;
        changed_.notify_all();
      }
      changed_.wait(lock, [this] { return left_ > 0; });
      --left_;
    };
  }
  // Waits until a step is held.
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waits_; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    left_ = 1 << 30;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int left_;
  bool waits_ = false;
};

}  // namespace

TEST_CASE("queue: more requests than sessions, each as alone") {
  dsv4::EngineOptions options;
  options.max_sessions = 3;
  const dsv4::Engine engine = OpenBundled(options);
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 1; i <= 8; ++i) expected.push_back(Alone(engine, Story(i)));
  CHECK(expected[0] != expected[1]);
  dsv4::Queue queue(engine);
  for (uint64_t i = 1; i <= 8; ++i) CHECK(queue.Submit(Story(i)) == i);
  const uint64_t answer = queue.Submit(Ask(kQuestion));
  const std::map<uint64_t, Got> got = TakeAll(queue);
  REQUIRE(got.size() == 9);
  for (uint64_t i = 1; i <= 8; ++i) {
    INFO(i);
    CHECK(got.at(i).tokens == expected[i - 1]);
    CHECK(got.at(i).finish == got.at(i).last);
    CHECK(got.at(i).stats.generated_tokens == static_cast<int64_t>(expected[i - 1].size()));
  }
  CHECK(got.at(answer).text == kAnswer);
  CHECK(got.at(answer).reply.content == kAnswer);
  CHECK(got.at(answer).finish == DSV4_FINISH_STOP);
  CHECK(queue.size() == 0);
  CHECK(engine.metrics().sessions == 0);
}

TEST_CASE("queue: prompts in all forms, with log-probabilities") {
  const dsv4::Engine engine = OpenBundled();
  const std::vector<int32_t> prompt = PromptOf(engine, kQuestion);
  dsv4::Session alone(engine);
  alone.Sync(prompt);
  CHECK(Generate(alone) == kAnswer);
  const dsv4::Span<const int32_t> all = alone.tokens();
  const std::vector<int32_t> expected(all.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                      all.end());

  dsv4::Queue queue(engine);
  dsv4::QueueRequest json;
  json.json = std::string(R"([{"role": "user", "content": ")") + kQuestion + "\"}]";
  const uint64_t by_json = queue.Submit(std::move(json));
  dsv4::QueueRequest tokens;
  tokens.tokens = prompt;
  tokens.sampling.log_probs = 2;
  tokens.sync = {1, 3};
  const uint64_t by_tokens = queue.Submit(std::move(tokens));
  std::map<uint64_t, Got> got = TakeAll(queue);
  CHECK(got[by_json].tokens == expected);
  CHECK(got[by_json].reply_json.find(kAnswer) != std::string::npos);
  CHECK(got[by_tokens].tokens == expected);
  REQUIRE(got[by_tokens].log_probs.size() == expected.size());
  CHECK(got[by_tokens].log_probs[0].top.size() == 2);
  CHECK(got[by_tokens].log_probs[0].top[0].token == expected[0]);
  REQUIRE(got[by_tokens].prompt_log_probs.size() == prompt.size() - 1);
  CHECK(got[by_tokens].prompt_log_probs[0].top.size() == 3);

  // Sessions of the host, which it gets back.
  dsv4::QueueRequest chat, plain;
  chat.conversation.emplace(engine);
  chat.conversation->Sync({{DSV4_ROLE_USER, kQuestion}});
  plain.session.emplace(engine);
  plain.session->Sync(prompt);
  const uint64_t by_chat = queue.Submit(std::move(chat));
  const uint64_t by_session = queue.Submit(std::move(plain));
  int back = 0;
  std::map<uint64_t, std::vector<int32_t>> found;
  while (std::optional<dsv4::QueueEvent> event = queue.Next()) {
    if (event->type == dsv4::QueueEvent::kToken) found[event->ticket].push_back(event->step.token);
    if (event->conversation) CHECK(event->conversation->reply().content == kAnswer);
    back += event->conversation.has_value() + event->session.has_value();
  }
  CHECK(found[by_chat] == expected);
  CHECK(found[by_session] == expected);
  CHECK(back == 2);
}

TEST_CASE("queue: a request is cancelled in its turn, and while it waits") {
  WithCalls with;
  Gate gate(8);
  with.before_step = gate.function();
  dsv4::EngineOptions options;
  options.max_sessions = 2;
  const dsv4::Engine engine = OpenBundled(options);
  const std::vector<int32_t> expected = Alone(engine, Story(5));
  dsv4::Queue queue(engine);
  const uint64_t cancelled = queue.Submit(Ask(kQuestion)), other = queue.Submit(Story(5));
  const uint64_t waiting = queue.Submit(Ask(kQuestion)), last = queue.Submit(Ask(kQuestion));
  gate.Await();
  queue.Cancel(cancelled);
  queue.Cancel(waiting);
  gate.Open();
  std::map<uint64_t, Got> got = TakeAll(queue);
  CHECK(got[cancelled].finish == DSV4_FINISH_CANCELLED);
  CHECK_FALSE(got[cancelled].failure);
  CHECK_FALSE(got[cancelled].text.empty());
  CHECK(got[cancelled].text.size() < std::string(kAnswer).size());
  CHECK(got[cancelled].reply.content == got[cancelled].text);
  CHECK(got[waiting].tokens.empty());
  CHECK(got[waiting].finish == DSV4_FINISH_CANCELLED);
  CHECK(got[other].tokens == expected);
  CHECK(got[last].text == kAnswer);
  queue.Cancel(cancelled);  // has ended: no effect
  queue.Cancel(12345);
}

TEST_CASE("queue: a request that fails does not touch others") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Queue queue(engine);
  const std::vector<int32_t> expected = Alone(engine, Story(3));
  const uint64_t good = queue.Submit(Story(3));
  dsv4::QueueRequest broken;
  broken.json = "[{";
  const uint64_t bad_json = queue.Submit(std::move(broken));
  const uint64_t empty = queue.Submit({});
  dsv4::QueueRequest long_prompt;
  long_prompt.tokens.assign(1000, 3);
  const uint64_t too_long = queue.Submit(std::move(long_prompt));
  dsv4::QueueRequest throwing = Ask(kQuestion);
  std::atomic<int> ends{0};
  throwing.on_event = [&ends](const dsv4::QueueEvent& event) {
    if (event.type == dsv4::QueueEvent::kToken) throw std::runtime_error("no room");
    if (event.type == dsv4::QueueEvent::kEnded && event.failure) ++ends;
  };
  queue.Submit(std::move(throwing));
  const uint64_t last = queue.Submit(Ask(kQuestion));
  std::map<uint64_t, Got> got = TakeAll(queue);
  CHECK(got[good].tokens == expected);
  CHECK(got[bad_json].finish == DSV4_FINISH_ERROR);
  CHECK(got[bad_json].code() == DSV4_ERR_CORRUPT);
  CHECK(got[empty].code() == DSV4_ERR_INVALID_ARGUMENT);
  CHECK(got[too_long].code() == DSV4_ERR_CONTEXT_FULL);
  CHECK(ends == 1);
  CHECK(got[last].text == kAnswer);
}

TEST_CASE("queue: conversations are kept, continued and branched from") {
  dsv4::EngineOptions options;
  options.max_sessions = 2;
  const dsv4::Engine engine = OpenBundled(options);
  dsv4::Queue queue(engine);
  const auto answer = [&](dsv4::QueueRequest request) {
    const uint64_t ticket = queue.Submit(std::move(request));
    return TakeAll(queue)[ticket];
  };
  dsv4::QueueRequest first = Ask(kQuestion);
  first.keep_as = "1";
  const Got one = answer(std::move(first));
  CHECK(queue.kept().size() == 1);
  const std::vector<dsv4::Message> messages = {
      {DSV4_ROLE_USER, kQuestion}, one.reply, {DSV4_ROLE_USER, "What is the capital of Italy?"}};
  const int64_t used = one.stats.used_tokens;
  dsv4::QueueRequest branch;
  branch.messages = messages;
  branch.keep_as = "2";
  branch.continues = "1";
  const Got two = answer(std::move(branch));
  CHECK(two.text == "The capital of Italy is Rome.");
  CHECK(two.stats.cached_tokens == used - 1);  // the last token was never computed
  CHECK(queue.kept().size() == 2);
  dsv4::QueueRequest other = Ask(kQuestion);
  other.keep_as = "1";
  other.cache_salt = 7;  // shares nothing
  CHECK(answer(std::move(other)).stats.cached_tokens == 0);
  dsv4::QueueRequest next;
  next.messages = messages;
  next.messages.push_back(two.reply);
  next.messages.push_back({DSV4_ROLE_USER, kQuestion});
  next.keep_as = "2";
  const Got three = answer(std::move(next));
  CHECK(three.text == kAnswer);
  CHECK(three.stats.cached_tokens == two.stats.used_tokens - 1);
  // All sessions are kept: a request takes the place of one.
  CHECK(queue.kept().size() == 2);
  CHECK(answer(Ask(kQuestion)).text == kAnswer);
  CHECK(queue.kept().size() == 1);
}

TEST_CASE("queue: a lost device is resumed, and answers continue") {
  for (const int lost : {1, 2}) {
    INFO(lost);
    WithCalls with;
    Gate submitted(0), gate(6);  // both have tokens when the device is lost
    with.before_step = [first = submitted.function(), sixth = gate.function()] {
      first();
      sixth();
    };
    const dsv4::Engine engine = OpenBundled();
    const std::vector<int32_t> expected = Alone(engine, Story(5));
    dsv4::Queue queue(engine);
    const uint64_t story = queue.Submit(Story(5)), question = queue.Submit(Ask(kQuestion));
    submitted.Open();
    gate.Await();
    with.lost_steps = lost;
    gate.Open();
    std::map<uint64_t, Got> got = TakeAll(queue);
    CHECK(with.resumes == lost);
    if (lost == 1) {
      CHECK(got[story].tokens == expected);
      CHECK(got[question].text == kAnswer);
    } else {  // twice without a token in between
      CHECK(got[story].code() == DSV4_ERR_DEVICE_LOST);
      CHECK(got[question].code() == DSV4_ERR_DEVICE_LOST);
    }
  }
}

TEST_CASE("queue: a device that stays lost ends the requests, by the host's function too") {
  WithCalls with;
  const dsv4::Engine engine = OpenBundled();
  with.lost_steps = 1;
  with.lost_resumes = 1;
  {
    dsv4::Queue queue(engine);
    const uint64_t ticket = queue.Submit(Ask(kQuestion));
    CHECK(TakeAll(queue)[ticket].code() == DSV4_ERR_DEVICE_LOST);
    const uint64_t later = queue.Submit(Ask(kQuestion));
    CHECK(TakeAll(queue)[later].text == kAnswer);
  }
  with.lost_steps = 1;
  dsv4::QueueOptions options;
  std::atomic<dsv4_status> code{DSV4_OK};
  options.resume = [&code](const dsv4::Error& failure) {
    code = failure.code();
    throw std::runtime_error("given up");
  };
  dsv4::Queue queue(engine, options);
  const uint64_t ticket = queue.Submit(Ask(kQuestion));
  const Got got = TakeAll(queue)[ticket];
  CHECK(code == DSV4_ERR_DEVICE_LOST);
  CHECK(got.code() == DSV4_ERR_INTERNAL);
  CHECK(got.finish == DSV4_FINISH_ERROR);
}

TEST_CASE("queue: a suspended engine is resumed by a request") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Queue queue(engine);
  engine.Suspend();
  const uint64_t ticket = queue.Submit(Ask(kQuestion));
  CHECK(TakeAll(queue)[ticket].text == kAnswer);
}

TEST_CASE("queue: in a full cache requests wait or begin again, with the same tokens") {
  dsv4::EngineOptions options;
  options.max_sessions = 4;
  options.context_tokens = 640;
  options.cache_tokens = 1024;  // 4 blocks of 256; each request comes to need 3
  const dsv4::Engine engine = OpenBundled(options);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 240; ++i) prompt.push_back(3 + i * 31 % 1800);
  const auto request_of = [&](uint64_t seed) {
    dsv4::QueueRequest request = Story(seed);
    request.messages.clear();
    request.tokens = prompt;
    request.sampling.max_tokens = 300;
    request.sampling.banned_tokens = {engine.info().eos_token};
    return request;
  };
  const auto session_of = [&](uint64_t seed) {
    dsv4::Session session(engine, {request_of(seed).sampling, 0});
    session.Sync(prompt);
    return session;
  };
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t i = 1; i <= 4; ++i) {
    dsv4::Session session = session_of(i);
    Generate(session);
    expected.emplace_back(session.tokens().begin() + prompt.size(), session.tokens().end());
  }
  CHECK(expected[0].size() == 300);
  {
    dsv4::Queue queue(engine);
    for (uint64_t i = 1; i <= 4; ++i) queue.Submit(request_of(i < 4 ? i : DSV4_SEED_RANDOM));
    std::map<uint64_t, Got> got = TakeAll(queue);
    for (uint64_t i = 1; i <= 4; ++i) {
      INFO(i);
      CHECK(got[i].code() == DSV4_OK);
      CHECK(got[i].tokens.size() == 300);
      if (i < 4) CHECK(got[i].tokens == expected[i - 1]);
    }
    CHECK(engine.metrics().failed_requests > 0);  // the cache was full
    CHECK(engine.metrics().generated_tokens > 8 * 300);
  }
  // A host's own session does not begin again by itself.
  WithCalls with;
  Gate gate(0);  // until all are submitted: sessions that are not fill the cache, too
  with.before_step = gate.function();
  dsv4::Queue queue(engine);
  std::vector<uint64_t> tickets;
  for (uint64_t i = 1; i <= 4; ++i) {
    dsv4::QueueRequest own;
    own.session = session_of(i);
    if (i == 2) own.group = tickets[0];
    if (i == 4) own.group = tickets[2];
    tickets.push_back(queue.Submit(std::move(own)));
  }
  gate.Open();
  CHECK(queue.Drain());  // events that nobody takes keep no session that others need
  std::map<uint64_t, Got> got = TakeAll(queue);
  CHECK(got[tickets[0]].tokens == expected[0]);
  CHECK(got[tickets[2]].preempted);
  CHECK(got[tickets[2]].code() == DSV4_ERR_OUT_OF_BLOCKS);
  CHECK(got[tickets[3]].preempted);
  CHECK_FALSE(got[tickets[1]].preempted);
}

TEST_CASE("queue: closed while it is busy") {
  WithCalls with;
  Gate gate(4);
  with.before_step = gate.function();
  dsv4::EngineOptions options;
  options.max_sessions = 2;
  const dsv4::Engine engine = OpenBundled(options);
  dsv4::Queue queue(engine);
  for (uint64_t i = 1; i <= 4; ++i) queue.Submit(Story(i));
  gate.Await();
  std::this_thread::sleep_for(1ms);
  CHECK(queue.seconds_in_step() >= 0.001);
  std::thread opens([&] {
    std::this_thread::sleep_for(50ms);
    gate.Open();
  });
  queue.Close();
  opens.join();
  const std::map<uint64_t, Got> got = TakeAll(queue);
  REQUIRE(got.size() == 4);
  for (const auto& [ticket, answer] : got) {
    INFO(ticket);
    CHECK(answer.finish == DSV4_FINISH_CANCELLED);
    CHECK(answer.tokens.size() < 10);
  }
  REQUIRE_ERROR(queue.Submit(Story(1)), DSV4_ERR_CANCELLED, "the queue is closed");
  CHECK(engine.metrics().sessions == 0);
}

TEST_CASE("queue: events come on the queue's thread, where further requests can be submitted") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Queue queue(engine);
  std::mutex mutex;
  std::vector<std::string> texts(3);
  size_t begun = 0;
  std::function<void()> submit = [&] {
    dsv4::QueueRequest request = Ask(kQuestion);
    const size_t number = begun++;
    request.on_event = [&, number](const dsv4::QueueEvent& event) {
      {
        const std::lock_guard lock(mutex);
        for (const dsv4::Event& part : event.events) texts[number] += part.text;
      }
      if (event.type == dsv4::QueueEvent::kEnded && begun < texts.size()) submit();
    };
    queue.Submit(std::move(request));
  };
  submit();
  CHECK(queue.Drain());
  CHECK_FALSE(queue.Next(1ms).has_value());
  const std::lock_guard lock(mutex);
  for (const std::string& text : texts) CHECK(text == kAnswer);
}

TEST_CASE("queue: many threads submit, cancel and take") {
  const dsv4::Engine engine = OpenBundled();
  dsv4::Queue queue(engine);
  constexpr int kEach = 6;
  std::atomic<int> ended{0}, cancelled{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const uint64_t ticket = queue.Submit(Ask(kQuestion));
        if (i % 3 == t) queue.Cancel(ticket);
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  threads.emplace_back([&] {
    std::map<uint64_t, std::string> texts;
    while (ended < 3 * kEach) {
      const std::optional<dsv4::QueueEvent> event = queue.Next(10ms);
      if (!event) continue;
      for (const dsv4::Event& part : event->events) texts[event->ticket] += part.text;
      if (event->type != dsv4::QueueEvent::kEnded) continue;
      if (event->step.finish == DSV4_FINISH_CANCELLED)
        ++cancelled;
      else if (texts[event->ticket] != kAnswer)
        ++wrong;
      ++ended;
    }
  });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(cancelled <= 6);
}
