// SPDX-License-Identifier: Apache-2.0
#include "capi/sync_result.h"

#include "capi/enum_table.h"

namespace dsv4::capi {
namespace {

constexpr EnumValue<ReuseLimit> kReuseLimits[] = {
    {DSV4_REUSE_ALL, ReuseLimit::kNone},
    {DSV4_REUSE_LAST_TOKEN, ReuseLimit::kLastToken},
    {DSV4_REUSE_DIFFERENT, ReuseLimit::kTokensDiffer},
    {DSV4_REUSE_NO_RESTORE_POINT, ReuseLimit::kNoRestorePoint},
    {DSV4_REUSE_NOT_CACHED, ReuseLimit::kNotCached},
    {DSV4_REUSE_INCOMPLETE_BLOCK, ReuseLimit::kIncompleteBlock},
};

}  // namespace

dsv4_sync_result SyncResultTo(const SyncResult& synced) {
  dsv4_sync_result out = DSV4_SYNC_RESULT_INIT;
  out.limit = EnumTo(kReuseLimits, synced.limit);
  out.common_tokens = synced.common_tokens;
  out.reused_tokens = synced.reused_tokens;
  out.pending_tokens = synced.pending_tokens;
  out.prefix_cache_tokens = synced.cached_tokens;
  out.limit_position = synced.limit_position;
  return out;
}

}  // namespace dsv4::capi
