// SPDX-License-Identifier: Apache-2.0
// include/dsv4/session.h.
#include <dsv4/session.h>

#include <memory>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/progress.h"
#include "capi/sampling.h"
#include "capi/step_result.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_sampling* sampling,
                              dsv4_session** session, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(NotNull(session, "session"));
    dsv4::SamplingParams params = dsv4::Session::DefaultSampling(*engine->engine);
    if (sampling != nullptr) {
      DSV4_ASSIGN_OR_RETURN(params, SamplingFrom(sampling));
    }
    auto handle = std::make_unique<dsv4_session>();
    DSV4_ASSIGN_OR_RETURN(handle->session, dsv4::Session::Open(engine->engine, params));
    *session = handle.release();
    return absl::OkStatus();
  });
}

void dsv4_session_close(dsv4_session* session) noexcept { delete session; }

dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(const dsv4::SamplingParams params, SamplingFrom(sampling));
      return s.SetSampling(params);
    });
  });
}

dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t count,
                              dsv4_sync_result* result, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArray(tokens, count, "tokens"));
      if (result != nullptr) DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      DSV4_ASSIGN_OR_RETURN(const dsv4::SyncResult synced, s.Sync({tokens, count}));
      if (result == nullptr) return absl::OkStatus();
      dsv4_sync_result out = DSV4_SYNC_RESULT_INIT;
      out.common_tokens = synced.common_tokens;
      out.reused_tokens = synced.reused_tokens;
      out.pending_tokens = synced.pending_tokens;
      CopyOut(out, result);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_prefill(dsv4_session* session, int64_t max_tokens,
                                 dsv4_progress_fn progress, void* progress_user, int64_t* pending,
                                 dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      dsv4::Session::Progress report;
      if (progress != nullptr) report = Progress(progress, progress_user, DSV4_PROGRESS_PREFILL);
      DSV4_ASSIGN_OR_RETURN(const int64_t left, s.Prefill(max_tokens, report));
      if (pending != nullptr) *pending = left;
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_step(dsv4_session* session, dsv4_step_result* result,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      DSV4_ASSIGN_OR_RETURN(const dsv4::StepResult step, s.Step());
      CopyOut(StepResultTo(step), result);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_tokens(const dsv4_session* session, const int32_t** tokens, size_t* count,
                                dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReading(session, [&](const dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(NotNull(tokens, "tokens"));
      DSV4_RETURN_IF_ERROR(NotNull(count, "count"));
      *tokens = s.tokens().data();
      *count = s.tokens().size();
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_stats(const dsv4_session* session, dsv4_session_stats* stats,
                                   dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReading(session, [&](const dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(StructSize(stats, "stats").status());
      const dsv4::SessionStats current = s.stats();
      dsv4_session_stats out = DSV4_SESSION_STATS_INIT;
      out.context_tokens = s.engine()->info().context_tokens;
      out.used_tokens = current.used_tokens;
      out.prompt_tokens = current.prompt_tokens;
      out.cached_tokens = current.cached_tokens;
      out.prefilled_tokens = current.prefilled_tokens;
      out.generated_tokens = current.generated_tokens;
      out.prefill_seconds = current.prefill_seconds;
      out.decode_seconds = current.decode_seconds;
      out.cache_bytes = static_cast<uint64_t>(current.cache_bytes);
      CopyOut(out, stats);
      return absl::OkStatus();
    });
  });
}
