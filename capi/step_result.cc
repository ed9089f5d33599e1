// SPDX-License-Identifier: Apache-2.0
#include "capi/step_result.h"

#include <cstdint>

#include "capi/enum_table.h"
#include "capi/struct_io.h"
#include "lib/base/error.h"

namespace dsv4::capi {
namespace {

constexpr EnumValue<Finish> kFinishes[] = {
    {DSV4_FINISH_NONE, Finish::kNone},          {DSV4_FINISH_STOP, Finish::kStop},
    {DSV4_FINISH_LENGTH, Finish::kLength},      {DSV4_FINISH_CONTEXT_FULL, Finish::kContextFull},
    {DSV4_FINISH_TOOL_CALL, Finish::kToolCall},
};

dsv4_finish FinishOfFailure(const absl::Status& status) {
  if (absl::IsCancelled(status)) return DSV4_FINISH_CANCELLED;
  return IsContextFull(status) ? DSV4_FINISH_CONTEXT_FULL : DSV4_FINISH_ERROR;
}

dsv4_step_result StepResultTo(const StepResult& step) {
  dsv4_step_result out = DSV4_STEP_RESULT_INIT;
  out.token = step.token;
  out.finish = EnumTo(kFinishes, step.finish);
  out.text_length = static_cast<uint32_t>(step.text.size());
  out.text = step.text.empty() ? "" : step.text.data();
  return out;
}

dsv4_step_result FailureTo(const absl::Status& status) {
  dsv4_step_result out = DSV4_STEP_RESULT_INIT;
  out.token = -1;
  out.finish = FinishOfFailure(status);
  out.text = "";
  return out;
}

}  // namespace

absl::Status CopyStepOut(const absl::StatusOr<StepResult>& step, dsv4_step_result* result) {
  if (IsBusy(step.status())) return step.status();  // Busy: as it was
  CopyOut(step.ok() ? StepResultTo(*step) : FailureTo(step.status()), result);
  return step.status();
}

}  // namespace dsv4::capi
