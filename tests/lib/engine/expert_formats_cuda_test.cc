// SPDX-License-Identifier: Apache-2.0
// Layers whose first expert is MXFP4 in the form of NVFP4, as the others are not: the device runs
// all of them as NVFP4, though a sample of the first does not tell.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/io/checkpoint.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/residency.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::kBundledModel;
using test::LogitsAfter;
using test::OpenBundled;
using test::StoredTensor;
using test::WithBudgets;

// The bundled model's experts are too small to change a rounded number; these are not.
constexpr int kLouder = 6;  // of a scale's exponent

enum class Form { kMxfp4, kCast, kUnlike };

// An MXFP4 matrix as NVIDIA's cast writes it, or with every other run of 16 at half its scale,
// which no cast gives.
std::vector<StoredTensor> AsNvfp4(const std::string& name, StoredTensor weight,
                                  const StoredTensor& scale, bool unlike) {
  int largest = 0;
  for (const char byte : scale.bytes) largest = std::max<int>(largest, static_cast<uint8_t>(byte));
  std::string halves;
  int least = 15;
  for (const char byte : scale.bytes) {
    const int field = static_cast<uint8_t>(byte) - largest + 15;  // of e4m3: 15 is 2^8
    least = std::min(least, field);
    halves += static_cast<char>(field << 3);
    halves += static_cast<char>((field - (unlike ? 1 : 0)) << 3);
  }
  REQUIRE(least >= 2);
  const float tensor_scale = std::ldexp(1.0f, largest - 127 - 8);
  weight.dtype = "U8";
  return {std::move(weight),
          {name + ".weight_scale", "F8_E4M3", {scale.shape[0], 2 * scale.shape[1]}, halves},
          {name + ".weight_scale_2",
           "F32",
           {},
           {reinterpret_cast<const char*>(&tensor_scale), sizeof tensor_scale}}};
}

// The bundled model in one file, with its experts so; kUnlike: all but the first of a layer.
void WriteModel(const test::TempFolder& folder, Form form) {
  for (const char* file : {"config.json", "tokenizer.json"}) {
    folder.Write(file, test::BundledFile(file));
  }
  const auto checkpoint = Checkpoint::Open(kBundledModel);
  REQUIRE_OK(checkpoint);
  const auto stored = [&](const std::string& name) {
    const TensorEntry& entry = *(*checkpoint)->Find(name);
    return StoredTensor{
        name,
        std::string(entry.dtype_name()),
        entry.shape,
        {reinterpret_cast<const char*>(entry.data), static_cast<size_t>(entry.bytes)}};
  };
  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : (*checkpoint)->tensors()) {
    if (!absl::StrContains(name, ".experts.")) {
      tensors.push_back(stored(name));
    } else if (absl::EndsWith(name, ".weight")) {
      const std::string matrix = name.substr(0, name.rfind('.'));
      StoredTensor scale = stored(matrix + ".scale");
      for (char& byte : scale.bytes) byte = static_cast<char>(byte + kLouder);
      std::vector<StoredTensor> parts{stored(name), scale};
      if (form != Form::kMxfp4) {
        parts = AsNvfp4(matrix, std::move(parts[0]), scale,
                        form == Form::kUnlike && !absl::StrContains(name, ".experts.0."));
      }
      for (StoredTensor& part : parts) tensors.push_back(std::move(part));
    }
  }
  folder.Write("model.safetensors", test::SafetensorsImage(tensors));
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(a[i] - b[i], 2);
    size += std::pow(b[i], 2);
  }
  return std::sqrt(apart / size);
}

TEST_CASE("experts behind the first that are no MXFP4 have their layers run as NVFP4",
          "[budgets]") {
  const std::vector<int32_t> prompt = AnyTokens(3, 1);
  const test::TempFolder folder;
  WriteModel(folder, Form::kMxfp4);
  const std::vector<float> mxfp4 = LogitsAfter(OpenBundled(WithBudgets({}), folder.path()), prompt);
  WriteModel(folder, Form::kCast);
  CHECK(LogitsAfter(OpenBundled(WithBudgets({}), folder.path()), prompt) == mxfp4);

  WriteModel(folder, Form::kUnlike);
  EngineOptions reference = WithBudgets({});
  reference.backend = Backend::kReference;
  reference.step_limit.reset();
  std::vector<int64_t> shown;
  EngineOptions watched = WithBudgets({});
  watched.progress = [&](int64_t done, int64_t total) {
    shown.push_back(done);
    return done <= total;
  };
  const std::vector<float> logits = LogitsAfter(OpenBundled(watched, folder.path()), prompt);
  CHECK(std::is_sorted(shown.begin(), shown.end()));
  CHECK(Distance(logits, mxfp4) > 0.03);
  // One number that is rounded otherwise than the reference rounds it moves the logits of these
  // loud experts by 1e-2. Most prompts have none.
  std::vector<double> distances;
  for (int seed = 1; seed <= 4; ++seed) {
    const std::vector<int32_t> tokens = AnyTokens(3, seed);
    distances.push_back(Distance(LogitsAfter(OpenBundled(WithBudgets({}), folder.path()), tokens),
                                 LogitsAfter(OpenBundled(reference, folder.path()), tokens)));
  }
  std::sort(distances.begin(), distances.end());
  CAPTURE(distances);
  CHECK(distances.front() < 1e-5);
  CHECK(distances.back() < 0.06);

  // Found before it is read, where it lies on disk.
  const absl::StatusOr<EnginePlan> plan =
      Engine::Plan(folder.path(), test::Tested(WithBudgets({.least = true})));
  REQUIRE_OK(plan);
  const EngineOptions disk =
      WithBudgets({.host_bytes = plan->info().residency.host_bytes() / 2, .least = true});
  const std::shared_ptr<Engine> engine = OpenBundled(disk, folder.path());
  CHECK(engine->info().residency.on_disk > 0);
  CHECK(LogitsAfter(engine, prompt) == logits);
}

}  // namespace
}  // namespace dsv4
