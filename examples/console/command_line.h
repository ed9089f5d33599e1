// SPDX-License-Identifier: Apache-2.0
// The command lines of the programs. One table of options serves parsing and help. Every function
// throws a Failure that names the option and the value.
#pragma once

#include <dsv4/abi.h>

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "examples/console/failure.h"

namespace chat {

// An option that sets something in a Target.
template <class Target>
struct Option {
  const char* short_name;  // "" if there is none
  const char* long_name;
  const char* value_name;  // "" if it takes no value
  const char* help;
  // `name` is the option as the user wrote it.
  void (*apply)(Target* target, const std::string& name, const std::string& value);
  // The value if the option is given without one; nullptr: it needs one. The next argument is its
  // value if value_name, as in "off|low", lists it.
  const char* lone_value = nullptr;
};

// Throws: the value is not `expected`, a text such as "a file".
[[noreturn]] void Refuse(const std::string& name, std::string_view value,
                         const std::string& expected);

// Parses the whole `value` as a number from `low` to `high`.
template <class T>
T ParseNumber(const std::string& name, std::string_view value, T low, T high,
              const std::string& expected) {
  T number{};
  const char* end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  // Written so that NaN fails.
  if (error != std::errc() || stop != end || !(number >= low && number <= high))
    Refuse(name, value, expected);
  return number;
}

template <class T>
T ParseNumber(const std::string& name, std::string_view value, T low, T high) {
  constexpr double kMost = 1e12;  // in effect no limit
  const bool unlimited =
      static_cast<double>(high) >= kMost || high == std::numeric_limits<T>::max();
  const std::string limit = unlimited
                                ? " of " + std::to_string(low) + " or more"
                                : " from " + std::to_string(low) + " to " + std::to_string(high);
  return ParseNumber<T>(
      name, value, low, high,
      (std::numeric_limits<T>::is_integer ? "a whole number" : "a number") + limit);
}

// A whole number from 1 on.
template <class T>
T ParseCount(const std::string& name, std::string_view value) {
  const T high = std::numeric_limits<T>::max();
  return ParseNumber<T>(name, value, 1, high, "a whole number from 1 to " + std::to_string(high));
}

// Bytes.
int64_t ParseGigabytes(const std::string& name, std::string_view value);
// Not empty.
std::string ParseFile(const std::string& name, const std::string& value);
std::string ParseFolder(const std::string& name, const std::string& value);
// "0,2"
std::vector<int32_t> ParseDevices(const std::string& name, std::string_view value);
std::vector<std::string_view> SplitAtCommas(std::string_view list);

template <class T>
struct Named {
  const char* name;
  T value;
};

template <class T, size_t count>
T ParseName(const std::string& name, std::string_view value, const Named<T> (&known)[count]) {
  std::string expected;
  for (size_t i = 0; i < count; ++i) {
    if (value == known[i].name) return known[i].value;
    if (i > 0) expected += i + 1 < count ? ", " : " or ";
    expected += known[i].name;
  }
  Refuse(name, value, expected);
}

// Functions for Option::apply that set one field. `path` leads from the target to the field: one
// pointer to a member for each struct on the way.
template <auto... path, class Target>
auto& FieldOf(Target* target) {
  return ((*target).*....*path);
}
template <bool set, auto... path, class Target>
void SetFlag(Target* target, const std::string&, const std::string&) {
  FieldOf<path...>(target) = set;
}
template <auto... path, class Target>
void SetText(Target* target, const std::string&, const std::string& value) {
  FieldOf<path...>(target) = value;
}
// `parse` is one of the functions above.
template <auto parse, auto... path, class Target>
void SetParsed(Target* target, const std::string& name, const std::string& value) {
  FieldOf<path...>(target) = parse(name, value);
}
template <auto... path, class Target>
void SetCount(Target* target, const std::string& name, const std::string& value) {
  auto& field = FieldOf<path...>(target);
  field = ParseCount<std::remove_reference_t<decltype(field)>>(name, value);
}
template <auto low, auto high, auto... path, class Target>
void SetNumber(Target* target, const std::string& name, const std::string& value) {
  auto& field = FieldOf<path...>(target);
  field = ParseNumber<std::remove_reference_t<decltype(field)>>(name, value, low, high);
}
template <const auto& known, auto... path, class Target>
void SetName(Target* target, const std::string& name, const std::string& value) {
  FieldOf<path...>(target) = ParseName(name, value, known);
}

// ": did you mean CANDIDATE?" if `name` resembles a candidate, otherwise "".
std::string Suggestion(std::string_view name, const std::vector<std::string_view>& candidates);

// The lines of --help of one option.
std::string HelpLine(const char* short_name, const char* long_name, const char* value_name,
                     const char* help);

template <class Target>
std::string HelpLines(std::span<const Option<Target>> options) {
  std::string text;
  for (const Option<Target>& option : options)
    text += HelpLine(option.short_name, option.long_name, option.value_name, option.help);
  return text;
}

// --help and --version, which every program has. They set `help` and `version` of the target.
template <class Target>
inline constexpr Option<Target> kHelpOption{
    "-h", "--help", "", "print this help and exit",
    [](Target* target, const std::string&, const std::string&) { target->help = true; }};
template <class Target>
inline constexpr Option<Target> kVersionOption{
    "", "--version", "", "print the version and build, and exit",
    [](Target* target, const std::string&, const std::string&) { target->version = true; }};

// The text to print and exit with for --help or --version; otherwise "".
template <class Target>
std::string HelpOrVersion(const Target& target, const std::string& help_text) {
  if (target.help) return help_text;
  return target.version ? std::string(dsv4_get_build_info()) + "\n" : "";
}

// The arguments of a command line, one option after the other.
class ArgumentReader {
 public:
  // `stray_hint`: added to the error about an argument that is not an option.
  ArgumentReader(int argc, const char* const* argv, const char* stray_hint)
      : argc_(argc), argv_(argv), stray_hint_(stray_hint) {}

  // Goes to the next argument, which must be an option. False at the end.
  bool Next();
  // Whether the argument is the option: as a whole or, if `attached`, as -nVALUE.
  bool Is(const char* short_name, const char* long_name, bool attached);
  // The option as it was written, without a value.
  const std::string& name() const { return name_; }
  // Its value, which may be the next argument.
  std::string Value(const char* value_name, const char* lone_value);
  [[noreturn]] void RefuseName(const std::vector<std::string_view>& known) const;

 private:
  const int argc_;
  const char* const* const argv_;
  const char* const stray_hint_;
  int index_ = 0;
  std::string name_;
  std::optional<std::string> value_;  // in the same argument
};

template <class Target>
using OptionTables = std::vector<std::span<const Option<Target>>>;

// Applies the options of the command line in order. There may be several tables, for the headings
// of the help.
template <class Target>
void ParseOptions(int argc, const char* const* argv, const OptionTables<Target>& tables,
                  Target* target, const char* stray_hint = "") {
  ArgumentReader reader(argc, argv, stray_hint);
  while (reader.Next()) {
    const Option<Target>* found = nullptr;
    std::vector<std::string_view> names;
    for (const bool attached : {false, true}) {
      for (const auto& table : tables) {
        for (const Option<Target>& option : table) {
          names.push_back(option.long_name);
          if (found == nullptr && reader.Is(option.short_name, option.long_name, attached))
            found = &option;
        }
      }
    }
    if (found == nullptr) reader.RefuseName(names);
    const std::string value = reader.Value(found->value_name, found->lone_value);
    found->apply(target, reader.name(), value);
  }
}

}  // namespace chat
