// SPDX-License-Identifier: Apache-2.0
#include "lib/model/logit_rows.h"

#include <algorithm>
#include <cstring>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;

int64_t MaskBytes(int64_t vocab) {
  return RoundUp<int64_t>(CeilDiv<int64_t>(vocab, 32) * int64_t{sizeof(uint32_t)}, kAlignment);
}
int64_t QueryBytes(int64_t rows) {
  return RoundUp<int64_t>(rows * int64_t{sizeof(CandidateQuery)}, kAlignment);
}

}  // namespace

int64_t LogitRows::DeviceBytes(const Device& device, int32_t rows, int64_t vocab) {
  if (device.host_memory()) return 0;
  return MaskBytes(vocab) + QueryBytes(rows) + rows * MaskBytes(vocab);
}

absl::Status LogitRows::Prepare(const Device& device, Dispatch* dispatch, int32_t rows,
                                int64_t vocab) {
  if (device.host_memory()) return absl::OkStatus();
  return dispatch->Prepare(TokenCandidatesParams{.rows = rows, .vocab = vocab});
}

absl::Status LogitRows::Place(Device* device, int32_t rows, int64_t vocab, float* logits,
                              std::byte* memory, absl::Span<const uint32_t> with_text) {
  logits_ = logits;
  vocab_ = vocab;
  if (device->host_memory()) return absl::OkStatus();
  device_ = device;
  const auto size = static_cast<size_t>(rows);
  fetched_.resize(size);
  question_of_.resize(size);
  rules_.resize(size);
  image_.reserve(static_cast<size_t>(QueryBytes(rows) + rows * MaskBytes(vocab)));
  with_text_ = reinterpret_cast<uint32_t*>(memory);
  questions_ = memory + MaskBytes(vocab);
  DSV4_ASSIGN_OR_RETURN(host_logits_,
                        device->AllocateHost(rows * vocab * int64_t{sizeof(float)}, "logits"));
  DSV4_ASSIGN_OR_RETURN(
      lists_, device->AllocateHost(rows * int64_t{sizeof(CandidateList)}, "candidates of tokens"));
  std::vector<uint32_t> mask(static_cast<size_t>(CeilDiv<int64_t>(vocab, 32)), ~uint32_t{0});
  std::copy(with_text.begin(), with_text.end(), mask.begin());
  return device->Upload(memory, reinterpret_cast<const std::byte*>(mask.data()),
                        static_cast<int64_t>(mask.size() * sizeof(uint32_t)));
}

void LogitRows::Begin(int32_t rows) {
  if (device_ == nullptr) return;
  std::fill_n(fetched_.begin(), rows, uint8_t{0});
  std::fill_n(question_of_.begin(), rows, -1);
}

absl::Status LogitRows::Answer(const Dispatch& dispatch, const LaunchContext& launch,
                               absl::Span<const Question> questions) {
  if (device_ == nullptr || questions.empty()) return absl::OkStatus();
  const auto count = static_cast<int32_t>(questions.size());
  TokenCandidatesParams params{.rows = count,
                               .vocab = vocab_,
                               .queries = reinterpret_cast<const CandidateQuery*>(questions_),
                               .logits = logits_,
                               .lists = reinterpret_cast<CandidateList*>(lists_.data()),
                               .largest_only = true};
  image_.resize(static_cast<size_t>(QueryBytes(count)));
  // Rows of one session have one mask.
  absl::Span<const uint32_t> last;
  const uint32_t* last_on_device = nullptr;
  for (int32_t i = 0; i < count; ++i) {
    const Question& question = questions[static_cast<size_t>(i)];
    CandidateQuery query{.rule = question.rule, .row = question.row, .allowed = with_text_};
    if (!question.allowed.empty()) {
      if (question.allowed.data() != last.data()) {
        last = question.allowed;
        const size_t place = image_.size();
        image_.resize(place + static_cast<size_t>(MaskBytes(vocab_)));
        std::memcpy(image_.data() + place, last.data(), last.size() * sizeof(uint32_t));
        last_on_device = reinterpret_cast<const uint32_t*>(questions_ + place);
      }
      query.allowed = last_on_device;
    }
    std::memcpy(image_.data() + static_cast<size_t>(i) * sizeof query, &query, sizeof query);
    question_of_[static_cast<size_t>(question.row)] = i;
    rules_[static_cast<size_t>(question.row)] = question.rule;
    if (question.rule.kind != CandidateRule::kLargest) params.largest_only = false;
  }
  const DeviceScope scope(device_);
  DSV4_RETURN_IF_ERROR(
      device_->Upload(questions_, image_.data(), static_cast<int64_t>(image_.size())));
  DSV4_RETURN_IF_ERROR(dispatch.Run(launch, params));
  return device_->Finish();
}

const CandidateList* LogitRows::Candidates(int32_t row) const {
  if (device_ == nullptr) return nullptr;
  const int32_t question = question_of_[static_cast<size_t>(row)];
  if (question < 0) return nullptr;
  const CandidateList* list = reinterpret_cast<const CandidateList*>(lists_.data()) + question;
  return list->count >= 0 ? list : nullptr;
}

absl::Status LogitRows::Fetch(int32_t first, int32_t count) {
  if (device_ == nullptr) return absl::OkStatus();
  const int64_t row_bytes = vocab_ * int64_t{sizeof(float)};
  DSV4_RETURN_IF_ERROR(device_->Download(
      host_logits_.data() + first * row_bytes,
      reinterpret_cast<const std::byte*>(logits_) + first * row_bytes, count * row_bytes));
  std::fill_n(fetched_.begin() + first, count, uint8_t{1});
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const float>> LogitRows::Row(int32_t row) {
  if (device_ != nullptr && fetched_[static_cast<size_t>(row)] == 0) {
    DSV4_RETURN_IF_ERROR(Fetch(row, 1));
  }
  const float* const host =
      device_ == nullptr ? logits_ : reinterpret_cast<const float*>(host_logits_.data());
  return absl::MakeConstSpan(host + row * vocab_, static_cast<size_t>(vocab_));
}

}  // namespace dsv4
