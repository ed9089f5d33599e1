// SPDX-License-Identifier: Apache-2.0
#include "capi/engine_options.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "capi/progress.h"
#include "capi/struct_io.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/engine/group_options.h"

namespace dsv4::capi {
namespace {

template <class T>
struct Named {
  const char* name;
  T value;
};

constexpr Named<Numerics> kNumerics[] = {
    {"published", Numerics::kPublished}, {"fp32", Numerics::kFp32}, {"exact", Numerics::kExact}};

constexpr Named<RowFormat> kCacheFormats[] = {{"packed", RowFormat::kPacked},
                                              {"bf16", RowFormat::kBf16},
                                              {"fp8_per_tensor", RowFormat::kFp8PerTensor},
                                              {"f32", RowFormat::kF32}};

constexpr double kLongestStepLimit = 86400;  // seconds

constexpr Named<bool> kSwitch[] = {{"on", true}, {"off", false}};

// Finds `text` among the names of `table`. `place`: of the setting, for the error.
template <class T, size_t count, class Out>
absl::Status Choose(const Named<T> (&table)[count], absl::string_view key, absl::string_view text,
                    absl::string_view place, Out* out) {
  for (const Named<T>& row : table) {
    if (text != row.name) continue;
    *out = row.value;
    return absl::OkStatus();
  }
  const auto name = [](std::string* to, const Named<T>& row) { absl::StrAppend(to, row.name); };
  return InvalidValue(place, " is ", Quoted(absl::StrCat(key, "=", text)),
                      "; known values: ", absl::StrJoin(table, ", ", name));
}

struct Setting {
  absl::string_view key;
  absl::Status (*set)(absl::string_view key, absl::string_view text, absl::string_view place,
                      OpenOptions* options);
};

constexpr Setting kSettings[] = {
    {"cache_format",
     [](absl::string_view key, absl::string_view text, absl::string_view place, OpenOptions* o) {
       return Choose(kCacheFormats, key, text, place, &o->cache_format);
     }},
    {"canary", [](absl::string_view key, absl::string_view text, absl::string_view place,
                  OpenOptions* o) { return Choose(kSwitch, key, text, place, &o->canary); }},
    {"drafter_model",
     [](absl::string_view, absl::string_view text, absl::string_view, OpenOptions* o) {
       o->drafter_model = std::string(text);
       return absl::OkStatus();
     }},
    {"expert_profile",
     [](absl::string_view, absl::string_view text, absl::string_view, OpenOptions* o) {
       o->expert_profile = std::string(text);
       return absl::OkStatus();
     }},
    {"expert_profiles",
     [](absl::string_view, absl::string_view text, absl::string_view, OpenOptions* o) {
       o->expert_profiles = std::string(text);
       return absl::OkStatus();
     }},
    {"numerics", [](absl::string_view key, absl::string_view text, absl::string_view place,
                    OpenOptions* o) { return Choose(kNumerics, key, text, place, &o->numerics); }},
    {"step_limit_seconds",
     [](absl::string_view key, absl::string_view text, absl::string_view place, OpenOptions* o) {
       double seconds = 0;
       if (!absl::SimpleAtod(text, &seconds) || !(seconds >= 0) || seconds > kLongestStepLimit) {
         return InvalidValue(place, " is ", Quoted(absl::StrCat(key, "=", text)),
                             "; expected 0 (no limit) to ", kLongestStepLimit, " seconds");
       }
       o->step_limit = std::chrono::milliseconds(std::llround(std::ceil(seconds * 1e3)));
       return absl::OkStatus();
     }},
    {"tuning_dir",
     [](absl::string_view, absl::string_view text, absl::string_view, OpenOptions* o) {
       o->tuning_dir = std::string(text);
       return absl::OkStatus();
     }},
};

absl::Status SetFrom(const char* const* settings, uint64_t count, OpenOptions* options) {
  DSV4_RETURN_IF_ERROR(CheckArray(settings, count, "options.settings"));
  for (uint64_t i = 0; i < count; ++i) {
    const std::string place = absl::StrCat("options.settings[", i, "]");
    DSV4_RETURN_IF_ERROR(NotNull(settings[i], place));
    const absl::string_view text = settings[i];
    const size_t equals = text.find('=');
    if (equals == absl::string_view::npos)
      return InvalidValue(place, " is ", Quoted(text), "; expected KEY=VALUE");
    const absl::string_view key = text.substr(0, equals);
    const Setting* found = nullptr;
    for (const Setting& setting : kSettings) {
      if (setting.key == key) found = &setting;
    }
    if (found == nullptr) {
      const auto name = [](std::string* to, const Setting& row) { absl::StrAppend(to, row.key); };
      return InvalidValue(place, " has the unknown key ", Quoted(key),
                          "; known keys: ", absl::StrJoin(kSettings, ", ", name));
    }
    DSV4_RETURN_IF_ERROR(found->set(key, text.substr(equals + 1), place, options));
  }
  return absl::OkStatus();
}

absl::Status SetGroup(const dsv4_group_options* given, OpenOptions* options) {
  options->group.build = dsv4_get_build_info();
  if (given == nullptr) return absl::OkStatus();
  DSV4_ASSIGN_OR_RETURN(const dsv4_group_options in, CopyIn(given, "options.group"));
  DSV4_RETURN_IF_ERROR(ReservedIsZero(in.reserved, "options.group.reserved"));
  if (in.size == 1) {
    return InvalidValue("options.group.size", " is 1; a group has 2 to ", kMaxRanks, " processes");
  }
  if (in.size != 0) options->group.ranks = in.size;
  options->group.rank = in.rank;
  if (in.id != nullptr) options->group.id = in.id;
  if (options->group.id.empty()) return absl::OkStatus();
  return WithArgumentOf(TakeGroupOptions(options), "options");
}

}  // namespace

absl::StatusOr<OpenOptions> OptionsFrom(const dsv4_engine_options* given) {
  OpenOptions options;
  options.prove = options.canary = true;
  options.prefer_gpu = given == nullptr;
  options.max_draft_tokens.reset();
  if (given == nullptr) return options;
  DSV4_ASSIGN_OR_RETURN(const dsv4_engine_options in, CopyIn(given, "options"));
  DSV4_ASSIGN_OR_RETURN(options.backend,
                        EnumFrom(kBackends, in.backend, "options.backend", "DSV4_BACKEND_"));
  options.prefer_gpu = in.backend == DSV4_BACKEND_AUTO;
  if (in.device_count > kMaxRanks) {
    return InvalidValue("options.device_count", " is ", in.device_count, "; at most ", kMaxRanks);
  }
  if (in.devices != nullptr) {
    options.devices.assign(in.devices, in.devices + in.device_count);
  } else {
    options.device_count = static_cast<int32_t>(in.device_count);
  }
  options.context_tokens = in.context_tokens;
  options.cache_tokens = in.cache_tokens;
  options.max_sessions = in.max_sessions;
  options.prefill_chunk_tokens = in.prefill_chunk_tokens;
  options.threads = in.threads;
  if (in.max_draft_tokens == 0) {
    options.max_draft_tokens.reset();
  } else {
    options.max_draft_tokens = in.max_draft_tokens == -1 ? 0 : in.max_draft_tokens;
  }
  if (in.drafter != DSV4_DRAFTER_AUTO) {
    DSV4_ASSIGN_OR_RETURN(options.drafter,
                          EnumFrom(kDrafters, in.drafter, "options.drafter", "DSV4_DRAFTER_"));
  }
  options.weight_budgets.device_bytes = in.device_weight_bytes;
  options.weight_budgets.host_bytes = in.host_weight_bytes;
  DSV4_RETURN_IF_ERROR(SetFrom(in.settings, in.setting_count, &options));
  DSV4_RETURN_IF_ERROR(SetGroup(in.group, &options));
  options.progress = Reporter(in.progress, in.progress_user, DSV4_PROGRESS_LOAD);
  return options;
}

const char* NameOf(Numerics numerics) {
  for (const Named<Numerics>& row : kNumerics) {
    if (row.value == numerics) return row.name;
  }
  return kNumerics[0].name;
}

const char* NameOf(RowFormat format) {
  for (const Named<RowFormat>& row : kCacheFormats) {
    if (row.value == format) return row.name;
  }
  return kCacheFormats[0].name;
}

}  // namespace dsv4::capi
