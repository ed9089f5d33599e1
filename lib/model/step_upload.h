// SPDX-License-Identifier: Apache-2.0
// The inputs of a pass besides weights, cache and activations: tokens, positions, block tables,
// state writes, pointer lists, and the questions about logits. For a device with memory of its own
// they are one contiguous image for each pass, which is sent, or which the first kernel of a graph
// copies. Other devices read them in place.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/op/dense.h"
#include "kernels/op/step_rows.h"
#include "kernels/op/token_candidates.h"
#include "lib/device/device.h"
#include "lib/model/activations.h"
#include "lib/model/logit_rows.h"
#include "lib/model/token_masks.h"

namespace dsv4 {

// Pointers to host memory before the upload, to device memory afterwards.
struct PassInputs {
  StepRows step;
  const int32_t* tokens = nullptr;          // [step.rows]
  const int64_t* rope_positions = nullptr;  // [step.rows]
  // [step.rows]: sources and destinations of the streams with which an MTP pass begins; null for
  // other passes.
  const std::byte* const* from = nullptr;
  std::byte* const* to = nullptr;
  // [rows of the head] Only of the device.
  const int32_t* head_rows = nullptr;
  const CandidateQuery* queries = nullptr;
  const int32_t* previous = nullptr;  // tokens before head_rows
};

// The parts of a sequence's block tables that kernels read in a step: window blocks from that of
// the first window row on, and all compressed blocks. Kernels index the tables by absolute
// positions.
struct StepTables {
  absl::Span<const int32_t> windows, compressed;
};
StepTables TablesOf(const SequenceRows& rows);
// The first entry of window_blocks in TablesOf.
int64_t FirstWindowEntry(const SequenceRows& rows);

// Drafts whose logits depend on the previous token: a chain of them for each of some sequences.
struct FollowingDrafts {
  int32_t drafts = 0, sequences = 0;
  // [drafts, sequences]: rows of the head (negative: none) and the tokens before them (a negative
  // one, -1 - i, stands for the token of list i). Pointers as in PassInputs.
  const int32_t* rows = nullptr;
  const int32_t* tokens = nullptr;
  absl::Span<const LogitQuestion> questions{};  // at most one about each row
  const CandidateQuery* queries = nullptr;      // [drafts, sequences] Only of the device.
};

class StepUpload {
 public:
  // Rows, sequences and rows of the head that a pass is padded to, at least its own.
  struct Shape {
    int32_t rows = 0, sequences = 0, head_rows = 0;
    int32_t drafts = 0;  // in the chain of each sequence
  };

  // Device bytes for steps within `limits`; 0 on a device with host memory.
  static int64_t DeviceBytes(const Device& device, const StepLimits& limits);
  // `memory`: DeviceBytes, 64-byte aligned. `masks`: for as many rows of the head as `limits` has.
  absl::Status Place(Device* device, const StepLimits& limits, TokenMasks* masks,
                     std::byte* memory);
  // Place for inputs that stay in pinned memory until Fetch copies them.
  absl::Status PlaceFetched(Device* device, const StepLimits& limits, TokenMasks* masks,
                            std::byte* memory);
  // The call that copies the inputs of a pass of that shape to the device. REQUIRES: PlaceFetched.
  CopyRowsParams Fetch(const Shape& shape) const;

  // Uploads a pass, padded to `shape`.
  // - Padding rows belong to no sequence (-1). Padding sequences have no rows. Padding rows of the
  //   head are row 0; their logits are not used.
  // - *inputs: becomes the padded pass with pointers of the device. They are the same for the same
  //   shape, and valid until the next call. Their sources must live as long. `from` and `to` must
  //   have shape.rows elements.
  // - following: if shape.drafts is not 0, becomes the padded drafts with pointers of the device.
  // The first of several passes that are launched together starts the masks (TokenMasks).
  // REQUIRES, after PlaceFetched: the last pass has been fetched.
  absl::Status Pass(const Shape& shape, const LogitRequests& head, PassInputs* inputs,
                    FollowingDrafts* following = nullptr, bool first = true);
  // Uploads only the head's rows and queries, for the last uploaded pass.
  absl::Status Head(const LogitRequests& head, PassInputs* inputs);
  // Rows of the last head, the tokens before them, and queries by the rows of the head.
  absl::Status Follow(absl::Span<const int32_t> rows, absl::Span<const int32_t> tokens,
                      absl::Span<const LogitQuestion> questions, PassInputs* inputs);
  // Uploads two lists of `count` pointers; count is at most limits.rows.
  absl::Status Pointers(int32_t count, const std::byte* const** from, std::byte* const** to);

 private:
  // Begins an image at `base` on the device. Elements are added, then the image is sent.
  void Begin(std::byte* base);
  // Adds `count` elements: copies of `from`, or zeros if it is null. Returns their place in host_;
  // DeviceOf converts it to the device's.
  template <class T>
  size_t Append(const T* from, int64_t count);
  // Adds `count` elements and zeros up to `padded`. Returns their place on the device.
  template <class T>
  T* AppendPadded(const T* from, int64_t count, int64_t padded, T padding);
  template <class T>
  T* DeviceOf(size_t place) const {
    return reinterpret_cast<T*>(base_ + place);
  }
  SequenceRows AppendTables(SequenceRows rows);
  // Those of `rows` rows of the head.
  absl::StatusOr<CandidateQuery> QueryOf(const LogitQuestion& question);
  absl::Status AppendFollowing(const Shape& shape, FollowingDrafts* following);
  absl::Status AppendQueries(int32_t rows, absl::Span<const LogitQuestion> questions,
                             const CandidateQuery** queries);
  absl::Status Send();
  bool fetched() const { return fetch_.rows > 0; }

  Device* device_ = nullptr;  // null: host memory, nothing to do
  TokenMasks* masks_ = nullptr;
  std::byte *pass_ = nullptr, *head_ = nullptr, *pointers_ = nullptr;  // the device's
  std::byte* base_ = nullptr;
  std::byte* host_ = nullptr;  // the image
  size_t used_ = 0;            // bytes of it
  std::vector<std::byte> memory_;
  Buffer pinned_;  // the image where it is fetched
  int64_t positions_ = 0;
  int32_t logit_rows_ = 0;
  CopyRowsParams fetch_;
  std::vector<SequenceRows> host_sequences_;  // the padded step's, with the host's pointers
};

}  // namespace dsv4
