// SPDX-License-Identifier: Apache-2.0
// Which documents are JSON, and what the tree of one holds. Expected values are those of RFC 8259
// and, for repeated keys, of Python's json module.
#include "lib/io/json.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

JsonValue Parsed(absl::string_view text) {
  auto value = ParseJson(text, "doc", kMaxBytes);
  INFO("document: " << text);
  REQUIRE_OK(value);
  return *std::move(value);
}

TEST_CASE("scalars are values of their kind") {
  CHECK(Parsed("null").IsNull());
  CHECK(Parsed(" true ").AsBool() == true);
  CHECK(Parsed("false").AsBool() == false);
  CHECK(*Parsed("\"a b\"").AsString() == "a b");
  CHECK(Parsed("17").AsInt64() == 17);
  CHECK(Parsed("-9223372036854775808").AsInt64() == INT64_MIN);
}

TEST_CASE("one byte order mark in front of a document is passed over") {
  CHECK(Parsed("\xEF\xBB\xBF{}").AsObject()->empty());
  for (const char* text :
       {"\xEF\xBB\xBF", "\xEF\xBB\xBF\xEF\xBB\xBF[]", "[\xEF\xBB\xBF]", " \xEF\xBB\xBF[]"}) {
    INFO(text);
    CHECK(ParseJson(text, "doc", kMaxBytes).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("accessors of another kind give nothing") {
  const JsonValue text = Parsed("\"1\"");
  CHECK(!text.AsBool());
  CHECK(!text.AsInt64());
  CHECK(!text.AsNumberText());
  CHECK(!text.AsArray());
  CHECK(!text.AsObject());
  CHECK(!text.Find("1"));
  CHECK(!Parsed("1").AsString());
  CHECK(Parsed("1").KindName() == "number");
  CHECK(Parsed("{}").KindName() == "object");
}

TEST_CASE("numbers keep their text") {
  for (const char* text :
       {"0", "-0", "1.50", "1E5", "1e+05", "-2.5e-3", "123456789012345678901234567890", "1e400",
        "0.1000000000000000055511151231257827"}) {
    const JsonValue value = Parsed(std::string("[") + text + " , " + text + "]");
    CHECK(*(*value.AsArray())[0].AsNumberText() == text);
    CHECK(*(*value.AsArray())[1].AsNumberText() == text);
    CHECK(*Parsed(text).AsNumberText() == text);
  }
  CHECK(!Parsed("9223372036854775808").AsInt64());
  CHECK(!Parsed("1.0").AsInt64());
  CHECK(!Parsed("1e2").AsInt64());
}

TEST_CASE("strings have their escapes resolved") {
  CHECK(*Parsed(R"("\"\\\/\b\f\n\r\t")").AsString() == "\"\\/\b\f\n\r\t");
  CHECK(*Parsed(R"("\u00e9\u4f60\ud83d\ude00")").AsString() == "é你😀");
  CHECK(*Parsed(R"("\\ud83d")").AsString() == R"(\ud83d)");
  CHECK(*Parsed(R"("a\u0000b")").AsString() == std::string("a\0b", 3));
  CHECK(*Parsed("\"é你😀\"").AsString() == "é你😀");
}

TEST_CASE("objects keep the order of their keys") {
  const JsonValue value = Parsed(R"({"b": 1, "a": {"z": [], "y": null}, "": 3})");
  const auto& members = *value.AsObject();
  REQUIRE(members.size() == 3);
  CHECK(members[0].key == "b");
  CHECK(members[1].key == "a");
  CHECK(members[2].key == "");
  CHECK(value.Find("a")->Find("y")->IsNull());
  CHECK(value.Find("a")->Find("z")->AsArray()->empty());
  CHECK(value.Find("")->AsInt64() == 3);
  CHECK(!value.Find("c"));
}

TEST_CASE("a repeated key keeps its first place and its last value") {
  const JsonValue value = Parsed(R"({"a": [1], "b": 2, "\u0061": "last"})");
  REQUIRE(value.AsObject()->size() == 2);
  CHECK((*value.AsObject())[0].key == "a");
  CHECK(*value.Find("a")->AsString() == "last");
}

TEST_CASE("what is not JSON is Corrupt") {
  const std::vector<std::string> documents = {"",
                                              " ",
                                              "[",
                                              "]",
                                              "{",
                                              "}",
                                              "[1",
                                              "[1,",
                                              "[1,]",
                                              "[,1]",
                                              "[1 2]",
                                              "[1}",
                                              "{\"a\"}",
                                              "{\"a\":}",
                                              "{\"a\":1,}",
                                              "{,}",
                                              "{\"a\" 1}",
                                              "{1:2}",
                                              "{a:1}",
                                              "{\"a\":1 \"b\":2}",
                                              "{\"a\":1]",
                                              "nul",
                                              "nullx",
                                              "tru",
                                              "truee",
                                              "True",
                                              "NaN",
                                              "-",
                                              "+1",
                                              "01",
                                              "-01",
                                              "1.",
                                              ".5",
                                              "1e",
                                              "1e+",
                                              "0x1",
                                              "1_0",
                                              "1 2",
                                              "1\v",
                                              "[1e5\v]",
                                              "[null\f]",
                                              "1,2",
                                              "1],[2",
                                              "{} {}",
                                              "[]]",
                                              "{}}",
                                              "[] x",
                                              "\"",
                                              "\"a",
                                              "a\"",
                                              "\"\\x\"",
                                              "\"\\u12\"",
                                              "\"\\u12g4\"",
                                              "\"\n\"",
                                              "\"\t\"",
                                              "'a'",
                                              "[1]//c",
                                              "\"a\" \"b\"",
                                              "[\"a\" : 1]",
                                              "[null null]",
                                              "\"\\ud83d\"",
                                              "\"\\ude00\"",
                                              "\"\\ud83d\\u0041\"",
                                              "\"\\ud83d\\ud83d\"",
                                              "\"\\ud83dx\"",
                                              "\"\\ude00\\ud83d\"",
                                              "{\"\\ud83d\": 1}",
                                              "\"\xff\"",
                                              "\"\xc3\"",
                                              "\"\xed\xa0\x80\"",
                                              std::string("[1]\0", 4),
                                              std::string("\0", 1)};
  for (const std::string& document : documents) {
    INFO("document: " << document);
    REQUIRE_FAILS(ParseJson(document, "doc", kMaxBytes), absl::StatusCode::kDataLoss, "doc: ");
    if (document.find("]") == std::string::npos) {
      REQUIRE_FAILS(ParseJson("[" + document + ",]", "doc", kMaxBytes), absl::StatusCode::kDataLoss,
                    "doc: ");
    }
  }
}

TEST_CASE("errors name their place") {
  REQUIRE_FAILS(ParseJson("{\n  \"a\": 1,\n  \"b\": 01\n}", "x.json", kMaxBytes),
                absl::StatusCode::kDataLoss, "x.json: line 3, column 8: not a number");
  REQUIRE_FAILS(ParseJson("[1,\n \"\\udc00\"]", "x.json", kMaxBytes), absl::StatusCode::kDataLoss,
                "x.json: line 2, column 3: unpaired surrogate escape");
  REQUIRE_FAILS(ParseJson("[1,\n\n \"\xff\"]", "x.json", kMaxBytes), absl::StatusCode::kDataLoss,
                "x.json: line 3, column 3: not UTF-8");
}

// As deep as would take megabytes of stack, if anything called itself.
TEST_CASE("deep values are copied and destroyed on a small stack") {
  const auto deep = [] {
    JsonValue value = JsonValue::FromString("leaf");
    for (int i = 0; i < 200000; ++i) {
      if (i % 2 == 0) {
        std::vector<JsonValue> items(3);
        items[i % 3] = std::move(value);
        value = JsonValue::FromArray(std::move(items));
      } else {
        std::vector<JsonMember> members(2);
        members[0] = {"a", std::move(value)};
        members[1].key = "b";
        value = JsonValue::FromObject(std::move(members));
      }
    }
    return value;
  };
  const JsonValue value = deep();
  JsonValue copy = value;
  const JsonValue *a = &value, *b = &copy;
  for (int i = 199999; i >= 0; --i) {
    REQUIRE(a->kind() == b->kind());
    a = i % 2 == 0 ? &(*a->AsArray())[i % 3] : a->Find("a");
    b = i % 2 == 0 ? &(*b->AsArray())[i % 3] : b->Find("a");
  }
  CHECK(*b->AsString() == "leaf");
  copy = JsonValue::FromArray({std::move(copy), value});
  CHECK(copy.AsArray()->size() == 2);
  copy = JsonValue();
  CHECK(copy.IsNull());
}

TEST_CASE("depth and size are limited") {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  REQUIRE_OK(ParseJson(nested(kMaxJsonDepth), "doc", kMaxBytes));
  REQUIRE_FAILS(ParseJson(nested(kMaxJsonDepth + 1), "doc", kMaxBytes), absl::StatusCode::kDataLoss,
                "deeper than 200");
  REQUIRE_FAILS(ParseJson(nested(4), "doc", kMaxBytes, 3), absl::StatusCode::kDataLoss,
                "deeper than 3");
  REQUIRE_OK(ParseJson(nested(3), "doc", kMaxBytes, 3));
  std::string objects = "1";
  for (int i = 0; i <= kMaxJsonDepth; ++i) objects = "{\"k\":" + objects + "}";
  REQUIRE_FAILS(ParseJson(objects, "doc", kMaxBytes), absl::StatusCode::kDataLoss,
                "deeper than 200");
  REQUIRE_FAILS(ParseJson(std::string(500000, '['), "doc", kMaxBytes), absl::StatusCode::kDataLoss,
                "doc: ");
  REQUIRE_OK(ParseJson("[12]", "doc", 4));
  REQUIRE_FAILS(ParseJson("[123]", "doc", 4), absl::StatusCode::kDataLoss, "at most 4");
}

}  // namespace
}  // namespace dsv4
