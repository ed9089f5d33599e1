// SPDX-License-Identifier: Apache-2.0
// Found in place of CUDA's, which launches what nvcc compiled.
#pragma once

#include "tests/emulation/device.h"
