// SPDX-License-Identifier: Apache-2.0
// A checkpoint of random weights, for measurements at the sizes of a model that is not at hand.
#pragma once

#include <memory>

#include "lib/io/checkpoint.h"
#include "lib/model/config.h"

namespace dsv4 {

// The first `layers` main layers of a configuration, and its MTP block. REQUIRES: 1 <= layers <=
// num_hidden_layers.
ModelConfig FirstLayers(const ModelConfig& config, int64_t layers);

// Every tensor of `config`, of numbers that keep activations of modest size. Tensors of one dtype
// are views of the same memory, so that it takes little more than the largest of them. Gates choose
// all experts about alike; with `skew`, the bias of the expert of rank r, from 1 on in an order of
// each layer's own, is - skew * ln(r), so that few experts are chosen often.
std::unique_ptr<Checkpoint> SyntheticCheckpoint(const ModelConfig& config, float skew = 0);

}  // namespace dsv4
