// SPDX-License-Identifier: Apache-2.0
// The library's errors as absl::Status: one constructor per public status code
// (include/dsv4/error.h), each with a fixed absl code that capi/error.cc maps back. Test for an
// error with the predicate declared with its constructor; where there is none, absl's name is the
// same. Messages are one line and name the file, key, tensor or value at fault and its limit.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace dsv4 {

template <class... Args>
absl::Status InvalidArgument(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}
// `status`, which carries from here on that `argument` is at fault: a parameter of the call, or a
// field of one, as the public header spells it. Unless it is OK or names one already.
absl::Status WithArgument(absl::Status status, absl::string_view argument);
// The argument that `status` names is a field of `owner`: "threads" becomes "options.threads".
absl::Status WithArgumentOf(absl::Status status, absl::string_view owner);
// "" when there is none.
std::string ArgumentOf(const absl::Status& status);

// The system's words for an error number of its own: an errno; on Windows what GetLastError gives.
// Any thread.
std::string SystemReason(int error);

// InvalidArgument of `argument`, with which the message begins.
template <class... Args>
absl::Status InvalidValue(absl::string_view argument, const Args&... args) {
  return WithArgument(InvalidArgument(argument, args...), argument);
}
template <class... Args>
absl::Status NotFound(const Args&... args) {
  return absl::NotFoundError(absl::StrCat(args...));
}
// A file that cannot be opened, read or mapped.
template <class... Args>
absl::Status IoError(const Args&... args) {
  return absl::UnavailableError(absl::StrCat(args...));
}
inline bool IsIoError(const absl::Status& status) { return absl::IsUnavailable(status); }
// Data whose content contradicts its format: a damaged header, a wrong dtype or shape, a NaN scale.
template <class... Args>
absl::Status Corrupt(const Args&... args) {
  return absl::DataLossError(absl::StrCat(args...));
}
inline bool IsCorrupt(const absl::Status& status) { return absl::IsDataLoss(status); }
template <class... Args>
absl::Status Unsupported(const Args&... args) {
  return absl::UnimplementedError(absl::StrCat(args...));
}
inline bool IsUnsupported(const absl::Status& status) { return absl::IsUnimplemented(status); }
template <class... Args>
absl::Status OutOfHostMemory(const Args&... args) {
  return absl::ResourceExhaustedError(absl::StrCat(args...));
}
inline bool IsOutOfHostMemory(const absl::Status& status) {
  return absl::IsResourceExhausted(status);
}
template <class... Args>
absl::Status ContextFull(const Args&... args) {
  return absl::OutOfRangeError(absl::StrCat(args...));
}
inline bool IsContextFull(const absl::Status& status) { return absl::IsOutOfRange(status); }
// The KV block pool has no block left for the session that asked.
template <class... Args>
absl::Status OutOfBlocks(const Args&... args) {
  return absl::AbortedError(absl::StrCat(args...));
}
inline bool IsOutOfBlocks(const absl::Status& status) { return absl::IsAborted(status); }
template <class... Args>
absl::Status Cancelled(const Args&... args) {
  return absl::CancelledError(absl::StrCat(args...));
}
template <class... Args>
absl::Status Busy(const Args&... args) {
  return absl::FailedPreconditionError(absl::StrCat(args...));
}
inline bool IsBusy(const absl::Status& status) { return absl::IsFailedPrecondition(status); }
// The engine has given its memory back and waits to be resumed.
template <class... Args>
absl::Status Suspended(const Args&... args) {
  return absl::DeadlineExceededError(absl::StrCat(args...));
}
inline bool IsSuspended(const absl::Status& status) { return absl::IsDeadlineExceeded(status); }
template <class... Args>
absl::Status VersionMismatch(const Args&... args) {
  return absl::AlreadyExistsError(absl::StrCat(args...));
}
inline bool IsVersionMismatch(const absl::Status& status) { return absl::IsAlreadyExists(status); }
// The device has no memory left for what was asked of it.
template <class... Args>
absl::Status OutOfDeviceMemory(const Args&... args) {
  return absl::PermissionDeniedError(absl::StrCat(args...));
}
inline bool IsOutOfDeviceMemory(const absl::Status& status) {
  return absl::IsPermissionDenied(status);
}
// A device that failed: nothing more can be asked of it by this process.
template <class... Args>
absl::Status DeviceLost(const Args&... args) {
  return absl::UnauthenticatedError(absl::StrCat(args...));
}
inline bool IsDeviceLost(const absl::Status& status) { return absl::IsUnauthenticated(status); }
template <class... Args>
absl::Status Internal(const Args&... args) {
  return absl::InternalError(absl::StrCat(args...));
}

}  // namespace dsv4
