// SPDX-License-Identifier: Apache-2.0
// Model folders as people have them: the bundled model with one change that other tools or later
// releases make. Each opens, or is refused by what it is.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "lib/base/log.h"
#include "lib/engine/inspection.h"
#include "lib/io/checkpoint.h"
#include "lib/io/mapped_file.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4 {
namespace {

using test::EditedJson;
using test::StoredTensor;
using Code = absl::StatusCode;
using Tensors = std::vector<StoredTensor>;

constexpr char kShard[] = "model.safetensors";

Tensors TensorsOf(const std::string& folder) {
  const auto checkpoint = Checkpoint::Open(folder);
  REQUIRE_OK(checkpoint);
  Tensors tensors;
  for (const auto& [name, entry] : (*checkpoint)->tensors()) {
    tensors.push_back({name, std::string(entry.dtype_name()), entry.shape,
                       std::string(entry.data, entry.data + entry.bytes)});
  }
  return tensors;
}

Tensors BundledTensors() { return TensorsOf(test::BundledModel()); }

// The bundled model's folder, its tensors in one file.
class Variant {
 public:
  Variant() {
    for (const char* name : {"config.json", "generation_config.json", "tokenizer.json"}) {
      folder_.Write(name, test::BundledFile(name));
    }
    for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                             "model.safetensors.index.json"}) {
      std::filesystem::copy(test::BundledModel() + "/" + name, folder_.File(name));
    }
  }

  void Edit(const std::string& file, absl::string_view key, absl::string_view value) {
    folder_.Write(file, EditedJson(test::BundledFile(file), key, value));
  }
  void Add(const std::string& file, absl::string_view members) {
    const std::string text = test::BundledFile(file);
    folder_.Write(file, absl::StrCat("{", members, ",", text.substr(text.find('{') + 1)));
  }
  void WriteTensors(const Tensors& tensors) {
    folder_.Write(kShard, test::SafetensorsImage(tensors));
  }
  void Write(const std::string& file, absl::string_view content) { folder_.Write(file, content); }

  absl::StatusOr<std::shared_ptr<Engine>> Open(const EngineOptions& options = {}) const {
    return Engine::Open(folder_.path(), options);
  }
  const std::string& path() const { return folder_.path(); }

 private:
  test::TempFolder folder_;
};

TEST_CASE("a DSpark drafter is told by its tensors, and is there as a whole or not at all") {
  Variant variant;
  variant.Write("config.json", *ReadFile(test::kBundledDspark + "/config.json", 1 << 20));
  const Tensors whole = TensorsOf(test::kBundledDspark);
  const auto write_without = [&](absl::string_view removed) {
    Tensors tensors;
    for (const StoredTensor& tensor : whole) {
      if (!absl::StartsWith(tensor.name, removed)) tensors.push_back(tensor);
    }
    variant.WriteTensors(tensors);
  };
  for (const char* name :
       {"mtp.2.markov_head.markov_w2.weight", "mtp.1.attn.wkv.scale", "mtp.0.main_norm.weight"}) {
    write_without(name);
    REQUIRE_FAILS(variant.Open(), Code::kDataLoss,
                  absl::StrCat("tensor ", name, " is missing, though the DSpark drafter's"));
  }
  write_without("mtp.");
  const auto plain = variant.Open();
  REQUIRE_OK(plain);
  CHECK((*plain)->info().checkpoint_drafter == DrafterKind::kNone);
  REQUIRE_FAILS(variant.Open({.max_draft_tokens = 1}), Code::kNotFound, "no drafter (mtp.0.*)");
  write_without("nothing");
  const auto engine = variant.Open();
  REQUIRE_OK(engine);
  CHECK((*engine)->info().checkpoint_drafter == DrafterKind::kDspark);
  CHECK((*engine)->info().drafter == DrafterKind::kNone);
  // More than it drafts in a pass.
  const auto drafting = variant.Open({.max_draft_tokens = 7});
  REQUIRE_OK(drafting);
  CHECK((*drafting)->info().drafter == DrafterKind::kDspark);
  CHECK((*drafting)->info().max_draft_tokens == 5);
  variant.Write("config.json", test::BundledFile("config.json"));
  REQUIRE_FAILS(variant.Open(), Code::kDataLoss, "config.json has no dspark_block_size");
}

TEST_CASE("tensors of dtypes that the model has no use for are ignored") {
  Variant variant;
  Tensors tensors = BundledTensors();
  tensors.push_back({"t2d", "BOOL", {1}, std::string(1, '\0')});
  tensors.push_back({"calibration", "F4", {3}, std::string(2, '\0')});
  variant.WriteTensors(tensors);
  REQUIRE_OK(variant.Open());
  const auto inspected = InspectModel(variant.path());
  REQUIRE_OK(inspected);
  CHECK(absl::StrContains(*inspected, R"("BOOL": {"count": 1, "bytes": 1})"));

  for (StoredTensor& tensor : tensors) {
    if (tensor.name == "norm.weight") tensor.dtype = "F\\n4";  // a line break, as JSON has it
  }
  variant.WriteTensors(tensors);
  REQUIRE_FAILS(variant.Open(), Code::kDataLoss, R"(norm.weight is "F\n4"; expected BF16)");
}

TEST_CASE("settings of tokenizer.json that only prepare batches are ignored") {
  Variant variant;
  variant.Edit(
      "tokenizer.json", "truncation",
      R"({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0})");
  const auto engine = variant.Open();
  REQUIRE_OK(engine);
  const auto tokenizer = (*engine)->tokenizer();
  REQUIRE_OK(tokenizer);
  const auto ids = (*tokenizer)->Encode("What is the capital of France?", {});
  REQUIRE_OK(ids);
  CHECK(ids->size() > 2);
}

TEST_CASE("a turn ends at each token that config.json lists") {
  Variant variant;
  variant.Edit("config.json", "eos_token_id", "[1, 16]");
  const auto engine = variant.Open();
  REQUIRE_OK(engine);
  const auto tokens = (*engine)->eos_tokens();
  CHECK(std::count(tokens.begin(), tokens.end(), 1) > 0);
  CHECK(std::count(tokens.begin(), tokens.end(), 16) == 1);
  const auto inspected = InspectModel(variant.path());
  REQUIRE_OK(inspected);
  CHECK(absl::StrContains(*inspected, R"("eos_token_id": [1, 16])"));
}

// Opens `variant`; what is logged goes to *log.
absl::StatusOr<std::shared_ptr<Engine>> OpenLogged(const Variant& variant, LogLevel level,
                                                   std::string* log) {
  SetLogCallback(
      [](void* user, LogLevel, const char* message) {
        absl::StrAppend(static_cast<std::string*>(user), message, "\n");
      },
      log, level);
  auto engine = variant.Open();
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  return engine;
}

TEST_CASE("the log tells of an expert_dtype that the experts' tensors are not of") {
  for (const bool contradicts : {false, true}) {
    Variant variant;
    if (contradicts) variant.Edit("config.json", "expert_dtype", "\"fp8\"");
    std::string log;
    const auto engine = OpenLogged(variant, LogLevel::kWarning, &log);
    REQUIRE_OK(engine);
    CHECK((*engine)->weight_format() == "fp8+fp4");
    CHECK(absl::StrContains(log,
                            "config.json: expert_dtype is \"fp8\", but the weights are "
                            "fp8+fp4: the tensors are believed") == contradicts);
    CHECK(log.empty() == !contradicts);
  }
}

TEST_CASE("generation_config.json sets the sampling defaults, and the log has what it cannot") {
  Variant variant;
  variant.Add("generation_config.json",
              R"("repetition_penalty": 1.3, "max_new_tokens": 3, "num_beams": 4)");
  std::string log;
  const auto engine = OpenLogged(variant, LogLevel::kInfo, &log);
  REQUIRE_OK(engine);
  const SamplingParams sampling = Session::DefaultSampling(**engine);
  CHECK(sampling.repetition_penalty == 1.3f);
  CHECK(sampling.max_tokens == 3);
  CHECK(sampling.temperature == 0);
  CHECK(absl::StrContains(log, "generation_config.json: \"num_beams\" is not followed"));
  CHECK_FALSE(absl::StrContains(log, "repetition_penalty"));
}

TEST_CASE("layouts of other tools are refused by their names") {
  struct Layout {
    const char* text;
    std::function<std::string(const std::string&)> rename;
  };
  const Layout layouts[] = {
      {"wq_a.scale is missing: the files are in the FP8 layout of Hugging Face (tensor \"",
       [](const std::string& name) {
         absl::string_view stem = name;
         return absl::ConsumeSuffix(&stem, ".scale") ? absl::StrCat(stem, ".weight_scale_inv")
                                                     : name;
       }},
      {"embed.weight is missing: the files are in the layout of Hugging Face transformers",
       [](const std::string& name) {
         if (name == "embed.weight") return std::string("model.embed_tokens.weight");
         if (name == "head.weight") return std::string("lm_head.weight");
         return "model." + name;
       }},
      {"w1.weight is missing: the files are in the layout of compressed-tensors",
       [](const std::string& name) {
         absl::string_view stem = name;
         return absl::StrContains(name, ".experts.") && absl::ConsumeSuffix(&stem, ".weight")
                    ? absl::StrCat(stem, ".weight_packed")
                    : name;
       }},
  };
  for (const Layout& layout : layouts) {
    INFO(layout.text);
    Variant variant;
    Tensors tensors = BundledTensors();
    for (StoredTensor& tensor : tensors) tensor.name = layout.rename(tensor.name);
    variant.WriteTensors(tensors);
    REQUIRE_FAILS(variant.Open(), Code::kUnimplemented, layout.text);
  }
}

TEST_CASE("a git-lfs pointer is named as one") {
  for (const char* file : {kShard, "tokenizer.json", "config.json"}) {
    Variant variant;
    variant.Write(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n");
    REQUIRE_FAILS(variant.Open(), Code::kDataLoss,
                  absl::StrCat(file, ": is a git-lfs pointer, not the file itself"));
  }
}

}  // namespace
}  // namespace dsv4
