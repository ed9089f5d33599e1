// SPDX-License-Identifier: Apache-2.0
// Passes over several sessions: dsv4_engine_step of include/dsv4/session.h, and
// dsv4_engine_step_events of include/dsv4/conversation.h.
#include <dsv4/conversation.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/parser_event.h"
#include "capi/step_result.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {
namespace {

absl::Status CheckToBeStepped(const dsv4_engine* engine, dsv4_session* const* sessions,
                              size_t count, dsv4_step_result* const* results) {
  DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
  for (size_t i = 0; i < count; ++i) {
    if (sessions[i] == nullptr) return InvalidValue(absl::StrCat("sessions[", i, "]"), " is NULL");
    if (sessions[i]->session->engine() != engine->engine)
      return InvalidValue(absl::StrCat("sessions[", i, "]"), " is of another engine");
    // Steps are many: the name is made for an error alone.
    if (!StructSize(results[i], "results").ok())
      return StructSize(results[i], absl::StrCat("results[", i, "]")).status();
  }
  return absl::OkStatus();
}

// Room for this many sessions needs no allocation.
constexpr size_t kUsualSessions = 16;

// Holds several sessions as WithExclusive holds one.
class SessionsInUse {
 public:
  explicit SessionsInUse(dsv4_session* const* sessions) : sessions_(sessions) {}
  ~SessionsInUse() {
    while (entered_ > 0) sessions_[--entered_]->use.LeaveExclusive();
  }
  absl::Status Enter(size_t count) {
    for (; entered_ < count; ++entered_) {
      dsv4_session* session = sessions_[entered_];
      if (session->use.TryEnterExclusive()) continue;
      for (size_t i = 0; i < entered_; ++i) {
        if (sessions_[i] == session)
          return InvalidValue(absl::StrCat("sessions[", entered_, "]"),
                              " is named twice, as sessions[", i, "]");
      }
      return WithArgument(Busy("sessions[", entered_, "] is in use by another call"),
                          absl::StrCat("sessions[", entered_, "]"));
    }
    return absl::OkStatus();
  }

 private:
  dsv4_session* const* sessions_;
  size_t entered_ = 0;
};

// The arguments that both functions share.
struct Pass {
  dsv4_engine* engine;
  dsv4_session* const* sessions;
  size_t count;
  dsv4_step_result* const* results;
  dsv4_status* statuses;
  dsv4_error** errors;
};

// Steps those sessions for which `check(i)` is OK; `take(i, step)` gets the result of the step of
// each, or of the check's refusal.
dsv4_status RunPass(
    const Pass& pass, dsv4_error** error, absl::FunctionRef<absl::Status(size_t)> check,
    absl::FunctionRef<absl::StatusOr<StepResult>(size_t, absl::StatusOr<StepResult>)> take) {
  const size_t count = pass.count;
  bool arrays_given = false;
  const dsv4_status status = Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(pass.sessions, count, "sessions"));
    DSV4_RETURN_IF_ERROR(CheckArray(pass.results, count, "results"));
    DSV4_RETURN_IF_ERROR(CheckArray(pass.statuses, count, "statuses"));
    arrays_given = true;
    if (pass.errors != nullptr) std::fill_n(pass.errors, count, nullptr);
    DSV4_RETURN_IF_ERROR(CheckToBeStepped(pass.engine, pass.sessions, count, pass.results));
    SessionsInUse in_use(pass.sessions);
    DSV4_RETURN_IF_ERROR(in_use.Enter(count));
    absl::InlinedVector<Session*, kUsualSessions> stepped;
    absl::InlinedVector<absl::Status, kUsualSessions> checked(count);
    for (size_t i = 0; i < count; ++i) {
      checked[i] = check(i);
      if (checked[i].ok()) stepped.push_back(pass.sessions[i]->session.get());
    }
    absl::InlinedVector<absl::StatusOr<StepResult>, kUsualSessions> steps(stepped.size());
    DSV4_RETURN_IF_ERROR(Session::StepAll(stepped, absl::MakeSpan(steps)));
    for (size_t i = 0, taken = 0; i < count; ++i) {
      pass.statuses[i] = Guard(pass.errors == nullptr ? nullptr : &pass.errors[i], [&] {
        return CopyStepOut(
            checked[i].ok() ? take(i, std::move(steps[taken++])) : std::move(checked[i]),
            pass.results[i]);
      });
    }
    return absl::OkStatus();
  });
  if (status != DSV4_OK && arrays_given) std::fill_n(pass.statuses, count, status);
  return status;
}

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_engine_step(dsv4_engine* engine, dsv4_session* const* sessions, size_t count,
                             dsv4_step_result* const* results, dsv4_status* statuses,
                             dsv4_error** errors, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return RunPass(
      {engine, sessions, count, results, statuses, errors}, error,
      [](size_t) { return absl::OkStatus(); },
      [](size_t, absl::StatusOr<dsv4::StepResult> step) { return step; });
}

dsv4_status dsv4_engine_step_events(dsv4_engine* engine, dsv4_session* const* sessions,
                                    size_t count, dsv4_parser_event_fn callback, void* const* users,
                                    dsv4_step_result* const* results, dsv4_status* statuses,
                                    dsv4_error** errors, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  if (callback == nullptr) {
    return Guard(error, [] { return dsv4::InvalidValue("callback", " is NULL"); });
  }
  return RunPass(
      {engine, sessions, count, results, statuses, errors}, error,
      [&](size_t i) {
        const dsv4::Conversation* conversation = sessions[i]->conversation.get();
        return conversation == nullptr ? absl::OkStatus() : conversation->CheckTurn();
      },
      [&](size_t i, absl::StatusOr<dsv4::StepResult> step) {
        dsv4::Conversation* conversation = sessions[i]->conversation.get();
        if (conversation == nullptr) return step;
        return conversation->TakeStep(std::move(step), [&](const dsv4::ParserEvent& event) {
          const dsv4_parser_event out = EventOf(event);
          callback(users == nullptr ? nullptr : users[i], &out);
        });
      });
}
