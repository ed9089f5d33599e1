// SPDX-License-Identifier: Apache-2.0
// The models of tests/gguf and what the published code computes of them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/proof/operator_compare.h"
#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_of_checkpoint.h"
#include "tests/support/status_test_macros.h"
#include "tools/verify/expected_tensors.h"
#include "tools/verify/oracle_case.h"
#include "tools/verify/oracle_checkpoint.h"
#include "tools/verify/oracle_run.h"

namespace dsv4::test {

inline const std::string kGgufFolder = std::string(DSV4_SOURCE_DIR) + "/tests/gguf/";

// The case; its checkpoint has a drafter, the files have none.
inline OracleCase GgufCase(bool drafter = false) {
  absl::StatusOr<OracleCase> loaded = LoadOracleCase(kGgufFolder + "case.json");
  REQUIRE_OK(loaded);
  if (!drafter) loaded->stages = 0;
  return *std::move(loaded);
}

inline ExpectedTensors GgufExpected(const std::string& model) {
  absl::StatusOr<ExpectedTensors> expected =
      ExpectedTensors::Open(kGgufFolder + model + ".safetensors");
  REQUIRE_OK(expected);
  return *std::move(expected);
}

// The file of "tiny-ds4-q2", "tiny-ud" or "tiny-mxfp4". The last one is written to `folder`.
inline std::string GgufFileOf(const std::string& model, const TempFolder& folder) {
  const std::string built = DSV4_BUILT_MODELS "/gguf/";
  if (model == "tiny-ud") return built + "tiny-ud-00002-of-00003.gguf";
  if (model != "tiny-mxfp4") return built + model + ".gguf";
  REQUIRE_OK(WriteOracleCheckpoint(GgufCase(true), folder.File("case")));
  return folder.Write(model + ".gguf", GgufOfCheckpoint(folder.File("case")));
}

// The case on the reference backend.
inline absl::StatusOr<OracleTensors> RunGguf(const OracleCase& oracle, const std::string& path,
                                             Numerics numerics) {
  absl::StatusOr<std::shared_ptr<Engine>> engine =
      Engine::Open(path, OracleEngineOptions(oracle, Backend::kReference, numerics));
  if (!engine.ok()) return engine.status();
  return RunOracleCase(oracle, **engine, [] { return false; });
}

// The relative L2 distance of a tensor from the recorded one; of chosen experts and groups 0 if
// they are the recorded ones in any order, else 1.
inline double GgufDistance(const OracleTensors& tensors, const ExpectedTensors& expected,
                           const std::string& name, const std::string& mode) {
  const size_t dot = name.find('.');
  INFO(name << " " << mode);
  absl::StatusOr<std::vector<float>> recorded =
      expected.Read(absl::StrCat(name.substr(0, dot), ".", mode, name.substr(dot)));
  REQUIRE_OK(recorded);
  std::vector<float> values = *std::move(recorded), actual = tensors.at(name);
  const bool chosen = absl::EndsWith(name, "route_expert") || absl::EndsWith(name, "index_topk");
  if (chosen || absl::EndsWith(name, "route_weight")) {
    for (std::vector<float>* list : {&values, &actual}) {
      std::sort(list->begin(), list->end());
      if (chosen) list->erase(list->begin(), std::lower_bound(list->begin(), list->end(), 0.0f));
    }
    if (chosen) return values == actual ? 0 : 1;
  }
  // Of the logits of a prompt, the last positions are recorded.
  REQUIRE(actual.size() >= values.size());
  actual.erase(actual.begin(), actual.end() - static_cast<std::ptrdiff_t>(values.size()));
  RelativeL2 sum;
  sum.Add(actual, values);
  return sum.distance();
}

}  // namespace dsv4::test
