// SPDX-License-Identifier: Apache-2.0
#include "lib/text/json_text.h"

#include "tests/support/catch.h"

using namespace dsv4;

TEST_CASE("IsJson takes what RFC 8259's grammar takes") {
  for (const char* text : {"0",
                           "-0",
                           "12",
                           "-1.5",
                           "1e5",
                           "1E+05",
                           "0.25e-3",
                           "123456789012345678901234567890",
                           "true",
                           "false",
                           "null",
                           "\"\"",
                           R"("a\"\\\/\b\f\n\r\tAé")",
                           R"("\ud800")",
                           "\"\xC3\xA9 \x7F\"",
                           "[]",
                           "{}",
                           "[ ]",
                           "{ }",
                           "[1,[2,{}],\"x\"]",
                           "{\"a\":1,\"a\":2}",
                           " \t\r\n{ \"a\" : [ 1 , 2 ] , \"\" : null } \n",
                           "[[[[[[]]]]]]"}) {
    INFO(text);
    CHECK(IsJson(text));
  }
}

TEST_CASE("IsJson refuses what is no JSON") {
  for (const char* text : {"",
                           " ",
                           "NaN",
                           "Infinity",
                           "-Infinity",
                           "+1",
                           "01",
                           "-",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "0x10",
                           "1 2",
                           "True",
                           "tru",
                           "nullx",
                           "'a'",
                           "\"",
                           "\"a",
                           "\"\\\"",
                           "\"\\x\"",
                           "\"\\u12g4\"",
                           "\"\\u12\"",
                           "\"a\nb\"",
                           "\"\x1f\"",
                           "[",
                           "]",
                           "[1",
                           "[1,]",
                           "[,1]",
                           "[1 2]",
                           "[1}",
                           "{",
                           "}",
                           "{1:2}",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{,}",
                           "{\"a\":1 \"b\":2}",
                           "{\"a\":1]",
                           "[1]]",
                           "1,",
                           ",",
                           ":",
                           "// 1",
                           "\xC2\xA0"
                           "1",
                           "{\"a\":1}}"}) {
    INFO(text);
    CHECK_FALSE(IsJson(text));
  }
}

TEST_CASE("IsJson follows any nesting") {
  const std::string open(200000, '[');
  const std::string close(200000, ']');
  CHECK(IsJson(open + close));
  CHECK_FALSE(IsJson(open + close.substr(1)));
}

// What json.dumps(text, ensure_ascii=False) of CPython 3.11 gives, less the quotes.
TEST_CASE("AppendJsonEscaped writes as Python's json.dumps") {
  std::string out = "<";
  AppendJsonEscaped("a\"b\\c/d\n\r\t\b\f", &out);
  CHECK(out == R"(<a\"b\\c/d\n\r\t\b\f)");
  out.clear();
  AppendJsonEscaped(absl::string_view("\0\x01\x1f\x7f", 4), &out);
  CHECK(out == "\\u0000\\u0001\\u001f\x7f");
  out.clear();
  AppendJsonEscaped("naïve \u2028 天气 🚀", &out);
  CHECK(out == "naïve \u2028 天气 🚀");
  out.clear();
  AppendJsonEscaped("", &out);
  CHECK(out.empty());
}
