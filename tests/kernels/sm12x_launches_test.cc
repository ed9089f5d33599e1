// SPDX-License-Identifier: Apache-2.0
// What engines of DeepSeek V4 Flash's width launch on the GPUs of SM12x, those take: so many blocks
// and threads, registers, and bytes of shared memory, static and dynamic. It takes none of these
// GPUs to tell (tests/support/fake_cuda_runtime.h); one of SM90 would not, as it has more.
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/log.h"
#include "lib/io/mapped_file.h"
#include "tests/kernels/cuda_image.h"
#include "tests/kernels/sm12x_images.h"
#include "tests/support/bundled_model.h"
#include "tests/support/fake_cuda_runtime.h"
#include "tests/support/gguf_model.h"
#include "tests/support/tuning_tables.h"

namespace dsv4::test {
namespace {

// "CUDA C++ Programming Guide", technical specifications of compute capability 12.x. A warp's
// registers come in steps of 256.
constexpr int64_t kMostThreads = 1024, kMostRegisters = 65536, kMostSharedBytes = 99 * 1024;
constexpr int64_t kMostBlocks[] = {2147483647, 65535, 65535};
constexpr int64_t kWarp = 32, kRegisterStep = 256;

// The GPUs that there are tuning tables for.
const FakeCuda kGpus[] = {
    {.name = "RTX PRO 6000", .multiprocessors = 188, .bytes = int64_t{96} << 30},
    {.name = "RTX 5090", .multiprocessors = 170, .bytes = int64_t{32} << 30},
    {.name = "GB10",
     .compute_capability = 121,
     .multiprocessors = 48,
     .integrated = true,
     .bytes = int64_t{119} << 30}};

// By symbol.
const std::map<std::string, CudaKernel>& Kernels() {
  static const std::map<std::string, CudaKernel> kernels = [] {
    std::map<std::string, CudaKernel> by_symbol;
    for (const std::string path : kSm12xImages) {
      const absl::StatusOr<std::vector<CudaImage>> images = ReadCudaImages(path);
      REQUIRE_OK(images);
      for (const CudaImage& image : *images) {
        if (image.architecture != 120) continue;
        for (const CudaKernel& kernel : image.kernels) by_symbol.emplace(kernel.symbol, kernel);
      }
    }
    return by_symbol;
  }();
  return kernels;
}

// Why a GPU of SM12x would not take the launch; empty: it would.
std::string Refusal(const FakeLaunch& launch, const CudaKernel& kernel) {
  for (int i = 0; i < 3; ++i) {
    if (launch.blocks[i] < 1 || launch.blocks[i] > kMostBlocks[i])
      return absl::StrCat(launch.blocks[i], " blocks along axis ", i);
  }
  if (launch.threads < 1 || launch.threads > kMostThreads)
    return absl::StrCat(launch.threads, " threads");
  const int64_t warps = (launch.threads + kWarp - 1) / kWarp;
  const int64_t of_warp = (kernel.registers * kWarp + kRegisterStep - 1) / kRegisterStep;
  if (warps * of_warp * kRegisterStep > kMostRegisters)
    return absl::StrCat(launch.threads, " threads of ", kernel.registers, " registers");
  if (launch.shared_bytes > launch.most_shared_bytes)
    return absl::StrCat(launch.shared_bytes, " bytes of dynamic shared memory, where ",
                        launch.most_shared_bytes, " are allowed");
  if (kernel.shared_bytes + launch.shared_bytes > kMostSharedBytes)
    return absl::StrCat(kernel.shared_bytes, " + ", launch.shared_bytes, " bytes of shared memory");
  return "";
}

// Checks all launches since the last call and adds their kernels' names.
void ExpectTaken(std::set<std::string>* names) {
  for (const FakeLaunch& launch : TakeFakeLaunches()) {
    const auto found = Kernels().find(launch.symbol);
    if (found == Kernels().end()) FAIL(launch.symbol << " is not in the images");
    const std::string refusal = Refusal(launch, found->second);
    if (!refusal.empty()) FAIL(found->second.name << ": " << refusal);
    names->insert(found->second.name);
  }
}

// Flash's config.json with two layers, which have each what some of its layers have: the router by
// token and the one by score, both compressors; the MTP block attends without any.
std::string FlashConfig() {
  const absl::StatusOr<std::string> flash =
      ReadFile(DSV4_SOURCE_DIR "/benchmarks/e2e/flash/config.json", 1 << 20);
  REQUIRE_OK(flash);
  std::string config = EditedJson(*flash, "num_hidden_layers", "2");
  config = EditedJson(config, "num_hash_layers", "1");
  return EditedJson(config, "compress_ratios", "[4, 128, 0]");
}

// Of fewer experts and tokens, on which no launch's needs depend.
std::string SmallerFlashConfig() {
  return EditedJson(EditedJson(FlashConfig(), "n_routed_experts", "16"), "vocab_size", "2048");
}

// With a stage of a DSpark drafter in place of the MTP block.
std::string DsparkFlashConfig() {
  std::string config = SmallerFlashConfig();
  return config.insert(config.find('{') + 1,
                       R"("dspark_block_size": 5, "dspark_noise_token_id": 7,
                          "dspark_target_layer_ids": [0, 1], "dspark_markov_rank": 256,)");
}

// Opens an engine, which records the steps of few rows, and computes prompts of many lengths.
void ExpectEngineTaken(const std::string& config, EngineOptions options,
                       std::set<std::string>* names) {
  const TempFolder folder;
  folder.Write("config.json", config);
  options.backend = Backend::kCuda;
  options.context_tokens = 131072;
  options.prefill_chunk_tokens = 4096;
  options.synthetic_layers = 2;
  const auto engine = Engine::Open(folder.path(), options);
  REQUIRE_OK(engine);
  ExpectTaken(names);
  for (const int64_t length : {1,  2,   3,   5,   8,   9,    16,   17,   33,    48,    64,
                               65, 129, 192, 257, 512, 1024, 2050, 4096, 10000, 131072}) {
    INFO("a prompt of " << length << " tokens");
    const auto session = OpenColdSession(*engine);
    REQUIRE_OK(session->Sync(AnyTokens(length, 1)));
    REQUIRE_OK(session->Prefill(0, nullptr));
    ExpectTaken(names);
  }
}

// The same on small GGUF files, in which all matrices have one type.
void ExpectBlocksTaken(std::set<std::string>* names) {
  for (int t = static_cast<int>(BlockType::kF32); t < static_cast<int>(BlockType::kCount); ++t) {
    const auto type = static_cast<BlockType>(t);
    INFO(InfoOf(type).name);
    const TempFolder folder;
    const std::string file =
        folder.Write("model.gguf", GgufModelImage([&](const std::string&) { return type; }));
    const auto engine = Engine::Open(file, {.backend = Backend::kCuda, .context_tokens = 512});
    REQUIRE_OK(engine);
    for (const int64_t length : {1, 9, 300}) {
      const auto session = OpenColdSession(*engine);
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<int32_t>(i % kGgufVocab));
      REQUIRE_OK(session->Sync(tokens));
      REQUIRE_OK(session->Prefill(0, nullptr));
      ExpectTaken(names);
    }
  }
}

TEST_CASE("GPUs of SM12x take what engines launch on them") {
  std::set<std::string> names;
  for (const FakeCuda& gpu : kGpus) {
    INFO(gpu.name);
    SetFakeCuda(gpu);
    ExpectEngineTaken(FlashConfig(), {.max_sessions = 64, .max_draft_tokens = 7}, &names);
    ExpectEngineTaken(SmallerFlashConfig(), {.cache_format = RowFormat::kBf16}, &names);
    ExpectEngineTaken(DsparkFlashConfig(), {.max_sessions = 8, .max_draft_tokens = 5}, &names);
    ExpectBlocksTaken(&names);
    constexpr KernelSet kSecond = KernelSet::kSecond;
    ExpectEngineTaken(FlashConfig(),
                      {.max_sessions = 64, .max_draft_tokens = 7, .kernel_set = kSecond}, &names);
    ExpectEngineTaken(SmallerFlashConfig(), {.kernel_set = kSecond}, &names);
    ExpectEngineTaken(DsparkFlashConfig(),
                      {.max_sessions = 8, .max_draft_tokens = 5, .kernel_set = kSecond}, &names);
  }
  // Kernels for rows that are no multiple of 16 bytes, for more than 256 experts, for several GPUs,
  // for experts in host memory, for fp8_per_tensor rows and for few output groups. Also GEMMs in
  // one of two variants: these engines launch only the variant that leaves multiprocessors idle, or
  // only the other one.
  const std::set<std::string> others = {
      "embed_rows_kernel<unsigned short>",
      "embed_blocks_kernel<(BlockType)3>",   // bf16 rows of GGUF files are those of other files
      "sm12x_second::expert_hidden_kernel",  // of GGUF files
      "select_experts_kernel<32>",
      "gather_columns_kernel<uint4>",
      "gather_columns_kernel<unsigned char>",
      "push_columns_kernel<true>",
      "push_columns_kernel<false>",
      "count_call_kernel",
      "attend_query_kernel<(RowFormat)3>",
      "attend_chunks_kernel<(RowFormat)3>",
      "attend_tile_kernel<(RowFormat)3>",
      "linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 1, 4, 4, 1, 2>, 0>",
      "linear_gemm_kernel<GemmShape<Fp8UnpackedSlices, 2, 4, 2, 2, 2>, 0>"};
  // And those of weights under F32 scales and of
  // NVFP4, which synthetic models do not have.
  const auto of_other_formats = [](const std::string& name) {
    return name.find("Fp8F32Slices") != std::string::npos ||
           name.find("Fp8RoundedSlices") != std::string::npos ||
           name.find("Nvfp4Slices") != std::string::npos ||
           // Of GGUF files, which no engine here packs with the second set.
           name.find("sm12x_second::pack_blocks_kernel") != std::string::npos;
  };
  for (const auto& [symbol, kernel] : Kernels()) {
    INFO(kernel.name);
    CHECK(names.count(kernel.name) + others.count(kernel.name) + of_other_formats(kernel.name) ==
          1);
  }
}

void Keep(void* user, LogLevel, const char* line) { *static_cast<std::string*>(user) += line; }

// Tables of a user may have any config anywhere.
TEST_CASE("with any config, too") {
  for (const FakeCuda& gpu : kGpus) {
    SetFakeCuda(gpu);
    for (size_t index = 0; index < TuningTables::Configs(); ++index) {
      INFO(gpu.name << ", config " << index);
      const TuningTables tables({.name = gpu.name,
                                 .compute_capability = gpu.compute_capability,
                                 .multiprocessors = gpu.multiprocessors},
                                index);
      std::set<std::string> names;
      std::string log;
      SetLogCallback(&Keep, &log, LogLevel::kInfo);
      ExpectEngineTaken(SmallerFlashConfig(), {.tuning_dir = tables.path()}, &names);
      SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
      REQUIRE(log.find(absl::StrCat("tuning tables of ", tables.count(), " kernels")) !=
              std::string::npos);
      REQUIRE(log.find("not used") == std::string::npos);
      REQUIRE_FALSE(names.empty());
    }
  }
}

// How many kernels an engine of one layer records for that layer in a step of one row, the first
// that it records.
size_t KernelsOfLayer(const std::string& compress_ratio) {
  const TempFolder folder;
  folder.Write("config.json", EditedJson(EditedJson(SmallerFlashConfig(), "num_hidden_layers", "1"),
                                         "compress_ratios", "[" + compress_ratio + ", 0]"));
  const auto engine = Engine::Open(
      folder.path(), {.backend = Backend::kCuda, .context_tokens = 131072, .synthetic_layers = 1});
  REQUIRE_OK(engine);
  size_t steps = 0, kernels = 0;
  for (const FakeLaunch& launch : TakeFakeLaunches()) {
    if (!launch.recorded) continue;
    const auto found = Kernels().find(launch.symbol);
    REQUIRE(found != Kernels().end());
    const std::string& name = found->second.name;
    if (name == "copy_rows_kernel") ++steps;  // with which each step begins
    const bool once = name == "copy_rows_kernel" || name == "rope_table_kernel" ||
                      name == "embed_rows_kernel<uint4>";
    if (steps == 1 && !once) ++kernels;
  }
  REQUIRE(steps > 1);
  return kernels;
}

// docs/kernels.md names them.
TEST_CASE("a step of one row launches so many kernels for a layer") {
  SetFakeCuda(kGpus[0]);
  REQUIRE(KernelsOfLayer("0") == 13);
  REQUIRE(KernelsOfLayer("128") == 15);
  REQUIRE(KernelsOfLayer("4") == 18);
  // Where blocks must not wait for each other, there are no step programs, and the experts are two
  // kernels.
  FakeCuda side_by_side = kGpus[0];
  side_by_side.side_by_side = true;
  SetFakeCuda(side_by_side);
  REQUIRE(KernelsOfLayer("0") == 18);
}

TEST_CASE("launches that a GPU of SM12x would not take are found") {
  const CudaKernel kernel{.symbol = "", .name = "", .registers = 64, .shared_bytes = 1024};
  const FakeLaunch most{.symbol = "",
                        .blocks = {kMostBlocks[0], kMostBlocks[1], kMostBlocks[2]},
                        .threads = kMostThreads,
                        .shared_bytes = 98 * 1024,
                        .most_shared_bytes = 98 * 1024};
  REQUIRE(Refusal(most, kernel) == "");
  FakeLaunch launch = most;
  launch.blocks[1] = 0;
  REQUIRE(Refusal(launch, kernel) == "0 blocks along axis 1");
  launch.blocks[1] = 65536;
  REQUIRE(Refusal(launch, kernel) == "65536 blocks along axis 1");
  launch = most;
  launch.threads = 1025;
  REQUIRE(Refusal(launch, kernel) == "1025 threads");
  launch = most;
  launch.shared_bytes = 98 * 1024 + 1;
  REQUIRE(Refusal(launch, kernel) ==
          "100353 bytes of dynamic shared memory, where 100352 are allowed");
  launch.most_shared_bytes = launch.shared_bytes;
  REQUIRE(Refusal(launch, kernel) == "1024 + 100353 bytes of shared memory");
  CudaKernel large = kernel;
  large.registers = 65;
  REQUIRE(Refusal(most, large) == "1024 threads of 65 registers");
}

}  // namespace
}  // namespace dsv4::test
