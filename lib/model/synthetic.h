// SPDX-License-Identifier: Apache-2.0
// A checkpoint of random weights, for measurements at a model's sizes without its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lib/io/checkpoint.h"
#include "lib/model/config.h"

namespace dsv4 {

// The first `layers` main layers of a configuration, and its MTP block. REQUIRES: 1 <= layers <=
// num_hidden_layers.
ModelConfig FirstLayers(const ModelConfig& config, int64_t layers);

struct SyntheticOptions {
  float skew = 0;
  // A file in which the elements of routed experts from `first_in_file` on lie, of any content;
  // several may lie in the same place. It is no smaller than one matrix. Empty: none.
  std::string file{};
  int64_t first_in_file = 0;
};

// Every tensor of `config`, of numbers that keep activations of modest size. Tensors of one dtype
// are views of the same memory, so that it takes little more than the largest of them. Gates choose
// all experts about alike; with `skew`, the bias of the expert of rank r, from 1 on in an order of
// each layer's own, is - skew * ln(r), so that few experts are chosen often.
// Errors: those of opening the file.
absl::StatusOr<std::unique_ptr<Checkpoint>> SyntheticCheckpoint(
    const ModelConfig& config, const SyntheticOptions& options = {});

}  // namespace dsv4
