// SPDX-License-Identifier: Apache-2.0
// Found in place of CUDA's, where the host's part of this backend is compiled.
#pragma once

#include "kernels/sm12x/host/device.h"
