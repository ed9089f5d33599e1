// SPDX-License-Identifier: Apache-2.0
#include "lib/model/step_upload.h"

#include <algorithm>
#include <cstring>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;
constexpr CandidateQuery kNoQuery{.rule = {}, .row = -1, .list = 0};

int64_t Bytes(int64_t count, size_t size) {
  return RoundUp<int64_t>(count * static_cast<int64_t>(size), kAlignment);
}

int64_t PointerBytes(const StepLimits& limits) { return 2 * Bytes(limits.rows, sizeof(void*)); }

int64_t HeadBytes(const StepLimits& limits) {
  return 2 * Bytes(limits.logit_rows, sizeof(int32_t)) +
         Bytes(limits.logit_rows, sizeof(CandidateQuery));
}

int64_t FollowingBytes(const StepLimits& limits) {
  const int64_t places = int64_t{limits.drafts} * limits.sequences;
  return 2 * Bytes(places, sizeof(int32_t)) + Bytes(places, sizeof(CandidateQuery));
}

// The most bytes of one pass: a state write or window block for every row and some more for each
// sequence, and the compressed KV blocks of the longest sequences.
int64_t PassBytes(const StepLimits& limits) {
  const int64_t rows = limits.rows, sequences = limits.sequences;
  const int64_t window_entries = 4;  // of a sequence, in addition to the blocks of its rows
  const int64_t compressed_entries = limits.positions / kCompressedKvBlockTokens + 2;
  return 2 * Bytes(rows, sizeof(int32_t)) + 2 * Bytes(rows, sizeof(int64_t)) +
         PointerBytes(limits) + HeadBytes(limits) + FollowingBytes(limits) +
         Bytes(sequences, sizeof(SequenceRows)) + Bytes(rows, sizeof(StateWrite)) +
         sequences * kAlignment + Bytes(rows / kWindowBlockTokens, sizeof(int32_t)) +
         sequences * (Bytes(window_entries + 1, sizeof(int32_t)) +
                      Bytes(compressed_entries, sizeof(int32_t)));
}

}  // namespace

// The rows of a block (block_rows) see one position more.
int64_t FirstWindowEntry(const SequenceRows& rows) {
  const int64_t first = std::max(rows.window_begin, rows.first_position - kWindowTokens);
  return std::max<int64_t>(first, 0) / kWindowBlockTokens;
}

StepTables TablesOf(const SequenceRows& rows) {
  const int64_t end = rows.first_position + rows.rows, first = FirstWindowEntry(rows);
  const int64_t windows = CeilDiv(end, kWindowBlockTokens) - first;
  StepTables tables;
  tables.windows = {rows.window_blocks + first, static_cast<size_t>(windows)};
  if (rows.compressed_kv_blocks != nullptr) {
    tables.compressed = {rows.compressed_kv_blocks,
                         static_cast<size_t>(CeilDiv(end, kCompressedKvBlockTokens))};
  }
  return tables;
}

int64_t StepUpload::DeviceBytes(const Device& device, const StepLimits& limits) {
  if (device.host_memory()) return 0;
  return PointerBytes(limits) + PassBytes(limits) + HeadBytes(limits);
}

absl::Status StepUpload::Place(Device* device, const StepLimits& limits, TokenMasks* masks,
                               std::byte* memory) {
  if (device->host_memory()) return absl::OkStatus();
  device_ = device;
  masks_ = masks;
  logit_rows_ = limits.logit_rows;
  pointers_ = memory;
  pass_ = pointers_ + PointerBytes(limits);
  head_ = pass_ + PassBytes(limits);
  memory_.resize(static_cast<size_t>(PassBytes(limits)));
  host_ = memory_.data();
  host_sequences_.reserve(static_cast<size_t>(limits.sequences));
  return absl::OkStatus();
}

absl::Status StepUpload::PlaceFetched(Device* device, const StepLimits& limits, TokenMasks* masks,
                                      std::byte* memory) {
  DSV4_RETURN_IF_ERROR(Place(device, limits, masks, memory));
  if (device_ == nullptr) return absl::OkStatus();
  positions_ = limits.positions;
  DSV4_ASSIGN_OR_RETURN(pinned_, device->AllocateHost(PassBytes(limits), "inputs of steps"));
  const std::byte* const image = pinned_.data();
  fetch_ = {.rows = 1, .row_bytes = PassBytes(limits), .from = &image, .to = &pass_};
  DSV4_RETURN_IF_ERROR(Pointers(1, &fetch_.from, &fetch_.to));
  host_ = pinned_.data();
  return absl::OkStatus();
}

// The most bytes of a pass of the shape: the copy is recorded once.
CopyRowsParams StepUpload::Fetch(const Shape& shape) const {
  CopyRowsParams fetch = fetch_;
  fetch.row_bytes = PassBytes({.rows = shape.rows,
                               .sequences = shape.sequences,
                               .logit_rows = shape.head_rows,
                               .positions = positions_,
                               .drafts = shape.drafts});
  return fetch;
}

void StepUpload::Begin(std::byte* base) {
  base_ = base;
  used_ = 0;
}

template <class T>
size_t StepUpload::Append(const T* from, int64_t count) {
  const size_t place = used_, bytes = static_cast<size_t>(count) * sizeof(T);
  used_ = static_cast<size_t>(RoundUp(static_cast<int64_t>(place + bytes), kAlignment));
  if (from != nullptr) {
    std::memcpy(host_ + place, from, bytes);
  } else {
    std::memset(host_ + place, 0, bytes);
  }
  return place;
}

template <class T>
T* StepUpload::AppendPadded(const T* from, int64_t count, int64_t padded, T padding) {
  const size_t place = Append<T>(nullptr, padded);
  T* const to = reinterpret_cast<T*>(host_ + place);
  std::fill(std::copy_n(from, count, to), to + padded, padding);
  return DeviceOf<T>(place);
}

SequenceRows StepUpload::AppendTables(SequenceRows rows) {
  const StepTables tables = TablesOf(rows);
  rows.window_blocks = DeviceOf<int32_t>(Append(tables.windows.data(),
                                                static_cast<int64_t>(tables.windows.size()))) -
                       FirstWindowEntry(rows);
  if (rows.compressed_kv_blocks != nullptr) {
    rows.compressed_kv_blocks = DeviceOf<int32_t>(
        Append(tables.compressed.data(), static_cast<int64_t>(tables.compressed.size())));
  }
  if (rows.state_writes != nullptr) {
    rows.state_writes = DeviceOf<StateWrite>(Append(rows.state_writes, rows.state_write_count));
  }
  return rows;
}

absl::Status StepUpload::AppendQueries(int32_t rows, absl::Span<const LogitQuestion> questions,
                                       const CandidateQuery** queries) {
  const size_t place = Append<CandidateQuery>(nullptr, rows);
  CandidateQuery* const query = reinterpret_cast<CandidateQuery*>(host_ + place);
  std::fill_n(query, rows, kNoQuery);
  for (const LogitQuestion& question : questions) {
    DSV4_ASSIGN_OR_RETURN(query[question.row], QueryOf(question));
  }
  *queries = DeviceOf<CandidateQuery>(place);
  return absl::OkStatus();
}

absl::StatusOr<CandidateQuery> StepUpload::QueryOf(const LogitQuestion& question) {
  DSV4_ASSIGN_OR_RETURN(const uint32_t* const allowed,
                        masks_->OnDevice(question.allowed, question.allowed_id));
  return CandidateQuery{
      .rule = question.rule, .row = question.row, .list = question.place(), .allowed = allowed};
}

// Padded sequence by sequence.
absl::Status StepUpload::AppendFollowing(const Shape& shape, FollowingDrafts* following) {
  const int64_t places = int64_t{shape.drafts} * shape.sequences;
  const size_t rows = Append<int32_t>(nullptr, places), tokens = Append<int32_t>(nullptr, places);
  const size_t queries = Append<CandidateQuery>(nullptr, places);
  auto* const row = reinterpret_cast<int32_t*>(host_ + rows);
  auto* const token = reinterpret_cast<int32_t*>(host_ + tokens);
  auto* const query = reinterpret_cast<CandidateQuery*>(host_ + queries);
  std::fill_n(row, places, -1);
  std::fill_n(query, places, kNoQuery);
  const FollowingDrafts& from = *following;
  for (int32_t draft = 0; draft < from.drafts; ++draft) {
    for (int32_t i = 0; i < from.sequences; ++i) {
      const int64_t at = int64_t{draft} * shape.sequences + i;
      row[at] = from.rows[draft * from.sequences + i];
      token[at] = from.tokens[draft * from.sequences + i];
      if (row[at] < 0) continue;
      for (const LogitQuestion& question : from.questions) {
        if (question.row != row[at]) continue;
        DSV4_ASSIGN_OR_RETURN(query[at], QueryOf(question));
      }
    }
  }
  *following = {.drafts = shape.drafts,
                .sequences = shape.sequences,
                .rows = DeviceOf<int32_t>(rows),
                .tokens = DeviceOf<int32_t>(tokens),
                .queries = DeviceOf<CandidateQuery>(queries)};
  return absl::OkStatus();
}

absl::Status StepUpload::Send() {
  return device_->Upload(base_, host_, static_cast<int64_t>(used_));
}

// Parts with fixed offsets come before parts that vary in size.
absl::Status StepUpload::Pass(const Shape& shape, const LogitRequests& head, PassInputs* inputs,
                              FollowingDrafts* following, bool first) {
  if (device_ == nullptr) return absl::OkStatus();
  Begin(pass_);
  if (first) masks_->Begin();
  const StepRows& step = inputs->step;
  const int32_t rows = shape.rows;
  PassInputs out;
  out.step = {.rows = rows, .sequence_count = shape.sequences, .max_position = step.max_position};
  out.step.rope = step.rope;
  out.step.sequence_of = AppendPadded(step.sequence_of, step.rows, rows, -1);
  out.step.positions = AppendPadded<int64_t>(step.positions, step.rows, rows, 0);
  out.rope_positions = AppendPadded<int64_t>(inputs->rope_positions, step.rows, rows, 0);
  out.tokens = AppendPadded(inputs->tokens, step.rows, rows, 0);
  if (inputs->from != nullptr) {
    out.from = DeviceOf<const std::byte*>(Append(inputs->from, rows));
    out.to = DeviceOf<std::byte*>(Append(inputs->to, rows));
  }
  out.head_rows =
      AppendPadded(head.rows.data(), static_cast<int64_t>(head.rows.size()), shape.head_rows, 0);
  DSV4_RETURN_IF_ERROR(AppendQueries(shape.head_rows, head.questions, &out.queries));
  if (shape.drafts > 0) DSV4_RETURN_IF_ERROR(AppendFollowing(shape, following));
  const size_t list = Append<SequenceRows>(nullptr, shape.sequences);
  out.step.sequences = DeviceOf<SequenceRows>(list);
  host_sequences_.assign(step.sequences, step.sequences + step.sequence_count);
  host_sequences_.resize(static_cast<size_t>(shape.sequences));
  out.step.host_sequences = host_sequences_.data();
  for (size_t i = 0; i < host_sequences_.size(); ++i) {
    const SequenceRows& host = host_sequences_[i];
    const SequenceRows device = host.rows > 0 ? AppendTables(host) : SequenceRows{};
    std::memcpy(host_ + list + i * sizeof device, &device, sizeof device);
  }
  *inputs = out;
  return fetched() ? absl::OkStatus() : Send();
}

absl::Status StepUpload::Head(const LogitRequests& head, PassInputs* inputs) {
  if (device_ == nullptr) {
    inputs->head_rows = head.rows.data();
    return absl::OkStatus();
  }
  Begin(head_);
  masks_->Begin();
  const auto rows = static_cast<int32_t>(head.rows.size());
  inputs->head_rows = DeviceOf<int32_t>(Append(head.rows.data(), rows));
  DSV4_RETURN_IF_ERROR(AppendQueries(rows, head.questions, &inputs->queries));
  return Send();
}

absl::Status StepUpload::Follow(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                                absl::Span<const LogitQuestion> questions, PassInputs* inputs) {
  if (device_ == nullptr) {
    inputs->head_rows = rows.data();
    inputs->previous = tokens.data();
    return absl::OkStatus();
  }
  Begin(head_);
  masks_->Begin();
  const auto count = static_cast<int64_t>(rows.size());
  inputs->head_rows = DeviceOf<int32_t>(Append(rows.data(), count));
  inputs->previous = DeviceOf<int32_t>(Append(tokens.data(), count));
  DSV4_RETURN_IF_ERROR(AppendQueries(logit_rows_, questions, &inputs->queries));
  return Send();
}

absl::Status StepUpload::Pointers(int32_t count, const std::byte* const** from,
                                  std::byte* const** to) {
  if (device_ == nullptr) return absl::OkStatus();
  Begin(pointers_);
  *from = DeviceOf<const std::byte*>(Append(*from, count));
  *to = DeviceOf<std::byte*>(Append(*to, count));
  return Send();
}

}  // namespace dsv4
