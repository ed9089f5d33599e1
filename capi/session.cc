// SPDX-License-Identifier: Apache-2.0
// include/dsv4/session.h.
#include <dsv4/session.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "capi/enum_table.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/progress.h"
#include "capi/sampling.h"
#include "capi/step_result.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

dsv4_session::~dsv4_session() = default;

namespace dsv4::capi {
namespace {

absl::StatusOr<SyncOptions> SyncOptionsFrom(const dsv4_sync_options* given) {
  if (given == nullptr) return SyncOptions{};
  DSV4_ASSIGN_OR_RETURN(const dsv4_sync_options in, CopyIn(given, "options"));
  return SyncOptions{.log_probs = {.begin = in.log_probs_begin, .count = in.log_probs_count}};
}

constexpr EnumValue<ReuseLimit> kReuseLimits[] = {
    {DSV4_REUSE_ALL, ReuseLimit::kNone},
    {DSV4_REUSE_LAST_TOKEN, ReuseLimit::kLastToken},
    {DSV4_REUSE_DIFFERENT, ReuseLimit::kTokensDiffer},
    {DSV4_REUSE_NO_RESTORE_POINT, ReuseLimit::kNoRestorePoint},
    {DSV4_REUSE_NOT_CACHED, ReuseLimit::kNotCached},
    {DSV4_REUSE_INCOMPLETE_BLOCK, ReuseLimit::kIncompleteBlock},
};

bool CallMask(void* call, absl::Span<const int32_t> timeline, int64_t prompt_tokens,
              absl::Span<uint32_t> allowed) {
  const auto& mask = *static_cast<const TokenMaskCall*>(call);
  return mask.fn(mask.user, timeline.data(), timeline.size(), prompt_tokens, allowed.data(),
                 allowed.size()) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<dsv4_session>> OpenSession(dsv4_engine* engine,
                                                          const dsv4_session_options* options,
                                                          absl::string_view name) {
  DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
  dsv4_session_options in = DSV4_SESSION_OPTIONS_INIT;
  if (options != nullptr) {
    DSV4_ASSIGN_OR_RETURN(in, CopyIn(options, name));
  }
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, absl::StrCat(name, ".reserved")));
  SamplingParams params = Session::DefaultSampling(*engine->engine);
  if (in.sampling != nullptr) {
    DSV4_ASSIGN_OR_RETURN(params, SamplingFrom(in.sampling));
  }
  auto handle = std::make_unique<dsv4_session>();
  absl::StatusOr<std::unique_ptr<Session>> opened =
      Session::Open(engine->engine, params, in.cache_salt);
  if (!opened.ok()) return WithArgumentOf(opened.status(), "sampling");
  handle->session = *std::move(opened);
  handle->grammar.grammar = params.grammar;
  handle->sampling = std::make_unique<HeldSampling>(std::move(params));
  return handle;
}

}  // namespace dsv4::capi

dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_session_options* options,
                              dsv4_session** session, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(session, "session"));
    DSV4_ASSIGN_OR_RETURN(std::unique_ptr<dsv4_session> handle,
                          OpenSession(engine, options, "options"));
    *session = handle.release();
    return absl::OkStatus();
  });
}

void dsv4_session_close(dsv4_session* session) noexcept { delete session; }

void dsv4_session_cancel(dsv4_session* session) noexcept {
  if (session != nullptr) session->session->Cancel();
}

void dsv4_session_stop(dsv4_session* session) noexcept {
  if (session != nullptr) session->session->Stop();
}

void dsv4_session_resume(dsv4_session* session) noexcept {
  if (session != nullptr) session->session->Resume();
}

dsv4_status dsv4_session_fork(dsv4_session* session, dsv4_session** fork,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(NotNull(fork, "fork"));
      auto handle = std::make_unique<dsv4_session>();
      handle->mask = session->mask;
      DSV4_ASSIGN_OR_RETURN(handle->session, s.Fork());
      handle->grammar = session->grammar;
      handle->sampling = std::make_unique<HeldSampling>(session->sampling->params());
      if (session->conversation != nullptr)
        handle->conversation = session->conversation->Fork(handle->session.get());
      *fork = handle.release();
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_set_token_mask(dsv4_session* session, dsv4_token_mask_fn mask, void* user,
                                        dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) {
      std::shared_ptr<TokenMaskCall> call;
      if (mask != nullptr) call = std::make_shared<TokenMaskCall>(TokenMaskCall{mask, user});
      s.SetTokenMask(mask == nullptr ? dsv4::TokenMask{} : dsv4::TokenMask{CallMask, call.get()});
      session->mask = std::move(call);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_ASSIGN_OR_RETURN(dsv4::SamplingParams params, SamplingFrom(sampling));
      auto held = std::make_unique<HeldSampling>(std::move(params));
      DSV4_RETURN_IF_ERROR(dsv4::WithArgumentOf(s.SetSampling(held->params()), "sampling"));
      session->sampling = std::move(held);
      return absl::OkStatus();
    });
  });
}

dsv4_status dsv4_session_get_sampling(const dsv4_session* session, dsv4_sampling* sampling,
                                      dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithReading(session, [&](const dsv4::Session&) -> absl::Status {
      DSV4_RETURN_IF_ERROR(StructSize(sampling, "sampling").status());
      dsv4_sampling out = session->sampling->View();
      if (session->grammar.grammar != nullptr) out.grammar = &session->grammar;
      CopyOut(out, sampling);
      return absl::OkStatus();
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
      if (result == nullptr) return absl::OkStatus();
      dsv4_sync_result out = DSV4_SYNC_RESULT_INIT;
      out.common_tokens = synced.common_tokens;
      out.reused_tokens = synced.reused_tokens;
      out.pending_tokens = synced.pending_tokens;
      out.prefix_cache_tokens = synced.cached_tokens;
      out.limit = EnumTo(kReuseLimits, synced.limit);
      out.limit_position = synced.limit_position;
      CopyOut(out, result);
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

dsv4_status dsv4_session_step(dsv4_session* session, dsv4_step_result* result,
                              dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&] {
    return WithExclusive(session, [&](dsv4::Session& s) -> absl::Status {
      DSV4_RETURN_IF_ERROR(StructSize(result, "result").status());
      return CopyStepOut(s.Step(), result);
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
      if (!speculation.fall_back.empty()) out.draft_stop = DSV4_DRAFT_STOP_FEW_ACCEPTED;
      out.alarms = current.alarms;
      CopyOut(out, stats);
      return absl::OkStatus();
    });
  });
}
