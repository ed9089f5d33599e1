// SPDX-License-Identifier: Apache-2.0
// Literal values of the bundled model were read from its shards with Python's json, struct and
// numpy.
#include "lib/weights/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lib/model/small_model.h"

namespace dsv4 {
namespace {

using test::Config;
using test::EditedJson;
using test::Loaded;
using test::LoadFolder;
using test::SmallModel;
using test::StoredTensor;
using test::TempFolder;
using Code = absl::StatusCode;

TEST_CASE("the bundled model's weights are the stored ones") {
  const ModelConfig config = Config(test::BundledFile("config.json"));
  const Loaded loaded = LoadFolder(test::BundledModel(), config);
  REQUIRE_OK(loaded);
  const Weights& w = **loaded;
  REQUIRE(w.layers.size() == 6);
  REQUIRE(w.drafter != nullptr);
  CHECK(w.mapped_bytes() == 20234756);         // the index's total_size
  CHECK(w.owned_bytes() == 3 * 2048 * 4 * 4);  // tid2eid of three layers; all else is aligned

  CHECK(w.embed.n == 2048);
  CHECK(w.embed.k == 256);
  CHECK(w.embed.data[2047 * 256 + 255] == 0x3f0b);
  CHECK(Bf16ToFloat(w.embed.data[7 * 256 + 3]) == 0.3984375f);
  CHECK(w.hc_head.base[0] == -0.23259339f);
  CHECK(w.hc_head.base[3] == 0.12040528f);

  CHECK(w.layers[0].compress_ratio == 0);
  CHECK(w.layers[0].attn.compressor.ape == nullptr);
  CHECK(w.layers[0].attn.wq_b.n == 2048);
  CHECK(w.layers[0].attn.wq_b.k == 128);
  CHECK(w.layers[0].attn.wq_b.data[2047 * 128 + 127] == 221);
  CHECK(w.layers[0].attn.wq_b.scale[15] == 119);
  CHECK(w.layers[0].moe.bias == nullptr);

  CHECK(w.layers[2].compress_ratio == 4);
  const std::vector<int32_t> token5(w.layers[2].moe.tid2eid + 5 * 4,
                                    w.layers[2].moe.tid2eid + 6 * 4);
  CHECK(token5 == std::vector<int32_t>{8, 12, 13, 5});
  CHECK(w.layers[2].moe.tid2eid[2047 * 4 + 2] == 11);
  CHECK(w.layers[2].hc_ffn.fn[23 * 1024 + 1023] == -0.07138172f);
  CHECK(w.layers[2].hc_ffn.fn[1 * 1024 + 2] == -0.025602475f);
  CHECK(w.layers[2].attn.indexer.wq_b.n == 1024);
  CHECK(w.layers[2].attn.indexer.wq_b.data[1023 * 128 + 127] == 82);
  CHECK(w.layers[2].attn.indexer.wq_b.data[1 * 128] == 226);

  CHECK(w.layers[3].compress_ratio == 128);
  CHECK(w.layers[3].attn.indexer.wq_b.data == nullptr);
  CHECK(w.layers[3].attn.compressor.wkv.n == 512);
  CHECK(w.layers[3].attn.compressor.ape[127 * 512 + 511] == 0.016809486f);
  REQUIRE(w.layers[3].moe.expert_table.size() == 16);
  const ExpertWeights& expert = *w.layers[3].moe.expert_table[11];
  CHECK(expert.w2.n == 256);
  CHECK(expert.w2.k == 128);
  CHECK(expert.w2.data[255 * 64 + 63] == 107);
  CHECK(expert.w2.data[1 * 64] == 201);
  CHECK(expert.w2.scale[255 * 4 + 3] == 115);
  CHECK(expert.w2.scale[1 * 4] == 116);

  CHECK(w.layers[4].attn.sink[1] == 0.6374155f);
  CHECK(w.layers[4].attn.compressor.wkv.n == 1024);
  CHECK(w.layers[4].attn.indexer.compressor.wkv.n == 256);
  CHECK(w.layers[4].attn.indexer.compressor.norm[127] == 0x4010);
  CHECK(w.layers[5].moe.tid2eid == nullptr);
  CHECK(w.layers[5].moe.bias[1] == -1.2098335f);

  CHECK(w.drafter->blocks[0].compress_ratio == 0);
  CHECK(w.drafter->blocks[0].moe.tid2eid == nullptr);
  CHECK(w.drafter->mtp.e_proj.data[255 * 256 + 255] == 116);
  CHECK(w.drafter->mtp.e_proj.data[1 * 256] == 94);
  CHECK(w.drafter->blocks[0].moe.experts[15].w3.scale[127 * 8 + 7] == 117);
}

TEST_CASE("tensors of the same shape are not taken for each other") {
  auto checkpoint = Checkpoint::Open(test::BundledModel());
  REQUIRE_OK(checkpoint);
  const Checkpoint& files = **checkpoint;  // kept alive by the weights
  const auto loaded =
      Weights::Load(Config(test::BundledFile("config.json")), std::move(*checkpoint), nullptr);
  REQUIRE_OK(loaded);
  const Weights& w = **loaded;
  const BlockWeights& csa = w.layers[2];
  const std::pair<const char*, const void*> views[] = {
      {"embed.weight", w.embed.data},
      {"head.weight", w.head.data},
      {"norm.weight", w.norm},
      {"hc_head_fn", w.hc_head.fn},
      {"layers.2.attn_norm.weight", csa.attn_norm},
      {"layers.2.ffn_norm.weight", csa.ffn_norm},
      {"layers.2.hc_attn_fn", csa.hc_attn.fn},
      {"layers.2.hc_attn_scale", csa.hc_attn.scale},
      {"layers.2.hc_ffn_fn", csa.hc_ffn.fn},
      {"layers.2.hc_ffn_scale", csa.hc_ffn.scale},
      {"layers.2.attn.wq_a.weight", csa.attn.wq_a.data},
      {"layers.2.attn.q_norm.weight", csa.attn.q_norm},
      {"layers.2.attn.kv_norm.weight", csa.attn.kv_norm},
      {"layers.2.attn.wkv.weight", csa.attn.wkv.data},
      {"layers.2.attn.wkv.scale", csa.attn.wkv.scale},
      {"layers.2.attn.wo_a.weight", csa.attn.wo_a.data},
      {"layers.2.attn.wo_b.weight", csa.attn.wo_b.data},
      {"layers.2.attn.compressor.wkv.weight", csa.attn.compressor.wkv.data},
      {"layers.2.attn.compressor.wgate.weight", csa.attn.compressor.wgate.data},
      {"layers.2.attn.compressor.norm.weight", csa.attn.compressor.norm},
      {"layers.2.attn.indexer.weights_proj.weight", csa.attn.indexer.weights_proj.data},
      {"layers.2.attn.indexer.compressor.wkv.weight", csa.attn.indexer.compressor.wkv.data},
      {"layers.2.attn.indexer.compressor.wgate.weight", csa.attn.indexer.compressor.wgate.data},
      {"layers.2.ffn.gate.weight", csa.moe.gate.data},
      {"layers.2.ffn.experts.3.w1.weight", csa.moe.expert_table[3]->w1.data},
      {"layers.2.ffn.experts.3.w3.weight", csa.moe.expert_table[3]->w3.data},
      {"layers.2.ffn.experts.3.w3.scale", csa.moe.expert_table[3]->w3.scale},
      {"layers.2.ffn.shared_experts.w1.weight", csa.moe.shared_w1.data},
      {"layers.2.ffn.shared_experts.w3.weight", csa.moe.shared_w3.data},
      {"layers.2.ffn.shared_experts.w2.weight", csa.moe.shared_w2.data},
      {"mtp.0.e_proj.weight", w.drafter->mtp.e_proj.data},
      {"mtp.0.h_proj.weight", w.drafter->mtp.h_proj.data},
      {"mtp.0.enorm.weight", w.drafter->mtp.enorm},
      {"mtp.0.hnorm.weight", w.drafter->mtp.hnorm},
      {"mtp.0.norm.weight", w.drafter->norm},
      {"mtp.0.hc_head_fn", w.drafter->hc_head.fn},
      {"mtp.0.attn_norm.weight", w.drafter->blocks[0].attn_norm},
  };
  for (const auto& [name, view] : views) {
    INFO(name);
    REQUIRE(files.Find(name) != nullptr);
    CHECK(view == files.Find(name)->data);
  }
}

TEST_CASE("a missing tensor is named") {
  for (const char* name :
       {"embed.weight", "hc_head_scale", "layers.0.attn_norm.weight", "layers.0.attn.wq_a.scale",
        "layers.1.hc_ffn_base", "layers.2.attn.compressor.ape", "layers.2.attn.indexer.wq_b.weight",
        "layers.2.attn.indexer.compressor.wgate.weight", "layers.2.ffn.gate.tid2eid",
        "layers.2.ffn.experts.15.w2.scale", "layers.2.ffn.experts.3.w1.weight",
        "layers.1.ffn.shared_experts.w3.weight"}) {
    SmallModel model;
    model.Remove(name);
    REQUIRE_FAILS(model.Load(), Code::kNotFound, absl::StrCat(": tensor ", name, " is missing"));
  }
}

TEST_CASE("a wrong dtype or shape is named with what was expected") {
  struct Case {
    const char *name, *dtype;
    std::vector<int64_t> shape;
    const char* message;
  };
  const Case cases[] = {
      {"embed.weight", "F16", {2048, 256}, "is F16; expected BF16"},
      {"embed.weight",
       "BF16",
       {256, 2048},
       "has the shape [256, 2048]; the configuration asks for [2048, 256]"},
      {"norm.weight", "BF16", {1, 256}, "has the shape [1, 256]; the configuration asks for [256]"},
      {"hc_head_fn", "I32", {4, 1024}, "is I32; expected F32"},
      {"layers.2.attn.wq_b.weight", "I8", {2048, 128}, "is I8; expected F8_E4M3"},
      {"layers.2.attn.wq_b.scale", "U8", {16, 1}, "is U8; expected F8_E8M0"},
      {"layers.2.attn.wq_b.scale",
       "F8_E8M0",
       {1, 16},
       "has the shape [1, 16]; the configuration asks for [16, 1]"},
      {"layers.2.attn.compressor.ape", "F32", {4096}, "asks for [4, 1024]"},
      {"layers.2.ffn.experts.7.w1.weight",
       "F16",
       {128, 64},
       "is F16; expected I8 (MXFP4), U8 (NVFP4) or F8_E4M3 (FP8)"},
      {"layers.2.ffn.experts.7.w1.weight",
       "I8",
       {64, 256},
       "has the shape [64, 256]; the configuration asks for [128, 128]"},
      {"layers.2.ffn.gate.tid2eid", "I64", {4, 2048}, "asks for [2048, 4]"},
      {"layers.2.ffn.gate.tid2eid", "I32", {2048, 8}, "asks for [2048, 4]"},
      {"layers.2.ffn.gate.tid2eid", "F32", {2048, 8}, "is F32; expected I64"},
      {"mtp.0.ffn.gate.bias", "F32", {4, 4}, "asks for [16]"},
  };
  for (const Case& c : cases) {
    SmallModel model;
    model[c.name].dtype = c.dtype;
    model[c.name].shape = c.shape;
    const Loaded loaded = model.Load();
    REQUIRE_FAILS(loaded, Code::kDataLoss, absl::StrCat("/model.safetensors: tensor ", c.name));
    REQUIRE_FAILS(loaded, Code::kDataLoss, c.message);
  }
}

TEST_CASE("the configuration decides the shapes") {
  SmallModel model;
  model.config_json() = EditedJson(model.config_json(), "n_routed_experts", "4096");
  REQUIRE_FAILS(model.Load(), Code::kDataLoss,
                "tensor layers.0.ffn.gate.weight has the shape [16, 256]; the configuration asks "
                "for [4096, 256]");
  SmallModel wider;
  wider.config_json() = EditedJson(wider.config_json(), "vocab_size", "2049");
  REQUIRE_FAILS(wider.Load(), Code::kDataLoss, "tensor embed.weight has the shape [2048, 256]");
}

TEST_CASE("an element that is no number is refused, wherever it lies") {
  struct Case {
    const char* name;
    int64_t at;  // byte; negative from the end
    std::string bytes;
    const char* message;
  };
  const std::string nan_bf16("\xc0\x7f", 2), inf_bf16("\x80\xff", 2);
  const std::string nan_f32("\0\0\xc0\x7f", 4), inf_f32("\0\0\x80\xff", 4);
  const char* const kScale = "has a scale byte of 255, which is not a number";
  const char* const kElement = "has an element that is not a finite number";
  const Case cases[] = {
      {"layers.0.attn.wq_b.scale", 0, "\xff", kScale},
      {"layers.2.ffn.experts.15.w2.scale", -1, "\xff", kScale},
      {"layers.1.ffn.shared_experts.w2.scale", 1, "\xff", kScale},
      {"mtp.0.e_proj.scale", -1, "\xff", kScale},
      {"layers.1.attn.wkv.weight", 0, "\x7f", kElement},
      {"mtp.0.h_proj.weight", -1, "\xff", kElement},
      {"embed.weight", -2, nan_bf16, kElement},
      {"norm.weight", 0, inf_bf16, kElement},
      {"hc_head_base", -4, nan_f32, kElement},
      {"layers.2.attn.compressor.ape", 8, inf_f32, kElement},
  };
  for (const Case& c : cases) {
    SmallModel model;
    std::string& bytes = model[c.name].bytes;
    bytes.replace(c.at < 0 ? bytes.size() + c.at : c.at, c.bytes.size(), c.bytes);
    REQUIRE_FAILS(model.Load(), Code::kDataLoss,
                  absl::StrCat("/model.safetensors: tensor ", c.name, " ", c.message));
  }
  // Largest finite values pass; a byte of 255 is an ordinary pair of FP4 values.
  SmallModel model;
  model["layers.0.attn.wq_b.scale"].bytes[0] = '\xfe';
  model["layers.1.attn.wkv.weight"].bytes[0] = '\x7e';
  model["layers.2.ffn.experts.15.w2.weight"].bytes[0] = '\xff';
  model["norm.weight"].bytes.replace(0, 2, std::string("\x7f\x7f", 2));
  REQUIRE_OK(model.Load());
}

TEST_CASE("a description has the sizes of the loaded weights and reads no element") {
  SmallModel model;
  const Loaded loaded = model.Load();
  REQUIRE_OK(loaded);
  model["norm.weight"].bytes.replace(0, 2, "\xc0\x7f");  // no number
  REQUIRE_FAILS(model.Load(), Code::kDataLoss, "norm.weight");
  const Loaded described = model.Describe();
  REQUIRE_OK(described);
  CHECK((*described)->mapped_bytes() == (*loaded)->mapped_bytes());
  CHECK((*described)->owned_bytes() == (*loaded)->owned_bytes());
  CHECK((*described)->drafter != nullptr);
  CHECK((*described)->layers[2].attn.indexer.wq_b.n == (*loaded)->layers[2].attn.indexer.wq_b.n);
  model.Remove("norm.weight");
  REQUIRE_FAILS(model.Describe(), Code::kNotFound, "norm.weight");
}

TEST_CASE("a description of tensors that loading copies takes no memory for them") {
  SmallModel model;
  // Of one byte: every tensor behind it lies at an odd address.
  model.tensors().insert(model.tensors().begin(), {"a", "U8", {1}, "x"});
  const Loaded loaded = model.Load();
  REQUIRE_OK(loaded);
  const Loaded described = model.Describe();
  REQUIRE_OK(described);
  CHECK((*loaded)->owned_bytes() > 1'000'000);
  CHECK((*described)->owned_bytes() == (*loaded)->owned_bytes());
  // Neither of two tensors has elements where both have the same address.
  CHECK((*loaded)->layers[0].hc_attn.fn != (*loaded)->layers[0].hc_attn.base);
  CHECK((*described)->layers[0].hc_attn.fn == (*described)->layers[0].hc_attn.base);
  CHECK((*described)->layers[2].attn.compressor.ape == (*described)->hc_head.fn);
}

std::string Int64Bytes(int64_t value) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}

TEST_CASE("tid2eid must name experts of the model") {
  const char* const name = "layers.2.ffn.gate.tid2eid";
  for (const int64_t bad : {int64_t{16}, int64_t{-1}, int64_t{1} << 32, INT64_MIN}) {
    SmallModel model;
    model[name].bytes.replace((1000 * 4 + 3) * 8, 8, Int64Bytes(bad));
    REQUIRE_FAILS(model.Load(), Code::kDataLoss,
                  absl::StrCat("tensor ", name, " names expert ", bad,
                               " for token 1000; n_routed_experts is 16"));
  }
}

void NarrowToInt32(StoredTensor* tensor) {
  std::string narrow;
  for (size_t at = 0; at < tensor->bytes.size(); at += 8) narrow += tensor->bytes.substr(at, 4);
  tensor->bytes = narrow;
  tensor->dtype = "I32";
}

TEST_CASE("tid2eid may be stored as I32") {
  SmallModel model;
  for (int layer = 0; layer < 3; ++layer) {
    NarrowToInt32(&model[absl::StrCat("layers.", layer, ".ffn.gate.tid2eid")]);
  }
  const Loaded loaded = model.Load();
  REQUIRE_OK(loaded);
  CHECK((*loaded)->layers[2].moe.tid2eid[2047 * 4 + 2] == 11);
  model["layers.2.ffn.gate.tid2eid"].bytes.replace(4, 4, std::string("\x10\0\0\0", 4));
  REQUIRE_FAILS(model.Load(), Code::kDataLoss, "names expert 16 for token 0");
}

TEST_CASE("the MTP block is optional as a whole") {
  SmallModel model;
  std::vector<StoredTensor> without;
  for (const StoredTensor& tensor : model.tensors()) {
    if (!absl::StartsWith(tensor.name, "mtp.")) without.push_back(tensor);
  }
  SmallModel no_mtp;
  no_mtp.tensors() = without;
  const Loaded loaded = no_mtp.Load();
  REQUIRE_OK(loaded);
  CHECK((*loaded)->drafter == nullptr);

  for (const char* name : {"mtp.0.enorm.weight", "mtp.0.attn.wo_a.scale", "mtp.0.attn_norm.weight",
                           "mtp.0.ffn.experts.9.w3.weight"}) {
    SmallModel partial;
    partial.Remove(name);
    REQUIRE_FAILS(partial.Load(), Code::kDataLoss,
                  absl::StrCat(": tensor ", name, " is missing, though the MTP drafter's mtp.0."));
  }

  // The tensors say that there is one, whatever the configuration counts.
  SmallModel counted;
  counted.config_json() =
      EditedJson(EditedJson(counted.config_json(), "num_nextn_predict_layers", "0"),
                 "compress_ratios", "[0, 0, 4]");
  const Loaded found = counted.Load();
  REQUIRE_OK(found);
  REQUIRE((*found)->drafter != nullptr);
  CHECK((*found)->drafter->kind == DrafterKind::kMtp);
}

TEST_CASE("prefixed names, extra tensors and unaligned data load the same weights") {
  SmallModel model;
  for (StoredTensor& tensor : model.tensors()) tensor.name = "model." + tensor.name;
  NarrowToInt32(&model["model.layers.1.ffn.gate.tid2eid"]);
  // One byte in front of everything moves every element off its alignment.
  model.tensors().insert(model.tensors().begin(), {"unknown", "U8", {1}, "x"});
  const auto header_is_8_aligned = [&] {
    const std::string image = test::SafetensorsImage(model.tensors());
    uint64_t header = 0;
    std::memcpy(&header, image.data(), 8);
    return header % 8 == 0;
  };
  while (!header_is_8_aligned()) model.tensors()[0].name += "_";

  const Loaded loaded = model.Load();
  REQUIRE_OK(loaded);
  const Weights& w = **loaded;
  const auto aligned = [](const auto* data) {
    return reinterpret_cast<uintptr_t>(data) % sizeof(*data) == 0;
  };
  CHECK(aligned(w.embed.data));
  CHECK(aligned(w.hc_head.base));
  CHECK(aligned(w.layers[1].moe.tid2eid));
  CHECK(w.embed.data[2047 * 256 + 255] == 0x3f0b);
  CHECK(w.hc_head.base[0] == -0.23259339f);
  CHECK(w.layers[2].moe.tid2eid[2047 * 4 + 2] == 11);
  CHECK(w.layers[2].hc_ffn.fn[23 * 1024 + 1023] == -0.07138172f);
  CHECK(w.layers[0].attn.wq_b.data[2047 * 128 + 127] == 221);
  CHECK(w.owned_bytes() > 2 * 2048 * 256 * 2);  // embed and head at least
}

TEST_CASE("progress counts the bytes in use, and false cancels") {
  const ModelConfig config = Config(test::BundledFile("config.json"));
  std::vector<int64_t> done;
  REQUIRE_OK(LoadFolder(test::BundledModel(), config, [&](int64_t bytes, int64_t total) {
    CHECK(total == 20234756);
    done.push_back(bytes);
    return true;
  }));
  REQUIRE(done.size() >= 2);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == 20234756);

  REQUIRE_FAILS(LoadFolder(test::BundledModel(), config, [](int64_t, int64_t) { return false; }),
                Code::kCancelled, "loading was cancelled after");
}

TEST_CASE("the tensors that a configuration asks for are those of the bundled model") {
  const ModelConfig config = Config(test::BundledFile("config.json"));
  const auto checkpoint = Checkpoint::Open(test::BundledModel());
  REQUIRE_OK(checkpoint);
  const std::vector<TensorEntry> tensors = Weights::TensorsOf(config);
  CHECK(tensors.size() == (*checkpoint)->tensors().size());
  for (const TensorEntry& tensor : tensors) {
    INFO(tensor.name);
    const TensorEntry* stored = (*checkpoint)->Find(tensor.name);
    REQUIRE(stored != nullptr);
    CHECK(stored->dtype == tensor.dtype);
    CHECK(stored->shape == tensor.shape);
    CHECK(stored->bytes == tensor.bytes);
  }
}

}  // namespace
}  // namespace dsv4
