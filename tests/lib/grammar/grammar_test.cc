// SPDX-License-Identifier: Apache-2.0
// Grammars over a vocabulary: masks hold exactly the tokens that may follow, pushes are taken back,
// and calls of tools are held to their markup.
#include "lib/grammar/grammar.h"

#include <pthread.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

constexpr char kDsml[] = "｜DSML｜";

// Single bytes, and some tokens that cross what grammars tell apart.
std::shared_ptr<const Vocabulary> Tokens() {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(std::string(1, static_cast<char>(byte)));
  for (const char* text : {"{\"", "\":", "\", \"", "\"}", "}}", "true", "tr", "12", "\xC3\xA9",
                           "\xE2\x82", "city", "aaaa", "]}", kDsml}) {
    bytes.push_back(text);
  }
  auto vocabulary = std::make_shared<Vocabulary>(std::move(bytes));
  vocabulary->markup_token = static_cast<int32_t>(vocabulary->bytes.size()) - 1;
  return vocabulary;
}

bool Holds(const MaskBits& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

// Walks `text` byte by byte. At each place the mask must allow exactly the tokens that a separate
// matcher accepts.
void CheckMasks(const std::shared_ptr<const Grammar>& grammar, absl::string_view text) {
  const Vocabulary& vocabulary = grammar->vocabulary();
  Matcher matcher, other;
  matcher.Reset(grammar, Matcher::Start::kContent);
  for (size_t length = 0; length <= text.size(); ++length) {
    INFO("after " << std::string(text.substr(0, length)));
    const auto mask = matcher.Mask();
    REQUIRE_OK(mask);
    for (int32_t token = 1; token < static_cast<int32_t>(vocabulary.bytes.size()) - 1; ++token) {
      other = matcher;
      other.Push(vocabulary.bytes[static_cast<size_t>(token)]);
      const auto next = other.Mask();
      REQUIRE_OK(next);
      bool open = *other.MayEnd();
      for (const uint32_t word : **next) open |= word != 0;
      CHECK(Holds(**mask, token) == open);
    }
    if (length < text.size()) matcher.Push(text.substr(length, 1));
  }
  CHECK(*matcher.MayEnd());
}

TEST_CASE("masks hold exactly the tokens that may follow") {
  const auto tokens = Tokens();
  const auto schema = Grammar::OfSchema(
      R"({"type":"object","properties":{"city":{"type":"string","maxLength":9},"on":{"type":
      "boolean"},"n":{"allOf":[{"type":"integer"},{"minimum":5}]}},"required":["city"],
      "additionalProperties":false})",
      tokens);
  REQUIRE_OK(schema);
  CheckMasks(*schema, R"({"city": "a\u00e9\"", "n":12,"on":true})");
  const auto regex = Grammar::OfRegex("(a|\xC3\xA9){2,5}|12[0-9]+", tokens);
  REQUIRE_OK(regex);
  CheckMasks(*regex,
             "aa\xC3\xA9"
             "a");
}

TEST_CASE("a mask has no token of an alternative that matches nothing") {
  // Nothing follows "q" that begins with both "a" and "b".
  const auto grammar = Grammar::OfRegex("q(?=a)(?=b).*|c", Tokens());
  REQUIRE_OK(grammar);
  Matcher matcher;
  matcher.Reset(*grammar, Matcher::Start::kContent);
  const auto mask = matcher.Mask();
  REQUIRE_OK(mask);
  CHECK_FALSE(Holds(**mask, 1 + 'q'));
  CHECK(Holds(**mask, 1 + 'c'));
}

TEST_CASE("pushes are taken back, and copies go their own way") {
  const auto grammar = Grammar::OfRegex("abc|abd", Tokens());
  REQUIRE_OK(grammar);
  Matcher matcher;
  matcher.Reset(*grammar, Matcher::Start::kContent);
  matcher.Push("ab");
  Matcher copy = matcher;
  matcher.Push("c");
  CHECK(*matcher.MayEnd());
  matcher.Pop();
  CHECK_FALSE(*matcher.MayEnd());
  copy.Push("d");
  CHECK(*copy.MayEnd());
  matcher.Push("x");
  CHECK_FALSE(*matcher.MayEnd());
  CHECK(**matcher.Mask() == MaskBits((**matcher.Mask()).size(), 0));
  matcher.Pop();
  matcher.Push("d");
  CHECK(*matcher.MayEnd());
}

TEST_CASE("reasoning is free until it ends") {
  const auto grammar = Grammar::OfRegex("yes|no", Tokens());
  REQUIRE_OK(grammar);
  Matcher matcher;
  matcher.Reset(*grammar, Matcher::Start::kReasoning);
  matcher.Push("hm");
  CHECK(matcher.free());
  CHECK_FALSE(*matcher.MayEnd());
  matcher.PushThinkEnd("</think>");
  CHECK_FALSE(matcher.free());
  matcher.Push("no");
  CHECK(*matcher.MayEnd());
  matcher.Pop();
  matcher.Pop();
  CHECK(matcher.free());
}

std::string Call(const std::string& parameters) {
  const std::string d = kDsml;
  return "\n\n<" + d + "tool_calls>\n<" + d + "invoke name=\"get\">\n" + parameters + "\n</" + d +
         "invoke>\n</" + d + "tool_calls>";
}
std::string Parameter(const std::string& name, const std::string& string,
                      const std::string& value) {
  const std::string d = kDsml;
  return "<" + d + "parameter name=\"" + name + "\" string=\"" + string + "\">" + value + "</" + d +
         "parameter>";
}

TEST_CASE("calls of tools are held to names, schemas and the string attribute") {
  constexpr absl::string_view kTools =
      R"([{"type":"function","function":{"name":"get","parameters":{"type":"object","properties":
      {"city":{"type":"string"},"days":{"type":"integer","maximum":9}},"required":["city"]}}}])";
  const auto ends = [&](const ToolOptions& options, const std::string& text) {
    const auto grammar = Grammar::OfTools(kTools, options, Tokens());
    REQUIRE_OK(grammar);
    const auto again = Grammar::Restore((*grammar)->source(), Tokens());
    REQUIRE_OK(again);
    Matcher matcher;
    matcher.Reset(*again, Matcher::Start::kContent);
    matcher.Push(text);
    return *matcher.MayEnd();
  };
  const std::string city = Parameter("city", "true", "a \"b\" < c\nd"),
                    days = Parameter("days", "false", "3");
  const ToolOptions automatic, required{.choice = ToolChoice::kRequired},
      none{.choice = ToolChoice::kNone}, lax{.strict = false};
  CHECK(ends(automatic, "text"));
  CHECK(ends(automatic, "text" + Call(city)));
  CHECK(ends(automatic, Call(days + "\n" + city)));
  CHECK_FALSE(ends(automatic, Call(days)));
  CHECK_FALSE(ends(automatic, Call(city + "\n" + city)));
  CHECK_FALSE(ends(automatic, Call(city + "\n" + Parameter("days", "true", "3"))));
  CHECK_FALSE(ends(automatic, Call(city + "\n" + Parameter("days", "false", "30"))));
  CHECK_FALSE(ends(automatic, Call(city) + " more"));
  CHECK_FALSE(ends(required, "text"));
  CHECK(ends(required, Call(city)));
  CHECK(ends(none, "text"));
  CHECK_FALSE(ends(none, Call(city)));
  // Parsers recover an invoke without its wrapper, or in another.
  const std::string d = kDsml;
  const std::string bare =
      "text\n<" + d + "tool>\n<" + d + "invoke name=\"get\">\n" + city + "\n</" + d + "invoke>\n";
  CHECK_FALSE(ends(none, bare));
  CHECK_FALSE(ends(automatic, bare));
  CHECK(ends(lax, Call(city)));
  CHECK_FALSE(ends(lax, Call(Parameter("other", "false", "[1]"))));
  CHECK(absl::IsInvalidArgument(Grammar::OfTools(kTools, {.name = "put"}, Tokens()).status()));
  REQUIRE_FAILS(Grammar::OfTools(R"([{"name":"a\u0000b"}])", automatic, Tokens()),
                absl::StatusCode::kInvalidArgument, "tools#/0/name");
  REQUIRE_FAILS(
      Grammar::OfTools(
          R"([{"function":{"name":"f","parameters":{"properties":{"a":{"minLength":-1}}}}}])",
          automatic, Tokens()),
      absl::StatusCode::kInvalidArgument,
      "tools#/0/function/parameters/properties/a/minLength: expected");
}

// The places that a grammar does not enforce.
std::string Places(const Grammar& grammar) {
  std::string places;
  for (const NotEnforced& one : grammar.not_enforced()) absl::StrAppend(&places, one.place, " ");
  return places;
}

bool Ends(const Grammar& grammar, const std::string& text) {
  const auto again = Grammar::Restore(grammar.source(), Tokens());
  REQUIRE_OK(again);
  Matcher matcher;
  matcher.Reset(*again, Matcher::Start::kContent);
  matcher.Push(text);
  return *matcher.MayEnd();
}

TEST_CASE("what cannot be enforced of tools is left out where they are not strict") {
  constexpr absl::string_view kTools =
      R"([{"name":"get","parameters":{"type":"object","properties":{"city":{"type":"string",
      "pattern":"(a)\\1"},"days":{"type":"integer"}},"required":["city"]}STRICT}])";
  const auto with = [&](const char* strict) {
    return absl::StrReplaceAll(kTools, {{"STRICT", strict}});
  };
  const std::string city = Parameter("city", "true", "bc");
  constexpr char kPattern[] = "tools#/0/parameters/properties/city/pattern ";
  const ToolOptions strict, lenient{.strict = false};
  for (const auto& [options, own] :
       {std::pair(strict, ",\"strict\":false"), {lenient, ",\"strict\":false"}, {lenient, ""}}) {
    const auto grammar = Grammar::OfTools(with(own), options, Tokens());
    REQUIRE_OK(grammar);
    CHECK(Places(**grammar) == kPattern);
    CHECK(Ends(**grammar, Call(city)));
    CHECK_FALSE(Ends(**grammar, Call(Parameter("city", "false", "1"))));
    CHECK_FALSE(Ends(**grammar, Call(city + "\n" + Parameter("days", "true", "3"))));
  }
  for (const auto& [options, own] :
       {std::pair(strict, ""), {strict, ",\"strict\":true"}, {lenient, ",\"strict\":true"}}) {
    REQUIRE_FAILS(Grammar::OfTools(with(own), options, Tokens()), absl::StatusCode::kUnimplemented,
                  "tools#/0/parameters/properties/city/pattern");
  }
}

TEST_CASE("parameters may be described by a reference, or only required") {
  const auto by_reference = Grammar::OfTools(
      R"([{"name":"get","parameters":{"$ref":"#/definitions/p","definitions":{"p":{"type":"object",
      "properties":{"city":{"type":"string"}},"required":["city","key"]}}}}])",
      {}, Tokens());
  REQUIRE_OK(by_reference);
  CHECK(Places(**by_reference).empty());
  const std::string city = Parameter("city", "true", "x"), key = Parameter("key", "false", "[1]");
  CHECK(Ends(**by_reference, Call(city + "\n" + key)));
  CHECK_FALSE(Ends(**by_reference, Call(city)));
  // Alternatives at the root are not enforced, so other parameters are free.
  const auto alternatives = Grammar::OfTools(
      R"([{"name":"get","parameters":{"type":"object","properties":{"city":{"type":"string"}},
      "anyOf":[{"required":["city"]},{"properties":{"key":{"type":"array"}},"required":["key"]}]}}])",
      {.strict = false}, Tokens());
  REQUIRE_OK(alternatives);
  CHECK(Places(**alternatives) == "tools#/0/parameters/anyOf ");
  CHECK(Ends(**alternatives, Call(key)));
  CHECK_FALSE(Ends(**alternatives, Call(Parameter("city", "false", "1"))));
}

TEST_CASE("a turn is JSON of a schema or calls tools, and never text") {
  constexpr absl::string_view kTools =
      R"([{"name":"get","parameters":{"properties":{"city":{"type":"string"}}}}])";
  constexpr absl::string_view kSchema =
      R"({"type":"object","properties":{"a":{"type":"string","format":"mine"}},"required":["a"],
      "additionalProperties":false})";
  const std::string call = Call(Parameter("city", "true", "x"));
  const auto open = [&](ToolChoice choice) {
    const auto grammar = Grammar::OfToolsOrSchema(kTools, kSchema, {.choice = choice}, Tokens());
    REQUIRE_OK(grammar);
    CHECK(Places(**grammar) == "schema#/properties/a/format ");
    return *grammar;
  };
  const auto automatic = open(ToolChoice::kAuto), none = open(ToolChoice::kNone),
             required = open(ToolChoice::kRequired);
  CHECK(Ends(*automatic, R"({"a": "b"})"));
  CHECK(Ends(*automatic, call));
  CHECK_FALSE(Ends(*automatic, "text"));
  CHECK_FALSE(Ends(*automatic, "text" + call));
  CHECK_FALSE(Ends(*automatic, R"({"a": 1})"));
  CHECK_FALSE(Ends(*automatic, R"({"a": "b"})" + call));
  // A value cannot spell what a parser takes for a call.
  CHECK_FALSE(Ends(*automatic, "{\"a\":\"<" + std::string(kDsml) + "invoke\"}"));
  CHECK(Ends(*none, R"({"a": "b"})"));
  CHECK_FALSE(Ends(*none, call));
  CHECK_FALSE(Ends(*required, R"({"a": "b"})"));
  CHECK(Ends(*required, call));
}

TEST_CASE("a lenient schema is enforced as far as it can be") {
  const auto schema = Grammar::OfAnswer(
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"},
      "uniqueItems":true}},"required":["a"],"additionalProperties":false})",
      {.strict = false}, Tokens());
  REQUIRE_OK(schema);
  CHECK(Places(**schema) == "schema#/properties/a/uniqueItems ");
  CHECK(Ends(**schema, R"({"a":[1,1]})"));
  CHECK_FALSE(Ends(**schema, R"({"a":["x"]})"));
  // What takes too long is left out: first complements, then everything but the type.
  const auto recursive = Grammar::OfAnswer(R"({"$ref":"#"})", {.strict = false}, Tokens());
  CHECK(absl::IsInvalidArgument(recursive.status()));
  std::string chain;
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&chain, "\"", i, "\":{\"$ref\":\"#/$defs/", i + 1, "\"},");
  }
  const auto deep =
      Grammar::OfAnswer(absl::StrCat("{\"type\":\"object\",\"$ref\":\"#/$defs/0\",\"$defs\":{",
                                     chain, "\"20000\":true}}"),
                        {.strict = false}, Tokens());
  REQUIRE_OK(deep);
  CHECK(Places(**deep) == "schema# ");
  CHECK(Ends(**deep, "{\"x\":1}"));
  CHECK_FALSE(Ends(**deep, "[]"));
  // A contradiction is still one.
  CHECK(absl::IsInvalidArgument(Grammar::OfAnswer("false", {.strict = false}, Tokens()).status()));
}

TEST_CASE("a text that is no source is refused") {
  for (const absl::string_view source :
       {"", "X", "T", "T0", "T30name", "T01name", "S", "R(", "B01", "B01x"}) {
    INFO(source);
    CHECK_FALSE(Grammar::Restore(source, Tokens()).ok());
  }
}

TEST_CASE("an output that needs too much memory is refused; an earlier one continues", "[.long]") {
  const auto grammar = Grammar::OfRegex(".*a.{200}", Tokens());
  REQUIRE_OK(grammar);
  Matcher matcher;
  matcher.Reset(*grammar, Matcher::Start::kContent);
  matcher.Push("ab");
  std::string text;
  uint32_t random = 1;
  for (int i = 0; i < 1000000; ++i) {
    random = random * 1664525 + 1013904223;
    text.push_back((random >> 31) != 0 ? 'a' : 'b');
  }
  matcher.Push(text);
  CHECK(IsUnsupported(matcher.Mask().status()));
  CHECK(IsUnsupported(matcher.MayEnd().status()));
  matcher.Pop();
  const auto mask = matcher.Mask();
  REQUIRE_OK(mask);
  CHECK(Holds(**mask, 1 + 'a'));
  CHECK_FALSE(Holds(**mask, 1 + '\n'));
}

TEST_CASE("refusals name the keyword by its place") {
  REQUIRE_FAILS(
      Grammar::OfSchema(R"({"properties":{"a":{"items":{"uniqueItems":true}}}})", Tokens()),
      absl::StatusCode::kUnimplemented, "schema#/properties/a/items/uniqueItems");
  REQUIRE_FAILS(Grammar::OfSchema(R"({"unevaluatedProperties":false})", Tokens()),
                absl::StatusCode::kUnimplemented, "schema#/unevaluatedProperties");
  REQUIRE_FAILS(Grammar::OfSchema(R"({"minLength":"3"})", Tokens()),
                absl::StatusCode::kInvalidArgument, "schema#/minLength");
  REQUIRE_FAILS(Grammar::OfSchema(R"({"$ref":"#"})", Tokens()), absl::StatusCode::kInvalidArgument,
                "is left-recursive");
  const auto broken = Grammar::OfSchema(R"({"properties":{"a\nb/":{"minLength":-1}}})", Tokens());
  CHECK(broken.status().message() ==
        "schema#/properties/a\\nb~1/minLength: expected an integer of 0 or more");
  for (const char* count : {"-99999999", "1.5", "-1e-1", "true"}) {
    INFO(count);
    CHECK(absl::IsInvalidArgument(
        Grammar::OfSchema(absl::StrCat("{\"maxItems\":", count, "}"), Tokens()).status()));
  }
  for (const char* count : {"1048577", "99999999999999999999", "1e300", "1e999999999999"}) {
    INFO(count);
    CHECK(IsUnsupported(
        Grammar::OfSchema(absl::StrCat("{\"maxItems\":", count, "}"), Tokens()).status()));
  }
  CHECK(absl::IsInvalidArgument(
      Grammar::OfSchema(R"({"patternProperties":{"(":true}})", Tokens()).status()));
}

TEST_CASE("a hostile schema ends in an error, not in the stack or the memory of the host") {
  std::string chain, deep;
  for (int i = 0; i < 20000; ++i) {
    absl::StrAppend(&chain, "\"", i, "\":{\"$ref\":\"#/$defs/", i + 1, "\"},");
  }
  REQUIRE_FAILS(
      Grammar::OfSchema(
          absl::StrCat("{\"$ref\":\"#/$defs/0\",\"$defs\":{", chain, "\"20000\":true}}"), Tokens()),
      absl::StatusCode::kUnimplemented, "nested too deeply");
  for (int i = 0; i < 2000; ++i) deep += "{\"not\":";
  CHECK_FALSE(Grammar::OfSchema(deep, Tokens()).ok());
}

// Calls fn() on a thread with the stack that include/dsv4/dsv4.h asks for; frames with sanitizers
// are larger.
template <class Fn>
void OnSmallStack(Fn fn) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr size_t kStackBytes = 1024 * 1024;
#else
  constexpr size_t kStackBytes = 128 * 1024;
#endif
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
  pthread_t thread;
  const auto run = [](void* call) -> void* {
    (*static_cast<Fn*>(call))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &fn) == 0);
  REQUIRE(pthread_join(thread, nullptr) == 0);
  pthread_attr_destroy(&attributes);
}

std::string Times(int count, absl::string_view text) {
  std::string all;
  for (int i = 0; i < count; ++i) all.append(text.data(), text.size());
  return all;
}

TEST_CASE("what nests as deep as is read needs no deep stack") {
  const auto tokens = Tokens();
  struct Nesting {
    absl::StatusOr<std::shared_ptr<const Grammar>> (*open)(absl::string_view,
                                                           std::shared_ptr<const Vocabulary>);
    std::string source, text;
    bool compiles;
  };
  const std::string deep_array = Times(55, "[");
  const Nesting cases[] = {
      {Grammar::OfSchema, Times(28, "{\"properties\":{\"a\":") + "{}" + Times(28, "}}"),
       Times(28, "{\"a\":") + "1" + Times(28, "}"), true},
      {Grammar::OfSchema, Times(55, "{\"items\":") + "{}" + Times(55, "}"),
       Times(55, "[") + Times(55, "]"), true},
      {Grammar::OfSchema, Times(54, "{\"not\":") + "{\"type\":\"null\"}" + Times(54, "}"), "null",
       true},
      {Grammar::OfSchema, "{\"const\":" + deep_array + Times(55, "]") + "}",
       deep_array + Times(55, "]"), true},
      {Grammar::OfSchema,
       Times(28, "{\"allOf\":[{\"items\":{}},") + "{\"type\":\"null\"}" + Times(28, "]}"), "null",
       true},
      {Grammar::OfSchema,
       Times(12, "{\"items\":") + "{\"pattern\":\"" + Times(31, "(") + Times(31, ")+") + "\"}" +
           Times(12, "}"),
       Times(12, "[") + "\"a\"" + Times(12, "]"), true},
      {Grammar::OfRegex, Times(31, "(") + "a" + Times(31, ")+"), "aaa", true},
      {Grammar::OfRegex, Times(40, "(") + "a" + Times(40, ")"), "", false},
      {Grammar::OfEbnf, "root ::= " + Times(23, "(") + "\"a\"" + Times(23, ")+"), "aaa", true},
      {Grammar::OfEbnf, "root ::= " + Times(40, "(") + "\"a\"" + Times(40, ")"), "", false},
  };
  for (const Nesting& one : cases) {
    INFO(one.source);
    absl::Status status;
    bool matches = false;
    OnSmallStack([&] {
      const auto grammar = one.open(one.source, tokens);
      status = grammar.status();
      if (!grammar.ok()) return;
      Matcher matcher;
      matcher.Reset(*grammar, Matcher::Start::kContent);
      for (size_t i = 0; i < one.text.size(); ++i) {
        matcher.Push(absl::string_view(one.text).substr(i, 1));
        status = matcher.Mask().status();
        if (!status.ok()) return;
      }
      matches = *matcher.MayEnd();
    });
    INFO(status.message());
    CHECK(status.ok() == one.compiles);
    CHECK(matches == one.compiles);
  }
}

// An intersection's state grows with the nesting of a text.
TEST_CASE("an intersection nests as deep as its stack may, and is refused beyond") {
  const auto grammar = Grammar::OfSchema(
      R"({"$ref":"#/$defs/t","$defs":{"t":{"allOf":[{"type":["array","null"]},{"not":{"const":0}},
      {"items":{"$ref":"#/$defs/t"}}]}}})",
      Tokens());
  REQUIRE_OK(grammar);
  int deepest = 0;
  absl::Status status;
  OnSmallStack([&] {
    Matcher matcher;
    matcher.Reset(*grammar, Matcher::Start::kContent);
    for (; deepest < 1000 && status.ok(); ++deepest) {
      matcher.Push("[");
      status = matcher.Mask().status();
    }
  });
  INFO(deepest << " " << status.message());
  CHECK(deepest >= 20);
  CHECK(IsUnsupported(status));
}

// Quadratic in their sizes, where nothing bounds the work.
TEST_CASE("a schema of many parts ends in time", "[.long]") {
  const auto list = [](int count, absl::string_view before, absl::string_view after) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      absl::StrAppend(&text, i == 0 ? "" : ",", before, i, after);
    }
    return text;
  };
  const std::string schemas[] = {
      absl::StrCat("{\"properties\":{", list(60000, "\"", "\":{}"), "}}"),
      absl::StrCat("{\"required\":[", list(60000, "\"", "\""), "]}"),
      absl::StrCat("{\"oneOf\":[", list(40000, "{\"const\":\"", "\"}"), "]}"),
      absl::StrCat("{\"oneOf\":[", list(40000, "{\"minimum\":", "}"), "]}"),
      absl::StrCat("{\"anyOf\":[", list(20000, "{\"multipleOf\":2039,\"maximum\":", "}"), "]}"),
      absl::StrCat("{\"patternProperties\":{\".*a.{20}\":{}},\"properties\":{",
                   list(20000, "\"abababbabbbababbbaabababababbabb", "\":{}"), "}}"),
      absl::StrCat("{\"properties\":{\"", std::string(300000, 'k'), "\":{\"anyOf\":[",
                   list(40000, "{\"minimum\":", "}"), "]}}}"),
  };
  for (const std::string& schema : schemas) {
    INFO(schema.substr(0, 100));
    const auto grammar = Grammar::OfSchema(schema, Tokens());
    if (!grammar.ok()) {
      CHECK(IsUnsupported(grammar.status()));
      continue;
    }
    Matcher matcher;
    matcher.Reset(*grammar, Matcher::Start::kContent);
    matcher.Push("{");
    const auto mask = matcher.Mask();
    CHECK((mask.ok() || IsUnsupported(mask.status())));
  }
}

}  // namespace
}  // namespace dsv4::grammar
