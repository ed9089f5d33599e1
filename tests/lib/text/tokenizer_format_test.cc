// SPDX-License-Identifier: Apache-2.0
// What of a tokenizer.json is accepted and how the rest is refused: the bundled file with one thing
// changed at a time.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/text/tokenizer.h"
#include "tests/lib/text/test_documents.h"

namespace dsv4 {
namespace {

using Ids = std::vector<int32_t>;

// The bundled tokenizer.json with the first `from` after `anchor` replaced.
std::string Changed(const std::string& anchor, const std::string& from, const std::string& to) {
  static const std::string document = test::FileText(test::kTinyTokenizerPath);
  std::string json = document;
  const size_t start = json.find(anchor);
  INFO(anchor << " ... " << from);
  REQUIRE(start != std::string::npos);
  const size_t place = json.find(from, start);
  REQUIRE(place != std::string::npos);
  return json.replace(place, from.size(), to);
}

absl::Status Load(const std::string& json) { return Tokenizer::FromJson(json, "t.json").status(); }

TEST_CASE("features that the family does not use are refused by name") {
  struct Row {
    std::string anchor, from, to, named;
  };
  const std::vector<Row> rows = {
      {"\"normalizer\"", "\"normalizers\": []", R"("normalizers": [{"type": "NFC"}])", "\"NFC\""},
      {"\"normalizer\"", "\"Sequence\"", "\"Lowercase\"", "\"Lowercase\""},
      {"\"pre_tokenizer\"", "\"Split\"", "\"Whitespace\"", "step 0: type \"Whitespace\""},
      {"\"pre_tokenizer\"", "\"Isolated\"", "\"Removed\"",
       "step 0: Split with behavior \"Removed\""},
      {"\"pre_tokenizer\"", "\"invert\": false", "\"invert\": true", "\"invert\""},
      {"\"pre_tokenizer\"", "\\\\p{N}{1,3}", "\\\\d{1,3}", "\\\\d"},
      {"\"pre_tokenizer\"", "\"ByteLevel\"", "\"Digits\"", "step 3: type \"Digits\""},
      {"\"pre_tokenizer\"", "\"add_prefix_space\": false", "\"add_prefix_space\": true",
       "add_prefix_space"},
      {"\"pre_tokenizer\"", "\"use_regex\": false", "\"use_regex\": true", "use_regex"},
      {"\"pre_tokenizer\"", "\"use_regex\": false", "\"regex\": false", "use_regex"},
      {"\"post_processor\"", "\"ByteLevel\"", "\"BertProcessing\"", "\"BertProcessing\""},
      {"\"decoder\"", "\"ByteLevel\"", "\"Metaspace\"", "\"Metaspace\""},
      {"\"model\"", "\"BPE\"", "\"Unigram\"", "\"Unigram\""},
      {"\"model\"", "\"dropout\": null", "\"dropout\": 0.1", "\"dropout\" \"0.1\""},
      {"\"model\"", "\"unk_token\": null", "\"unk_token\": \"!\"", "\"unk_token\" \"!\""},
      {"\"model\"", "\"continuing_subword_prefix\": null", "\"continuing_subword_prefix\": \"##\"",
       "\"continuing_subword_prefix\" \"##\""},
      {"\"model\"", "\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"",
       "\"end_of_word_suffix\" \"</w>\""},
      {"\"model\"", "\"fuse_unk\": false", "\"fuse_unk\": true", "\"fuse_unk\" true"},
      {"\"model\"", "\"byte_fallback\": false", "\"byte_fallback\": true",
       "\"byte_fallback\" true"},
      {"\"added_tokens\"", "\"lstrip\": false", "\"lstrip\": true", "\"lstrip\""},
      {"<think>", "\"rstrip\": false", "\"rstrip\": true",
       "added_tokens[5] (\"<think>\"): \"rstrip\""},
      {"\"added_tokens\"", "\"single_word\": false", "\"single_word\": true", "\"single_word\""},
  };
  for (const Row& row : rows) {
    INFO(row.from << " -> " << row.to);
    const absl::Status status = Load(Changed(row.anchor, row.from, row.to));
    REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented, row.named);
    REQUIRE_FAILS(status, absl::StatusCode::kUnimplemented, "t.json: ");
  }
}

TEST_CASE("contradictions in the file are Corrupt and named") {
  struct Row {
    std::string anchor, from, to, named;
  };
  const std::vector<Row> rows = {
      {"\"model\"", "\"model\"", "\"modell\"", "key \"model\" is missing"},
      {"\"model\"", "\"vocab\"", "\"vocabulary\"", "key \"vocab\" is missing"},
      {"\"model\"", "\"merges\"", "\"merge\"", "key \"merges\" is missing"},
      {"\"model\"", "\"type\": \"BPE\"", "\"kind\": \"BPE\"", "key \"type\" is missing"},
      {"\"model\"", "\"BPE\"", "7", "\"type\" is number, not string"},
      {"\"model\"", "\"dropout\": null", "\"ignore_merges\": 1", "\"ignore_merges\" is number"},
      {"\"vocab\"", "\"!\": 3", "\"!\": 4", "id 4 has two tokens, \"!\" and"},
      {"\"vocab\"", "\"!\": 3", "\"!\": -3", "the id of token \"!\" is \"-3\""},
      {"\"vocab\"", "\"!\": 3", "\"!\": 3.0", "the id of token \"!\" is \"3.0\""},
      {"\"vocab\"", "\"!\": 3", "\"!\": 4194304", "the id of token \"!\" is \"4194304\""},
      {"\"vocab\"", "\"!\": 3", "\"!\": 99999999999999999999", "the id of token \"!\""},
      {"\"vocab\"", "\"!\": 3", "\"!\": \"3\"", "the id of token \"!\" is string"},
      {"\"vocab\"", "\"!\": 3", "\"!!!\": 3", "byte 33 (\"!\") is not in the vocabulary"},
      {"\"vocab\"", "\"!\": 3", "\"!\": 3, \"\": 3000", "the token with id 3000 is empty"},
      {"\"merges\"", "\"h e\"", "\"h qqq\"", "merge 0, \"h\" + \"qqq\": token \"qqq\""},
      {"\"merges\"", "\"h e\"", "\"he\"", "merge 0 is \"he\", not two tokens"},
      {"\"added_tokens\"", "\"id\": 2,", "\"id\": 3,", "two ids, 2 and 3"},
      {"\"id\": 2037", "\"id\": 2037", "\"id\": 2036", "id 2036 has two tokens"},
      {"\"id\": 2037", "\"id\": 2037", "\"id\": 5", "id 5 has two tokens"},
      {"\"id\": 2037", "\"id\": 2037", "\"idx\": 2037", "added_tokens[5]: key \"id\" is missing"},
      {"\"id\": 2037", "\"<think>\"", "\"</think>\"",
       "added_tokens[6]: token \"</think>\" is listed twice"},
      {"\"id\": 2037", "\"<think>\"", "null", "added_tokens[5]: \"content\" is null, not string"},
      {"\"id\": 2037", "\"<think>\"", "\"\"", "the token with id 2037 is empty"},
      {"\"id\": 2037", "\"<think>\"", absl::StrCat("\"", std::string(1025, 'x'), "\""),
       "1025 bytes, at most 1024"},
      {"\"id\": 2037", "\"special\": false", "\"special\": \"no\"",
       "\"special\" is string, not boolean"},
      {"\"added_tokens\"", "\"added_tokens\": [", "\"added_tokens\": [7,",
       "added_tokens[0]: is of kind number; expected an object"},
      {"\"pre_tokenizer\"", "\\\\p{N}{1,3}", "(\\\\p{N}", "step 0: regex"},
      {"\"pre_tokenizer\"", "{\n     \"Regex\"", "{\"a\": 1, \"Regex\"",
       "step 0: \"pattern\" is neither"},
      {"\"pre_tokenizer\"", "\"pretokenizers\"", "\"steps\"", "key \"pretokenizers\" is missing"},
      {"\"version\"", "\"1.0\",", "\"1.0\"", "t.json: line "},
  };
  for (const Row& row : rows) {
    INFO(row.from << " -> " << row.to);
    const absl::Status status = Load(Changed(row.anchor, row.from, row.to));
    REQUIRE_FAILS(status, absl::StatusCode::kDataLoss, row.named);
    REQUIRE_FAILS(status, absl::StatusCode::kDataLoss, "t.json: ");
  }
  REQUIRE_FAILS(Load(""), absl::StatusCode::kDataLoss, "t.json: ");
  REQUIRE_FAILS(Load("[]"), absl::StatusCode::kDataLoss, "is of kind array; expected an object");
}

TEST_CASE("files that are not there or no files") {
  REQUIRE_FAILS(Tokenizer::Load(""), absl::StatusCode::kInvalidArgument, "path of a file is empty");
  REQUIRE_FAILS(Tokenizer::Load(DSV4_SOURCE_DIR "/models/nowhere/tokenizer.json"),
                absl::StatusCode::kNotFound, "nowhere/tokenizer.json");
  REQUIRE_FAILS(Tokenizer::Load(DSV4_SOURCE_DIR "/models"), absl::StatusCode::kInvalidArgument,
                "models");
}

TEST_CASE("a missing or null normalizer, post-processor and list of added tokens are fine") {
  for (const std::string& json : {
           Changed("\"normalizer\"", "\"normalizer\"", "\"normalizer\": null, \"n\""),
           Changed("\"normalizer\"", "\"normalizer\"", "\"n\""),
           Changed("\"post_processor\"", "\"post_processor\"", "\"post_processor\": null, \"n\""),
           Changed("\"added_tokens\"", "\"added_tokens\"", "\"n\""),
       }) {
    auto tokenizer = Tokenizer::FromJson(json, "t.json");
    REQUIRE_OK(tokenizer);
    CHECK(*(*tokenizer)->Encode("the <b>") == *test::TinyTokenizer().Encode("the <b>"));
  }
}

// The bundled file with another post-processor.
std::string WithPostProcessor(const std::string& processor) {
  return Changed("\"post_processor\"", "\"post_processor\"",
                 "\"post_processor\": " + processor + ", \"n\"");
}

constexpr char kBegin[] = R"({"SpecialToken": {"id": "<｜begin▁of▁sentence｜>", "type_id": 0}})";
constexpr char kText[] = R"({"Sequence": {"id": "A", "type_id": 0}})";

std::string Template(const std::string& single, const std::string& tokens = "{}") {
  return R"({"type": "TemplateProcessing", "single": [)" + single + R"(], "pair": [],
            "special_tokens": )" +
         tokens + "}";
}

TEST_CASE("a template that adds the begin of the sentence changes no text's tokens") {
  const std::string named = R"({"SpecialToken": {"id": "<s>", "type_id": 0}})";
  const std::string both = Template(std::string(kBegin) + "," + kText);
  for (const std::string& processor :
       {both, Template(kText),
        Template(named + "," + kText,
                 R"({"<s>": {"id": "<s>", "ids": [0], "tokens": ["<｜begin▁of▁sentence｜>"]}})"),
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}, )" + both + "]}"}) {
    auto tokenizer = Tokenizer::FromJson(WithPostProcessor(processor), "t.json");
    REQUIRE_OK(tokenizer);
    CHECK(*(*tokenizer)->Encode("the <b>") == *test::TinyTokenizer().Encode("the <b>"));
  }
  const std::string end = R"({"SpecialToken": {"id": "<｜end▁of▁sentence｜>", "type_id": 0}})";
  REQUIRE_FAILS(Load(WithPostProcessor(Template(std::string(kBegin) + "," + kText + "," + end))),
                absl::StatusCode::kUnimplemented,
                "t.json: post_processor: single[2] adds the token \"<｜end▁of▁sentence｜>\"");
  REQUIRE_FAILS(Load(WithPostProcessor(Template(std::string(kText) + "," + kBegin))),
                absl::StatusCode::kUnimplemented, "single[1] adds the token");
  REQUIRE_FAILS(Load(WithPostProcessor(Template(named + "," + kText))),
                absl::StatusCode::kUnimplemented, "single[0] adds the token \"<s>\"");
  REQUIRE_FAILS(Load(WithPostProcessor(Template(std::string(kText) + "," + kText))),
                absl::StatusCode::kUnimplemented, "single[1] is neither the text nor a token");
  REQUIRE_FAILS(Load(WithPostProcessor(Template(kBegin))), absl::StatusCode::kDataLoss,
                "post_processor: single has no text");
  REQUIRE_FAILS(
      Load(WithPostProcessor(R"({"type": "Sequence", "processors": [{"type": "Roberta"}]})")),
      absl::StatusCode::kUnimplemented, "post_processor: type \"Roberta\"");
}

TEST_CASE("a byte order mark in front of a tokenizer.json is passed over") {
  REQUIRE_OK(Load("\xEF\xBB\xBF" + test::FileText(test::kTinyTokenizerPath)));
}

TEST_CASE("merges may be pairs") {
  const std::string document = test::FileText(test::kTinyTokenizerPath);
  // Each merge is a line `   "a b",`, and neither part has a space.
  const size_t merges = document.find("\"merges\"");
  std::string json = document.substr(0, merges);
  int changed = 0;
  for (absl::string_view line : absl::StrSplit(absl::string_view(document).substr(merges), '\n')) {
    if (absl::ConsumePrefix(&line, "   \"")) {
      const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, ' ');
      const size_t close = parts.second.rfind('"');
      absl::StrAppend(&json, "[\"", parts.first, "\", \"", parts.second.substr(0, close), "\"]",
                      parts.second.substr(close + 1), "\n");
      ++changed;
    } else {
      absl::StrAppend(&json, line, "\n");
    }
  }
  REQUIRE(changed == 1776);
  auto tokenizer = Tokenizer::FromJson(json, "t.json");
  REQUIRE_OK(tokenizer);
  for (const auto& c : test::TokenizerCases("dsv4_tiny_tokenizer_cases.json")) {
    REQUIRE(*(*tokenizer)->Encode(c.text, {.added_tokens = true}) == c.ids);
  }
}

TEST_CASE("a String pattern splits at the string") {
  // "the" is one token; split at "h" it is three.
  const std::string json =
      Changed("\"pre_tokenizer\"", "\"Regex\": \"\\\\p{N}{1,3}\"", "\"String\": \"h\"");
  auto tokenizer = Tokenizer::FromJson(json, "t.json");
  REQUIRE_OK(tokenizer);
  CHECK((*tokenizer)->Encode("the")->size() == 3);
  CHECK(*(*tokenizer)->Decode(*(*tokenizer)->Encode("the")) == "the");
}

TEST_CASE("an id between two tokens may have none") {
  const std::string json = Changed("\"id\": 2047", "\"id\": 2047", "\"id\": 3000");
  auto tokenizer = Tokenizer::FromJson(json, "t.json");
  REQUIRE_OK(tokenizer);
  CHECK((*tokenizer)->max_id() == 3000);
  CHECK((*tokenizer)->HasToken(3000));
  CHECK(!(*tokenizer)->HasToken(2047));
  REQUIRE_FAILS((*tokenizer)->Decode(Ids{2999}), absl::StatusCode::kInvalidArgument,
                "token id 2999 is not in the vocabulary");
}

}  // namespace
}  // namespace dsv4
