// SPDX-License-Identifier: Apache-2.0
// The argument at fault travels as a payload of the status.
#include "lib/base/error.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/types/optional.h"

namespace dsv4 {
namespace {

constexpr char kArgument[] = "dsv4.argument";

}  // namespace

absl::Status WithArgument(absl::Status status, absl::string_view argument) {
  if (!status.ok() && !status.GetPayload(kArgument)) {
    status.SetPayload(kArgument, absl::Cord(argument));
  }
  return status;
}

absl::Status WithArgumentOf(absl::Status status, absl::string_view owner) {
  const std::string field = ArgumentOf(status);
  if (!field.empty()) {
    status.SetPayload(kArgument, absl::Cord(absl::StrCat(owner, ".", field)));
  }
  return status;
}

std::string ArgumentOf(const absl::Status& status) {
  const absl::optional<absl::Cord> argument = status.GetPayload(kArgument);
  return argument ? std::string(*argument) : std::string();
}

}  // namespace dsv4
