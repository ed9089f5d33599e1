// SPDX-License-Identifier: Apache-2.0
// Converts engine options of the C interface to the engine's, and back to the names of settings.
#pragma once

#include <dsv4/engine.h>

#include "absl/status/statusor.h"
#include "capi/enum_table.h"
#include "lib/proof/open_best.h"

namespace dsv4::capi {

inline constexpr EnumValue<Backend> kBackends[] = {
    {DSV4_BACKEND_CPU, Backend::kCpu},
    {DSV4_BACKEND_REFERENCE, Backend::kReference},
    {DSV4_BACKEND_CUDA, Backend::kCuda},
    {DSV4_BACKEND_AUTO, Backend::kCpu},  // where no GPU fits
};

inline constexpr EnumValue<DrafterKind> kDrafters[] = {
    {DSV4_DRAFTER_NONE, DrafterKind::kNone},
    {DSV4_DRAFTER_MTP, DrafterKind::kMtp},
    {DSV4_DRAFTER_DSPARK, DrafterKind::kDspark},
    {DSV4_DRAFTER_NGRAM, DrafterKind::kNgram},
};

// `given` may be null: the defaults. Errors name the field, as in "options.settings[0]".
absl::StatusOr<OpenOptions> OptionsFrom(const dsv4_engine_options* given);

// The values of the settings `numerics` and `cache_format`, static strings.
const char* NameOf(Numerics numerics);
const char* NameOf(RowFormat format);

}  // namespace dsv4::capi
