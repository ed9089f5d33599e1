// SPDX-License-Identifier: Apache-2.0
// Compiles JSON Schemas (draft 2020-12) to languages: the JSON texts of all valid values.
// json_schema.cc lists the supported keywords. Members may be in any order; named ones are not
// repeated.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/grammar/enforcement.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/text_language.h"
#include "lib/io/json.h"

namespace dsv4::grammar {

inline constexpr int64_t kMaxSchemaBytes = int64_t{1} << 20;
// The deepest nesting of arrays and objects. It needs less than 128 KiB of the stack.
inline constexpr int kMaxSchemaDepth = 60;

// Parses the JSON text of a schema or of tools. `source` names it in messages. Errors:
// InvalidArgument where ParseJson returns Corrupt.
absl::StatusOr<JsonValue> ParseSchema(absl::string_view json, absl::string_view source);

// Spaces and tabs at the beginning of a line.
inline constexpr uint32_t kMaxIndent = 80;

// White space between two JSON tokens: none, a space, or a line break and the next line's indent.
// Longer white space tempts models to continue it forever.
Expr JsonSpace(ExpressionPool* pool);

class SchemaCompiler {
 public:
  // The part of a schema's values that a language has.
  enum class Part {
    kValues,      // JSON texts
    kNonStrings,  // JSON texts of values other than strings
    kStrings,     // the contents of strings in `encoding`, without quotes
  };

  // `root` is the document of all references; it must outlive the compiler. Messages name a place
  // as `place` and a JSON pointer, as in "schema#/properties/a" for `place` "schema#".
  // `enforcement` says what may be left out, and receives it. Null: nothing.
  SchemaCompiler(ExpressionPool* pool, const JsonValue& root, std::string place, bool in_markup,
                 Enforcement* enforcement = nullptr);

  // Compiles the schema at `pointer` of the root. Errors: Unsupported and InvalidArgument, naming
  // the keyword except if the pool is exhausted.
  absl::StatusOr<Expr> Language(const JsonValue& schema, const std::string& pointer, Part part,
                                Encoding encoding);

  // Errors of the keyword `keyword` of the schema at `pointer`. Located: `status`, with the place.
  absl::Status Refused(const std::string& pointer, absl::string_view keyword,
                       absl::string_view why) const;
  absl::Status Bad(const std::string& pointer, absl::string_view keyword,
                   absl::string_view expected) const;
  absl::Status Located(const std::string& pointer, absl::string_view keyword,
                       const absl::Status& status) const;
  // OK if the keyword may be left out, and notes that it is; otherwise `status`, which is an error
  // about it.
  absl::Status Waived(const std::string& pointer, absl::string_view keyword,
                      const absl::Status& status) const;
  // Notes that the keyword is not enforced.
  void Note(const std::string& pointer, absl::string_view keyword, std::string reason) const;
  // The schema that a reference refers to; for other schemas the schema itself.
  const JsonValue& Resolved(const JsonValue& schema) const;
  // A key, escaped for a JSON pointer.
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

  // A place for messages, on one line. A long one is cut at its beginning.
  std::string Place(absl::string_view pointer) const;
  absl::StatusOr<Expr> Value(const JsonValue& schema, const std::string& pointer, View view);
  // Value of a schema that is an object, without a check of its depth.
  absl::StatusOr<Expr> ValueHere(const JsonValue& schema, const std::string& pointer, View view);
  // A rule for a schema that Language compiles later.
  Expr Later(const JsonValue& schema, std::string pointer, View view);
  absl::Status CheckKeywords(const Members& schema, const std::string& pointer) const;
  // Whether complements are left out.
  bool simple() const {
    return enforcement_ != nullptr && enforcement_->effort() == Enforcement::Effort::kSimple;
  }
  absl::StatusOr<Expr> Own(const JsonValue& schema, const std::string& pointer, View view);
  absl::StatusOr<Expr> Enumerated(const JsonValue& schema, const std::string& pointer, View view);
  absl::Status AddApplicators(const JsonValue& schema, const std::string& pointer, View view,
                              std::vector<Expr>* all);
  absl::StatusOr<Expr> OneOf(const JsonValue& list, const std::string& pointer, View view);
  absl::StatusOr<Expr> Conditional(const JsonValue& schema, const std::string& pointer, View view);
  absl::StatusOr<Expr> Dependents(const JsonValue& dependents, const std::string& pointer,
                                  absl::string_view keyword, View view);
  absl::StatusOr<Expr> Reference(const JsonValue& reference, const std::string& pointer, View view);

  absl::StatusOr<Expr> Number(const JsonValue& schema, const std::string& pointer, bool integer);
  absl::StatusOr<Expr> StringContent(const JsonValue& schema, const std::string& pointer,
                                     Encoding encoding);
  absl::StatusOr<Expr> Array(const JsonValue& schema, const std::string& pointer);
  Expr Items(const std::vector<Expr>& prefix, Expr item, uint32_t min, uint32_t max);
  absl::StatusOr<Expr> UniqueItems(const JsonValue* items, uint32_t min, uint32_t max);
  absl::StatusOr<Expr> Containing(const JsonValue& schema, const std::string& pointer);
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
  absl::StatusOr<uint32_t> CountOf(const JsonValue& value, const std::string& pointer,
                                   absl::string_view keyword) const;
  absl::StatusOr<std::vector<absl::string_view>> Types(const JsonValue& schema,
                                                       const std::string& pointer) const;
  // The texts of all values in `view`.
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
  // Whether both schemas allow only strings and have none in common.
  bool Apart(const JsonValue& a, const JsonValue& b) const;
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
  Enforcement* const enforcement_;
  const Encoding encoding_;  // of strings within JSON
  const Expr space_, char_;
  std::map<View, Expr> everything_, plain_;
  std::vector<std::string> names_;  // sorted, of all members that the schema names
  // Schemas to compile later: the targets of references, and schemas at kMaxDepth. Language
  // compiles them one after another, because a chain of them could overflow the stack.
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
