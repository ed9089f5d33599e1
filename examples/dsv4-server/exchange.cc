// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/exchange.h"

#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {

Exchange::Exchange(Host* host, Read read, std::function<bool()> client_is_gone)
    : host_(host), read_(std::move(read)), client_is_gone_(std::move(client_is_gone)) {
  Outlive([] {});
}

template <class Function>
void Exchange::Outlive(const Function& compute) {
  for (;;) {
    try {
      if (!answer_) Begin();
      return compute();
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_DEVICE_LOST) throw;
      generations_.clear();
      if (answer_) failure_ = answer_->Failure(DeviceLost(error.what()));
      answer_.reset();
      host_->Lost(std::exchange(opened_, nullptr), error.what());
    }
  }
}

void Exchange::Begin() {
  opened_ = host_->Get(client_is_gone_);
  identity_.Rewind();
  std::unique_ptr<Answer> answer = read_(opened_->model, &identity_);
  stream_ = answer->stream();
  std::vector<Candidate> candidates = answer->candidates();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (i == seeds_.size()) seeds_.push_back(candidates[i].seed);
    candidates[i].seed = seeds_[i];
  }
  Scheduler::Generations generations = opened_->scheduler.Open(candidates, client_is_gone_);
  candidate_ = 0;
  begun_ = false;
  for (const int32_t token : tokens_) {
    const Token again = generations[candidate_]->Next(client_is_gone_);
    if (again.id != token)
      throw DeviceLost("the device was lost, and the next one computes another answer");
    Give(answer.get(), again, generations[0]->stats());
    Advance(*answer);
  }
  answer_ = std::move(answer);
  generations_ = std::move(generations);
}

std::string Exchange::Give(Answer* answer, const Token& token, const dsv4::SessionStats& stats) {
  const std::string begin = begun_ || !stream_ ? "" : answer->Begin(stats);
  begun_ = true;
  return begin + answer->Take(candidate_, token, stats);
}

bool Exchange::Advance(const Answer& answer) {
  for (size_t i = 0; i < seeds_.size(); ++i) {
    candidate_ = (candidate_ + 1) % seeds_.size();
    if (!answer.ended(candidate_)) return true;
  }
  return false;
}

std::string Exchange::Take(bool* more) {
  std::string text;
  Outlive([&] {
    const Token token = generations_[candidate_]->Next(client_is_gone_);
    tokens_.push_back(token.id);
    text = Give(answer_.get(), token, generations_[0]->stats());
    *more = Advance(*answer_);
  });
  return text;
}

std::string Exchange::Next(bool* ended) {
  const bool first = tokens_.empty();
  try {
    bool more = false;
    std::string text = Take(&more);
    *ended = !more;
    return more ? text : text + answer_->End(generations_[0]->stats());
  } catch (const ClientGone&) {
    throw;
  } catch (...) {
    if (first) throw;
    *ended = true;
    return answer_ ? answer_->Failure(CurrentApiError()) : failure_;
  }
}

Json Exchange::Whole() {
  for (bool more = true; more;) Take(&more);
  return answer_->Whole(generations_[0]->stats());
}

}  // namespace server
