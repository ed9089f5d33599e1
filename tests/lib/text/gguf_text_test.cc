// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a GGUF file against the tokenizer.json that it was made from.
#include "lib/text/gguf_text.h"

#include "absl/strings/match.h"
#include "lib/io/json.h"
#include "lib/text/tokenizer.h"
#include "lib/text/tokenizer_files.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_image.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::GgufImage;
using test::TempFolder;

// The bundled tokenizer, as llama.cpp's converter writes it.
GgufImage BundledKeys() {
  const auto json = ParseJson(test::BundledFile("tokenizer.json"), "bundled", int64_t{1} << 24);
  REQUIRE_OK(json);
  const JsonValue& model = *json->Find("model");
  const std::vector<JsonValue>& added = *json->Find("added_tokens")->AsArray();
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  const auto set = [&](int64_t id, const std::string& token, int32_t type) {
    tokens.resize(std::max<size_t>(tokens.size(), static_cast<size_t>(id) + 1));
    types.resize(tokens.size(), 5);
    tokens[static_cast<size_t>(id)] = token;
    types[static_cast<size_t>(id)] = type;
  };
  for (const JsonMember& member : *model.Find("vocab")->AsObject()) {
    set(*member.value.AsInt64(), member.key, 1);
  }
  for (const JsonValue& token : added) {
    const std::string& content = *token.Find("content")->AsString();
    const bool control = *token.Find("special")->AsBool() ||
                         (absl::StartsWith(content, "<｜") && absl::EndsWith(content, "｜>"));
    set(*token.Find("id")->AsInt64(), content, control ? 3 : 4);
  }
  for (const JsonValue& merge : *model.Find("merges")->AsArray()) {
    merges.push_back(*merge.AsString());
  }
  GgufImage keys;
  keys.Key("tokenizer.ggml.model", "gpt2");
  keys.Key("tokenizer.ggml.pre", "joyai-llm");
  keys.Array("tokenizer.ggml.tokens", GgufImage::kString, tokens);
  keys.Array("tokenizer.ggml.token_type", GgufImage::kI32, types);
  keys.Array("tokenizer.ggml.merges", GgufImage::kString, merges);
  keys.Key("tokenizer.ggml.bos_token_id", uint32_t{0});
  keys.Key("tokenizer.ggml.eos_token_id", uint32_t{1});
  keys.Key("tokenizer.ggml.padding_token_id", uint32_t{2});
  keys.Key("tokenizer.ggml.add_bos_token", false);
  return keys;
}

GgufModel Open(const TempFolder& folder, const GgufImage& image,
               const std::string& name = "m.gguf") {
  auto model = OpenGguf(folder.Write(name, image.Write()));
  REQUIRE_OK(model);
  return *std::move(model);
}

TEST_CASE("a GGUF file is a tokenizer, unless a tokenizer.json lies beside it") {
  const TempFolder folder;
  const std::string file = folder.Write("m.gguf", BundledKeys().Write());
  const auto of_keys = ReadTokenizer(file);
  REQUIRE_OK(of_keys);
  CHECK(of_keys->source == file);
  CHECK(of_keys->json == *GgufTokenizerJson(*OpenGguf(file)));
  const std::string other = folder.Write("tokenizer.json", "{}");
  for (const std::string& path : {file, folder.path(), other}) {
    const auto beside = ReadTokenizer(path);
    REQUIRE_OK(beside);
    CHECK(beside->json == "{}");
  }
  const TempFolder without;
  REQUIRE_FAILS(ReadTokenizer(without.Write("m.gguf", GgufImage().Write())),
                absl::StatusCode::kNotFound, "no tokenizer: key tokenizer.ggml.model is missing");
}

TEST_CASE("the tokenizer of the keys is that of the tokenizer.json") {
  const TempFolder folder;
  const auto text = GgufTokenizerJson(Open(folder, BundledKeys()));
  REQUIRE_OK(text);
  const auto made = Tokenizer::FromJson(*text, "m.gguf");
  REQUIRE_OK(made);
  const auto bundled = Tokenizer::FromJson(test::BundledFile("tokenizer.json"), "bundled");
  REQUIRE_OK(bundled);
  REQUIRE((*made)->vocab_size() == (*bundled)->vocab_size());
  int special = 0;
  for (int32_t id = 0; id < (*bundled)->vocab_size(); ++id) {
    INFO(id);
    REQUIRE((*made)->HasToken(id) == (*bundled)->HasToken(id));
    REQUIRE(*(*made)->TokenBytes(id) == *(*bundled)->TokenBytes(id));
    REQUIRE((*made)->IsSpecial(id) == (*bundled)->IsSpecial(id));
    special += (*made)->IsSpecial(id);
  }
  CHECK(special == 3);
  for (const char* sample : {"The capital of France is Paris.",
                             "  12345 x=y;\n\n\tdef f(a):", "日本語 Ünïcödé 🙂",
                             "<｜User｜>hello<｜Assistant｜></think>", "don't\r\n stop"}) {
    for (const bool added : {false, true}) {
      const auto a = (*made)->Encode(sample, {.added_tokens = added});
      const auto b = (*bundled)->Encode(sample, {.added_tokens = added});
      REQUIRE_OK(a);
      CHECK(*a == *b);
    }
  }
}

TEST_CASE("tokenizers that are broken or of others are named") {
  const TempFolder folder;
  const auto with = [&](const std::function<void(GgufImage*)>& change) {
    GgufImage keys = BundledKeys();
    change(&keys);
    return GgufTokenizerJson(Open(folder, keys)).status();
  };
  REQUIRE_FAILS(with([](GgufImage* k) { k->Remove("tokenizer.ggml.merges"); }),
                absl::StatusCode::kDataLoss, "key tokenizer.ggml.merges is missing");
  REQUIRE_FAILS(
      with([](GgufImage* k) {
        k->Remove("tokenizer.ggml.token_type");
        k->Array("tokenizer.ggml.token_type", GgufImage::kI32, std::vector<int32_t>{1, 1});
      }),
      absl::StatusCode::kDataLoss, "key tokenizer.ggml.token_type has 2 entries for");
  REQUIRE_FAILS(with([](GgufImage* k) {
                  k->Remove("tokenizer.ggml.pre");
                  k->Key("tokenizer.ggml.pre", "llama-bpe");
                }),
                absl::StatusCode::kUnimplemented,
                "key tokenizer.ggml.pre is \"llama-bpe\"; only \"joyai-llm\"");
  REQUIRE_FAILS(with([](GgufImage* k) { k->Remove("tokenizer.ggml.model"); }),
                absl::StatusCode::kDataLoss, "key tokenizer.ggml.model is missing");
}

TEST_CASE("a file whose tokens are all unused has no tokenizer") {
  const TempFolder folder;
  GgufImage keys;
  keys.Key("tokenizer.ggml.model", "gpt2");
  keys.Key("tokenizer.ggml.pre", "joyai-llm");
  keys.Array("tokenizer.ggml.tokens", GgufImage::kString,
             std::vector<std::string>{"[PAD0]", "[PAD1]"});
  keys.Array("tokenizer.ggml.token_type", GgufImage::kI32, std::vector<int32_t>{5, 5});
  keys.Array("tokenizer.ggml.merges", GgufImage::kString, std::vector<std::string>{});
  REQUIRE_FAILS(ReadTokenizer(folder.Write("m.gguf", keys.Write())), absl::StatusCode::kNotFound,
                "m.gguf: no tokenizer: key tokenizer.ggml.token_type says that all tokens are");
}

TEST_CASE("the template's text, the version and the name tell the encoder") {
  const TempFolder folder;
  const auto found = [&](const char* key, const char* value, const std::string& name = "m.gguf") {
    GgufImage keys;
    keys.Key(key, value);
    return GgufChatEncoder(Open(folder, keys, name));
  };
  constexpr char kTemplate[] = "tokenizer.chat_template";
  CHECK(
      found(kTemplate, "{%- if x -%}Reasoning Effort: Absolute maximum; Beyond maximum")->encoder ==
      ChatEncoder::k0731);
  CHECK(found(kTemplate, "Reasoning Effort: Absolute maximum with")->encoder ==
        ChatEncoder::kPreview);
  CHECK(found(kTemplate, "Reasoning Effort: Absolute maximum", "Flash-0731.gguf")->encoder ==
        ChatEncoder::kPreview);
  CHECK_FALSE(found(kTemplate, "none of both"));
  CHECK(found("general.base_model.0.version", "0731")->encoder == ChatEncoder::k0731);
  CHECK(found("general.name", "x", "Flash-0731-Q2.gguf")->encoder == ChatEncoder::k0731);
  CHECK_FALSE(found("general.name", "0731"));
}

}  // namespace
}  // namespace dsv4
