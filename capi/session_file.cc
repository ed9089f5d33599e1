// SPDX-License-Identifier: Apache-2.0
// include/dsv4/session.h: saving and loading.
#include <dsv4/session.h>

#include "absl/functional/function_ref.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/progress.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {
namespace {

// A conversation's messages are not part of a saved session: they stay, and use its rows.
absl::Status LoadInto(
    dsv4_session* handle,
    absl::FunctionRef<absl::Status(Session&, const Session::BeforeLoad& before)> load) {
  return WithExclusive(handle, [&](Session& own) -> absl::Status {
    if (handle->conversation == nullptr) return load(own, {});
    return handle->conversation->Load(
        [&](const Session::BeforeLoad& before) { return load(own, before); });
  });
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_session_save(const dsv4_session* session, const char* path,
                              dsv4_progress_fn progress, void* progress_user,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    return WithReading(session, [&](const dsv4::Session& own) {
      return own.SaveFile(path, Reporter(progress, progress_user, DSV4_PROGRESS_SAVE));
    });
  });
}

dsv4_status dsv4_session_save_memory(const dsv4_session* session, uint8_t* data, size_t capacity,
                                     size_t* needed, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArrayOut(data, capacity, needed, "data"));
    return WithReading(session, [&](const dsv4::Session& own) {
      *needed = static_cast<size_t>(own.SaveBytes());
      return *needed <= capacity ? own.SaveTo({data, *needed}) : absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_load(dsv4_session* session, const char* path, dsv4_progress_fn progress,
                              void* progress_user, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    return LoadInto(session, [&](dsv4::Session& own, const dsv4::Session::BeforeLoad& before) {
      return own.LoadFile(path, Reporter(progress, progress_user, DSV4_PROGRESS_RESTORE), before);
    });
  });
}

dsv4_status dsv4_session_load_memory(dsv4_session* session, const uint8_t* data, size_t size,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(data, size, "data"));
    return LoadInto(session, [&](dsv4::Session& own, const dsv4::Session::BeforeLoad& before) {
      return own.Load({data, size}, "data", {}, before);
    });
  });
}
