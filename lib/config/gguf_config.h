// SPDX-License-Identifier: Apache-2.0
// The model's configuration from the keys of a GGUF file, as config.json would say it.
#pragma once

#include "absl/status/statusor.h"
#include "lib/config/config.h"
#include "lib/io/gguf.h"

namespace dsv4 {

// Reads the keys deepseek4.* and those of the vocabulary. What other makers leave out is derived:
// the vocabulary's size from its tokens, the shared expert's clamp from that of the others. Errors,
// naming the key: InvalidArgument for one that is missing, of a wrong type or impossible, or keys
// that contradict each other; Unsupported for another architecture and for valid values that cannot
// be run.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufModel& model);

}  // namespace dsv4
