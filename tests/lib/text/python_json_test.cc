// SPDX-License-Identifier: Apache-2.0
// Against what Python 3.11's json module gives: python_json_cases.json, recorded by
// make_python_json_cases.py, and literals for what a JSON file cannot hold.
#include "lib/text/python_json.h"

#include <string>

#include "absl/strings/match.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

std::string Dumps(absl::string_view text) {
  const auto value = ParsePythonJson(text, "doc");
  REQUIRE_OK(value);
  std::string out;
  AppendPythonJson(*value, &out);
  return out;
}

std::string Str(absl::string_view text) { return PythonStr(*ParsePythonJson(text, "doc")).value(); }

bool Truth(absl::string_view text) { return PythonTruth(*ParsePythonJson(text, "doc")); }

TEST_CASE("documents are read and written as Python does") {
  const JsonValue document = test::Document("tests/lib/text/python_json_cases.json");
  int refused = 0;
  for (const JsonValue& item : *document.AsArray()) {
    const std::string& text = *item.Find("text")->AsString();
    INFO(text);
    // Python refuses the mark in a str and passes over it in bytes.
    if (absl::StartsWith(text, kUtf8ByteOrderMark)) continue;
    if (const JsonValue* dumps = item.Find("dumps")) {
      CHECK(Dumps(text) == *dumps->AsString());
    } else {
      CHECK(ParsePythonJson(text, "doc").status().code() == absl::StatusCode::kDataLoss);
      ++refused;
    }
  }
  CHECK(document.AsArray()->size() > 1000);
  CHECK(refused > 50);
}

TEST_CASE("unpaired surrogates stay what they are") {
  // In Python: json.dumps(json.loads(text), ensure_ascii=False).encode("utf-8", "surrogatepass").
  CHECK(Dumps(R"("\ud83d")") == "\"\xED\xA0\xBD\"");
  CHECK(Dumps(R"("\ude80\ud83d")") == "\"\xED\xBA\x80\xED\xA0\xBD\"");
  CHECK(Dumps(R"("\ud83dA")") ==
        "\"\xED\xA0\xBD"
        "A\"");
  CHECK(Dumps(R"("\ud83d\ud83d\ude80")") == "\"\xED\xA0\xBD🚀\"");
  CHECK(Dumps("{\"\xED\xA0\xBD\": 1}") == "{\"\xED\xA0\xBD\": 1}");
}

TEST_CASE("one byte order mark in front of a document is passed over, as for json.loads of bytes") {
  CHECK(Dumps("\xEF\xBB\xBF[1, \"\xEF\xBB\xBF\"]") == "[1, \"\xEF\xBB\xBF\"]");
  for (const char* text :
       {"\xEF\xBB\xBF", "\xEF\xBB\xBF\xEF\xBB\xBF[]", "[\xEF\xBB\xBF]", " \xEF\xBB\xBF[]"}) {
    CHECK(ParsePythonJson(text, "doc").status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("faults are placed") {
  const auto fails = [](absl::string_view text, absl::StatusCode code, const char* message) {
    REQUIRE_FAILS(ParsePythonJson(text, "doc"), code, message);
  };
  const auto kCorrupt = absl::StatusCode::kDataLoss;
  fails("{\"a\":\n 1,}", kCorrupt, "doc: line 2, column 4: no key in double quotes");
  fails("", kCorrupt, "doc: line 1, column 1: not a value");
  fails("[1 2]", kCorrupt, "doc: line 1, column 4: neither ',' nor ']'");
  fails("\"ab", kCorrupt, "doc: line 1, column 4: a string without its end");
  fails("\"\xff\"", kCorrupt, "doc: line 1, column 2: not UTF-8");
  fails(std::string(4301, '1'), kCorrupt, "an integer of more than 4300 digits");
}

TEST_CASE("nesting is bounded") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(Dumps(nested(kMaxPythonJsonDepth)) == nested(kMaxPythonJsonDepth));
  REQUIRE_FAILS(ParsePythonJson(nested(kMaxPythonJsonDepth + 1), "doc"),
                absl::StatusCode::kUnimplemented, "nested deeper than 990");
  REQUIRE_FAILS(ParsePythonJson(std::string(1 << 20, '['), "doc"), absl::StatusCode::kUnimplemented,
                "column 991: nested deeper than 990");
}

TEST_CASE("str and bool are Python's") {
  CHECK(Str("null") == "None");
  CHECK(Str("true") == "True");
  CHECK(Str("false") == "False");
  CHECK(Str("1e16") == "1e+16");
  CHECK(Str("NaN") == "nan");
  CHECK(Str("-Infinity") == "-inf");
  CHECK(Str("\"a\\n\"") == "a\n");
  CHECK_FALSE(PythonStr(*ParsePythonJson("[]", "doc")).has_value());
  CHECK_FALSE(PythonStr(*ParsePythonJson("{}", "doc")).has_value());
  for (const char* text : {"null", "false", "0", "-0", "0.0", "-0.0", "0e5", "\"\"", "[]", "{}"}) {
    INFO(text);
    CHECK_FALSE(Truth(text));
  }
  for (const char* text : {"true", "1", "-1", "1e-300", "NaN", "Infinity", "\"0\"", "[0]",
                           "{\"\":0}", "75813251429823328511"}) {
    INFO(text);
    CHECK(Truth(text));
  }
}

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

}  // namespace
}  // namespace dsv4
