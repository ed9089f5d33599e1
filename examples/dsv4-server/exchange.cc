// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/exchange.h"

#include <optional>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/output_form.h"

namespace server {

void Exchange::Start(Served* served, const Threads& threads, std::string path, bool slow, Read read,
                     ErrorResponse error_response, std::shared_ptr<HttpReply> reply) {
  const std::shared_ptr<Exchange> exchange(new Exchange(
      served, threads, std::move(path), std::move(read), error_response, std::move(reply)));
  exchange->self_ = exchange;
  exchange->slow_ = slow;
  exchange->reply_->OnGone([weak = std::weak_ptr(exchange)] {
    const auto self = weak.lock();
    if (!self) return;
    Read unread;
    {
      const std::lock_guard lock(self->mutex_);
      self->gone_ = true;
      // A body that waits for a reader is not to wait longer than its client.
      if (!self->reading_) unread.swap(self->read_);
    }
    self->Post(self->threads_.writers, &Exchange::Leave);
  });
  exchange->PostBegin();
}

Exchange::Exchange(Served* served, const Threads& threads, std::string path, Read read,
                   ErrorResponse error_response, std::shared_ptr<HttpReply> reply)
    : served_(served),
      threads_(threads),
      path_(std::move(path)),
      read_(std::move(read)),
      error_response_(error_response),
      reply_(std::move(reply)) {}

void Exchange::Post(Workers* workers, Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.emplace_back(workers, task);
  if (std::exchange(busy_, true)) return;
  workers->Post([self = shared_from_this()] { self->RunNext(); });
}

void Exchange::RunNext() {
  Task task = nullptr;
  {
    const std::lock_guard lock(mutex_);
    task = tasks_.front().second;
    tasks_.pop_front();
  }
  if (reply_) (this->*task)();
  const std::lock_guard lock(mutex_);
  busy_ = !tasks_.empty();
  if (busy_) tasks_.front().first->Post([self = shared_from_this()] { self->RunNext(); });
}

template <class Function>
void Exchange::Guard(const Function& compute) {
  try {
    compute();
  } catch (const ClientGone&) {
    Leave();
  } catch (const SlowGrammar&) {
    slow_ = true;
    PostBegin();
  } catch (const Preempted&) {
    BeginAgain();
  } catch (...) {
    Fail(CurrentApiError());
  }
}

void Exchange::BeginAgain() {
  generations_.clear();
  place_.reset();
  if (answer_ && begun_) {
    Send();
    failure_ = answer_->Failure(Stopping());
  }
  answer_.reset();
  PostBegin();
}

void Exchange::Begin() {
  {
    const std::lock_guard lock(mutex_);
    reading_ = !gone_;
  }
  if (!reading_) return Finish();
  Guard([&] {
    identity_.Rewind();
    answer_ = read_(slow_ ? served_->model : served_->quick_model, &identity_);
    candidates_ = answer_->candidates();
    unenforced_ = UnenforcedPlaces(candidates_[0].prompt->sampling.grammar);
    const bool again = !seeds_.empty();
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (i == seeds_.size()) seeds_.push_back(candidates_[i].seed);
      candidates_[i].seed = seeds_[i];
    }
    candidate_ = 0;
    again_ = 0;
    begun_ = false;
    const auto on_turn = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Post(self->threads_.readers, &Exchange::Open);
    };
    place_ = served_->scheduler.Enter(candidates_.size(), again, on_turn);
  });
}

void Exchange::Open() {
  if (gone_) return Leave();
  Guard([&] {
    // Log-probabilities of a whole prompt take their time.
    Workers* const workers =
        candidates_[0].prompt->prompt_log_probs ? threads_.readers : threads_.writers;
    const auto notify = [weak = weak_from_this(), workers] {
      const auto self = weak.lock();
      if (self && !self->advancing_.exchange(true)) self->Post(workers, &Exchange::Advance);
    };
    generations_ =
        served_->scheduler.Open(place_.get(), candidates_, notify, [this] { return gone_.load(); });
    place_.reset();
  });
}

void Exchange::Advance() {
  advancing_ = false;
  if (generations_.empty()) return;
  Guard([&] {
    const bool ended = TakeTokens();
    if (!ended) return Send();
    const dsv4::SessionStats stats = generations_[0]->stats();
    if (answer_->stream()) {
      events_ += answer_->End(stats);
      Send();
      reply_->End();
    } else {
      reply_->Send(Head(TextOf(answer_->Whole(stats))));
    }
    Finish();
  });
}

bool Exchange::TakeTokens() {
  while (std::optional<Token> token = generations_[candidate_]->Take()) {
    const bool known = again_ < tokens_.size();
    if (known && token->id != tokens_[again_])
      throw ApiError{500, "server_error", "the answer was computed again and is another one"};
    ++again_;
    if (!known) tokens_.push_back(token->id);
    const dsv4::SessionStats stats = generations_[0]->stats();
    std::string events;
    if (!std::exchange(begun_, true) && answer_->stream()) events = answer_->Begin(stats);
    events += answer_->Take(candidate_, *token, stats);
    if (!known) events_ += events;
    if (!NextCandidate()) return true;
  }
  return false;
}

bool Exchange::NextCandidate() {
  // A candidate may end before its session does.
  if (answer_->ended(candidate_)) generations_[candidate_]->Stop();
  for (size_t i = 0; i < seeds_.size(); ++i) {
    candidate_ = (candidate_ + 1) % seeds_.size();
    if (!answer_->ended(candidate_)) return true;
  }
  return false;
}

void Exchange::Send() {
  std::string text = std::exchange(events_, {});
  if (!answer_->stream() || text.empty()) return;
  if (std::exchange(streaming_, true)) return reply_->Write(std::move(text));
  HttpResponse head = Head(std::move(text));
  head.type = "text/event-stream";
  head.headers.emplace_back("Cache-Control", "no-store");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  reply_->Begin(std::move(head));
}

HttpResponse Exchange::Head(std::string body) const {
  HttpResponse head{.body = std::move(body)};
  if (!unenforced_.empty()) head.headers.emplace_back("Dsv4-Unenforced", unenforced_);
  return head;
}

void Exchange::Fail(const ApiError& error) {
  if (answer_ && begun_) Send();
  if (streaming_) {
    reply_->Write(answer_ && begun_ ? answer_->Failure(error) : failure_);
    reply_->End();
  } else {
    reply_->Send(error_response_(path_, error));
  }
  Finish();
}

void Exchange::Leave() {
  if (place_) served_->scheduler.Abandon(std::move(place_));
  Finish();
}

void Exchange::Finish() {
  for (const auto& generation : generations_) generation->Stop();
  generations_.clear();
  place_.reset();
  answer_.reset();
  reply_.reset();
  self_.reset();
}

}  // namespace server
