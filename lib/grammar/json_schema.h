// SPDX-License-Identifier: Apache-2.0
// JSON Schema (draft 2020-12) as languages of JSON texts: those of the values that are valid. What
// a keyword means is the specification's; json_schema.cc lists the keywords. Members come in any
// order; named ones are not repeated.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/text_language.h"
#include "lib/io/json.h"

namespace dsv4::grammar {

inline constexpr int64_t kMaxSchemaBytes = int64_t{1} << 20;
// Arrays and objects within each other: 128 KiB of the stack are enough.
inline constexpr int kMaxSchemaDepth = 60;

// The JSON text of a schema or of tools, named `source` in messages. InvalidArgument: see
// ParseJson.
absl::StatusOr<JsonValue> ParseSchema(absl::string_view json, absl::string_view source);

// Spaces and tabs at the beginning of a line.
inline constexpr uint32_t kMaxIndent = 80;

// White space between two tokens of JSON: none, a space, or a line break and what indents the next
// line. Where longer white space is allowed, models may never end it.
Expr JsonSpace(ExpressionPool* pool);

class SchemaCompiler {
 public:
  // What of a schema's values a language holds.
  enum class Part {
    kValues,      // JSON texts
    kNonStrings,  // those of values other than strings
    kStrings,     // the contents of strings, as `encoding` writes them
  };

  // References are to places of `root`, which outlives the compiler. Messages name places of it by
  // JSON pointer after `place`, as in "schema#/properties/a" for "schema#".
  SchemaCompiler(ExpressionPool* pool, const JsonValue& root, std::string place, bool in_markup);

  // Of the schema at `pointer` of the root. Unsupported and InvalidArgument name the keyword, but
  // where the pool is exhausted.
  absl::StatusOr<Expr> Language(const JsonValue& schema, const std::string& pointer, Part part,
                                Encoding encoding);

  // Errors of the keyword `keyword` of the schema at `pointer`. Located: `status`, with the place.
  absl::Status Refused(const std::string& pointer, absl::string_view keyword,
                       absl::string_view why) const;
  absl::Status Bad(const std::string& pointer, absl::string_view keyword,
                   absl::string_view expected) const;
  absl::Status Located(const std::string& pointer, absl::string_view keyword,
                       const absl::Status& status) const;
  // A key, as a pointer has it.
  static std::string Escaped(absl::string_view key);

 private:
  struct View {
    Part part;
    Encoding encoding;
    bool operator<(const View& other) const {
      return std::pair(part, encoding) < std::pair(other.part, other.encoding);
    }
  };
  using Members = std::vector<JsonMember>;

  // A place for messages, on one line; of a long one the end.
  std::string Place(absl::string_view pointer) const;
  absl::StatusOr<Expr> Value(const JsonValue& schema, const std::string& pointer, View view);
  // Value, of a schema that is an object, without a look at how deep it lies.
  absl::StatusOr<Expr> ValueHere(const JsonValue& schema, const std::string& pointer, View view);
  // The rule of a schema that Language compiles later.
  Expr Later(const JsonValue& schema, std::string pointer, View view);
  absl::Status CheckKeywords(const Members& schema, const std::string& pointer) const;
  absl::StatusOr<Expr> Own(const JsonValue& schema, const std::string& pointer, View view);
  absl::StatusOr<Expr> Enumerated(const JsonValue& schema, const std::string& pointer, View view);
  absl::Status AddApplicators(const JsonValue& schema, const std::string& pointer, View view,
                              std::vector<Expr>* all);
  absl::StatusOr<Expr> OneOf(const JsonValue& list, const std::string& pointer, View view);
  absl::StatusOr<Expr> Conditional(const JsonValue& schema, const std::string& pointer, View view);
  absl::Status AddDependents(const JsonValue& schema, const std::string& pointer, View view,
                             std::vector<Expr>* all);
  absl::StatusOr<Expr> Reference(const JsonValue& reference, const std::string& pointer, View view);

  absl::StatusOr<Expr> Number(const JsonValue& schema, const std::string& pointer, bool integer);
  absl::StatusOr<Expr> StringContent(const JsonValue& schema, const std::string& pointer,
                                     Encoding encoding);
  absl::StatusOr<Expr> Array(const JsonValue& schema, const std::string& pointer);
  absl::StatusOr<Expr> Object(const JsonValue& schema, const std::string& pointer);
  struct KeyRules;
  absl::StatusOr<KeyRules> ReadKeyRules(const JsonValue& schema, const std::string& pointer,
                                        const std::vector<std::string>& names);
  absl::StatusOr<StringSet> Matching(absl::string_view pattern,
                                     const std::vector<std::string>& texts);

  absl::StatusOr<std::vector<Expr>> List(const JsonValue& list, const std::string& pointer,
                                         absl::string_view keyword, View view);
  absl::StatusOr<uint32_t> Count(const JsonValue& schema, const std::string& pointer,
                                 absl::string_view keyword, uint32_t otherwise) const;
  // All values, as `view` has them.
  Expr Everything(View view);
  // The texts of `view` in which no number has an exponent and no key that the schema names is
  // repeated. Languages of schemas may lack other texts of valid values, and a complement must not
  // accept those as values of another kind. So complements are taken within the plain texts, where
  // the languages are exact.
  Expr Plain(View view);
  void FindNames(const JsonValue& schema);
  void FindAnchors(const JsonValue& value);
  // Whether two schemas have no value in common, as far as types and constant members tell.
  bool Disjoint(const JsonValue& left, const JsonValue& right) const;
  // Whether both schemas allow strings alone, each its own.
  bool Apart(const JsonValue& a, const JsonValue& b) const;
  // What a schema refers to, if it does; else itself.
  const JsonValue& Resolved(const JsonValue& schema) const;
  Expr Complement(Expr e, View view);
  absl::StatusOr<Expr> Exactly(const JsonValue& value, View view);
  View Values() const { return {Part::kValues, encoding_}; }
  Expr StringOf(Expr content);
  ObjectSpec JsonObject(std::vector<ObjectSpec::Member> named, std::vector<Expr> others);
  Expr AnyValue(View view, Expr number, Expr item, Expr members);
  Expr ObjectWith(const std::string& key);
  Expr ValueWithout(const std::string& key, View view);

  ExpressionPool* pool_;
  const JsonValue& root_;
  const std::string place_;
  const Encoding encoding_;  // of strings within JSON
  const Expr space_, char_;
  std::map<View, Expr> everything_, plain_;
  std::vector<std::string> names_;  // sorted, of all members that the schema names
  // What was referred to, or lies deep in the schema, is compiled by Language, one after the other:
  // chains of it may be longer than the stack is.
  struct Pending {
    const JsonValue* schema;
    std::string pointer;
    View view;
    Expr rule;
  };
  std::map<std::pair<const JsonValue*, View>, Expr> rules_;
  std::vector<Pending> pending_;
  StringMap<const JsonValue*> anchors_;
  int depth_ = 0;  // of the running Value
};

}  // namespace dsv4::grammar
