// SPDX-License-Identifier: Apache-2.0
// The model's configuration from the keys of a GGUF file, as config.json would say it.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/config/config.h"
#include "lib/io/gguf.h"

namespace dsv4 {

// Architectures: of models, and of DSpark drafters in files of their own.
inline constexpr char kGgufModel[] = "deepseek4";
inline constexpr char kGgufDspark[] = "dflash";
// The file's; "" if it has none.
absl::string_view GgufArchitecture(const GgufModel& model);

// Reads the keys deepseek4.* and those of the vocabulary. What other makers leave out is derived:
// the vocabulary's size from its tokens, the shared expert's clamp from that of the others. Errors,
// naming the key: InvalidArgument for one that is missing, of a wrong type or impossible, or keys
// that contradict each other; Unsupported for another architecture and for valid values that cannot
// be run.
absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufModel& model);
// ReadGgufConfig of the keys dflash.*; its layers are the drafter's stages.
absl::StatusOr<ModelConfig> ReadGgufDsparkConfig(const GgufModel& model);
// What only a DSpark drafter's file has. `layers`, `vocab_size`: of the model. Errors as above, and
// NotFound without a Markov head.
absl::StatusOr<DsparkConfig> ReadGgufDsparkKeys(const GgufModel& model, int64_t layers,
                                                int64_t vocab_size);

}  // namespace dsv4
