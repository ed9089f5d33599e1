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
  // The encoder and the file that shows it; "none" when none does.
  std::string Found() const {
    const auto found = FindChatEncoder(folder_.path());
    return found ? std::string(ChatEncoderName(found->encoder)) + " " + found->file : "none";
  }

 private:
  test::TempFolder folder_;
};

TEST_CASE("the files of a folder show its encoder") {
  Folder folder;
  CHECK(folder.Found() == "none");
  CHECK_FALSE(FindChatEncoder("/nonexistent").has_value());
  folder.Write("tokenizer_config.json", R"({"chat_template": null})");
  CHECK(folder.Found() == "none");
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

}  // namespace
}  // namespace dsv4
