// SPDX-License-Identifier: Apache-2.0
// A GPU (fake_cuda_runtime.h) that stops answering, for programs whose calls of the library are
// linked to these (--wrap). Engines open without the known-answer test and without the canary,
// neither of which a fake GPU passes. The environment says when it stops, and the count continues
// in child processes:
//   DSV4_TEST_HANGING_STEPS=5     the calls of dsv4_engine_step, from 1, in which it stops
#include <dsv4/dsv4.h>
#include <sys/mman.h>

#include <atomic>
#include <memory>

#include "capi/engine_options.h"
#include "capi/guard.h"
#include "capi/handles.h"
#include "lib/base/status_macros.h"
#include "lib/proof/open_best.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/listed_number.h"
#include "tests/support/wrapped_engine_step.h"

namespace {

// Shared with the processes that come from this one.
std::atomic<int>* const steps = static_cast<std::atomic<int>*>(mmap(
    nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

// Steps find token 300 as the only candidate.
[[maybe_unused]] const bool set = [] {
  dsv4::test::SetFakeCuda({.pinned = 300});
  return true;
}();

}  // namespace

dsv4_status dsv4::test::WrappedEngineStep(const EngineStep& step) {
  if (dsv4::test::IsListed("DSV4_TEST_HANGING_STEPS", ++*steps)) HangFakeCuda();
  return step.Real();
}

extern "C" {

dsv4_status __wrap_dsv4_engine_open(const char* path, const dsv4_engine_options* options,
                                    dsv4_engine** engine, dsv4_error** error) {
  return dsv4::capi::Guard(error, [&]() -> absl::Status {
    DSV4_ASSIGN_OR_RETURN(dsv4::OpenOptions open, dsv4::capi::OptionsFrom(options));
    open.prove = open.canary = false;
    auto handle = std::make_unique<dsv4_engine>();
    DSV4_ASSIGN_OR_RETURN(handle->engine, dsv4::OpenBest(path, open));
    DSV4_ASSIGN_OR_RETURN(handle->tokenizer.tokenizer, handle->engine->tokenizer());
    handle->tokenizer.encoder = handle->engine->text().ChatEncoderOr(dsv4::ChatEncoder::kPreview);
    *engine = handle.release();
    return absl::OkStatus();
  });
}

}  // extern "C"
