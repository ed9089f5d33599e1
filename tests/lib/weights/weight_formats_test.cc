// SPDX-License-Identifier: Apache-2.0
// The formats of experts' weights as they are loaded. expert_format_test.cc has the conversions.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/lib/model/small_model.h"

namespace dsv4 {
namespace {

using test::Loaded;
using test::SmallModel;
using test::StoredTensor;
using Code = absl::StatusCode;

constexpr char kW1[] = "layers.0.ffn.experts.0.w1";

std::string F32Bytes(const std::vector<float>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float)};
}

// An MXFP4 expert's matrix as NVIDIA's cast writes it: e4m3 scales, two for each of E8M0, times one
// of the tensor. `exponent` is that of a scale of 1.
void CastToNvfp4(SmallModel* model, const std::string& name, int exponent) {
  StoredTensor& scale = (*model)[name + ".scale"];
  std::string halves;
  for (const char byte : scale.bytes) {
    const int biased = static_cast<uint8_t>(byte) - 127 - exponent + 7;
    REQUIRE(biased >= 1);
    REQUIRE(biased <= 15);
    halves.append(2, static_cast<char>(biased << 3));
  }
  scale = {name + ".weight_scale", "F8_E4M3", {scale.shape[0], 2 * scale.shape[1]}, halves};
  (*model)[name + ".weight"].dtype = "U8";
  model->tensors().push_back(
      {name + ".weight_scale_2", "F32", {}, F32Bytes({std::ldexp(1.f, exponent)})});
}

int LargestExponent(SmallModel& model, const std::string& name) {
  int largest = 0;
  for (const char byte : model[name + ".scale"].bytes) {
    largest = std::max<int>(largest, static_cast<uint8_t>(byte));
  }
  return largest - 127;
}

TEST_CASE("NVFP4 experts become MXFP4 where their values allow it") {
  SmallModel model;
  const Loaded mxfp4 = model.Load();
  REQUIRE_OK(mxfp4);
  CHECK((*mxfp4)->weight_format() == "fp8+fp4");
  CastToNvfp4(&model, kW1, LargestExponent(model, kW1) - 8);
  const Loaded cast = model.Load();
  REQUIRE_OK(cast);
  const ExpertMatrix &expected = (*mxfp4)->layers[0].moe.experts[0].w1,
                     &folded = (*cast)->layers[0].moe.experts[0].w1;
  REQUIRE(folded.format == ExpertFormat::kMxfp4);
  const auto runs = static_cast<size_t>(expected.n * expected.k / 32);
  CHECK(std::equal(expected.scale, expected.scale + runs, folded.scale));
  CHECK(std::equal(expected.data, expected.data + 16 * runs, folded.data));
  CHECK((*cast)->weight_format() == "fp8+fp4,nvfp4");
  const Loaded described = model.Describe();
  REQUIRE_OK(described);
  CHECK((*described)->owned_bytes() == (*cast)->owned_bytes());

  // One half of a block under another scale: it keeps its own scales.
  model[std::string(kW1) + ".weight_scale"].bytes[7] ^= 8;
  const Loaded other = model.Load();
  REQUIRE_OK(other);
  const ExpertMatrix& unfolded = (*other)->layers[0].moe.experts[0].w1;
  REQUIRE(unfolded.format == ExpertFormat::kNvfp4);
  CHECK((*cast)->owned_bytes() - (*other)->owned_bytes() == static_cast<int64_t>(runs));

  model[std::string(kW1) + ".weight_scale"].name = "unknown";
  REQUIRE_FAILS(model.Load(), Code::kNotFound, "experts.0.w1.weight_scale is missing");
  model["unknown"].name = std::string(kW1) + ".weight_scale";
  model[std::string(kW1) + ".weight_scale_2"].shape = {2};
  model[std::string(kW1) + ".weight_scale_2"].bytes = F32Bytes({1, 1});
  REQUIRE_FAILS(model.Load(), Code::kDataLoss, "w1.weight_scale_2 has the shape [2]");
}

TEST_CASE("FP8 experts have E8M0 or F32 scales, and F32 powers of two become E8M0") {
  SmallModel model;
  const std::string weight = std::string(kW1) + ".weight", scale = std::string(kW1) + ".scale";
  model[weight] = {weight, "F8_E4M3", {128, 256}, std::string(128 * 256, '\x38')};
  model[scale] = {scale, "F8_E8M0", {1, 2}, "\x7f\x80"};
  const Loaded e8m0 = model.Load();
  REQUIRE_OK(e8m0);
  const ExpertMatrix& first = (*e8m0)->layers[0].moe.experts[0].w1;
  CHECK(first.format == ExpertFormat::kFp8);
  CHECK(first.scale[1] == 0x80);
  CHECK((*e8m0)->weight_format() == "fp8+fp4,fp8");

  model[scale] = {scale, "F32", {1, 2}, F32Bytes({.25f, 0x1p-127f})};
  const Loaded powers = model.Load();
  REQUIRE_OK(powers);
  const ExpertMatrix& second = (*powers)->layers[0].moe.experts[0].w1;
  REQUIRE(second.f32_scale == nullptr);
  CHECK(second.scale[0] == 125);
  CHECK(second.scale[1] == 0);

  for (const float uneven : {.3f, 0.f, -1.f}) {
    model[scale].bytes = F32Bytes({.25f, uneven});
    const Loaded kept = model.Load();
    REQUIRE_OK(kept);
    const ExpertMatrix& third = (*kept)->layers[0].moe.experts[0].w1;
    REQUIRE(third.f32_scale != nullptr);
    CHECK(third.f32_scale[1] == uneven);
  }
  // The same of other matrices.
  StoredTensor& wq_a = model["layers.1.attn.wq_a.scale"];
  wq_a = {wq_a.name, "F32", wq_a.shape,
          F32Bytes(std::vector<float>(static_cast<size_t>(wq_a.shape[0] * wq_a.shape[1]), .75f))};
  const Loaded attention = model.Load();
  REQUIRE_OK(attention);
  CHECK((*attention)->layers[1].attn.wq_a.f32_scale[0] == .75f);

  model[scale].bytes = F32Bytes({.25f, INFINITY});
  REQUIRE_FAILS(model.Load(), Code::kDataLoss, "w1.scale has an element that is not a finite");
  model[weight].dtype = "F8_E5M2";
  REQUIRE_FAILS(model.Load(), Code::kDataLoss,
                "w1.weight is \"F8_E5M2\"; expected I8 (MXFP4), U8 (NVFP4) or F8_E4M3 (FP8)");
}

}  // namespace
}  // namespace dsv4
