// SPDX-License-Identifier: Apache-2.0
// dsv4_engine_step of programs that are linked with --wrap=dsv4_engine_step. One source of a
// program includes this, and defines WrappedEngineStep.
#pragma once

#include <dsv4/dsv4.h>

#include <cstddef>

extern "C" dsv4_status __real_dsv4_engine_step(dsv4_engine* engine, dsv4_session* const* sessions,
                                               size_t count, dsv4_parser_event_fn callback,
                                               void* const* users, dsv4_step_result* const* results,
                                               dsv4_status* statuses, dsv4_error** errors,
                                               dsv4_error** error);

namespace dsv4::test {

// The arguments of a call.
struct EngineStep {
  dsv4_engine* engine;
  dsv4_session* const* sessions;
  size_t count;
  dsv4_parser_event_fn callback;
  void* const* users;
  dsv4_step_result* const* results;
  dsv4_status* statuses;
  dsv4_error** errors;
  dsv4_error** error;

  // The library's own function.
  dsv4_status Real() const {
    return __real_dsv4_engine_step(engine, sessions, count, callback, users, results, statuses,
                                   errors, error);
  }
  // All sessions lose their device; new_error() makes an error object.
  template <class NewError>
  dsv4_status Lose(const NewError& new_error) const {
    for (size_t i = 0; i < count; ++i) {
      statuses[i] = DSV4_ERR_DEVICE_LOST;
      errors[i] = new_error();
    }
    return DSV4_OK;
  }
};

// What the program has in place of dsv4_engine_step.
dsv4_status WrappedEngineStep(const EngineStep& step);

}  // namespace dsv4::test

// Called by the linker's doing alone.
extern "C" [[gnu::used]] inline dsv4_status __wrap_dsv4_engine_step(
    dsv4_engine* engine, dsv4_session* const* sessions, size_t count, dsv4_parser_event_fn callback,
    void* const* users, dsv4_step_result* const* results, dsv4_status* statuses,
    dsv4_error** errors, dsv4_error** error) {
  return dsv4::test::WrappedEngineStep(
      {engine, sessions, count, callback, users, results, statuses, errors, error});
}
