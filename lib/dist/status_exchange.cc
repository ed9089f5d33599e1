// SPDX-License-Identifier: Apache-2.0
#include "lib/dist/status_exchange.h"

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// A rank's status, in whole kilobytes.
struct Message {
  int32_t code = 0;  // absl's
  int32_t length = 0;
  char text[1016] = {};
};
static_assert(sizeof(Message) == 1024);

Message MessageOf(const absl::Status& status) {
  Message message{.code = static_cast<int32_t>(status.code())};
  absl::string_view text = status.message().substr(0, sizeof message.text);
  const auto cuts_character = [&] {
    const size_t end = text.size();
    return end < status.message().size() && (status.message()[end] & 0xc0) == 0x80;
  };
  while (cuts_character()) text.remove_suffix(1);
  message.length = static_cast<int32_t>(text.copy(message.text, sizeof message.text));
  return message;
}

}  // namespace

int64_t StatusExchange::DeviceBytes(int ranks) {
  return int64_t{sizeof(Message)} * (ranks + 1);  // each rank's, and the own one as a slice
}

absl::Status StatusExchange::Exchange(Communicator* communicator, const absl::Status& own) const {
  if (!communicator->exchanges()) return own;
  const int ranks = communicator->ranks();
  const Message message = MessageOf(own);
  GatherParams gather{.rows = 1, .slice = memory_, .whole = memory_ + sizeof message};
  std::fill_n(gather.shares.widths.begin(), ranks, int64_t{sizeof message});
  DSV4_RETURN_IF_ERROR(device_->Upload(memory_, reinterpret_cast<const std::byte*>(&message),
                                       int64_t{sizeof message}));
  DSV4_RETURN_IF_ERROR(communicator->AllGather(gather));
  DSV4_RETURN_IF_ERROR(communicator->Synchronize());
  std::array<Message, kMaxRanks> all;
  DSV4_RETURN_IF_ERROR(device_->Download(reinterpret_cast<std::byte*>(all.data()), gather.whole,
                                         int64_t{sizeof message} * ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Message& theirs = all[static_cast<size_t>(rank)];
    if (theirs.code == 0) continue;
    if (rank == communicator->rank()) return own;
    const auto length = std::clamp<int32_t>(theirs.length, 0, sizeof theirs.text);
    const absl::string_view text(theirs.text, static_cast<size_t>(length));
    return {static_cast<absl::StatusCode>(theirs.code), absl::StrCat("rank ", rank, ": ", text)};
  }
  return absl::OkStatus();
}

}  // namespace dsv4
