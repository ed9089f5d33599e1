// SPDX-License-Identifier: Apache-2.0
#include "examples/console/command_line.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace chat {
namespace {

// How many letters must be added, dropped or changed to make `a` of `b`.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// Whether `list`, as in "off|low", has `value`.
bool Lists(std::string_view list, std::string_view value) {
  for (size_t begin = 0, end; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find('|', begin), list.size());
    if (list.substr(begin, end - begin) == value) return true;
  }
  return false;
}

}  // namespace

void Refuse(const std::string& name, std::string_view value, const std::string& expected) {
  throw Failure{kUsageError, name + ": \"" + std::string(value) + "\" is not " + expected};
}

int64_t ParseGigabytes(const std::string& name, std::string_view value) {
  return std::llround(1e9 * ParseNumber<double>(name, value, 0, 1e6, "a number of GB"));
}

std::string ParseFile(const std::string& name, const std::string& value) {
  if (value.empty()) Refuse(name, value, "a file");
  return value;
}

std::string ParseFolder(const std::string& name, const std::string& value) {
  if (value.empty()) Refuse(name, value, "a folder");
  return value;
}

std::vector<std::string_view> SplitAtCommas(std::string_view list) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0, end; begin <= list.size(); begin = end + 1) {
    end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
  }
  return parts;
}

std::vector<int32_t> ParseDevices(const std::string& name, std::string_view value) {
  std::vector<int32_t> devices;
  for (const std::string_view part : SplitAtCommas(value))
    devices.push_back(ParseNumber<int32_t>(name, part, 0, std::numeric_limits<int32_t>::max()));
  return devices;
}

std::string Suggestion(std::string_view name, const std::vector<std::string_view>& candidates) {
  std::string_view best;
  size_t best_distance = 3;  // more slips are none
  for (const std::string_view candidate : candidates) {
    const bool begins = name.size() > 3 && candidate.starts_with(name);
    const size_t distance = begins ? 0 : Distance(name, candidate);
    if (distance >= best_distance || 2 * distance >= name.size()) continue;
    best = candidate;
    best_distance = distance;
  }
  return best.empty() ? "" : ": did you mean " + std::string(best) + "?";
}

std::string HelpLine(const char* short_name, const char* long_name, const char* value_name,
                     const char* help) {
  std::string names = short_name;
  if (!names.empty()) names += ", ";
  names += long_name;
  if (*value_name != '\0') names += std::string(" ") + value_name;
  char line[160];
  std::snprintf(line, sizeof line, "  %-33s %s\n", names.c_str(), help);
  return line;
}

bool ArgumentReader::Next() {
  if (++index_ >= argc_) return false;
  const std::string argument = argv_[index_];
  if (argument.size() < 2 || argument[0] != '-')
    throw Failure{kUsageError, "unexpected argument \"" + argument + "\"" + stray_hint_};
  const size_t name_end = argument.starts_with("--") ? argument.find('=') : std::string::npos;
  name_ = argument.substr(0, name_end);
  value_.reset();
  if (name_end != std::string::npos) value_ = argument.substr(name_end + 1);
  return true;
}

bool ArgumentReader::Is(const char* short_name, const char* long_name, bool attached) {
  if (!attached) return name_ == short_name || name_ == long_name;
  if (name_.starts_with("--") || *short_name == '\0' || !name_.starts_with(short_name))
    return false;
  value_ = name_.substr(std::string_view(short_name).size());
  name_ = short_name;
  return true;
}

std::string ArgumentReader::Value(const char* value_name, const char* lone_value) {
  if (*value_name == '\0') {
    if (value_) throw Failure{kUsageError, name_ + " takes no value, but has \"" + *value_ + "\""};
    return "";
  }
  if (value_) return *value_;
  const bool has_next = index_ + 1 < argc_;
  if (lone_value != nullptr && !(has_next && Lists(value_name, argv_[index_ + 1])))
    return lone_value;
  if (!has_next) throw Failure{kUsageError, name_ + " needs a value: " + value_name};
  return argv_[++index_];
}

void ArgumentReader::RefuseName(const std::vector<std::string_view>& known) const {
  throw Failure{kUsageError, "unknown option " + name_ + Suggestion(name_, known)};
}

}  // namespace chat
