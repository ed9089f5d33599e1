// SPDX-License-Identifier: Apache-2.0
#include "lib/grammar/unicode_property.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/mutex.h"
#include "lib/base/quoted.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "pcre2.h"

namespace dsv4::grammar {
namespace {

constexpr size_t kMostCached = 256;  // there are about as many names

// Long names of general categories, which PCRE2 does not know.
constexpr std::pair<absl::string_view, absl::string_view> kCategories[] = {
    {"Cased_Letter", "L&"},
    {"Close_Punctuation", "Pe"},
    {"Connector_Punctuation", "Pc"},
    {"Control", "Cc"},
    {"Currency_Symbol", "Sc"},
    {"Dash_Punctuation", "Pd"},
    {"Decimal_Number", "Nd"},
    {"Enclosing_Mark", "Me"},
    {"Final_Punctuation", "Pf"},
    {"Format", "Cf"},
    {"Initial_Punctuation", "Pi"},
    {"LC", "L&"},
    {"Letter", "L"},
    {"Letter_Number", "Nl"},
    {"Line_Separator", "Zl"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Math_Symbol", "Sm"},
    {"Modifier_Letter", "Lm"},
    {"Modifier_Symbol", "Sk"},
    {"Nonspacing_Mark", "Mn"},
    {"Number", "N"},
    {"Open_Punctuation", "Ps"},
    {"Other", "C"},
    {"Other_Letter", "Lo"},
    {"Other_Number", "No"},
    {"Other_Punctuation", "Po"},
    {"Other_Symbol", "So"},
    {"Paragraph_Separator", "Zp"},
    {"Private_Use", "Co"},
    {"Punctuation", "P"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Spacing_Mark", "Mc"},
    {"Surrogate", "Cs"},
    {"Symbol", "S"},
    {"Titlecase_Letter", "Lt"},
    {"Unassigned", "Cn"},
    {"Uppercase_Letter", "Lu"},
    {"digit", "Nd"},
    {"punct", "P"},
};

std::string CategoryOf(absl::string_view name) {
  for (const auto& [known, ours] : kCategories) {
    if (known == name) return std::string(ours);
  }
  return std::string(name);
}

// The name of the property in PCRE2's notation.
std::string Translated(absl::string_view property) {
  const size_t equals = property.find('=');
  if (equals == absl::string_view::npos) return CategoryOf(property);
  const absl::string_view key = property.substr(0, equals), value = property.substr(equals + 1);
  if (key == "General_Category" || key == "gc") return CategoryOf(value);
  if (key == "Script" || key == "sc") return absl::StrCat("sc:", value);
  if (key == "Script_Extensions" || key == "scx") return absl::StrCat("scx:", value);
  return "";
}

void AppendUtf8(uint32_t c, std::string* text) {
  const int rest = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr uint32_t kLeads[] = {0, 0xC0, 0xE0, 0xF0};
  text->push_back(static_cast<char>(kLeads[rest] | c >> (6 * rest)));
  for (int i = rest; i-- > 0;) text->push_back(static_cast<char>(0x80 | (c >> (6 * i) & 0x3F)));
}

// All characters, in order; surrogates are none.
std::string AllChars() {
  std::string all;
  all.reserve(4u << 20);
  for (uint32_t c = 0; c <= kMaxCodePoint; ++c) {
    if (c < 0xD800 || c > 0xDFFF) AppendUtf8(c, &all);
  }
  return all;
}

absl::StatusOr<CharSet> Compute(const std::string& name) {
  const std::string pattern = absl::StrCat("\\p{", name, "}+");
  int error = 0;
  size_t place = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                    &place, nullptr),
      pcre2_code_free);
  if (!code) return Unsupported("the property ", Quoted(name), " is not known");
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  if (!match) return OutOfHostMemory("no memory to match a property");
  const std::string all = AllChars();
  // Each match is a range. One that spans the surrogates has them, too; languages leave them out.
  std::vector<std::pair<uint32_t, uint32_t>> ranges;
  for (size_t from = 0;
       pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(all.data()), all.size(), from,
                   PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;) {
    const size_t* bounds = pcre2_get_ovector_pointer(match.get());
    size_t last = bounds[1] - 1;
    while ((static_cast<uint8_t>(all[last]) & 0xC0) == 0x80) --last;
    absl::string_view first_char = absl::string_view(all).substr(bounds[0]);
    absl::string_view last_char = absl::string_view(all).substr(last);
    ranges.push_back({TakeCodePoint(&first_char), TakeCodePoint(&last_char)});
    from = bounds[1];
  }
  return CharSet(std::move(ranges));
}

}  // namespace

absl::StatusOr<CharSet> CharsOfProperty(absl::string_view property) {
  static Mutex mutex;
  static auto* const cache = new StringMap<CharSet>();
  const auto is_of_name = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '=';
  };
  const std::string name = property.size() <= 64 && absl::c_all_of(property, is_of_name)
                               ? Translated(property)
                               : std::string();
  if (name.empty()) return Unsupported("the property ", Quoted(property), " is not known");
  const MutexLock lock(&mutex);
  if (const auto known = cache->find(name); known != cache->end()) return known->second;
  absl::StatusOr<CharSet> chars = Compute(name);
  if (chars.ok() && cache->size() < kMostCached) cache->emplace(name, *chars);
  return chars;
}

}  // namespace dsv4::grammar
