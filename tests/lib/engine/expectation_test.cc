// SPDX-License-Identifier: Apache-2.0
// Predicted speeds against those that benchmarks/results records, and for GPUs that were never
// measured only their order.
#include <cstdint>
#include <string>
#include <vector>

#include "lib/engine/expectation.h"
#include "tests/support/catch.h"

namespace dsv4 {
namespace {

constexpr double kGB = 1e9;

// Flash: 43 layers of 256 experts, of which a token chooses 6; MXFP4 experts.
ModelConfig Flash(int64_t layers = 43) {
  ModelConfig config;
  config.num_hidden_layers = layers;
  config.hidden_size = 4096;
  config.moe_intermediate_size = 2048;
  config.n_routed_experts = 256;
  config.num_experts_per_tok = 6;
  config.vocab_size = 129280;
  return config;
}

constexpr double kExpertBytes = 3.0 * 4096 * 2048 * 17 / 32;
constexpr double kTables = 2 * 2.0 * 129280 * 4096;  // embedding and head

double DenseBytes(int64_t layers) { return 0.146 * kGB * static_cast<double>(layers) + kTables; }

// Weights of so many gigabytes on the device and in host memory; the others on disk.
TokenWork Split(double device, double host, int64_t chunk = 4096) {
  EngineInfo info{};
  info.backend = Backend::kCuda;
  info.devices.resize(1);
  info.prefill_chunk_tokens = static_cast<int32_t>(chunk);
  info.weight_bytes = static_cast<int64_t>(device * kGB);
  ResidencyPlan& experts = info.residency;
  experts.blocks = 43;
  experts.experts = 256;
  experts.expert_bytes = static_cast<int64_t>(kExpertBytes);
  experts.on_device = static_cast<int64_t>((device * kGB - DenseBytes(43)) / kExpertBytes);
  experts.on_host = static_cast<int64_t>(host * kGB / kExpertBytes);
  experts.on_disk = experts.all() - experts.on_device - experts.on_host;
  if (experts.on_disk < 0) {
    experts.on_host += experts.on_disk;
    experts.on_disk = 0;
  }
  return WorkOf(info, Flash(), "fp8+fp4");
}

TokenWork Whole(int64_t layers, int ranks = 1) {
  EngineInfo info{};
  info.backend = Backend::kCuda;
  info.devices.resize(static_cast<size_t>(ranks));
  info.prefill_chunk_tokens = 4096;
  // Every device has the embedding.
  info.weight_bytes = static_cast<int64_t>(DenseBytes(layers) + (ranks - 1) * kTables / 2 +
                                           static_cast<double>(layers * 256) * kExpertBytes);
  return WorkOf(info, Flash(layers), "fp8+fp4");
}

TEST_CASE("layers whose experts differ count their own bytes") {
  EngineInfo info{};
  info.backend = Backend::kCuda;
  info.devices.resize(1);
  ResidencyPlan& experts = info.residency;
  constexpr int64_t kOne = 7'000'000;
  experts = {.blocks = 43,
             .experts = 256,
             .on_device = 43 * 96,
             .on_host = 43 * 128,
             .on_disk = 43 * 32,
             .guests = 2,
             .expert_bytes = kOne * 44 / 43,
             .classes = {{.blocks = 42, .bytes = kOne, .guests = 1},
                         {.blocks = 1, .bytes = 2 * kOne, .guests = 1}},
             .class_of = std::vector<int32_t>(43)};
  experts.class_of[26] = 1;
  const auto device = static_cast<double>((44 * 96 + 3) * kOne);
  info.weight_bytes = static_cast<int64_t>(DenseBytes(43) + device);
  const TokenWork work = WorkOf(info, Flash(), "Q8_0+IQ2_XXS");
  CHECK(work.expert_bytes == Approx(6 * 44 * kOne));
  CHECK(work.all_host_bytes == Approx(44 * 128 * kOne));
  CHECK(work.host_share == Approx(0.5));
  CHECK(work.disk_share == Approx((44 * 32 - 3) / (44.0 * 256)));
  CHECK(work.dense_bytes == Approx(DenseBytes(43) - work.head_bytes));
}

DeviceRates Hopper(const std::string& name) {
  return RatesOf(Backend::kCuda, {.name = name, .compute_capability = 90, .multiprocessors = 132},
                 false, 1);
}

void CheckWithin(double predicted, double measured) {
  INFO(predicted << " predicted, " << measured << " measured");
  CHECK(predicted > 0.75 * measured);
  CHECK(predicted < 1.25 * measured);
}

TEST_CASE("decoding from GPU memory, as recorded on 2026-11-26 and 27") {
  CheckWithin(Expect(Whole(16), Hopper("NVIDIA H100 80GB HBM3")).decode, 416);
  CheckWithin(Expect(Whole(16), Hopper("NVIDIA H200")).decode, 473);
  CheckWithin(Expect(Whole(38), Hopper("NVIDIA H200")).decode, 1 / 4.72e-3);
  CheckWithin(Expect(Whole(43, 2), Hopper("NVIDIA H200")).decode, 212);
  CheckWithin(Expect(Whole(43, 4), Hopper("NVIDIA H200")).decode, 227);
}

TEST_CASE("prompts in GPU memory, as recorded on 2026-11-26 and 27") {
  CheckWithin(Expect(Whole(16), Hopper("NVIDIA H100 80GB HBM3")).prefill, 20692);
  CheckWithin(Expect(Whole(43, 2), Hopper("NVIDIA H200")).prefill, 12548);
}

// 12 layers of 256 experts; a token reads 3.035 and 2.599 GB, of which 6 experts a layer.
TEST_CASE("GGUF files in GPU memory, as recorded on 2026-11-28") {
  const struct {
    double weights, token, decode, prefill;
  } records[] = {{25.36e9, 3.035e9, 445, 10183}, {25.52e9, 2.599e9, 459, 12312}};
  for (const auto& record : records) {
    TokenWork work = Whole(12);
    work.blocks = true;
    const double table = kTables / 2;
    // weights = table + dense + 256 e, token = dense + 6 e.
    const double e = (record.weights - table - record.token) / (12 * 250.0);
    work.expert_bytes = 12 * 6 * e;
    work.dense_bytes = record.token - work.expert_bytes;
    CheckWithin(Expect(work, Hopper("NVIDIA H200")).decode, record.decode);
    CheckWithin(Expect(work, Hopper("NVIDIA H200")).prefill, record.prefill);
  }
}

TEST_CASE("experts in host memory and on disk, as recorded on 2026-11-26") {
  DeviceRates h100 = Hopper("NVIDIA H100 80GB HBM3");
  const struct {
    double device, host, decode, prefill;
  } records[] = {{76, 85, 22, 2141}, {64, 97, 21, 1943}, {32, 129, 18, 1502}};
  for (const auto& record : records) {
    const Expectation expected = Expect(Split(record.device, record.host), h100);
    CheckWithin(expected.decode, record.decode);
    CheckWithin(expected.prefill, record.prefill);
  }
  // Prompts read every expert on disk. The few recorded steps read 0.40 GB (24 GB of weights on the
  // GPU) and 1.30 GB (16 GB) from disk, where equally often chosen experts would be 0.95 and 1.1
  // GB: the predicted time lies between theirs.
  h100.disk = 1.58e9;
  const Expectation expected = Expect(Split(24, 100), h100);
  CheckWithin(expected.prefill, 172);
  CHECK(expected.decode < 3.4);
  CHECK(expected.decode > 1.2);
}

TEST_CASE("the machines of README.md") {
  const auto rates = [](const char* name, bool integrated = false) {
    return RatesOf(Backend::kCuda,
                   {.name = name, .compute_capability = 120, .multiprocessors = 170}, integrated,
                   1);
  };
  CHECK(Expect(Split(28, 100), rates("RTX 5090")).decode == Approx(3.7).epsilon(0.05));
  CHECK(Expect(Split(90, 66), rates("RTX PRO 6000")).decode == Approx(25).epsilon(0.05));
  CHECK(Expect(Split(100, 0), rates("GB10", true)).decode == Approx(2.1).epsilon(0.05));
  CHECK(Expect(Whole(43, 2), rates("RTX PRO 6000")).decode == Approx(150).epsilon(0.05));
}

TEST_CASE("more memory, and faster memory, are expected to be faster") {
  const auto rates = [](const char* name, bool integrated = false) {
    return RatesOf(Backend::kCuda,
                   {.name = name, .compute_capability = 120, .multiprocessors = 170}, integrated,
                   1);
  };
  const DeviceRates rtx5090 = rates("NVIDIA GeForce RTX 5090");
  double before = 0;
  for (const double device : {16, 24, 32, 48, 96}) {
    const double decode = Expect(Split(device, 64), rtx5090).decode;
    CHECK(decode > before);
    before = decode;
  }
  CHECK(Expect(Split(30, 64), rtx5090).decode < Expect(Split(30, 128), rtx5090).decode);
  CHECK(Expect(Split(30, 128), rates("NVIDIA GeForce RTX 5060")).decode <
        Expect(Split(30, 128), rtx5090).decode);
  CHECK(rates("NVIDIA GeForce RTX 5070 Ti").memory > rates("NVIDIA GeForce RTX 5070").memory);
  CHECK(rates("NVIDIA GB10", true).host == rates("NVIDIA GB10", true).memory);
}

TEST_CASE("the CPU: threads up to the memory's rate; prompts are not predicted") {
  EngineInfo info{};
  info.backend = Backend::kCpu;
  info.devices.resize(1);
  info.weight_bytes = static_cast<int64_t>(DenseBytes(43) + 43 * 256 * kExpertBytes);
  info.prefill_chunk_tokens = 256;
  const TokenWork work = WorkOf(info, Flash(), "fp8+fp4");
  const auto decode = [&](int threads) {
    return Expect(work, RatesOf(Backend::kCpu, {}, false, threads)).decode;
  };
  CHECK(decode(4) > 1.8 * decode(2));
  CHECK(decode(32) == decode(16));
  // 10.8 GB a token, at 80 GB/s.
  CHECK(decode(16) == Approx(7.4).epsilon(0.1));
  CHECK(Expect(work, RatesOf(Backend::kCpu, {}, false, 8)).prefill == 0);
}

TEST_CASE("experts of a GGUF file count with the bytes that they have") {
  // Q2_K: 2.625 bits a weight, in 43 layers of 256 experts of 25.2 million weights each.
  const double experts = 43.0 * 256 * 3 * 4096 * 2048 * 2.625 / 8;
  EngineInfo info{};
  info.backend = Backend::kCpu;
  info.devices.resize(1);
  info.prefill_chunk_tokens = 256;
  info.mapped_expert_bytes = static_cast<int64_t>(experts);
  info.weight_bytes = static_cast<int64_t>(experts + 8 * kGB);
  const TokenWork work = WorkOf(info, Flash(), "q8_0+q2_K");
  CHECK(work.expert_bytes == Approx(experts * 6 / 256));
  // Of the other 8 GB a token reads one row of the embedding.
  CHECK(work.dense_bytes == Approx(8 * kGB - kTables / 2).epsilon(1e-6));
}

}  // namespace
}  // namespace dsv4
