// SPDX-License-Identifier: Apache-2.0
// What dsv4-tune writes of given times: the library reads it, and finds the fastest config. What it
// measures: the linears that the model launches. The library's reader of tables is held to their
// schema.
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "benchmarks/kernels/sm12x_linears.h"
#include "kernels/tuning/tuning_document.h"
#include "kernels/tuning/tuning_file.h"
#include "lib/io/mapped_file.h"
#include "lib/model/model.h"
#include "lib/text/python_json.h"
#include "lib/weights/synthetic.h"
#include "tests/kernels/fake_kernels.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tools/tune/tables.h"

namespace dsv4::test {
namespace {

const KernelEntry& kEntry = kFakeEntries[0];

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

TuningOrigin Origin() { return {FakeDevice(90, 132), "13.0", "a \"b\"", "2026-11-21"}; }

TEST_CASE("a table has the fastest config of each bucket, and buckets meet") {
  const tuning::File file = MakeTable(kEntry, Timings(), Origin());
  const std::string text = TextOf(file);
  INFO(text);
  const auto read = ReadTuningFile(text, "x", kFakeManifests);
  REQUIRE_OK(read);
  REQUIRE(read->compute_capability == 90);
  REQUIRE(read->multiprocessors == 132);
  const auto config = [&](int64_t rows, int64_t n) {
    return read->table.For({{"rows", rows}, {"n", n}, {"k", 4096}});
  };
  REQUIRE(config(1, 1536) == kFakeConfigs[1]);
  for (const int64_t rows : {2, 8}) REQUIRE(config(rows, 1536) == kFakeConfigs[2]);
  // 8.05 is as good as 8, and comes first.
  for (const int64_t rows : {9, 64, 100000}) REQUIRE(config(rows, 1536) == kFakeConfigs[0]);
  REQUIRE(config(1, 4096) == kFakeConfigs[2]);
  // Together 39, 27 and 21.2 us.
  for (const int64_t rows : {2, 64, 5000}) REQUIRE(config(rows, 4096) == kFakeConfigs[2]);
  // Of the best times: 9.82, 8.98 and 6.43.
  REQUIRE(config(1, 2048) == kFakeConfigs[2]);
  // The other three run the default.
  REQUIRE(file.entries_size() == 2);
  REQUIRE(file.entries(0).median_us() == Approx(5));
  REQUIRE(file.entries(1).median_us() == Approx(8.05));
  REQUIRE(file.entries(1).floor_us() == Approx(3));
}

struct Change {
  JsonValue value;
  bool is_table = false;  // by tools/tune/tuning.proto
};

// The document with one thing changed, for each thing in it: a member or item left out, a key
// misspelt, a value of another type or out of range. `key`: that of `value`; `in`: of the value
// that it is in.
std::vector<Change> Changed(const JsonValue& value, absl::string_view key = "",
                            absl::string_view in = "") {
  const auto is_map = [](absl::string_view of) {
    return of == "default" || of == "when" || of == "config";
  };
  std::vector<Change> changed = {{JsonValue()}};
  if (const std::vector<JsonMember>* members = value.AsObject()) {
    for (size_t i = 0; i < members->size(); ++i) {
      const std::string& name = (*members)[i].key;
      std::vector<JsonMember> without = *members;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      changed.push_back({JsonValue::FromObject(std::move(without)),
                         is_map(key) || is_map(name) || name == "entries"});
      std::vector<JsonMember> misspelt = *members;
      misspelt[i].key += "_";
      changed.push_back({JsonValue::FromObject(std::move(misspelt)), is_map(key)});
      for (Change& inner : Changed((*members)[i].value, name, key)) {
        std::vector<JsonMember> with = *members;
        with[i].value = std::move(inner.value);
        changed.push_back({JsonValue::FromObject(std::move(with)), inner.is_table});
      }
    }
  } else if (const std::vector<JsonValue>* items = value.AsArray()) {
    for (size_t i = 0; i < items->size(); ++i) {
      std::vector<JsonValue> without = *items;
      without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
      changed.push_back({JsonValue::FromArray(std::move(without)), key == "entries"});
      for (Change& inner : Changed((*items)[i], "", in)) {
        std::vector<JsonValue> with = *items;
        with[i] = std::move(inner.value);
        changed.push_back({JsonValue::FromArray(std::move(with)), inner.is_table});
      }
    }
  } else {
    const bool is_text = value.AsString() != nullptr;
    const bool is_time = key == "median_us" || key == "floor_us", is_wide = in == "when";
    for (const auto& [number, is_valid] :
         {std::pair("7", true), std::pair("-1", true), std::pair("2.5", is_time),
          std::pair("3000000000", is_time || is_wide), std::pair("9223372036854775808", is_time),
          std::pair("1e999", false)}) {
      changed.push_back({JsonValue::FromNumberText(number), is_valid && !is_text});
    }
    changed.push_back({JsonValue::FromString("7"), is_text});
    changed.push_back({JsonValue::FromBool(true)});
  }
  return changed;
}

TEST_CASE("the library's reader refuses what the schema refuses, and nothing else") {
  const auto document = ParseJson(TextOf(MakeTable(kEntry, Timings(), Origin())), "x", 1 << 20);
  REQUIRE_OK(document);
  int accepted = 0, refused = 0;
  for (const Change& change : Changed(*document)) {
    std::string text;
    AppendPythonJson(change.value, &text);
    const absl::Status status = ReadTuningDocument(change.value, "x").status();
    INFO(text << ": " << status.ToString());
    REQUIRE(status.ok() == change.is_table);
    ++(status.ok() ? accepted : refused);
  }
  REQUIRE(accepted > 50);
  REQUIRE(refused > 200);
}

TEST_CASE("the library reads what the tool writes") {
  const tuning::File file = MakeTable(kEntry, Timings(), Origin());
  const auto json = ParseJson(TextOf(file), "x", 1 << 20);
  REQUIRE_OK(json);
  const auto document = ReadTuningDocument(*json, "x");
  REQUIRE_OK(document);
  REQUIRE(document->schema == "dsv4.tuning/1");
  REQUIRE(document->op == OpName(kEntry.op));
  REQUIRE(document->impl == kEntry.name);
  REQUIRE(document->impl_rev == kEntry.rev);
  REQUIRE(document->device.name == Origin().device.name);
  REQUIRE(document->device.cc == "9.0");
  REQUIRE(document->device.sm_count == 132);
  REQUIRE(document->toolchain.cuda == "13.0");
  REQUIRE(document->provenance.commit == "a \"b\"");
  REQUIRE(document->provenance.date == "2026-11-21");
  const auto knobs_of = [](const google::protobuf::Map<std::string, int32_t>& knobs) {
    return std::map<std::string, int32_t>(knobs.begin(), knobs.end());
  };
  REQUIRE(document->fallback == knobs_of(file.default_()));
  REQUIRE(static_cast<int>(document->entries.size()) == file.entries_size());
  for (int i = 0; i < file.entries_size(); ++i) {
    const TuningDocument::Entry& entry = document->entries[static_cast<size_t>(i)];
    const tuning::Entry& expected = file.entries(i);
    REQUIRE(entry.config == knobs_of(expected.config()));
    REQUIRE(entry.when.size() == expected.when().size());
    for (const auto& [name, range] : entry.when) {
      REQUIRE(range.first == expected.when().at(name).first());
      REQUIRE(range.last == expected.when().at(name).last());
    }
    REQUIRE(entry.median_us == Approx(expected.median_us()).margin(0.005));
    REQUIRE(entry.floor_us == Approx(expected.floor_us()).margin(0.005));
  }
}

TEST_CASE("the library reads every bundled table") {
  int files = 0;
  for (const auto& item :
       std::filesystem::recursive_directory_iterator(DSV4_SOURCE_DIR "/kernels/sm12x/tuning")) {
    if (item.path().extension() != ".json") continue;
    const std::string path = item.path().string();
    const auto text = ReadFile(path, 1 << 20);
    REQUIRE_OK(text);
    const auto json = ParseJson(*text, path, 1 << 20);
    REQUIRE_OK(json);
    REQUIRE_OK(ReadTuningDocument(*json, path));
    ++files;
  }
  REQUIRE(files == 2);
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
  const Manifest manifests[] = {{entries}};
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
                               .experts = &(*weights)->experts(0),
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
