// SPDX-License-Identifier: Apache-2.0
// kernels/sm12x/linear_fp8.cu of the second set.
#include "kernels/sm12x/second/second_set.cuh"
// Under the names that it defines:
#include "kernels/sm12x/linear_fp8.cu"
