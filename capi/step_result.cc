// SPDX-License-Identifier: Apache-2.0
#include "capi/step_result.h"

#include <cstdint>

namespace dsv4::capi {
namespace {

dsv4_finish FinishTo(Finish finish) {
  switch (finish) {
    case Finish::kNone:
      return DSV4_FINISH_NONE;
    case Finish::kStop:
      return DSV4_FINISH_STOP;
    case Finish::kLength:
      return DSV4_FINISH_LENGTH;
    case Finish::kContextFull:
      return DSV4_FINISH_CONTEXT_FULL;
  }
  return DSV4_FINISH_NONE;
}

}  // namespace

dsv4_step_result StepResultTo(const StepResult& step) {
  dsv4_step_result out = DSV4_STEP_RESULT_INIT;
  out.token = step.token;
  out.finish = FinishTo(step.finish);
  out.text_length = static_cast<uint32_t>(step.text.size());
  out.text = step.text.empty() ? "" : step.text.data();
  return out;
}

}  // namespace dsv4::capi
