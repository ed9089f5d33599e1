// SPDX-License-Identifier: Apache-2.0
// A pass over several sessions: dsv4_engine_step of include/dsv4/conversation.h.
#include <dsv4/conversation.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/container/inlined_vector.h"
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

}  // namespace
}  // namespace dsv4::capi

dsv4_status dsv4_engine_step(dsv4_engine* engine, dsv4_session* const* sessions, size_t count,
                             dsv4_parser_event_fn callback, void* const* users,
                             dsv4_step_result* const* results, dsv4_status* statuses,
                             dsv4_error** errors, dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  bool arrays_given = false;
  const dsv4_status status = Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(CheckArray(sessions, count, "sessions"));
    DSV4_RETURN_IF_ERROR(CheckArray(results, count, "results"));
    DSV4_RETURN_IF_ERROR(CheckArray(statuses, count, "statuses"));
    arrays_given = true;
    if (errors != nullptr) std::fill_n(errors, count, nullptr);
    DSV4_RETURN_IF_ERROR(CheckToBeStepped(engine, sessions, count, results));
    SessionsInUse in_use(sessions);
    DSV4_RETURN_IF_ERROR(in_use.Enter(count));
    absl::InlinedVector<dsv4::Session*, kUsualSessions> stepped;
    absl::InlinedVector<absl::Status, kUsualSessions> checked(count);
    for (size_t i = 0; i < count; ++i) {
      const dsv4::Conversation* conversation = sessions[i]->conversation.get();
      if (conversation != nullptr) checked[i] = conversation->CheckTurn();
      if (checked[i].ok()) stepped.push_back(sessions[i]->session.get());
    }
    absl::InlinedVector<absl::StatusOr<dsv4::StepResult>, kUsualSessions> steps(stepped.size());
    DSV4_RETURN_IF_ERROR(dsv4::Session::StepAll(stepped, absl::MakeSpan(steps)));
    // The result of session i: its check's refusal, or its step with the events delivered.
    const auto take =
        [&](size_t i, absl::StatusOr<dsv4::StepResult> step) -> absl::StatusOr<dsv4::StepResult> {
      dsv4::Conversation* conversation = sessions[i]->conversation.get();
      if (conversation == nullptr) return step;
      return conversation->TakeStep(std::move(step), [&](const dsv4::ParserEvent& event) {
        if (callback == nullptr) return;
        const dsv4_parser_event out = EventOf(event);
        callback(users == nullptr ? nullptr : users[i], &out);
      });
    };
    for (size_t i = 0, taken = 0; i < count; ++i) {
      statuses[i] = Guard(errors == nullptr ? nullptr : &errors[i], [&] {
        return CopyStepOut(
            checked[i].ok() ? take(i, std::move(steps[taken++])) : std::move(checked[i]),
            results[i]);
      });
    }
    return absl::OkStatus();
  });
  if (status != DSV4_OK && arrays_given) std::fill_n(statuses, count, status);
  return status;
}
