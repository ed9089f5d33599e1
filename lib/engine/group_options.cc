// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/group_options.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/dist/process_group.h"

namespace dsv4 {
namespace {

int64_t NumberOf(int64_t value) { return value; }
int64_t NumberOf(Numerics value) { return static_cast<int64_t>(value); }
template <class T>
int64_t NumberOf(const std::optional<T>& value) {
  return value ? 1 + static_cast<int64_t>(*value) : 0;
}

template <class T>
void SetNumber(int64_t number, T* value) {
  *value = static_cast<T>(number);
}
template <class T>
void SetNumber(int64_t number, std::optional<T>* value) {
  *value = static_cast<T>(number - 1);
}

// Calls visit(name, field) for each of the common options. A field that is 0 has its default.
template <class Options, class Visit>
void ForEachCommon(Options* options, const Visit& visit) {
  visit("context_tokens", &options->context_tokens);
  visit("cache_tokens", &options->cache_tokens);
  visit("max_sessions", &options->max_sessions);
  visit("prefill_chunk_tokens", &options->prefill_chunk_tokens);
  visit("max_draft_tokens", &options->max_draft_tokens);
  visit("numerics", &options->numerics);
  visit("cache_format", &options->cache_format);
  visit("drafter", &options->drafter);
  visit("device_weight_bytes", &options->weight_budgets.device_bytes);
  visit("host_weight_bytes", &options->weight_budgets.host_bytes);
}

}  // namespace

absl::Status CheckGroup(const EngineOptions& options) {
  const GroupPlace& group = options.group;
  if (group.ranks < 1 || group.ranks > kMaxRanks) {
    return WithArgument(
        InvalidArgument("option group_size = ", group.ranks, " is not in 1..", kMaxRanks),
        "group_size");
  }
  if (group.rank < 0 || group.rank >= group.ranks) {
    return WithArgument(
        InvalidArgument("option group_rank = ", group.rank, " is not in 0..", group.ranks - 1),
        "group_rank");
  }
  if (!group.grouped()) return absl::OkStatus();
  if (options.devices.size() > 1) {
    return WithArgument(InvalidArgument("option devices names ", options.devices.size(),
                                        " devices; a process of a group has one"),
                        "devices");
  }
  if (options.backend != Backend::kCuda) {
    return WithArgument(
        Unsupported("option group_size = ", group.ranks, " on backend ",
                    BackendName(options.backend), "; a group's processes use backend cuda"),
        "group_size");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CreateGroupId(const EngineOptions& options) {
  DSV4_RETURN_IF_ERROR(CheckGroup(options));
  const GroupPlace& group = options.group;
  if (!group.grouped()) {
    return WithArgument(
        InvalidArgument("option group_size = 0; a group has 2 to ", kMaxRanks, " processes"),
        "group_size");
  }
  std::string carried = absl::StrCat("group_size=", group.ranks);
  ForEachCommon(&options, [&](const char* name, const auto* field) {
    if (NumberOf(*field) != 0) absl::StrAppend(&carried, ",", name, "=", NumberOf(*field));
  });
  return CreateGroupId(group.build, carried);
}

absl::Status TakeGroupOptions(EngineOptions* options) {
  DSV4_ASSIGN_OR_RETURN(const std::string carried, CarriedBy(options->group.id));
  for (const absl::string_view option : absl::StrSplit(carried, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(option, '=');
    int64_t number = 0;
    if (!absl::SimpleAtoi(parts.second, &number)) continue;  // another build's, which is refused
    if (parts.first == "group_size" && !options->group.grouped()) {
      options->group.ranks = static_cast<int>(number);
    }
    ForEachCommon(options, [&](const char* name, auto* field) {
      if (parts.first == name && NumberOf(*field) == 0) SetNumber(number, field);
    });
  }
  return absl::OkStatus();
}

}  // namespace dsv4
