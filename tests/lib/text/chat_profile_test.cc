// SPDX-License-Identifier: Apache-2.0
// Folders and the encoder that they show. What the encoders write is chat_encoder_test.cc's.
#include "lib/text/chat_profile.h"

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4 {
namespace {

constexpr char kPublished[] = "encoding/encoding_dsv4.py";

class Folder {
 public:
  Folder() { std::filesystem::create_directory(folder_.File("encoding")); }
  void Write(const char* file, const std::string& content) { folder_.Write(file, content); }
  // The encoder and the file that shows it, or why it is guessed.
  std::string Found() const {
    const FoundChatEncoder found = FindChatEncoder(folder_.path());
    CHECK(found.file.empty() != found.guess.empty());
    return std::string(ChatEncoderName(found.encoder)) + " " + found.file +
           (found.guess.empty() ? "" : "? " + found.guess);
  }

 private:
  test::TempFolder folder_;
};

TEST_CASE("the files of a folder show its encoder") {
  Folder folder;
  const std::string none = "preview ? config.json has no keys of a DSpark drafter";
  CHECK(folder.Found() == none);
  CHECK(FindChatEncoder("/nonexistent").encoder == ChatEncoder::kPreview);
  folder.Write("tokenizer_config.json", R"({"chat_template": null})");
  CHECK(folder.Found() == none);
  folder.Write("tokenizer_config.json", R"({"chat_template": "Effort: Beyond maximum \u2014"})");
  CHECK(folder.Found() == "0731 tokenizer_config.json");
  folder.Write("chat_template.jinja", "{{ 'Reasoning Effort: Absolute maximum with' }}");
  CHECK(folder.Found() == "preview chat_template.jinja");
  // The newer encoder has the preview's text as well.
  folder.Write(kPublished, "HIGH = 'Absolute maximum'\nMAX = 'Beyond maximum'\n");
  CHECK(folder.Found() == std::string("0731 ") + kPublished);
  folder.Write(kPublished, "REASONING_EFFORT_MAX = 'Absolute maximum'\n");
  CHECK(folder.Found() == std::string("preview ") + kPublished);
  // What shows none leaves it to the others.
  folder.Write(kPublished, "def encode(): pass\n");
  CHECK(folder.Found() == "preview chat_template.jinja");
  folder.Write("chat_template.jinja", std::string((1 << 20) + 1, 'x') + "Beyond maximum");
  CHECK(folder.Found() == "0731 tokenizer_config.json");
}

// Only *.safetensors and *.json were downloaded.
TEST_CASE("without files that show it, the encoder is guessed by name and drafter") {
  const test::TempFolder top;
  const auto found = [&](const std::string& name, const char* config) {
    const std::filesystem::path folder = top.File(name);
    std::filesystem::create_directories(folder);
    top.Write(name + "/config.json", config);
    const FoundChatEncoder made = FindChatEncoder(folder.string());
    CHECK(made.file.empty());
    return std::string(ChatEncoderName(made.encoder)) + ": " + made.guess;
  };
  constexpr char kPlain[] = "{}", kDspark[] = R"({"dspark_block_size": 5})";
  CHECK(found("DeepSeek-V4-Flash-0731", kDspark) == "0731: the folder's name has 0731");
  CHECK(found("DeepSeek-V4-Pro-0813-NVFP4", kDspark) == "0731: the folder's name has 0813");
  CHECK(found("DeepSeek-V4-Flash-DSpark", kDspark) ==
        "preview: the folder's name has DSpark and no date");
  CHECK(found("flash", kDspark) == "0731: config.json has the keys of a DSpark drafter");
  CHECK(found("flash", kPlain) == "preview: config.json has no keys of a DSpark drafter");
  CHECK(found("flash", "not JSON") == "preview: config.json has no keys of a DSpark drafter");
  CHECK(found("models--deepseek-ai--DeepSeek-V4-Flash-0731/snapshots/9e165c30", kPlain) ==
        "0731: the folder's name has 0731");
}

}  // namespace
}  // namespace dsv4
