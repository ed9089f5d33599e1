// SPDX-License-Identifier: Apache-2.0
// Drafters in files of their own. The bundled models' drafters are written as GGUF files, with the
// names of llama.cpp and of ds4 and the same values as bf16: they draft what the model says next.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/config/drafter_config.h"
#include "lib/config/model_files.h"
#include "lib/io/checkpoint.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_image.h"
#include "tests/support/gguf_of_checkpoint.h"

namespace dsv4::test {
namespace {

constexpr uint32_t kF32 = 0, kBf16 = 30;  // types of tensors

// Outside of blocks: in the files of llama.cpp, and of ds4 behind "mtp.S.".
struct OtherName {
  const char *own, *llama, *ds4;
};
constexpr OtherName kOthers[] = {
    {"enorm.weight", "nextn.enorm.weight", "enorm.weight"},
    {"hnorm.weight", "nextn.hnorm.weight", "hnorm.weight"},
    {"e_proj.weight", "", "e_proj.weight"},
    {"h_proj.weight", "", "h_proj.weight"},
    {"hc_head_fn", "output_hc_fn.weight", "hc_head_fn.weight"},
    {"hc_head_base", "output_hc_base.weight", "hc_head_base.weight"},
    {"hc_head_scale", "output_hc_scale.weight", "hc_head_scale.weight"},
    {"main_proj.weight", "fc.weight", "main_proj.weight"},
    {"main_norm.weight", "enc.output_norm.weight", "main_norm.weight"},
    {"markov_head.markov_w1.weight", "markov_w1.weight", "markov_w1.weight"},
    {"markov_head.markov_w2.weight", "markov_w2.weight", "markov_w2.weight"},
    {"confidence_head.proj.weight", "conf_proj.weight", "confidence_proj.weight"},
    {"norm.weight", "", "norm.weight"},  // MTP: nextn.shared_head_norm; DSpark: output_norm
};

enum class Maker { kLlama, kDs4 };

class DrafterImage {
 public:
  // Of the folder's drafter. `architecture`: the prefix of the keys.
  DrafterImage(const std::string& folder, Maker maker)
      : files_(*ReadModelFiles(folder)), checkpoint_(*Checkpoint::Open(folder)), maker_(maker) {
    while (checkpoint_->Find(absl::StrCat("mtp.", stages_, ".attn_norm.weight")) != nullptr) {
      ++stages_;
    }
    dspark_ = checkpoint_->Find("mtp.0.main_proj.weight") != nullptr;
    architecture_ = dspark_ && maker == Maker::kLlama ? "dflash" : "deepseek4";
    AddKeys();
    for (int stage = 0; stage < stages_; ++stage) AddStage(stage);
  }

  GgufImage image;
  std::string Key(const std::string& name) const { return architecture_ + "." + name; }

 private:
  void AddKeys() {
    const ModelConfig& c = files_.config;
    const int64_t layers = dspark_ ? stages_ : c.num_hidden_layers + 1;
    if (maker_ == Maker::kDs4) {
      image.Key("general.architecture", architecture_.c_str());
    } else {
      AddGgufKeys(c, architecture_, layers,
                  dspark_ ? std::vector<int32_t>(3, 0) : c.compress_ratios,
                  dspark_ ? 0 : c.num_hash_layers, &image);
      if (!dspark_) image.Key(Key("nextn_predict_layers"), uint32_t{1});
    }
    if (!dspark_) return;
    image.Key(Key("block_size"), static_cast<uint32_t>(c.dspark.block_size));
    std::vector<int32_t> targets;
    for (const int32_t layer : c.dspark.target_layers) targets.push_back(layer + 1);
    image.Array(Key("target_layers"), GgufImage::kI32, targets);
    image.Key("tokenizer.ggml.mask_token_id", static_cast<uint32_t>(c.dspark.noise_token_id));
  }

  void AddStage(int stage) {
    const std::string from = absl::StrCat("mtp.", stage, ".");
    const int64_t first = dspark_ ? 0 : files_.config.num_hidden_layers;
    const std::string block =
        maker_ == Maker::kDs4 ? from : absl::StrCat("blk.", first + stage, ".");
    for (const auto& [own, gguf] : GgufBlockNames()) {
      if (checkpoint_->Find(from + own) != nullptr) Add(from + own, block + gguf);
    }
    for (const OtherName& other : kOthers) {
      if (checkpoint_->Find(from + other.own) == nullptr) continue;
      if (maker_ == Maker::kDs4) {
        Add(from + other.own, from + other.ds4);
      } else if (absl::StartsWith(other.llama, "nextn.")) {
        Add(from + other.own, block + other.llama);
      } else if (*other.llama != '\0') {
        Add(from + other.own, other.llama);
      }
    }
    if (maker_ == Maker::kLlama && dspark_ && stage == stages_ - 1) {
      Add(from + "norm.weight", "output_norm.weight");
    }
    if (maker_ == Maker::kLlama && !dspark_) {
      Add(from + "norm.weight", block + "nextn.shared_head_norm.weight");
      AddBothProjections(from, block + "nextn.eh_proj.weight");
      // Such files repeat the model's.
      Add("norm.weight", "output_norm.weight");
    }
    for (const auto& [own, gguf] : GgufExpertNames()) {
      AddExperts(from + "ffn.experts.", own, block + gguf + ".weight");
    }
  }

  void Add(const std::string& from, const std::string& to) {
    const TensorEntry* const entry = checkpoint_->Find(from);
    REQUIRE(entry != nullptr);
    const std::vector<uint64_t> dims(entry->shape.rbegin(), entry->shape.rend());
    if (entry->dtype == DType::kF32) {
      image.Tensor(to, kF32, dims,
                   {reinterpret_cast<const char*>(entry->data), static_cast<size_t>(entry->bytes)});
    } else {
      image.Tensor(to, kBf16, dims, Bf16Bytes(ValuesOf(*checkpoint_, from)));
    }
  }

  void AddBothProjections(const std::string& from, const std::string& to) {
    const std::vector<float> e = ValuesOf(*checkpoint_, from + "e_proj.weight");
    const std::vector<float> h = ValuesOf(*checkpoint_, from + "h_proj.weight");
    const auto hidden = static_cast<size_t>(files_.config.hidden_size);
    std::vector<float> both;
    for (size_t row = 0; row < hidden; ++row) {
      for (const std::vector<float>* half : {&e, &h}) {
        both.insert(both.end(), half->begin() + static_cast<int64_t>(row * hidden),
                    half->begin() + static_cast<int64_t>((row + 1) * hidden));
      }
    }
    image.Tensor(to, kBf16, {2 * hidden, hidden}, Bf16Bytes(both));
  }

  void AddExperts(const std::string& from, const std::string& matrix, const std::string& to) {
    std::vector<float> all;
    std::vector<int64_t> shape;
    for (int64_t expert = 0; expert < files_.config.n_routed_experts; ++expert) {
      const std::string name = absl::StrCat(from, expert, ".", matrix, ".weight");
      const std::vector<float> one = ValuesOf(*checkpoint_, name);
      all.insert(all.end(), one.begin(), one.end());
      shape = checkpoint_->Find(name)->shape;
    }
    image.Tensor(to, kBf16,
                 {static_cast<uint64_t>(2 * shape[1]), static_cast<uint64_t>(shape[0]),
                  static_cast<uint64_t>(files_.config.n_routed_experts)},
                 Bf16Bytes(all));
  }

  const ModelFiles files_;
  const std::unique_ptr<Checkpoint> checkpoint_;
  const Maker maker_;
  int stages_ = 0;
  bool dspark_ = false;
  std::string architecture_;
};

struct Answer {
  std::vector<int32_t> tokens;
  int64_t drafted = 0, accepted = 0;
};

Answer Ask(const std::string& drafter, const std::string& model = kBundledModel) {
  const auto engine = OpenBundled(
      {.context_tokens = 1024, .max_draft_tokens = std::nullopt, .drafter_model = drafter}, model);
  Answer answer;
  for (const char* question : {"What is the capital of France?", "What is 2 + 2?"}) {
    const auto session = OpenColdSession(engine, {.draft_tokens = engine->info().max_draft_tokens});
    REQUIRE_OK(session->Sync(ChatPrompt(*engine, question)));
    for (;;) {
      const absl::StatusOr<StepResult> step = session->Step();
      REQUIRE_OK(step);
      answer.tokens.push_back(step->token);
      if (step->finish != Finish::kNone) break;
    }
    answer.drafted += session->stats().speculation.drafted;
    answer.accepted += session->stats().speculation.accepted;
  }
  return answer;
}

TEST_CASE("a drafter's file drafts as the drafter in the folder does") {
  const TempFolder folder;
  const Answer plain = Ask("");
  REQUIRE(plain.drafted > 5);
  const Answer own_dspark = Ask("", kBundledDspark);
  for (const std::string& from : {kBundledModel, kBundledDspark}) {
    const Answer& own = from == kBundledModel ? plain : own_dspark;
    for (const Maker maker : {Maker::kLlama, Maker::kDs4}) {
      INFO(from << ", maker " << static_cast<int>(maker));
      const std::string path =
          folder.Write("drafter.gguf", DrafterImage(from, maker).image.Write());
      const Answer answer = Ask(path);
      CHECK(answer.tokens == plain.tokens);
      // The activations of its products are rounded otherwise.
      CHECK(answer.accepted * 10 >= own.accepted * 9);
      CHECK(answer.accepted * 10 >= answer.drafted * 7);
    }
    INFO("the folder " << from);
    const Answer answer = Ask(from);
    CHECK(answer.tokens == plain.tokens);
    CHECK(answer.accepted == own.accepted);
    CHECK(answer.drafted == own.drafted);
  }
}

TEST_CASE("a drafter's file counts the layers that it sees from 1") {
  const TempFolder folder;
  const std::vector<int32_t> expected =
      (*ReadModelFiles(kBundledDspark)).config.dspark.target_layers;
  REQUIRE(expected.size() == 3);
  DrafterImage drafter(kBundledDspark, Maker::kLlama);
  const auto read = [&] {
    ModelConfig config = (*ReadModelFiles(kBundledModel)).config;
    REQUIRE_OK(AddDrafterConfig(folder.Write("drafter.gguf", drafter.image.Write()), &config));
    return config.dspark.target_layers;
  };
  CHECK(read() == expected);
  // The ids of config.json would be those of other layers.
  std::vector<int32_t> ids = expected;
  for (int32_t& id : ids) id = std::max(id, 1);
  drafter.image.Remove(drafter.Key("target_layers"));
  drafter.image.Array(drafter.Key("target_layers"), GgufImage::kI32, ids);
  CHECK(read() != expected);
}

absl::Status OpenWith(const std::string& drafter) {
  return Engine::Open(kBundledModel,
                      {.context_tokens = 512, .max_draft_tokens = 1, .drafter_model = drafter})
      .status();
}

TEST_CASE("what is no drafter, or another model's, is refused by name") {
  const TempFolder folder;
  REQUIRE_FAILS(OpenWith("none"), absl::StatusCode::kNotFound, "none/config.json: no such file");
  REQUIRE_FAILS(OpenWith(folder.File("none.gguf")), absl::StatusCode::kNotFound, "none.gguf");
  const std::string truth = DrafterImage(kBundledModel, Maker::kLlama).image.Write();
  const std::string cut = folder.Write("cut.gguf", truth.substr(0, truth.size() / 2));
  REQUIRE_FAILS(OpenWith(cut), absl::StatusCode::kDataLoss, "cut.gguf: ");

  GgufImage model;
  model.Key("general.architecture", "deepseek4");
  model.Tensor("blk.0.attn_norm.weight", kF32, {2}, std::string(8, '\0'));
  REQUIRE_FAILS(OpenWith(folder.Write("model.gguf", model.Write())),
                absl::StatusCode::kInvalidArgument, "model.gguf: is no drafter's file");

  DrafterImage other(kBundledModel, Maker::kLlama);
  other.image.Set(other.Key("expert_used_count"), GgufImage::kU32, Bytes(uint32_t{2}));
  REQUIRE_FAILS(OpenWith(folder.Write("other.gguf", other.image.Write())),
                absl::StatusCode::kInvalidArgument,
                "other.gguf: is the drafter of another model: num_experts_per_tok is 2, the "
                "model's is 4");
  DrafterImage taps(kBundledDspark, Maker::kLlama);
  taps.image.Set(taps.Key("target_layers"), GgufImage::kArray,
                 Bytes(uint32_t{GgufImage::kI32}) + Bytes(uint64_t{1}) + Bytes(int32_t{0}));
  REQUIRE_FAILS(OpenWith(folder.Write("taps.gguf", taps.image.Write())),
                absl::StatusCode::kInvalidArgument, "key dflash.target_layers has 0");
  DrafterImage size(kBundledDspark, Maker::kDs4);
  size.image.Remove(size.Key("block_size"));
  REQUIRE_FAILS(OpenWith(folder.Write("size.gguf", size.image.Write())),
                absl::StatusCode::kInvalidArgument, "key deepseek4.block_size is missing");
}

}  // namespace
}  // namespace dsv4::test
