// SPDX-License-Identifier: Apache-2.0
// What the port writes is held against the oracle's own generator, a Python script: the CRC-32 of
// each file it writes for the stored cases, as
//   python3 make_checkpoint.py CASE.json OUT; python3 -c "import sys, zlib
//   for f in sys.argv[1:]: print(f, hex(zlib.crc32(open(f, 'rb').read())))" OUT/*
// and, to tell which tensor is at fault, of a tensor of each kind (zlib.crc32 of its bytes).
// Prompts are what its prompt() returns.
#include "tools/verify/oracle_checkpoint.h"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lib/io/checkpoint.h"
#include "lib/packing/expert_format.h"
#include "lib/packing/format_changes.h"
#include "lib/weights/weights.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::EditedJson;
using test::TempFolder;
using Code = absl::StatusCode;

uint32_t Crc32(absl::Span<const uint8_t> bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit) t[i] = (t[i] >> 1) ^ (t[i] & 1 ? 0xEDB88320u : 0u);
    }
    return t;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const uint8_t byte : bytes) crc = (crc >> 8) ^ table[(crc ^ byte) & 255];
  return ~crc;
}

std::string CasePath(const std::string& name) {
  return DSV4_SOURCE_DIR "/tests/oracle/cases/" + name + ".json";
}

OracleCase Case(const std::string& name) {
  auto oracle = LoadOracleCase(CasePath(name));
  REQUIRE_OK(oracle);
  return *std::move(oracle);
}

TEST_CASE("a case file is read") {
  const OracleCase mixed = Case("mixed");
  CHECK(mixed.name == "mixed");
  CHECK(mixed.seed == 11);
  CHECK(mixed.shards == 3);
  CHECK(mixed.prompts ==
        std::vector<int64_t>{1, 3, 4, 5, 8, 127, 128, 129, 256, 257, 300, 640, 1100, 4200});
  CHECK(mixed.decode == 24);
  CHECK(mixed.record == std::vector<int64_t>{5, 129, 300, 1100});
  CHECK(mixed.model.vocab_size == 1024);
  CHECK(mixed.model.compress_ratios == std::vector<int32_t>{0, 0, 4, 128, 4, 128, 0});
  CHECK(mixed.HasMtp());
  CHECK(mixed.stages == 1);
  CHECK(mixed.drafter_format == CaseFormat::kMxfp4);

  const OracleCase dspark = Case("dspark_nvfp4"), fp8 = Case("fp8");
  CHECK_FALSE(dspark.HasMtp());
  CHECK(dspark.stages == 3);
  CHECK(dspark.dspark.block_size == 5);
  CHECK(dspark.dspark.taps == 3);
  CHECK(dspark.dspark.markov_rank == 64);
  CHECK(dspark.drafter_format == CaseFormat::kNvfp4);
  CHECK(fp8.expert_format == CaseFormat::kFp8);
  CHECK(fp8.f32_scales);
}

TEST_CASE("tensors of each kind have the generator's bytes") {
  struct Tensor {
    const char *oracle, *name;
    uint32_t crc;
  };
  const Tensor tensors[] = {
      {"odd", "embed.weight", 0xb107f855},
      {"odd", "norm.weight", 0x982561c0},
      {"odd", "hc_head_fn", 0x0232b390},
      {"odd", "hc_head_scale", 0x8366126e},
      {"odd", "layers.0.ffn.gate.tid2eid", 0x9e3cec67},
      {"odd", "layers.2.ffn.gate.bias", 0x100d40c4},
      {"odd", "layers.2.attn.wo_a.weight", 0xcce2841b},
      {"odd", "layers.2.attn.wo_a.scale", 0xfa928c3b},
      {"odd", "layers.2.attn.indexer.compressor.ape", 0x513fccef},
      {"odd", "layers.1.ffn.experts.8.w2.weight", 0xe18ae456},
      {"odd", "layers.1.ffn.experts.8.w2.scale", 0x393c13ca},
      {"odd", "layers.2.attn.indexer.weights_proj.weight", 0xb971318f},
      {"odd", "mtp.0.h_proj.weight", 0xc356e591},
      {"odd", "mtp.0.hc_head_base", 0x1bf4ba86},
      {"pro", "layers.0.ffn.gate.tid2eid", 0x28deb85d},
      {"pro", "layers.1.ffn.experts.8.w2.scale", 0xe06fd4f2},
  };
  const TempFolder folder;
  for (const char* name : {"odd", "pro"}) {
    REQUIRE_OK(WriteOracleCheckpoint(Case(name), folder.File(name)));
    const auto checkpoint = Checkpoint::Open(folder.File(name));
    REQUIRE_OK(checkpoint);
    for (const Tensor& tensor : tensors) {
      if (std::string(tensor.oracle) != name) continue;
      INFO(name << " " << tensor.name);
      const TensorEntry* entry = (*checkpoint)->Find(tensor.name);
      REQUIRE(entry != nullptr);
      CHECK(Crc32({entry->data, static_cast<size_t>(entry->bytes)}) == tensor.crc);
    }
  }
}

TEST_CASE("whole checkpoints are the generator's, byte for byte") {
  struct File {
    const char *oracle, *name;
    uint32_t crc;
  };
  const File files[] = {
      {"mixed", "config.json", 0x1628a34f},
      {"mixed", "model-00001-of-00003.safetensors", 0xf14f3c70},
      {"mixed", "model-00002-of-00003.safetensors", 0x57732434},
      {"mixed", "model-00003-of-00003.safetensors", 0x1acaa4ae},
      {"mixed", "model.safetensors.index.json", 0x42d73a30},
      {"odd", "config.json", 0xd08c73cb},
      {"odd", "model.safetensors", 0xb7ebfdeb},
      {"pro", "config.json", 0x1ab5f9ba},
      {"pro", "model.safetensors", 0x87910e5b},
      {"dspark", "config.json", 0x0798fbbd},
      {"dspark", "model-00001-of-00002.safetensors", 0xc49c8eab},
      {"dspark", "model-00002-of-00002.safetensors", 0xdb0e6c9e},
      {"dspark", "model.safetensors.index.json", 0x104e8ae6},
      {"dspark_nvfp4", "config.json", 0x2840d0fa},
      {"dspark_nvfp4", "model.safetensors", 0x5ed087a8},
      {"fp8", "config.json", 0x852824fe},
      {"fp8", "model.safetensors", 0x16af7003},
      {"mixed_fp8", "config.json", 0x2faa8a8b},
      {"mixed_fp8", "model.safetensors", 0x873ab582},
      {"mixed_nvfp4", "config.json", 0xad04f595},
      {"mixed_nvfp4", "model-00001-of-00002.safetensors", 0x013504b6},
      {"mixed_nvfp4", "model-00002-of-00002.safetensors", 0x7569b622},
      {"mixed_nvfp4", "model.safetensors.index.json", 0x0a177215},
      {"nvfp4_real", "config.json", 0xaf329bc4},
      {"nvfp4_real", "model.safetensors", 0x1c51e8bb},
  };
  const TempFolder folder;
  size_t written = 0;
  for (const char* name : {"mixed", "odd", "pro", "dspark", "dspark_nvfp4", "fp8", "mixed_fp8",
                           "mixed_nvfp4", "nvfp4_real"}) {
    REQUIRE_OK(WriteOracleCheckpoint(Case(name), folder.File(name)));
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.File(name)))
      ++written;
  }
  CHECK(written == std::size(files));
  for (const File& file : files) {
    INFO(file.oracle << "/" << file.name);
    const auto mapped = MappedFile::Open(folder.File(file.oracle) + "/" + file.name);
    REQUIRE_OK(mapped);
    CHECK(Crc32(mapped->bytes()) == file.crc);
  }
}

TEST_CASE("the loader takes the written checkpoints") {
  const TempFolder folder;
  for (const char* name : {"mixed", "odd", "pro"}) {
    const OracleCase oracle = Case(name);
    REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.File(name)));
    auto checkpoint = Checkpoint::Open(folder.File(name));
    REQUIRE_OK(checkpoint);
    const auto weights = Weights::Load(oracle.model, std::move(*checkpoint), nullptr);
    REQUIRE_OK(weights);
    REQUIRE((*weights)->drafter != nullptr);
    CHECK((*weights)->drafter->kind == DrafterKind::kMtp);
    CHECK((*weights)->layers.size() == static_cast<size_t>(oracle.model.num_hidden_layers));
  }
  struct Format {
    const char *oracle, *format;
    ExpertFormat runs_as;
  };
  // Casts of MXFP4 fold back to it.
  for (const Format& c : {Format{"mixed_nvfp4", "fp8+nvfp4", ExpertFormat::kMxfp4},
                          Format{"nvfp4_real", "fp8+nvfp4", ExpertFormat::kNvfp4},
                          Format{"mixed_fp8", "fp8+fp8", ExpertFormat::kFp8},
                          Format{"fp8", "fp8+fp8", ExpertFormat::kFp8}}) {
    INFO(c.oracle);
    const OracleCase oracle = Case(c.oracle);
    REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.File(c.oracle)));
    auto checkpoint = Checkpoint::Open(folder.File(c.oracle));
    REQUIRE_OK(checkpoint);
    const auto weights = Weights::Load(oracle.model, std::move(*checkpoint), nullptr);
    REQUIRE_OK(weights);
    CHECK((*weights)->weight_format() == c.format);
    for (const ExpertWeights& expert : (*weights)->layers[1].moe.experts) {
      CHECK(expert.w1.format == c.runs_as);
      CHECK(expert.w2.format == c.runs_as);
    }
  }
  const OracleCase dspark = Case("dspark");
  REQUIRE_OK(WriteOracleCheckpoint(dspark, folder.File("dspark")));
  auto checkpoint = Checkpoint::Open(folder.File("dspark"));
  REQUIRE_OK(checkpoint);
  const auto weights = Weights::Load(dspark.model, std::move(*checkpoint), nullptr);
  REQUIRE_OK(weights);
  REQUIRE((*weights)->drafter != nullptr);
  CHECK((*weights)->drafter->kind == DrafterKind::kDspark);
  CHECK((*weights)->drafter->blocks.size() == 3);
}

// A matrix of an expert as the checkpoint of a case has it.
template <class T>
const T* DataOf(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry* const entry = checkpoint.Find(name);
  REQUIRE(entry != nullptr);
  return reinterpret_cast<const T*>(entry->data);
}

TEST_CASE("a device runs experts as MXFP4 where they have its values, else in their own format") {
  struct Format {
    const char* oracle;
    ExpertFormat runs_as;
  };
  const TempFolder folder;
  const std::string name = "layers.1.ffn.experts.3.w1";
  for (const Format& c :
       {Format{"mixed_nvfp4", ExpertFormat::kMxfp4}, Format{"nvfp4_real", ExpertFormat::kNvfp4},
        Format{"mixed_fp8", ExpertFormat::kMxfp4}, Format{"fp8", ExpertFormat::kFp8}}) {
    INFO(c.oracle);
    const OracleCase oracle = Case(c.oracle);
    REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.File(c.oracle)));
    const auto checkpoint = Checkpoint::Open(folder.File(c.oracle));
    REQUIRE_OK(checkpoint);
    const int64_t n = oracle.model.moe_intermediate_size, k = oracle.model.hidden_size;
    const auto* const data = DataOf<uint8_t>(**checkpoint, name + ".weight");
    ExpertMatrix stored;
    if (oracle.expert_format == CaseFormat::kFp8 || std::string(c.oracle) == "mixed_fp8") {
      Fp8Weight fp8{.data = data, .n = n, .k = k};
      if (oracle.f32_scales) {
        fp8.f32_scale = DataOf<float>(**checkpoint, name + ".scale");
      } else {
        fp8.scale = DataOf<uint8_t>(**checkpoint, name + ".scale");
      }
      stored = fp8;
    } else {
      Nvfp4Weight nvfp4{data, DataOf<uint8_t>(**checkpoint, name + ".weight_scale"), n, k};
      std::memcpy(&nvfp4.tensor_scale, DataOf<char>(**checkpoint, name + ".weight_scale_2"), 4);
      stored = nvfp4;
    }
    CHECK(DeviceFormatOf(stored, SampleRows(stored)) == c.runs_as);
    FormatChanges changes(**checkpoint, true);
    ExpertMatrix expert = stored;
    REQUIRE_OK(changes.Settle(name, c.runs_as, &expert));
    CHECK(expert.format == c.runs_as);

    // Those of a block that runs in another format are refused: by the first run that has other
    // values, or by the format.
    if (c.runs_as == ExpertFormat::kMxfp4) {
      const ExpertFormat other =
          stored.format == ExpertFormat::kFp8 ? ExpertFormat::kNvfp4 : ExpertFormat::kFp8;
      expert = stored;
      REQUIRE_FAILS(
          changes.Settle(name, other, &expert), Code::kUnimplemented,
          absl::StrCat("tensor ", name, ".weight: is in ", ExpertFormatName(stored.format),
                       ", the layer's other routed experts in ", ExpertFormatName(other)));
      continue;
    }
    int64_t first = 0;  // of FP8 under F32 scales: all
    if (stored.format == ExpertFormat::kNvfp4) {
      // Two runs of 16 become one of 32 where their scales are the same power of two.
      const auto folds = [&](int64_t run) {
        int exponent = 0;
        const float value = E4M3ToFloat(stored.scale[2 * run]) * stored.tensor_scale;
        return stored.scale[2 * run] == stored.scale[2 * run + 1] &&
               std::frexp(value, &exponent) == 0.5f;
      };
      while (folds(first)) ++first;
    }
    const int64_t column = first % (k / kFp4Run) * kFp4Run;
    expert = stored;
    REQUIRE_FAILS(changes.Settle(name, ExpertFormat::kMxfp4, &expert), Code::kUnimplemented,
                  absl::StrCat("tensor ", name, ".weight: elements ", column, " to ", column + 31,
                               " of row ", first / (k / kFp4Run), " are not MXFP4 values"));
  }
}

TEST_CASE("with MXFP4 experts a device runs no shared expert under F32 scales") {
  const TempFolder folder;
  const OracleCase oracle = Case("fp8");
  REQUIRE_OK(WriteOracleCheckpoint(oracle, folder.File("fp8")));
  const auto checkpoint = Checkpoint::Open(folder.File("fp8"));
  REQUIRE_OK(checkpoint);
  const std::string name = "layers.0.ffn.shared_experts.w1";
  Fp8Weight shared{.data = DataOf<uint8_t>(**checkpoint, name + ".weight"),
                   .n = oracle.model.moe_intermediate_size,
                   .k = oracle.model.hidden_size,
                   .f32_scale = DataOf<float>(**checkpoint, name + ".scale")};
  FormatChanges changes(**checkpoint, true);
  REQUIRE_OK(changes.SettleShared(name, ExpertFormat::kFp8, &shared));
  CHECK(shared.f32_scale != nullptr);
  REQUIRE_FAILS(changes.SettleShared(name, ExpertFormat::kMxfp4, &shared), Code::kUnimplemented,
                "tensor " + name + ".scale: F32 scales that are not powers of two");
}

TEST_CASE("prompts and forced tokens are the generator's") {
  const OracleCase mixed = Case("mixed"), wide = Case("wide");
  using Tokens = std::vector<int32_t>;
  CHECK(OraclePrompt(mixed, "prompt", 5) == Tokens{26, 531, 487, 731, 236});
  CHECK(OraclePrompt(mixed, "decode", 8) == Tokens{588, 658, 410, 669, 42, 904, 984, 703});
  CHECK(OraclePrompt(mixed, "prompt", 129).back() == 1007);
  CHECK(OraclePrompt(wide, "prompt", 5) == Tokens{74, 380, 292, 149, 192});
  CHECK(OraclePrompt(wide, "decode", 8) == Tokens{286, 278, 124, 148, 340, 40, 102, 23});
  CHECK(OraclePrompt(wide, "prompt", 129).back() == 269);
  const OracleCase dspark = Case("dspark");
  CHECK(OraclePrompt(dspark, "prompt", 5) == Tokens{508, 158, 473, 111, 337});
  CHECK(OraclePrompt(dspark, "draft", 5) == Tokens{167, 257, 275, 71, 445});
}

TEST_CASE("a case that cannot be run is refused by file and key") {
  std::ifstream in(CasePath("odd"));
  const std::string odd{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  struct Bad {
    const char *key, *value, *message;
  };
  const Bad cases[] = {
      {"name", "7", "case.json: name is not a string"},
      {"seed", "", "case.json: seed is missing; expected an integer from 0"},
      {"seed", "-1", "case.json: seed is out of range"},
      {"shards", "0", "case.json: shards is out of range; expected an integer from 1 to"},
      {"prompts", "5", "case.json: prompts is not a list"},
      {"prompts", "[5, 0]", "case.json: prompts is out of range; expected an integer from 1"},
      {"decode", "", "case.json: decode is missing"},
      {"record", "", "case.json: record is not a list"},
      {"model", "{}", "case.json: model: hidden_size is missing"},
      {"hidden_size", "300", "case.json: model: hidden_size is 300; expected a multiple of 128"},
      {"vocab_size", "3", "case.json: model: vocab_size is 3; prompts take their tokens from 3"},
  };
  const TempFolder folder;
  const auto with_format = [&](const char* member) {
    return folder.Write("case.json", absl::StrCat("{", member, ",", odd.substr(odd.find('{') + 1)));
  };
  REQUIRE_FAILS(LoadOracleCase(with_format(R"("drafter_format": "fp4")")), Code::kInvalidArgument,
                "case.json: drafter_format is not mxfp4, nvfp4, nvfp4_real, fp8 or fp8_cast");
  REQUIRE_FAILS(LoadOracleCase(with_format(R"("scale_format": "e8m0")")), Code::kInvalidArgument,
                "case.json: scale_format is not f32");
  for (const Bad& bad : cases) {
    REQUIRE_FAILS(LoadOracleCase(folder.Write("case.json", EditedJson(odd, bad.key, bad.value))),
                  Code::kInvalidArgument, bad.message);
  }
  REQUIRE_FAILS(LoadOracleCase(folder.Write("case.json", EditedJson(odd, "model", ""))),
                Code::kInvalidArgument, "case.json: model is missing");
  REQUIRE_FAILS(LoadOracleCase(folder.Write("case.json", "{")), Code::kDataLoss, "case.json");
  REQUIRE_FAILS(LoadOracleCase(folder.File("none.json")), Code::kNotFound, "none.json");
}

TEST_CASE("a folder that cannot be written is an error") {
  const TempFolder folder;
  const std::string file = folder.Write("file", "");
  REQUIRE_FAILS(WriteOracleCheckpoint(Case("odd"), file), Code::kUnavailable,
                file + ": cannot make the folder");
  std::filesystem::create_directories(folder.File("out/model.safetensors"));
  REQUIRE_FAILS(WriteOracleCheckpoint(Case("odd"), folder.File("out")), Code::kUnavailable,
                "out/model.safetensors: cannot write: Is a directory");
}

}  // namespace
}  // namespace dsv4
