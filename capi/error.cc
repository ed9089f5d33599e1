// SPDX-License-Identifier: Apache-2.0
// include/dsv4/error.h, and the mapping between the library's absl codes and the public ones, which
// lib/base/error.h states from the other side.
#include <dsv4/error.h>

#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "capi/enum_table.h"
#include "capi/guard.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/utf8.h"

struct dsv4_error {
  const char* message;
  const char* argument;
};

namespace dsv4::capi {
namespace {

// An error with its texts. All are such but the one below.
struct HeldError : dsv4_error {
  std::string held_message, held_argument;
};

// Handed out when there is no memory for another.
constinit dsv4_error out_of_memory{"out of memory", ""};

// Statuses of other codes are INTERNAL.
constexpr EnumValue<absl::StatusCode> kCodes[] = {
    {DSV4_ERR_INTERNAL, absl::StatusCode::kInternal},
    {DSV4_ERR_INVALID_ARGUMENT, absl::StatusCode::kInvalidArgument},
    {DSV4_ERR_NOT_FOUND, absl::StatusCode::kNotFound},
    {DSV4_ERR_IO, absl::StatusCode::kUnavailable},
    {DSV4_ERR_CORRUPT, absl::StatusCode::kDataLoss},
    {DSV4_ERR_UNSUPPORTED, absl::StatusCode::kUnimplemented},
    {DSV4_ERR_OUT_OF_HOST_MEMORY, absl::StatusCode::kResourceExhausted},
    {DSV4_ERR_CONTEXT_FULL, absl::StatusCode::kOutOfRange},
    {DSV4_ERR_OUT_OF_BLOCKS, absl::StatusCode::kAborted},
    {DSV4_ERR_CANCELLED, absl::StatusCode::kCancelled},
    {DSV4_ERR_BUSY, absl::StatusCode::kFailedPrecondition},
    {DSV4_ERR_VERSION_MISMATCH, absl::StatusCode::kAlreadyExists},
    {DSV4_ERR_OUT_OF_DEVICE_MEMORY, absl::StatusCode::kPermissionDenied},
    {DSV4_ERR_DEVICE_LOST, absl::StatusCode::kUnauthenticated},
    {DSV4_ERR_SUSPENDED, absl::StatusCode::kDeadlineExceeded},
};

}  // namespace

dsv4_status Fail(const absl::Status& status, dsv4_error** error) {
  const dsv4_status code = EnumTo(kCodes, status.code());
  // What lib/base/contained.h made has no words.
  const bool wordless = status.message().empty();
  if (wordless && code == DSV4_ERR_OUT_OF_HOST_MEMORY) return FailOutOfMemory(error);
  if (error != nullptr) {
    // It may quote a file name, or what JSON escapes can say and UTF-8 cannot.
    std::string message;
    const absl::string_view raw = wordless ? "an exception left a callback" : status.message();
    if (AppendRepairedUtf8(raw, &message) < raw.size()) {
      absl::StrAppend(&message, kReplacementCharacter);
    }
    auto* held = new HeldError{{"", ""}, OneLine(message), ArgumentOf(status)};
    held->message = held->held_message.c_str();
    held->argument = held->held_argument.c_str();
    *error = held;
  }
  return code;
}

dsv4_status FailOutOfMemory(dsv4_error** error) noexcept {
  if (error != nullptr) *error = &out_of_memory;
  return DSV4_ERR_OUT_OF_HOST_MEMORY;
}

}  // namespace dsv4::capi

const char* dsv4_error_get_message(const dsv4_error* error) noexcept {
  return error != nullptr ? error->message : "";
}

const char* dsv4_error_get_argument(const dsv4_error* error) noexcept {
  return error != nullptr ? error->argument : "";
}

void dsv4_error_free(dsv4_error* error) noexcept {
  if (error != &dsv4::capi::out_of_memory) delete static_cast<dsv4::capi::HeldError*>(error);
}

const char* dsv4_status_get_name(dsv4_status status) noexcept {
  // The index is the negated code.
  static constexpr const char* kNames[] = {
      "OK",           "INVALID_ARGUMENT", "NOT_FOUND",          "IO",
      "CORRUPT",      "UNSUPPORTED",      "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY",
      "CONTEXT_FULL", "OUT_OF_BLOCKS",    "CANCELLED",          "BUSY",
      "DEVICE_LOST",  "VERSION_MISMATCH", "INTERNAL",           "SUSPENDED"};
  static_assert(std::size(kNames) == -DSV4_ERR_SUSPENDED + 1);
  const bool known = status <= 0 && status >= DSV4_ERR_SUSPENDED;
  return known ? kNames[-status] : "UNKNOWN";
}
