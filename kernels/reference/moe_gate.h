// SPDX-License-Identifier: Apache-2.0
// The choice of experts of one token from the gate's products.
#pragma once

#include <cstdint>

namespace dsv4::reference {

// s = sqrt(softplus(logits)), in place. experts [K]: `fixed` when not null, else the top K of
// s + bias. weights [K] = s[experts] / sum * routed_scale.
void SelectExperts(float* logits, int64_t expert_count, int64_t experts_per_token,
                   const float* bias, const int32_t* fixed, float routed_scale, int32_t* experts,
                   float* weights);

}  // namespace dsv4::reference
