// SPDX-License-Identifier: Apache-2.0
// Schemas against recorded verdicts. schema_cases.json has those of the JSON Schema test suite for
// draft 2020-12 (https://github.com/json-schema-org/JSON-Schema-Test-Suite, copyright 2012 Julian
// Berman, MIT License) and of schemas like those of tools, with documents as Python's json writes
// them. The verdicts are those of the jsonschema package (4.26.0), for "format" those of the suite.
#include "lib/grammar/json_schema.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/io/mapped_file.h"
#include "tests/lib/grammar/language.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

std::string NamesOf(const std::vector<NotEnforced>& list) {
  std::vector<std::string> places;
  for (const NotEnforced& one : list) places.push_back(one.place);
  std::sort(places.begin(), places.end());
  return absl::StrJoin(places, " ");
}

absl::StatusOr<Language> LanguageOf(const JsonValue& schema) {
  return Compiled([&](ExpressionPool* pool) -> absl::StatusOr<Expr> {
    SchemaCompiler compiler(pool, schema, "schema#", false);
    absl::StatusOr<Expr> value =
        compiler.Language(schema, "", SchemaCompiler::Part::kValues, Encoding::kJson);
    if (!value.ok()) return value;
    return pool->Concat({JsonSpace(pool), *value, JsonSpace(pool)});
  });
}

struct Counts {
  size_t schemas = 0, valid = 0, invalid = 0;
};

void CheckCase(const JsonValue& one, Counts* counts) {
  INFO(*one.Find("name")->AsString());
  absl::StatusOr<Language> language = LanguageOf(*one.Find("schema"));
  if (const JsonValue* refused = one.Find("refused")) {
    CHECK(IsUnsupported(language.status()));
    CHECK(std::string(language.status().message()).find(*refused->AsString()) != std::string::npos);
    return;
  }
  ++counts->schemas;
  const auto& valid_texts = *one.Find("valid")->AsArray();
  if (valid_texts.empty() && absl::IsInvalidArgument(language.status())) {
    // A schema without any valid document has no grammar.
    CHECK(language.status().message() == "no text matches");
    return;
  }
  CHECK(language.ok());
  if (!language.ok()) return;
  for (const JsonValue& document : valid_texts) {
    INFO("valid: " << *document.AsString());
    CHECK(language->Matches(*document.AsString()));
    ++counts->valid;
  }
  for (const JsonValue& document : *one.Find("invalid")->AsArray()) {
    INFO("invalid: " << *document.AsString());
    CHECK_FALSE(language->Matches(*document.AsString()));
    ++counts->invalid;
  }
}

// The cases that are marked "long", or the others.
Counts CheckCases(bool long_ones) {
  const auto text = ReadFile(SCHEMA_CASES, 16 << 20);
  REQUIRE_OK(text);
  const auto cases = ParseJson(*text, "cases", 16 << 20);
  REQUIRE_OK(cases);
  Counts counts;
  for (const JsonValue& one : *cases->AsArray()) {
    if ((one.Find("long") != nullptr) == long_ones) CheckCase(one, &counts);
  }
  return counts;
}

// Schemas in the style of MCP servers, OpenAPI, pydantic and zod. tool_schemas.json has documents
// with the verdicts of the jsonschema package (4.26.0), except those about "format" and schemas of
// dialects that it refuses, and the places that docs/structured-output.md says are not enforced.
// Documents that only such a place forbids are not in it.
TEST_CASE("schemas of tools are enforced, or it is said where they are not") {
  const auto text = ReadFile(TOOL_SCHEMAS, 16 << 20);
  REQUIRE_OK(text);
  const auto cases = ParseJson(*text, "cases", 16 << 20);
  REQUIRE_OK(cases);
  CHECK(cases->AsArray()->size() >= 100);
  for (const JsonValue& one : *cases->AsArray()) {
    INFO(*one.Find("name")->AsString());
    const JsonValue& schema = *one.Find("schema");
    std::vector<std::string> places;
    for (const JsonValue& place : *one.Find("unenforced")->AsArray())
      places.push_back(*place.AsString());
    Enforcement enforcement(Enforcement::Effort::kBest);
    const auto compile = [&] {
      return Compiled([&](ExpressionPool* pool) {
        SchemaCompiler compiler(pool, schema, "schema#", false, &enforcement);
        return compiler.Language(schema, "", SchemaCompiler::Part::kValues, Encoding::kJson);
      });
    };
    absl::StatusOr<Language> language = compile();
    if (enforcement.ComplementsWidened()) {
      enforcement = Enforcement(Enforcement::Effort::kSimple);
      language = compile();
    }
    REQUIRE_OK(language);
    CHECK(NamesOf(enforcement.list()) == absl::StrJoin(places, " "));
    for (const JsonValue& document : *one.Find("valid")->AsArray()) {
      INFO("valid: " << *document.AsString());
      CHECK(language->Matches(*document.AsString()));
    }
    for (const JsonValue& document : *one.Find("invalid")->AsArray()) {
      INFO("invalid: " << *document.AsString());
      CHECK_FALSE(language->Matches(*document.AsString()));
    }
  }
}

TEST_CASE("documents match exactly where another validator finds them valid") {
  const Counts counts = CheckCases(false);
  CHECK(counts.schemas >= 300);
  CHECK(counts.valid >= 1000);
  CHECK(counts.invalid >= 800);
}

TEST_CASE("so they do where schemas overlap, which takes long to decide", "[.long]") {
  CHECK(CheckCases(true).schemas >= 5);
}

}  // namespace
}  // namespace dsv4::grammar
