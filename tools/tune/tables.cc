// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/tables.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

constexpr double kAlike = 1.01;
constexpr int64_t kAny = std::numeric_limits<int32_t>::max();

using Values = std::vector<int64_t>;  // of a case's dimensions

// All cases of the same dimensions.
struct Bucket {
  std::vector<double> median_us;  // means, by config
  double floor_us = 0;
  int cases = 0;
};

bool IsRanged(const char* dim) {
  return absl::string_view(dim) == "rows" || absl::string_view(dim) == "context";
}

// The first config whose score is within kAlike of the least.
size_t FirstOfBest(const std::vector<double>& scores) {
  const double least = *std::min_element(scores.begin(), scores.end());
  size_t i = 0;
  while (scores[i] > least * kAlike) ++i;
  return i;
}

void SetConfig(const KernelEntry& entry, size_t config,
               google::protobuf::Map<std::string, int32_t>* knobs) {
  for (size_t i = 0; i < entry.knobs.names.size(); ++i) {
    (*knobs)[entry.knobs.names[i]] = entry.knobs.configs[config].values[i];
  }
}

// The other cases' values of dimension `dim` where all else is equal; ascending.
std::set<int64_t> PointsOf(const std::map<Values, Bucket>& buckets, const Values& at, size_t dim) {
  std::set<int64_t> points;
  for (const auto& [values, bucket] : buckets) {
    Values same = values;
    same[dim] = at[dim];
    if (same == at) points.insert(values[dim]);
  }
  return points;
}

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  AppendJsonEscaped(text, &quoted);
  return quoted + "\"";
}

// A map in the order of its keys, so that equal tables have equal texts.
template <class Map, class Format>
std::string ObjectOf(const Map& map, Format format) {
  std::map<std::string, std::string> items;
  for (const auto& [key, value] : map) items[key] = format(value);
  return "{" +
         absl::StrJoin(items, ", ",
                       [](std::string* out, const auto& item) {
                         absl::StrAppend(out, Quote(item.first), ": ", item.second);
                       }) +
         "}";
}

std::string ConfigText(const google::protobuf::Map<std::string, int32_t>& knobs) {
  return ObjectOf(knobs, [](int32_t value) { return absl::StrCat(value); });
}

}  // namespace

tuning::File MakeTable(const KernelEntry& entry, const std::vector<Timing>& timings,
                       const TuningOrigin& origin) {
  tuning::File file;
  file.set_schema("dsv4.tuning/1");
  file.set_operator_(OpName(entry.op));
  file.set_impl(entry.name);
  file.set_impl_rev(entry.rev);
  file.mutable_device()->set_name(origin.device.name);
  file.mutable_device()->set_cc(ComputeCapabilityName(origin.device.compute_capability));
  file.mutable_device()->set_sm_count(origin.device.multiprocessors);
  file.mutable_toolchain()->set_cuda(origin.cuda);
  tuning::Provenance& provenance = *file.mutable_provenance();
  provenance.set_bench("dsv4-tune");
  provenance.set_commit(origin.commit);
  provenance.set_date(origin.date);
  provenance.set_clock("as found");

  std::map<Values, Bucket> buckets;
  const size_t configs = entry.knobs.configs.size();
  std::vector<double> overall(configs, 0);  // times of the best, over all cases
  for (const Timing& timing : timings) {
    Values values;
    for (const CallDim& dim : timing.dims.all()) values.push_back(dim.value);
    Bucket& bucket = buckets[values];
    bucket.median_us.resize(configs, 0);
    const double least = *std::min_element(timing.median_us.begin(), timing.median_us.end());
    for (size_t i = 0; i < configs; ++i) {
      bucket.median_us[i] += timing.median_us[i];
      overall[i] += timing.median_us[i] / least;
    }
    bucket.floor_us += timing.floor_us;
    ++bucket.cases;
  }
  const size_t fallback = FirstOfBest(overall);
  SetConfig(entry, fallback, file.mutable_default_());

  const absl::Span<const CallDim> dims = timings[0].dims.all();
  std::multimap<Values, tuning::Entry> sorted;  // by the first value of each range
  for (const auto& [values, bucket] : buckets) {
    const size_t best = FirstOfBest(bucket.median_us);
    if (best == fallback) continue;
    tuning::Entry one;
    Values firsts(dims.size(), 0);
    for (size_t d = 0; d < dims.size(); ++d) {
      tuning::Range range;
      range.set_first(values[d]);
      range.set_last(values[d]);
      if (IsRanged(dims[d].name)) {
        const std::set<int64_t> points = PointsOf(buckets, values, d);
        if (points.size() == 1) continue;
        const auto at = points.find(values[d]);
        range.set_first(at == points.begin() ? 1 : *std::prev(at) + 1);
        if (std::next(at) == points.end()) range.set_last(kAny);
      }
      firsts[d] = range.first();
      (*one.mutable_when())[dims[d].name] = range;
    }
    SetConfig(entry, best, one.mutable_config());
    one.set_median_us(bucket.median_us[best] / bucket.cases);
    one.set_floor_us(bucket.floor_us / bucket.cases);
    sorted.emplace(firsts, one);
  }
  for (const auto& [firsts, one] : sorted) *file.add_entries() = one;
  return file;
}

bool IsDefault(const KernelEntry& entry, const tuning::File& table) {
  google::protobuf::Map<std::string, int32_t> knobs;
  SetConfig(entry, 0, &knobs);
  return table.entries().empty() && std::map(knobs.begin(), knobs.end()) ==
                                        std::map(table.default_().begin(), table.default_().end());
}

std::string TextOf(const tuning::File& file) {
  const tuning::Provenance& provenance = file.provenance();
  std::string text = absl::StrCat(
      "{\n  \"schema\": ", Quote(file.schema()), ", \"operator\": ", Quote(file.operator_()),
      ",\n  \"impl\": ", Quote(file.impl()), ", \"impl_rev\": ", file.impl_rev(),
      ",\n  \"device\": {\"name\": ", Quote(file.device().name()),
      ", \"cc\": ", Quote(file.device().cc()), ", \"sm_count\": ", file.device().sm_count(),
      "},\n  \"toolchain\": {\"cuda\": ", Quote(file.toolchain().cuda()),
      "},\n  \"provenance\": {\"bench\": ", Quote(provenance.bench()),
      ", \"commit\": ", Quote(provenance.commit()),
      ",\n                 \"date\": ", Quote(provenance.date()),
      ", \"clock\": ", Quote(provenance.clock()),
      "},\n  \"default\": ", ConfigText(file.default_()), ",\n  \"entries\": [");
  for (int i = 0; i < file.entries_size(); ++i) {
    const tuning::Entry& entry = file.entries(i);
    const std::string when = ObjectOf(entry.when(), [](const tuning::Range& range) {
      return absl::StrCat("[", range.first(), ", ", range.last(), "]");
    });
    absl::StrAppend(&text, i == 0 ? "\n" : ",\n", "    {\"when\": ", when,
                    ", \"config\": ", ConfigText(entry.config()));
    absl::StrAppendFormat(&text, ", \"median_us\": %.2f, \"floor_us\": %.2f}", entry.median_us(),
                          entry.floor_us());
  }
  return text + "\n  ]\n}\n";
}

}  // namespace dsv4
