// SPDX-License-Identifier: Apache-2.0
// Schemas against recorded verdicts. schema_cases.json has those of the JSON Schema test suite for
// draft 2020-12 (https://github.com/json-schema-org/JSON-Schema-Test-Suite, copyright 2012 Julian
// Berman, MIT License) and of schemas like those of tools, with documents as Python's json writes
// them. The verdicts are those of the jsonschema package (4.26.0), for "format" those of the suite.
#include "lib/grammar/json_schema.h"

#include <string>

#include "lib/base/error.h"
#include "lib/io/mapped_file.h"
#include "tests/lib/grammar/language.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::grammar {
namespace {

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
