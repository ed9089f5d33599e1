// SPDX-License-Identifier: Apache-2.0
// Engines on GGUF files: every block format in every place gives the logits of the same values as
// F32 numbers; what is missing or contradicts the keys is named.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lib/engine/engine.h"
#include "lib/engine/inspection.h"
#include "lib/io/gguf.h"
#include "lib/session/session.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_model.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::GgufModelImage;
using test::TempFolder;

EngineOptions Options(Backend backend, Numerics numerics) {
  EngineOptions options;
  options.backend = backend;
  options.numerics = numerics;
  options.context_tokens = 512;
  options.threads = 2;
  return options;
}

// The logits after 150 tokens, computed `at_once`: all three kinds of layers have compressed rows
// then.
std::vector<float> Logits(const std::string& path, const EngineOptions& options,
                          int64_t at_once = 150) {
  const auto engine = Engine::Open(path, options);
  REQUIRE_OK(engine);
  const auto session = Session::Open(*engine, {});
  REQUIRE_OK(session);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 150; ++i) tokens.push_back((i * i + 3 * i) % test::kGgufVocab);
  REQUIRE_OK((*session)->Sync(tokens));
  for (int64_t left = 150; left > 0;) {
    const auto pending = (*session)->Prefill(at_once, {});
    REQUIRE_OK(pending);
    left = *pending;
  }
  return {(*session)->logits().begin(), (*session)->logits().end()};
}

// Formats as a mix has them, a different one for each tensor, beginning with `first`.
std::function<BlockType(const std::string&)> Mix(int first) {
  return [first](const std::string& name) {
    size_t sum = static_cast<size_t>(first);
    for (const char c : name) sum = sum * 31 + static_cast<unsigned char>(c);
    constexpr int kFirst = static_cast<int>(BlockType::kF32);
    constexpr int kTypes = static_cast<int>(BlockType::kCount) - kFirst;
    return static_cast<BlockType>(kFirst + static_cast<int>(sum % kTypes));
  };
}

TEST_CASE("blocks give the logits of their values") {
  const TempFolder folder;
  for (int first = 0; first < 3; ++first) {
    const std::string mixed = folder.Write("mixed.gguf", GgufModelImage(Mix(first)));
    const std::string plain = folder.Write("plain.gguf", GgufModelImage(Mix(first), true));
    const EngineOptions exact = Options(Backend::kReference, Numerics::kExact);
    const std::vector<float> logits = Logits(mixed, exact);
    CHECK(logits == Logits(plain, exact));
    CHECK(std::adjacent_find(logits.begin(), logits.end(), std::not_equal_to<>()) != logits.end());
  }
}

TEST_CASE("the file, its folder and every format of the experts open on the CPU") {
  const TempFolder folder;
  const EngineOptions cpu = Options(Backend::kCpu, Numerics::kPublished);
  for (const BlockType experts : {BlockType::kIq2Xxs, BlockType::kQ2K, BlockType::kMxfp4}) {
    const std::string file =
        folder.Write("model.gguf", GgufModelImage([&](const std::string& name) {
                       return name.find("_exps") != std::string::npos ? experts : BlockType::kQ8_0;
                     }));
    const std::vector<float> logits = Logits(file, cpu);
    CHECK(logits == Logits(folder.path(), cpu));
    CHECK(logits == Logits(file, cpu, 1));   // the row rule
    CHECK(logits == Logits(file, cpu, 37));  // few rows and many
    // int8 and bf16 activations in both; sums in another order.
    const std::vector<float> expected =
        Logits(file, Options(Backend::kReference, Numerics::kPublished));
    double error = 0, norm = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      error += (logits[i] - expected[i]) * (logits[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    CHECK(std::sqrt(error / norm) < 0.03);
  }
  const auto inspected = InspectModel(folder.File("model.gguf"));
  REQUIRE_OK(inspected);
  CHECK(inspected->find("\"weight_format\": \"Q8_0+MXFP4\"") != std::string::npos);
  CHECK(inspected->find("\"MXFP4\": {\"count\": 36") != std::string::npos);
}

TEST_CASE("experts that are read from disk change no bit, with other formats in each layer") {
  const TempFolder folder;
  const std::string ds4 = folder.Write(
      "ds4.gguf", GgufModelImage([](const std::string& name) {
        if (name.find("_exps") == std::string::npos) {
          return BlockType::kQ8_0;
        }
        return name.find("down") != std::string::npos ? BlockType::kQ2K : BlockType::kIq2Xxs;
      }));
  const std::string mixed = folder.Write("mixed.gguf", GgufModelImage(Mix(1)));
  for (const std::string& file : {ds4, mixed}) {
    EngineOptions cpu = Options(Backend::kCpu, Numerics::kPublished);
    const std::vector<float> logits = Logits(file, cpu);
    cpu.weight_budgets.host_bytes = 1;
    const auto none = Engine::Plan(file, cpu);
    REQUIRE_OK(none);
    const ResidencyPlan& plan = none->info().residency;
    REQUIRE(plan.all() == 3 * test::kGgufExperts);
    REQUIRE(plan.on_disk == plan.all());
    CHECK(logits == Logits(file, cpu));
    CHECK(logits == Logits(file, cpu, 1));
    // Half of them: each takes its own size.
    cpu.weight_budgets.host_bytes = plan.all_bytes() / 2;
    const auto some = Engine::Plan(file, cpu);
    REQUIRE_OK(some);
    REQUIRE(some->info().residency.on_host == plan.all() / 2);
    REQUIRE(some->info().residency.on_disk == plan.all() / 2);
    REQUIRE(some->info().residency.host_bytes() == plan.all_bytes() / 2);
    // Two of each layer.
    REQUIRE(some->info().token_expert_bytes == plan.all_bytes() / test::kGgufExperts * 2);
    CHECK(logits == Logits(file, cpu));
  }
}

TEST_CASE("a folder with several models is refused") {
  const TempFolder folder;
  const std::string image = GgufModelImage([](const std::string&) { return BlockType::kF32; });
  folder.Write("one.gguf", image);
  folder.Write("two.gguf", image);
  REQUIRE_FAILS(Engine::Open(folder.path(), Options(Backend::kReference, Numerics::kExact)),
                absl::StatusCode::kInvalidArgument, "holds several models; open one of");
}

TEST_CASE("missing and contradicting tensors are named") {
  const TempFolder folder;
  const auto fails = [&](const std::string& from, const std::string& to, const char* message) {
    std::string image = GgufModelImage([](const std::string&) { return BlockType::kF16; });
    const size_t at = image.find(from);
    REQUIRE(at != std::string::npos);
    REQUIRE(from.size() == to.size());
    image.replace(at, from.size(), to);
    const std::string path = folder.Write("m.gguf", image);
    const auto engine = Engine::Open(path, Options(Backend::kReference, Numerics::kExact));
    INFO(engine.status().ToString());
    REQUIRE_FALSE(engine.ok());
    CHECK(engine.status().message().find(message) != std::string::npos);
  };
  using test::Bytes;
  const auto with_dims = [](const std::string& name, std::vector<uint64_t> dims) {
    std::string text = name + Bytes(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) text += Bytes(dim);
    return text;
  };
  fails("blk.1.attn_q_a.weight", "blk.1.attn_q_x.weight", "blk.1.attn_q_a.weight is missing");
  fails("blk.2.ffn_up_exps.weight", "blk.2.ffn_ux_exps.weight",
        "blk.2.ffn_up_exps.weight is missing");
  fails(with_dims("blk.1.attn_kv.weight", {256, 512}),
        with_dims("blk.1.attn_kv.weight", {512, 256}),
        "blk.1.attn_kv.weight has the shape [256, 512]; the configuration asks for [512, 256]");
  fails(with_dims("blk.0.ffn_gate_exps.weight", {256, 256, 4}),
        with_dims("blk.0.ffn_gate_exps.weight", {256, 128, 8}),
        "\"blk.0.ffn_gate_exps.weight\" has 8 experts in 3 dimensions; the model has 4");
}

TEST_CASE("a thousand damaged headers are read or refused") {
  const TempFolder folder;
  const std::string image = GgufModelImage(Mix(0));
  const auto parsed =
      ParseGguf({reinterpret_cast<const uint8_t*>(image.data()), image.size()}, "m");
  REQUIRE_OK(parsed);
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = image;
    for (int j = 0; j <= i % 3; ++j) {
      damaged[random() % static_cast<size_t>(parsed->header_bytes)] = static_cast<char>(random());
    }
    const std::string path = folder.Write("m.gguf", damaged);
    // As much as can be read without the data.
    refused += !Engine::Plan(path, Options(Backend::kReference, Numerics::kExact)).ok();
  }
  CHECK(refused > 300);
}

TEST_CASE("values that are no numbers are refused") {
  const TempFolder folder;
  std::string image = GgufModelImage([](const std::string&) { return BlockType::kMxfp4; });
  const auto parsed =
      ParseGguf({reinterpret_cast<const uint8_t*>(image.data()), image.size()}, "m");
  REQUIRE_OK(parsed);
  for (const GgufTensor& tensor : parsed->tensors) {
    if (tensor.name != "blk.1.ffn_down_exps.weight") continue;
    image[static_cast<size_t>(tensor.data - reinterpret_cast<const uint8_t*>(image.data())) +
          17 * 100] = static_cast<char>(255);
  }
  REQUIRE_FAILS(
      Engine::Open(folder.Write("m.gguf", image), Options(Backend::kReference, Numerics::kExact)),
      absl::StatusCode::kDataLoss,
      "blk.1.ffn_down_exps.weight has an element that is not a finite number");
}

}  // namespace
}  // namespace dsv4
