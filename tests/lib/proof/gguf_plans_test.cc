// SPDX-License-Identifier: Apache-2.0
// The table of docs/gguf.md: what the library plans for the public GGUF files of Flash on cards of
// 32, 95 and 119 GiB. The files have the keys, names, shapes and types of the public ones and no
// data; the GPUs are those of the fake CUDA runtime.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/config/model_files.h"
#include "lib/engine/engine.h"
#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/gguf_image.h"
#include "tests/support/gguf_of_checkpoint.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::FakeGpu;
using test::GgufImage;
using enum BlockType;

constexpr int64_t kGB = 1'000'000'000, kGiB = int64_t{1} << 30;
constexpr int64_t kLayers = 43;

// The types of a file. Where the headers of a public file are not known, those of its routed
// experts are chosen so that the sum is its size.
struct Mix {
  const char* name;
  double gigabytes;  // of the public file, 10^9 bytes
  BlockType gate, up, down;
  // Of the layers from `later_from` on, all experts.
  BlockType later = kNone;
  int64_t later_from = kLayers;
  // Unsloth's files give w1 and w3 of layer 26 this type, and w2 of layers 26 and 42 MXFP4.
  BlockType odd = kNone;
  bool ds4 = false;  // else as llama.cpp's converter and Unsloth
  BlockType attention = kQ8_0, shared = kQ6K, head = kQ6K, embedding = kQ6K;
};

std::vector<Mix> Mixes() {
  const auto ds4 = [](const char* name, double gigabytes, BlockType gate_up, BlockType down) {
    Mix mix{name, gigabytes, gate_up, gate_up, down};
    mix.ds4 = true;
    mix.shared = mix.head = kQ8_0;
    mix.embedding = kF16;
    return mix;
  };
  Mix q4_attention = ds4("ds4 q2, `AProjQ4-SExpQ4`", 84, kIq2Xxs, kQ2K);
  q4_attention.attention = q4_attention.shared = kQ4K;
  Mix q2_q4 = ds4("ds4 q2-q4", 98, kIq2Xxs, kQ2K);
  q2_q4.later = kQ4K;
  q2_q4.later_from = 37;
  Mix iq3_s{"UD-IQ3_S", 116.1, kIq3Xxs, kIq3Xxs, kIq3Xxs};
  iq3_s.later = kIq3S;
  iq3_s.later_from = 33;
  Mix q8{"UD-Q8_K_XL", 161.9, kMxfp4, kMxfp4, kMxfp4};
  q8.attention = q8.shared = q8.head = q8.embedding = kBf16;
  return {
      ds4("ds4 q2 (`IQ2XXS-w2Q2K-AProjQ8-SExpQ8-OutQ8`)", 86.7, kIq2Xxs, kQ2K),
      q4_attention,
      {"UD-IQ1_S", 82.5, kIq1M, kIq1M, kIq3Xxs},
      {"UD-IQ1_M", 86.9, kIq2Xxs, kIq1M, kIq3Xxs},
      {"UD-IQ2_XXS", 90.8, kIq2Xxs, kIq2Xxs, kIq3Xxs, kNone, kLayers, kIq2S},
      {"UD-IQ2_M", 90.9, kIq2Xxs, kIq2Xxs, kIq3Xxs, kNone, kLayers, kIq2S},
      {"UD-Q2_K_XL", 96.8, kIq2Xs, kIq2Xs, kIq3Xxs, kNone, kLayers, kIq3Xxs},
      q2_q4,
      {"UD-IQ3_XXS", 104.2, kIq2Xs, kIq2Xs, kIq3Xxs, kIq3Xxs, 25, kIq3S},
      iq3_s,
      {"UD-Q3_K_XL", 128.2, kIq3Xxs, kIq3Xxs, kIq4Xs},
      {"UD-IQ4_NL", 136.7, kQ3K, kQ3K, kIq4Xs},
      {"UD-Q4_K_XL", 155.1, kMxfp4, kMxfp4, kMxfp4},
      ds4("ds4 mxfp4, `MXFP4_MOE-Q8_0`", 156.0, kMxfp4, kMxfp4),
      q8,
      ds4("ds4 q4", 164.6, kQ4K, kQ4K),
  };
}

// Writes the header, and a hole for the data.
class FlashFile {
 public:
  FlashFile(const Mix& mix, const ModelConfig& c) : mix_(mix) {
    test::AddGgufKeys(c, "deepseek4", kLayers, c.compress_ratios, c.num_hash_layers, &image_);
    const auto hidden = static_cast<uint64_t>(c.hidden_size);
    const auto vocab = static_cast<uint64_t>(c.vocab_size);
    const auto heads = static_cast<uint64_t>(c.num_attention_heads);
    const auto rank = static_cast<uint64_t>(c.q_lora_rank);
    const auto width = static_cast<uint64_t>(c.moe_intermediate_size);
    const auto experts = static_cast<uint64_t>(c.n_routed_experts);
    const auto groups = static_cast<uint64_t>(c.o_groups * c.o_lora_rank);
    const BlockType small = mix.ds4 ? kF16 : kF32, compressor = mix.ds4 ? kF16 : kQ8_0;
    Add("token_embd.weight", mix.embedding, {hidden, vocab});
    Add("output.weight", mix.head, {hidden, vocab});
    Add("output_norm.weight", kF32, {hidden});
    Add("output_hc_fn.weight", small, {4 * hidden, 4});
    Add("output_hc_base.weight", kF32, {4});
    Add("output_hc_scale.weight", kF32, {1});
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      block_ = absl::StrCat("blk.", layer, ".");
      const int32_t ratio = c.compress_ratios[static_cast<size_t>(layer)];
      InBlock("attn_norm.weight", kF32, {hidden});
      InBlock("ffn_norm.weight", kF32, {hidden});
      InBlock("attn_q_a.weight", mix.attention == kQ8_0 ? mix.shared : mix.attention,
              {hidden, rank});
      InBlock("attn_q_a_norm.weight", kF32, {rank});
      InBlock("attn_q_b.weight", mix.attention, {rank, heads * 512});
      InBlock("attn_kv.weight", mix.attention, {hidden, 512});
      InBlock("attn_kv_a_norm.weight", kF32, {512});
      InBlock("attn_output_a.weight", mix.attention,
              {heads * 512 / static_cast<uint64_t>(c.o_groups), groups});
      InBlock("attn_output_b.weight", mix.attention, {groups, hidden});
      InBlock("attn_sinks.weight", kF32, {heads});
      for (const char* part : {"attn", "ffn"}) {
        InBlock(absl::StrCat("hc_", part, "_fn.weight"), small, {4 * hidden, 24});
        InBlock(absl::StrCat("hc_", part, "_base.weight"), kF32, {24});
        InBlock(absl::StrCat("hc_", part, "_scale.weight"), kF32, {3});
      }
      InBlock("ffn_gate_inp.weight", mix.ds4 ? kF16 : kBf16, {hidden, experts});
      if (layer < c.num_hash_layers) {
        Add(block_ + "ffn_gate_tid2eid.weight", kGgufI32, 4,
            {static_cast<uint64_t>(c.num_experts_per_tok), vocab});
      } else {
        InBlock("exp_probs_b.bias", kF32, {experts});
      }
      const auto type = [&](BlockType own, bool down) {
        if (mix.odd != kNone && (layer == 26 || (down && layer == 42))) {
          return down ? kMxfp4 : mix.odd;
        }
        return layer >= mix.later_from ? mix.later : own;
      };
      InBlock("ffn_gate_exps.weight", type(mix.gate, false), {hidden, width, experts});
      InBlock("ffn_up_exps.weight", type(mix.up, false), {hidden, width, experts});
      InBlock("ffn_down_exps.weight", type(mix.down, true), {width, hidden, experts});
      InBlock("ffn_gate_shexp.weight", mix.shared, {hidden, width});
      InBlock("ffn_up_shexp.weight", mix.shared, {hidden, width});
      InBlock("ffn_down_shexp.weight", mix.shared, {width, hidden});
      if (ratio == 0) continue;
      const uint64_t compressed = ratio == 4 ? 1024 : 512;
      InBlock("attn_compressor_kv.weight", compressor, {hidden, compressed});
      InBlock("attn_compressor_gate.weight", compressor, {hidden, compressed});
      InBlock("attn_compressor_ape.weight", small, {compressed, static_cast<uint64_t>(ratio)});
      InBlock("attn_compressor_norm.weight", kF32, {512});
      if (ratio != 4) continue;
      const auto index_heads = static_cast<uint64_t>(c.index_n_heads);
      InBlock("indexer.attn_q_b.weight", compressor, {rank, index_heads * 128});
      InBlock("indexer.proj.weight", small, {hidden, index_heads});
      InBlock("indexer_compressor_kv.weight", compressor, {hidden, 256});
      InBlock("indexer_compressor_gate.weight", compressor, {hidden, 256});
      InBlock("indexer_compressor_ape.weight", small, {256, 4});
      InBlock("indexer_compressor_norm.weight", kF32, {128});
    }
  }

  // Returns the file's path.
  std::string Write(const test::TempFolder& folder) const {
    const std::string header = image_.Write();
    const std::string path = folder.Write("flash.gguf", header);
    std::filesystem::resize_file(path, header.size() + bytes_);
    return path;
  }
  double gigabytes() const { return static_cast<double>(bytes_) / static_cast<double>(kGB); }

 private:
  void InBlock(const std::string& name, BlockType type, const std::vector<uint64_t>& dims) {
    Add(block_ + name, type, dims);
  }
  void Add(const std::string& name, BlockType type, const std::vector<uint64_t>& dims) {
    Add(name, InfoOf(type).gguf_id,
        static_cast<double>(InfoOf(type).bytes) / static_cast<double>(InfoOf(type).elements), dims);
  }
  void Add(const std::string& name, uint32_t type, double bytes_of_one,
           const std::vector<uint64_t>& dims) {
    double bytes = bytes_of_one;
    for (const uint64_t dim : dims) bytes *= static_cast<double>(dim);
    image_.TensorAt(name, type, dims, bytes_);
    bytes_ += (static_cast<uint64_t>(bytes) + 31) / 32 * 32;
  }

  const Mix mix_;
  GgufImage image_;
  std::string block_;
  uint64_t bytes_ = 0;
};

struct Card {
  FakeGpu gpu;
  int64_t memory_gb;  // of the host; of an integrated GPU all there is
};

class Machine {
 public:
  explicit Machine(const Card& card) {
    test::FakeCuda cuda{.count = 0, .bytes = int64_t{1} << 50};
    cuda.gpus = {card.gpu};
    SetFakeCuda(cuda);
    std::filesystem::create_directories(root_.path() + "/proc");
    const int64_t kib = card.memory_gb * kGB / 1024;
    root_.Write("proc/meminfo",
                absl::StrCat("MemTotal: ", kib, " kB\nMemAvailable: ", kib, " kB\n"));
  }

  EngineInfo Plan(const std::string& path, int64_t context, bool* fits) const {
    EngineOptions options;
    options.backend = Backend::kCuda;
    options.context_tokens = context;
    options.max_sessions = 1;
    options.threads = 16;
    options.system_root = root_.path();
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(path, options);
    REQUIRE_OK(plan);
    const ResidencyPlan& experts = plan->info().residency;
    *fits = plan->CheckRoom().ok() && experts.on_device == experts.all();
    return plan->info();
  }

 private:
  test::TempFolder root_;
};

std::string Rounded(double rate) { return absl::StrFormat(rate < 10 ? "%.1f" : "%.0f", rate); }

// "whole, 512K; 120": the longest context with all weights on the card, and tokens a second.
// Otherwise the experts that have a place there, and tokens a second.
std::string CellOf(const Machine& machine, const std::string& path) {
  constexpr int64_t kShortest = 8192;
  bool fits = false;
  machine.Plan(path, kShortest, &fits);
  for (int64_t context = int64_t{1} << 20; fits && context >= kShortest; context /= 2) {
    bool whole = false;
    const EngineInfo info = machine.Plan(path, context, &whole);
    if (whole) {
      return absl::StrCat("whole, ", context / 1024, "K; ", Rounded(info.expected_decode));
    }
  }
  const EngineInfo info = machine.Plan(path, 65536, &fits);
  const ResidencyPlan& experts = info.residency;
  const auto percent = [&](int64_t count) { return 100 * count / experts.all(); };
  const std::string disk = experts.on_disk == 0
                               ? std::string()
                               : absl::StrCat(", ", percent(experts.on_disk), " % on disk");
  return absl::StrCat(percent(experts.on_device), " % of experts", disk, "; ",
                      Rounded(info.expected_decode));
}

TEST_CASE("docs/gguf.md has what is planned for the public files") {
  FakeGpu pro6000{.name = "NVIDIA RTX PRO 6000 Blackwell", .bytes = 95 * kGiB};
  FakeGpu gb10{
      .name = "NVIDIA GB10", .compute_capability = 121, .integrated = true, .bytes = 119 * kGiB};
  FakeGpu rtx5090{.name = "NVIDIA GeForce RTX 5090", .multiprocessors = 170, .bytes = 32 * kGiB};
  const Card cards[] = {{pro6000, 128}, {gb10, 119 * kGiB / kGB}, {rtx5090, 128}};
  const auto files = ReadModelFiles(DSV4_FLASH);
  REQUIRE_OK(files);
  std::string table;
  for (const Mix& mix : Mixes()) {
    const FlashFile file(mix, files->config);
    INFO(mix.name << ": " << file.gigabytes() << " GB");
    CHECK(file.gigabytes() > 0.985 * mix.gigabytes);
    CHECK(file.gigabytes() < 1.015 * mix.gigabytes);
    const test::TempFolder folder;
    const std::string path = file.Write(folder);
    absl::StrAppendFormat(&table, "| %s | %.1f |", mix.name, mix.gigabytes);
    for (const Card& card : cards) {
      absl::StrAppend(&table, " ", CellOf(Machine(card), path), " |");
    }
    table += "\n";
  }
  std::ifstream in(DSV4_SOURCE_DIR "/docs/gguf.md");
  const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  INFO("The table is now\n" << table);
  CHECK(absl::StrContains(page, table));
}

}  // namespace
}  // namespace dsv4
