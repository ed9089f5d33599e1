// SPDX-License-Identifier: Apache-2.0
// What dsv4-tune writes of given times: the library reads it, and finds the fastest config. What it
// measures: the linears that the model launches.
#include <numeric>
#include <set>
#include <tuple>

#include "benchmarks/kernels/sm12x_linears.h"
#include "kernels/tuning/tuning_file.h"
#include "lib/io/mapped_file.h"
#include "lib/model/model.h"
#include "lib/model/synthetic.h"
#include "tests/kernels/made_up_kernels.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tools/tune/tables.h"

namespace dsv4::test {
namespace {

const KernelEntry& kEntry = kMadeUpEntries[0];

Timing At(int64_t rows, int64_t n, double floor_us, std::vector<double> median_us) {
  return {{{"rows", rows}, {"n", n}, {"k", 4096}}, floor_us, std::move(median_us)};
}

// Times of the made-up kernel's three configs.
std::vector<Timing> Timings() {
  return {At(1, 1536, 2, {9, 5, 7}), At(8, 1536, 2, {9, 9, 7}), At(64, 1536, 3, {8.05, 9, 8}),
          At(1, 4096, 2, {5, 5, 4.5}), At(64, 4096, 6, {9, 7, 7.2}),
          // One more case of the same dimensions, which the others outweigh.
          At(64, 4096, 12, {30, 20, 14})};
}

TuningOrigin Origin() { return {MadeUpDevice(90, 132), "13.0", "a \"b\"", "2026-11-21"}; }

TEST_CASE("a table has the fastest config of each bucket, and buckets meet") {
  const tuning::File file = MakeTable(kEntry, Timings(), Origin());
  const std::string text = TextOf(file);
  INFO(text);
  const auto read = ReadTuningFile(text, "x", kMadeUpManifests);
  REQUIRE_OK(read);
  REQUIRE(read->compute_capability == 90);
  REQUIRE(read->multiprocessors == 132);
  const auto config = [&](int64_t rows, int64_t n) {
    return read->table.For({{"rows", rows}, {"n", n}, {"k", 4096}});
  };
  REQUIRE(config(1, 1536) == kMadeUpConfigs[1]);
  for (const int64_t rows : {2, 8}) REQUIRE(config(rows, 1536) == kMadeUpConfigs[2]);
  // 8.05 is as good as 8, and comes first.
  for (const int64_t rows : {9, 64, 100000}) REQUIRE(config(rows, 1536) == kMadeUpConfigs[0]);
  REQUIRE(config(1, 4096) == kMadeUpConfigs[2]);
  // Together 39, 27 and 21.2 us.
  for (const int64_t rows : {2, 64, 5000}) REQUIRE(config(rows, 4096) == kMadeUpConfigs[2]);
  // Of the best times: 9.82, 8.98 and 6.43.
  REQUIRE(config(1, 2048) == kMadeUpConfigs[2]);
  REQUIRE(file.entries_size() == 5);
  REQUIRE(file.entries(3).median_us() == Approx(10.6));
  REQUIRE(file.entries(3).floor_us() == Approx(9));
}

TEST_CASE("a modelled table has the measured choices, no times, and says on what they were made") {
  const tuning::File measured = MakeTable(kEntry, Timings(), Origin());
  for (const ModelledDevice& device : ModelledDevices()) {
    INFO(device.option);
    const tuning::File file = ModelTable(measured, device);
    REQUIRE(file.provenance().measured_on() == "made up");
    const std::string text = TextOf(file);
    REQUIRE(text.find("_us") == std::string::npos);
    const auto read = ReadTuningFile(text, "x", kMadeUpManifests);
    REQUIRE_OK(read);
    REQUIRE(read->compute_capability == device.compute_capability);
    REQUIRE(read->multiprocessors == device.multiprocessors);
    REQUIRE(read->table.For({{"rows", 1}, {"n", 1536}, {"k", 4096}}) == kMadeUpConfigs[1]);
  }
}

std::set<std::tuple<Op, int64_t, int64_t>> linears;  // that were prepared: operator, n and k

template <class Params>
absl::Status NoteLinear(const void* params) {
  const CallDims dims = DimsOf(*static_cast<const Params*>(params));
  linears.emplace(Params::kOp, dims.all()[1].value, dims.all()[2].value);
  return absl::OkStatus();
}

TEST_CASE("there is a case for every linear that the model launches at Flash's sizes") {
  const std::string path = DSV4_SOURCE_DIR "/benchmarks/e2e/flash/config.json";
  const auto json = ReadFile(path, 1 << 20);
  REQUIRE_OK(json);
  const auto flash = ParseModelConfig(*json, path);
  REQUIRE_OK(flash);
  const ModelConfig config = FirstLayers(*flash, 4);
  REQUIRE(config.compress_ratios == std::vector<int32_t>{0, 0, 4, 128, 0});

  std::vector<KernelEntry> entries;
  for (int32_t op = 0; op < static_cast<int32_t>(Op::kCount); ++op) {
    entries.push_back({.name = "any",
                       .op = static_cast<Op>(op),
                       .backend = Backend::kCpu,
                       .numerics = kPublishedBit,
                       .supports = [](const void*) { return absl::OkStatus(); },
                       .workspace_bytes = [](const void*, int) { return int64_t{0}; },
                       .launch = nullptr,
                       .dims = nullptr,
                       .rev = 1});
  }
  entries[static_cast<size_t>(Op::kLinearFp8)].supports = &NoteLinear<LinearFp8Params>;
  entries[static_cast<size_t>(Op::kLinearBf16)].supports = &NoteLinear<LinearBf16Params>;
  const Manifest manifests[] = {entries};
  Dispatch dispatch(manifests, Backend::kCpu, Numerics::kPublished, {});
  const auto device = Device::Open({.threads = 1});
  REQUIRE_OK(device);
  const auto weights =
      Weights::Describe(config, Checkpoint::FromMemory(Weights::TensorsOf(config), {}));
  REQUIRE_OK(weights);
  const auto cache = PlanKvCache({.compress_ratios = config.compress_ratios,
                                  .mtp_layers = 1,
                                  .context_tokens = 4096,
                                  .cache_tokens = 4096,
                                  .max_sequences = 1,
                                  .max_step_tokens = 1});
  REQUIRE_OK(cache);
  const Shards shards = Shards::Of(config, 1).value();
  REQUIRE_OK(Model::PlanBytes({.config = &config,
                               .weights = weights->get(),
                               .dispatch = &dispatch,
                               .device = device->get(),
                               .layers = cache->layers,
                               .drafts = true,
                               .shards = &shards},
                              {.rows = 1, .sequences = 1, .logit_rows = 1, .positions = 4096}));

  // Down, up with and without the indexer, out, and the MTP block's; of bf16 those of both kinds of
  // compressor, and the head.
  REQUIRE(linears.size() == 8);
  for (const auto& [op, n, k] : linears) {
    INFO(OpName(op) << ", n " << n << ", k " << k);
    bool found = false;
    for (const LinearShape& shape : kLinearShapes) {
      const int64_t width = std::accumulate(shape.n.begin(), shape.n.end(), int64_t{0});
      found = found || (shape.op == op && width == n && shape.k == k);
    }
    REQUIRE(found);
  }
}

}  // namespace
}  // namespace dsv4::test
