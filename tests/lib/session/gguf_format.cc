// SPDX-License-Identifier: Apache-2.0
// Linked into the sessions' tests, has them run on the bundled models as GGUF files. Their drafters
// stay in their folders.
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "lib/base/error.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_of_checkpoint.h"

namespace dsv4::test {
namespace {

// The folder as a file, and the files beside a checkpoint's tensors.
std::string FileOf(const std::string& folder) {
  static const auto* const root = new TempFolder;
  static auto* const files = new std::map<std::string, std::string>;
  std::string& file = (*files)[folder];
  if (!file.empty()) return file;
  const std::string name = "model" + std::to_string(files->size());
  std::filesystem::create_directory(root->File(name));
  for (const char* beside : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    const std::string from = folder + "/" + beside;
    if (std::filesystem::exists(from)) {
      std::filesystem::copy(from, root->File(name + "/" + beside));
    }
  }
  file = root->Write(name + "/model.gguf", GgufOfCheckpoint(folder));
  return file;
}

}  // namespace

std::string OnTestedFormat(const std::string& folder, EngineOptions* options) {
  options->drafter_model = folder;
  return FileOf(folder);
}

TEST_CASE("the tests of this program open GGUF files") {
  const auto engine = OpenBundled({.context_tokens = 512});
  REQUIRE(engine->weight_format() == "Q8_0+MXFP4");
}

TEST_CASE("a session that a model of another format computed is refused") {
  const auto file = OpenBundled({.context_tokens = 512});
  const auto folder = Engine::Open(kBundledModel, {.context_tokens = 512});
  REQUIRE_OK(folder);
  const auto image_of = [](const std::shared_ptr<Engine>& engine) {
    const auto session = OpenColdSession(engine);
    REQUIRE_OK(session->Sync(AnyTokens(40, 3)));
    REQUIRE_OK(session->Step());
    std::vector<uint8_t> image(static_cast<size_t>(session->SaveBytes()));
    REQUIRE_OK(session->SaveTo(absl::MakeSpan(image)));
    return image;
  };
  const auto load = [](const std::shared_ptr<Engine>& engine, const std::vector<uint8_t>& image) {
    return OpenColdSession(engine)->Load(image, "image");
  };
  const std::vector<uint8_t> of_file = image_of(file), of_folder = image_of(*folder);
  REQUIRE_OK(load(file, of_file));
  REQUIRE_OK(load(*folder, of_folder));
  const auto mismatch = VersionMismatch().code();
  REQUIRE_FAILS(load(file, of_folder), mismatch, "image: was saved with another model's weights");
  REQUIRE_FAILS(load(*folder, of_file), mismatch, "image: was saved with another model's weights");
}

}  // namespace dsv4::test
