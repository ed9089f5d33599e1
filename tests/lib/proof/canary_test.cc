// SPDX-License-Identifier: Apache-2.0
// The canary of a model folder: the bundled ones, whose logits tools/tinymodel/model.py computed,
// hold on every backend and split; a flipped bit of a weight is an alarm, and nothing else than an
// alarm; files that are no canary are refused by file and key.
#include "lib/proof/canary.h"

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lib/base/log.h"
#include "lib/engine/metrics.h"
#include "lib/io/checkpoint.h"
#include "lib/proof/open_best.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4 {
namespace {

using test::BundledFile;
using test::kBundledDspark;
using test::kBundledModel;
using test::OpenBundled;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

OpenOptions WithCanary(const EngineOptions& options = {}) {
  OpenOptions with{options};
  with.context_tokens = 128;
  with.canary = true;
  return with;
}

std::shared_ptr<Engine> OpenWith(const OpenOptions& options,
                                 const std::string& folder = kBundledModel) {
  absl::StatusOr<std::shared_ptr<Engine>> engine = OpenBest(folder, options);
  REQUIRE_OK(engine);
  return *std::move(engine);
}

int64_t CanaryAlarms(const Engine& engine) { return MetricsOf(engine).alarms.back(); }

TEST_CASE("the bundled canaries hold on every backend and split") {
  struct Case {
    std::string folder;
    EngineOptions options;
  };
  for (const Case& c : std::vector<Case>{
           {kBundledModel, {}},
           {kBundledModel, {.backend = Backend::kReference}},
           {kBundledModel, {.devices = {0, 1}, .prefill_chunk_tokens = 8, .max_draft_tokens = 3}},
           {kBundledModel, {.threads = 2, .weight_budgets = {.host_bytes = 1}}},
           {kBundledDspark, {.max_draft_tokens = 5}}}) {
    const std::shared_ptr<Engine> engine = OpenWith(WithCanary(c.options), c.folder);
    CHECK(engine->info().canary == CanaryState::kPassed);
    CHECK(CanaryAlarms(*engine) == 0);
    CHECK(engine->cache().use().windows.held() == 0);
    CHECK(engine->cache().use().compressed.cached == 0);
  }
}

TEST_CASE("a canary needs published numerics and rows, room, and somebody who asks for it") {
  const OpenOptions rows = WithCanary({.cache_format = RowFormat::kFp8PerTensor});
  CHECK(OpenWith(rows)->info().canary == CanaryState::kNotRun);
  OpenOptions exact = WithCanary({.backend = Backend::kReference, .numerics = Numerics::kExact});
  CHECK(OpenWith(exact)->info().canary == CanaryState::kNotRun);
  OpenOptions small = WithCanary();
  small.context_tokens = 32;
  CHECK(OpenWith(small)->info().canary == CanaryState::kNotRun);
  CHECK(OpenWith({{.context_tokens = 128}})->info().canary == CanaryState::kNone);
}

// The bundled model with one change.
class Folder {
 public:
  Folder() {
    for (const char* name : {"config.json", kCanaryFile}) folder_.Write(name, BundledFile(name));
  }
  // `bit` of byte 1 of that tensor; none: 0.
  void WriteTensors(absl::string_view flipped, int bit) const {
    const auto checkpoint = Checkpoint::Open(kBundledModel);
    REQUIRE_OK(checkpoint);
    std::vector<test::StoredTensor> tensors;
    for (const auto& [name, entry] : (*checkpoint)->tensors()) {
      tensors.push_back({name, std::string(entry.dtype_name()), entry.shape,
                         std::string(entry.data, entry.data + entry.bytes)});
      if (name == flipped) tensors.back().bytes[1] ^= static_cast<char>(1 << bit);
    }
    folder_.Write("model.safetensors", test::SafetensorsImage(tensors));
  }
  void WriteCanary(absl::string_view text) const { folder_.Write(kCanaryFile, text); }
  const std::string& path() const { return folder_.path(); }

 private:
  test::TempFolder folder_;
};

std::vector<std::string>* lines = nullptr;
void Collect(void*, LogLevel, const char* message) { lines->push_back(message); }

TEST_CASE("a flipped bit of a weight raises the alarm, and the engine opens") {
  const Folder folder;
  folder.WriteTensors("layers.3.attn.wo_a.scale", 3);
  std::vector<std::string> log;
  lines = &log;
  SetLogCallback(&Collect, nullptr, LogLevel::kWarning);
  const std::shared_ptr<Engine> engine = OpenWith(WithCanary(), folder.path());
  SetLogCallback(nullptr, nullptr, LogLevel::kInfo);
  CHECK(engine->info().canary == CanaryState::kFailed);
  CHECK(CanaryAlarms(*engine) == 1);
  REQUIRE(log.size() == 1);
  INFO(log[0]);
  CHECK(log[0].find("alarm canary: the logit of token ") == 0);
  CHECK(log[0].find("it was recorded with checkpoint 4eed995de9ce01b913fa2910801525a0, and this") !=
        std::string::npos);
  // Sessions have it, and answer.
  const std::unique_ptr<Session> session = test::OpenSession(engine);
  CHECK(session->stats().alarms == static_cast<int32_t>(Alarm::kCanary));
  REQUIRE_OK(session->Sync(std::vector<int32_t>{0, 300, 301}));
  REQUIRE_OK(session->Step());
  CHECK(session->stats().alarms == static_cast<int32_t>(Alarm::kCanary));
}

CanaryResult Compared(const CanaryRow& row, const std::vector<float>& logits) {
  CanaryResult worst;
  Compare(row, logits, &worst);
  return worst;
}

TEST_CASE("the distance is the worst of the recorded logits and of what is above them") {
  const CanaryRow row{.position = 5, .logits = {{2, 9.0f}, {0, 4.0f}}};
  CHECK(Compared(row, {4, -1, 9, 4}).distance == 0);
  const CanaryResult below = Compared(row, {4, -1, 8.5f, 4.25f});
  CHECK((below.distance == 0.5f && below.token == 2 && below.recorded == 9 && below.position == 5));
  const CanaryResult above = Compared(row, {4, 6, 9, 5});
  CHECK((above.distance == 2 && above.token == 1 && !above.among_recorded && above.recorded == 4));
  for (const size_t at : {0u, 1u, 2u, 3u}) {
    std::vector<float> logits = {4, -1, 9, 4};
    logits[at] = NAN;
    CHECK(Compared(row, logits).distance == kInfinity);
  }
}

TEST_CASE("a canary is read as it was written") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 64});
  Canary canary{.about = "of \"us\"",
                .fingerprint = engine->fingerprint(),
                .tokens = {0, 300, 301, 302, 303},
                .tolerance = 0.001f,
                .tolerance_reason = "the same device"};
  REQUIRE_OK(RecordCanary(*engine, {1, 4}, 3, &canary));
  const absl::StatusOr<Canary> read = ParseCanary(CanaryText(canary), "written", 2048);
  REQUIRE_OK(read);
  CHECK(CanaryText(*read) == CanaryText(canary));
  REQUIRE(read->rows.size() == 2);
  CHECK((read->about == canary.about && read->rows[1].logits.size() == 3));
  const absl::StatusOr<CanaryResult> again = RunCanary(*engine, *read);
  REQUIRE_OK(again);
  CHECK(again->distance == 0);
}

TEST_CASE("what is no canary is refused by file and key") {
  const std::string good = BundledFile(kCanaryFile);
  REQUIRE_OK(ParseCanary(good, "f", 2048));
  struct Change {
    const char *from, *to, *told;
  };
  for (const Change& change : std::vector<Change>{
           {"{", "[{", "f: line "},
           {"dsv4.canary/1", "dsv4.canary/2", "f: schema is \"dsv4.canary/2\""},
           {"\"schema\"", "\"Schema\"", "f: schema is missing"},
           {"\"about\"", "\"abut\"", "f: unknown key \"abut\""},
           {"\"about\": \"", "\"about\": 1, \"more\": \"", "f: unknown key \"more\""},
           {"\"fingerprint\": \"4", "\"fingerprint\": \"x", "f: fingerprint is \"xeed"},
           {"[0, 2035", "[-1, 2035", "f: tokens[0] is -1; expected an integer from 0 to 2047"},
           {"2036, 2038],\n", "2036, 2048],\n", "f: tokens[36] is 2048"},
           {"[0, 2035", "[\"0\", 2035", "f: tokens[0] is of kind string"},
           {"2036, 2038],\n", "2036],\n", "f: rows[3].position is 36; expected"},
           {"2036, 2038],\n", "2036, 2038, 5],\n",
            "f: rows end at position 36; the last of tokens"},
           {"\"tolerance\": 0.64", "\"tolerance\": 0", "f: tolerance is 0; expected more"},
           {"\"tolerance\": 0.64", "\"tolerance\": 1e999", "f: tolerance is 1e999"},
           {"\"tolerance\": 0.64", "\"tolerance\": null", "f: tolerance is of kind null"},
           {"\"rows\": [", "\"rows\": [], \"none\": [", "f: unknown key \"none\""},
           {"\"position\": 21", "\"position\": 13", "f: rows[1].position is 13, not above"},
           {"\"position\": 21", "\"place\": 21", "f: unknown key rows[1].\"place\""},
           {"[701, ", "[2048, ", "f: rows[1].logits[0][0] is 2048"},
           {"[701, ", "[672, ", "f: rows[1].logits[1] has token 672 again"},
           {"[701, ", "[701, 1, ", "f: rows[1].logits[0] is of kind array; expected a token and"},
           {"[701, 2", "[701, ", "f: rows[1].logits[1] is larger than the logit before"},
       }) {
    INFO(change.from << " as " << change.to);
    REQUIRE(good.find(change.from) != std::string::npos);
    std::string text = good;
    text.replace(good.find(change.from), std::string(change.from).size(), change.to);
    REQUIRE_FAILS(ParseCanary(text, "f", 2048), absl::StatusCode::kDataLoss, change.told);
  }
  REQUIRE_FAILS(ParseCanary("[]", "f", 2048), absl::StatusCode::kDataLoss, "f: the document is");
  // An engine says the same, before it reads a weight; one that is not asked to does not look.
  const Folder folder;
  folder.WriteCanary(absl::StrReplaceAll(good, {{"0.64", "-1"}}));
  const std::string told = absl::StrCat(folder.path(), "/dsv4_canary.json: tolerance is -1");
  REQUIRE_FAILS(OpenBest(folder.path(), WithCanary()), absl::StatusCode::kDataLoss, told);
  REQUIRE_FAILS(PlanBest(folder.path(), WithCanary()), absl::StatusCode::kDataLoss, told);
  REQUIRE_FAILS(OpenBest(folder.path(), {}), absl::StatusCode::kNotFound, "safetensors");
}

}  // namespace
}  // namespace dsv4
