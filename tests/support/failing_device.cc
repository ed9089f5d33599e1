// SPDX-License-Identifier: Apache-2.0
// A device that is lost on command, for programs whose calls of the library are linked to these
// (--wrap). The environment says when, and counts continue in child processes:
//   DSV4_TEST_LOST_STEPS=5,9      the calls that step, from 1, in which the device is lost; from
//                                 then on each call fails until the engine is resumed or another
//                                 one is opened
//   DSV4_TEST_FAILING_OPENS=2     the calls that open an engine, from 1, which fail
//   DSV4_TEST_FAILING_RESUMES=1   the calls that resume an engine, from 1, which fail
// The engine itself is not lost: to resume it, it is suspended first.
#include <dsv4/dsv4.h>
#include <sys/mman.h>

#include <atomic>

#include "tests/support/listed_number.h"
#include "tests/support/wrapped_engine_step.h"

extern "C" {
dsv4_status __real_dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                                    dsv4_engine** engine, dsv4_error** error);
dsv4_status __real_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error);
dsv4_status __real_dsv4_engine_get_metrics(const dsv4_engine* engine, dsv4_engine_metrics* metrics,
                                           dsv4_error** error);
}

namespace {

struct Counts {
  std::atomic<int> steps, opens, resumes;
};

// Shared with the processes that come from this one.
Counts* const counts = static_cast<Counts*>(
    mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
std::atomic<bool> lost = false;

bool LosesDevice() {
  if (dsv4::test::IsListed("DSV4_TEST_LOST_STEPS", ++counts->steps)) lost = true;
  return lost;
}

// The library's own error, of a folder with this name.
dsv4_error* NewError() {
  dsv4_engine* none = nullptr;
  dsv4_error* error = nullptr;
  __real_dsv4_engine_open("lost on command", nullptr, &none, &error);
  return error;
}

// What a call returns that meets a lost device.
dsv4_status Fail(dsv4_error** error) {
  if (error != nullptr) *error = NewError();
  return DSV4_ERR_DEVICE_LOST;
}

}  // namespace

dsv4_status dsv4::test::WrappedEngineStep(const EngineStep& step) {
  return LosesDevice() ? step.Lose(NewError) : step.Real();
}

extern "C" {

dsv4_status __wrap_dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                                    dsv4_engine** engine, dsv4_error** error) {
  if (dsv4::test::IsListed("DSV4_TEST_FAILING_OPENS", ++counts->opens)) return Fail(error);
  lost = false;
  return __real_dsv4_engine_open(path, options, engine, error);
}

dsv4_status __wrap_dsv4_engine_resume(dsv4_engine* engine, dsv4_progress_fn progress,
                                      void* progress_user, dsv4_error** error) {
  if (lost.exchange(false)) {
    const dsv4_status suspended = dsv4_engine_suspend(engine, nullptr, error);
    if (suspended != DSV4_OK) return suspended;
  }
  if (dsv4::test::IsListed("DSV4_TEST_FAILING_RESUMES", ++counts->resumes)) return Fail(error);
  return __real_dsv4_engine_resume(engine, progress, progress_user, error);
}

dsv4_status __wrap_dsv4_engine_get_metrics(const dsv4_engine* engine, dsv4_engine_metrics* metrics,
                                           dsv4_error** error) {
  const dsv4_status status = __real_dsv4_engine_get_metrics(engine, metrics, error);
  if (status == DSV4_OK && lost) metrics->device_lost = 1;
  return status;
}

dsv4_status __real_dsv4_session_step(dsv4_session* session, dsv4_parser_event_fn callback,
                                     void* user, dsv4_step_result* result, dsv4_error** error);
dsv4_status __wrap_dsv4_session_step(dsv4_session* session, dsv4_parser_event_fn callback,
                                     void* user, dsv4_step_result* result, dsv4_error** error) {
  return LosesDevice() ? Fail(error)
                       : __real_dsv4_session_step(session, callback, user, result, error);
}

}  // extern "C"
