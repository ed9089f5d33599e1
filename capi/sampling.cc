// SPDX-License-Identifier: Apache-2.0
// include/dsv4/sampling.h.
#include "capi/sampling.h"

#include <dsv4/sampling.h>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"

namespace dsv4::capi {

absl::StatusOr<SamplingParams> SamplingFrom(const dsv4_sampling* given) {
  DSV4_ASSIGN_OR_RETURN(const dsv4_sampling in, CopyIn(given, "sampling"));
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, "sampling.reserved"));
  return SamplingParams{.temperature = in.temperature,
                        .top_k = in.top_k,
                        .top_p = in.top_p,
                        .min_p = in.min_p,
                        .seed = in.seed,
                        .max_tokens = in.max_tokens};
}

}  // namespace dsv4::capi

dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                               dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(engine, "engine"));
    DSV4_RETURN_IF_ERROR(StructSize(sampling, "sampling").status());
    const dsv4::SamplingParams defaults = dsv4::Session::DefaultSampling(*engine->engine);
    dsv4_sampling out = DSV4_SAMPLING_INIT;
    out.temperature = defaults.temperature;
    out.top_k = defaults.top_k;
    out.top_p = defaults.top_p;
    out.min_p = defaults.min_p;
    out.seed = defaults.seed;
    out.max_tokens = defaults.max_tokens;
    CopyOut(out, sampling);
    return absl::OkStatus();
  });
}
