// SPDX-License-Identifier: Apache-2.0
// Converts the result of a sync to that of the C interface.
#pragma once

#include <dsv4/session.h>

#include "lib/session/session.h"

namespace dsv4::capi {

dsv4_sync_result SyncResultTo(const SyncResult& synced);

}  // namespace dsv4::capi
