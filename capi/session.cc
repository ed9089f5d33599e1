// SPDX-License-Identifier: Apache-2.0
// include/dsv4/session.h.
#include <dsv4/session.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/progress.h"
#include "capi/sampling.h"
#include "capi/step_result.h"
#include "capi/struct_io.h"
#include "capi/sync_result.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {
namespace {

absl::StatusOr<SyncOptions> SyncOptionsFrom(const dsv4_sync_options* given) {
  if (given == nullptr) return SyncOptions{};
  DSV4_ASSIGN_OR_RETURN(const dsv4_sync_options in, CopyIn(given, "options"));
  return SyncOptions{.log_probs = {.begin = in.log_probs_begin, .count = in.log_probs_count}};
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_session_options* options,
                              dsv4_session** session, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(session, "session"));
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    dsv4_session_options in = DSV4_SESSION_OPTIONS_INIT;
    if (options != nullptr) {
      DSV4_ASSIGN_OR_RETURN(in, CopyIn(options, "options"));
    }
    DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, "options.reserved"));
    const dsv4_sampling models = DSV4_SAMPLING_INIT;
    DSV4_ASSIGN_OR_RETURN(const dsv4::SamplingParams params,
                          SamplingFrom(in.sampling != nullptr ? in.sampling : &models,
                                       dsv4::Session::DefaultSampling(*engine->engine),
                                       engine->engine->info().max_draft_tokens));
    auto handle = std::make_unique<dsv4_session>();
    absl::StatusOr<std::unique_ptr<dsv4::Session>> opened =
        dsv4::Session::Open(engine->engine, params, in.cache_salt);
    if (!opened.ok()) return dsv4::WithArgumentOf(opened.status(), "sampling");
    handle->session = *std::move(opened);
    *session = handle.release();
    return absl::OkStatus();
  });
}

void dsv4_session_close(dsv4_session* session) noexcept { delete session; }

void dsv4_session_set_stopped(dsv4_session* session, int32_t stopped) noexcept {
  if (session != nullptr) session->session->SetStopped(stopped != 0);
}

dsv4_status dsv4_session_fork(dsv4_session* session, dsv4_session** fork,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(NotNull(fork, "fork"));
      auto handle = std::make_unique<dsv4_session>();
      DSV4_ASSIGN_OR_RETURN(handle->session, s.Fork());
      if (session->conversation != nullptr)
        handle->conversation = session->conversation->Fork(handle->session.get());
      *fork = handle.release();
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_set_allowed(dsv4_session* session, const uint32_t* words, size_t count,
                                     dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArray(words, count, "words"));
      return s.SetAllowed({words, count});
    });
  });
}

dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(const dsv4::SamplingParams params,
                            SamplingFrom(sampling, dsv4::Session::DefaultSampling(*s.engine()),
                                         s.engine()->info().max_draft_tokens));
      return dsv4::WithArgumentOf(s.SetSampling(params), "sampling");
    });
  });
}

dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t count,
                              const dsv4_sync_options* options, dsv4_sync_result* result,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(CheckArray(tokens, count, "tokens"));
      if (result != nullptr) DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      DSV4_ASSIGN_OR_RETURN(const dsv4::SyncOptions sync_options, SyncOptionsFrom(options));
      DSV4_ASSIGN_OR_RETURN(const dsv4::SyncResult synced, s.Sync({tokens, count}, sync_options));
      if (result != nullptr) CopyOut(SyncResultTo(synced), result);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_rewind(dsv4_session* session, int64_t position, int64_t* pending,
                                dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(const int64_t left, s.Rewind(position));
      if (pending != nullptr) *pending = left;
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
      const auto report = Reporter(progress, progress_user, DSV4_PROGRESS_PREFILL);
      DSV4_ASSIGN_OR_RETURN(const int64_t left, s.Prefill(max_tokens, report));
      if (pending != nullptr) *pending = left;
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_log_probs(const dsv4_session* session, int64_t position,
                                       float* log_prob, int32_t* top_tokens, float* top_log_probs,
                                       size_t capacity, size_t* top_count,
                                       dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReading(session, [&](const dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(NotNull(log_prob, "log_prob"));
      DSV4_RETURN_IF_ERROR(CheckArray(top_tokens, capacity, "top_tokens"));
      DSV4_RETURN_IF_ERROR(CheckArray(top_log_probs, capacity, "top_log_probs"));
      const dsv4::PositionLogProbs* found = s.LogProbsAt(position);
      if (found == nullptr)
        return dsv4::NotFound("no log-probabilities are kept for position ", position);
      *log_prob = found->log_prob;
      const absl::Span<const dsv4::TokenLogProb> top = found->most_likely();
      if (top_count != nullptr) *top_count = top.size();
      for (size_t i = 0; i < std::min(capacity, top.size()); ++i) {
        top_tokens[i] = top[i].token;
        top_log_probs[i] = top[i].log_prob;
      }
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_tokens(const dsv4_session* session, const int32_t** tokens,
                                    size_t* count, dsv4_error** error) noexcept {
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
      out.seed = s.sampling().seed;
      out.context_tokens = s.engine()->info().context_tokens;
      out.used_tokens = current.used_tokens;
      out.prompt_tokens = current.prompt_tokens;
      out.cached_tokens = current.cached_tokens;
      out.prefilled_tokens = current.prefilled_tokens;
      out.generated_tokens = current.generated_tokens;
      out.prefill_seconds = current.prefill_seconds;
      out.decode_seconds = current.decode_seconds;
      out.cache_bytes = static_cast<uint64_t>(current.cache_bytes);
      out.prefix_cache_tokens = current.prefix_cache_tokens;
      const dsv4::SpeculationStats& speculation = current.speculation;
      out.drafted_tokens = speculation.drafted;
      out.accepted_tokens = speculation.accepted;
      out.draft_steps = speculation.steps();
      out.acceptance_length = speculation.acceptance_length();
      out.first_acceptance = speculation.first_acceptance();
      out.alarms = current.alarms;
      CopyOut(out, stats);
      return absl::OkStatus();
    });
  });
}
