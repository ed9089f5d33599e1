// SPDX-License-Identifier: Apache-2.0
// The grammars of RFC 3339 (dates and times; days per month and leap years included, leap
// seconds not), its appendix A (durations), RFC 5321 (addresses without quotes or comments),
// RFC 1123 (host names), RFC 2673 and 4291 (addresses), RFC 4122, RFC 3986, RFC 6901, RFC 4648
// (base64) and the draft of relative JSON pointers.
#include "lib/grammar/string_format.h"

#include <utility>

namespace dsv4::grammar {
namespace {

#define DSV4_LEAP_YEAR "(\\d\\d(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DSV4_DATE                                                                    \
  "(\\d{4}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)" \
  "|02-(0[1-9]|1\\d|2[0-8]))|" DSV4_LEAP_YEAR "-02-29)"
#define DSV4_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d+)?([Zz]|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define DSV4_OCTET "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define DSV4_IPV4 "(" DSV4_OCTET "\\.){3}" DSV4_OCTET
#define DSV4_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define DSV4_H16 "[0-9A-Fa-f]{1,4}"
#define DSV4_LS32 "(" DSV4_H16 ":" DSV4_H16 "|" DSV4_IPV4 ")"
#define DSV4_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"

#define DSV4_NO_COLON "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})"
#define DSV4_ROOTED                                                                        \
  "//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"                                   \
  "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*(:\\d*)?(/" DSV4_PCHAR "*)*|/(" DSV4_PCHAR \
  "+(/" DSV4_PCHAR "*)*)?"
#define DSV4_TAIL "(\\?(" DSV4_PCHAR "|[/?])*)?(#(" DSV4_PCHAR "|[/?])*)?"
#define DSV4_URI \
  "[A-Za-z][A-Za-z0-9+.-]*:(" DSV4_ROOTED "|" DSV4_PCHAR "+(/" DSV4_PCHAR "*)*|)" DSV4_TAIL
#define DSV4_BASE64 "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

struct Format {
  absl::string_view name, pattern;
};

constexpr Format kFormats[] = {
    {"date", DSV4_DATE},
    {"time", DSV4_TIME},
    {"date-time", DSV4_DATE "[Tt]" DSV4_TIME},
    {"duration",
     "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?"
     "|\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
    {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" DSV4_LABEL
              "(\\." DSV4_LABEL ")*"},
    {"hostname", DSV4_LABEL "(\\." DSV4_LABEL ")*"},
    {"ipv4", DSV4_IPV4},
    {"ipv6", "((" DSV4_H16 ":){6}" DSV4_LS32 "|::(" DSV4_H16 ":){5}" DSV4_LS32 "|(" DSV4_H16
             ")?::(" DSV4_H16 ":){4}" DSV4_LS32 "|((" DSV4_H16 ":){0,1}" DSV4_H16 ")?::(" DSV4_H16
             ":){3}" DSV4_LS32 "|((" DSV4_H16 ":){0,2}" DSV4_H16 ")?::(" DSV4_H16 ":){2}" DSV4_LS32
             "|((" DSV4_H16 ":){0,3}" DSV4_H16 ")?::" DSV4_H16 ":" DSV4_LS32 "|((" DSV4_H16
             ":){0,4}" DSV4_H16 ")?::" DSV4_LS32 "|((" DSV4_H16 ":){0,5}" DSV4_H16 ")?::" DSV4_H16
             "|((" DSV4_H16 ":){0,6}" DSV4_H16 ")?::)"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
    {"uri", DSV4_URI},
    {"uri-reference",
     DSV4_URI "|(" DSV4_ROOTED "|" DSV4_NO_COLON "+(/" DSV4_PCHAR "*)*|)" DSV4_TAIL},
    {"byte", DSV4_BASE64},
    {"base64", DSV4_BASE64},
    {"base64url", "([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2}(==)?|[A-Za-z0-9_-]{3}=?)?"},
    {"relative-json-pointer", "(0|[1-9]\\d*)(#|(/([^~/]|~[01])*)*)"},
    {"json-pointer", "(/([^~/]|~[01])*)*"},
};

}  // namespace

std::optional<absl::string_view> PatternOfFormat(absl::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return std::nullopt;
}

std::optional<FormatRange> RangeOfFormat(absl::string_view format) {
  constexpr std::pair<absl::string_view, FormatRange> kRanges[] = {
      {"int8", {"-128", "127"}},
      {"int16", {"-32768", "32767"}},
      {"int32", {"-2147483648", "2147483647"}},
      {"int64", {"-9223372036854775808", "9223372036854775807"}},
      {"uint", {"0", "18446744073709551615"}},
      {"uint8", {"0", "255"}},
      {"uint16", {"0", "65535"}},
      {"uint32", {"0", "4294967295"}},
      {"uint64", {"0", "18446744073709551615"}},
  };
  for (const auto& [name, range] : kRanges) {
    if (name == format) return range;
  }
  return std::nullopt;
}

absl::string_view SupportedFormats() {
  return "date, time, date-time, duration, email, hostname, ipv4, ipv6, uuid, uri, uri-reference, "
         "json-pointer, relative-json-pointer, byte, base64, base64url, int8 to int64, uint8 to "
         "uint64";
}

}  // namespace dsv4::grammar
