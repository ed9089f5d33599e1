// SPDX-License-Identifier: Apache-2.0
// Every kernel of the scalar reference backend, for tests and for numerics other than published.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

Manifest ReferenceManifest();

}  // namespace dsv4
