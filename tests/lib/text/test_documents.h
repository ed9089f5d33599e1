// SPDX-License-Identifier: Apache-2.0
// The recorded documents that the tests of lib/text read, and the bundled model's tokenizer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/tokenizer.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {

inline const std::string kTinyTokenizerPath = DSV4_SOURCE_DIR "/models/dsv4-tiny/tokenizer.json";

inline std::string FileText(const std::string& path) {
  auto text = ReadFile(path, int64_t{1} << 28);
  REQUIRE_OK(text);
  return *std::move(text);
}

inline JsonValue DocumentAt(const std::string& path) {
  auto value = ParseJson(FileText(path), path, int64_t{1} << 28);
  REQUIRE_OK(value);
  return *std::move(value);
}
// `path` is relative to the source tree.
inline JsonValue Document(const std::string& path) {
  return DocumentAt(DSV4_SOURCE_DIR "/" + path);
}
// A document of tests/recorded_texts.tar.xz.
inline JsonValue RecordedDocument(const std::string& name) {
  return DocumentAt(DSV4_BUILT_MODELS "/../recorded/" + name);
}

inline const Tokenizer& TinyTokenizer() {
  static const std::unique_ptr<const Tokenizer> tokenizer = [] {
    auto loaded = Tokenizer::Load(kTinyTokenizerPath);
    REQUIRE_OK(loaded);
    return *std::move(loaded);
  }();
  return *tokenizer;
}

inline std::vector<int32_t> IdsOf(const JsonValue& array) {
  std::vector<int32_t> ids;
  for (const JsonValue& item : *array.AsArray()) {
    ids.push_back(static_cast<int32_t>(*item.AsInt64()));
  }
  return ids;
}

// One of a recorded list of {text, ids, decoded}.
struct TokenizerCase {
  std::string text;
  std::vector<int32_t> ids;
  std::string decoded;
};

inline std::vector<TokenizerCase> TokenizerCases(const std::string& name) {
  const JsonValue document = RecordedDocument(name);
  std::vector<TokenizerCase> cases;
  for (const JsonValue& item : *document.AsArray()) {
    cases.push_back({*item.Find("text")->AsString(), IdsOf(*item.Find("ids")),
                     *item.Find("decoded")->AsString()});
  }
  return cases;
}

}  // namespace dsv4::test
