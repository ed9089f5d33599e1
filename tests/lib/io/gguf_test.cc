// SPDX-License-Identifier: Apache-2.0
#include "lib/io/gguf.h"

#include <filesystem>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/gguf_image.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::Bytes;
using test::GgufImage;
using test::GgufString;
using test::TempFolder;

constexpr uint32_t kF32 = 0, kQ8_0 = 8;

absl::StatusOr<GgufFile> Parse(const std::string& image) {
  return ParseGguf({reinterpret_cast<const uint8_t*>(image.data()), image.size()}, "f.gguf");
}

GgufImage Good() {
  GgufImage image;
  image.Key("general.architecture", "deepseek4");
  image.Key("count", uint32_t{7});
  image.Key("factor", 2.5f);
  image.Key("flag", true);
  image.Array("ratios", GgufImage::kI32, std::vector<int32_t>{0, 4, -128});
  image.Array("limits", GgufImage::kF32, std::vector<float>{10, 0.5f});
  image.Array("words", GgufImage::kString, std::vector<std::string>{"a", "", "bc"});
  image.Tensor("first", kF32, {2}, "abcdefgh");
  image.Tensor("second", kQ8_0, {32, 2}, std::string(68, 'q'));
  return image;
}

TEST_CASE("keys and tensors are read") {
  const std::string image = Good().Write();
  const auto file = Parse(image);
  REQUIRE_OK(file);
  REQUIRE(file->keys.size() == 7);
  CHECK(file->Find("general.architecture")->AsString() == "deepseek4");
  CHECK(file->Find("count")->AsInt64() == 7);
  CHECK_FALSE(file->Find("count")->AsDouble());
  CHECK(file->Find("factor")->AsDouble() == 2.5);
  CHECK_FALSE(file->Find("factor")->AsInt64());
  CHECK(file->Find("flag")->AsBool() == true);
  CHECK(file->Find("ratios")->AsInt64s() == std::vector<int64_t>{0, 4, -128});
  CHECK_FALSE(file->Find("ratios")->AsDoubles());
  CHECK(file->Find("limits")->AsDoubles() == std::vector<double>{10, 0.5});
  CHECK(file->Find("words")->AsStrings() == std::vector<absl::string_view>{"a", "", "bc"});
  CHECK_FALSE(file->Find("words")->AsInt64s());
  CHECK(file->Find("none") == nullptr);
  REQUIRE(file->tensors.size() == 2);
  const GgufTensor &first = file->tensors[0], &second = file->tensors[1];
  CHECK(first.name == "first");
  CHECK(first.dims == std::vector<int64_t>{2});
  CHECK(std::string(first.data, first.data + first.bytes) == "abcdefgh");
  CHECK(second.dims == std::vector<int64_t>{32, 2});
  CHECK(std::string(second.data, second.data + second.bytes) == std::string(68, 'q'));
}

TEST_CASE("integers of all widths are read") {
  GgufImage image;
  image.Key("u8", GgufImage::kU8, Bytes(uint8_t{255}));
  image.Key("i8", GgufImage::kI8, Bytes(int8_t{-1}));
  image.Key("u16", GgufImage::kU16, Bytes(uint16_t{65535}));
  image.Key("i16", GgufImage::kI16, Bytes(int16_t{-2}));
  image.Key("i32", GgufImage::kI32, Bytes(int32_t{-3}));
  image.Key("i64", GgufImage::kI64, Bytes(int64_t{-4}));
  image.Key("u64", GgufImage::kU64, Bytes(uint64_t{5}));
  image.Key("large", GgufImage::kU64, Bytes(~uint64_t{0}));
  image.Key("f64", GgufImage::kF64, Bytes(0.1));
  const std::string text = image.Write(2);  // version 2 is laid out alike
  const auto file = Parse(text);
  REQUIRE_OK(file);
  CHECK(file->Find("u8")->AsInt64() == 255);
  CHECK(file->Find("i8")->AsInt64() == -1);
  CHECK(file->Find("u16")->AsInt64() == 65535);
  CHECK(file->Find("i16")->AsInt64() == -2);
  CHECK(file->Find("i32")->AsInt64() == -3);
  CHECK(file->Find("i64")->AsInt64() == -4);
  CHECK(file->Find("u64")->AsInt64() == 5);
  CHECK_FALSE(file->Find("large")->AsInt64());
  CHECK(file->Find("f64")->AsDouble() == 0.1);
}

TEST_CASE("an alignment of its own holds for header and data") {
  GgufImage image;
  image.Key("general.alignment", uint32_t{64});
  image.Tensor("t", kF32, {1}, "wxyz");
  std::string text = image.Write();
  const size_t data = text.size() - 4;
  text.insert(data, (64 - data % 64) % 64, '\0');
  const auto file = Parse(text);
  REQUIRE_OK(file);
  CHECK(file->header_bytes % 64 == 0);
  CHECK(std::string(file->tensors[0].data, file->tensors[0].data + 4) == "wxyz");
}

TEST_CASE("a damaged file is refused by name") {
  struct Case {
    std::string image, message;
    absl::StatusCode code = absl::StatusCode::kDataLoss;
  };
  const auto tensor = [](uint32_t type, std::vector<uint64_t> dims, uint64_t offset,
                         size_t data = 64) {
    GgufImage image;
    image.TensorAt("t", type, dims, offset);
    return image.Write() + std::string(data, 'x');
  };
  const auto key = [](uint32_t type, const std::string& value) {
    GgufImage image;
    image.Key("k", type, value);
    return image.Write();
  };
  const auto header = [](uint32_t version, uint64_t tensors, uint64_t keys) {
    return "GGUF" + Bytes(version) + Bytes(tensors) + Bytes(keys) + std::string(64, '\0');
  };
  GgufImage twice_key = Good(), twice_tensor = Good(), overlap = Good(), alignment;
  twice_key.Key("count", uint32_t{8});
  twice_tensor.Tensor("first", kF32, {1}, "abcd");
  overlap.TensorAt("third", kF32, {1}, 64);
  alignment.Key("general.alignment", uint32_t{48});
  constexpr auto kUnsupported = absl::StatusCode::kUnimplemented;
  const uint64_t huge = uint64_t{1} << 40;
  const Case cases[] = {
      {"", "f.gguf: is not a GGUF file"},
      {"GGUX" + std::string(60, '\0'), "f.gguf: is not a GGUF file"},
      {"GGUF\3", "truncated before its version"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n",
       "f.gguf: is a git-lfs pointer"},
      {header(1, 0, 0), "is GGUF version 1", kUnsupported},
      {header(4, 0, 0), "is GGUF version 4", kUnsupported},
      {header(3u << 24, 0, 0), "of a big-endian machine", kUnsupported},
      {header(3, ~uint64_t{0}, 0), "cannot hold 0 keys and 18446744073709551615 tensors"},
      {header(3, 0, ~uint64_t{0}), "cannot hold 18446744073709551615 keys"},
      {key(13, ""), "key \"k\" has the unknown type 13"},
      {key(GgufImage::kArray, Bytes(uint32_t{99}) + Bytes(uint64_t{0})),
       "key \"k\" is an array of the unknown type 99"},
      {key(GgufImage::kArray, Bytes(uint32_t{9}) + Bytes(uint64_t{0})),
       "key \"k\" is an array of arrays", kUnsupported},
      {key(GgufImage::kArray, Bytes(uint32_t{5}) + Bytes(huge)), "key \"k\" is cut off"},
      {key(GgufImage::kArray, Bytes(uint32_t{10}) + Bytes(uint64_t{1} << 61)),
       "key \"k\" is cut off"},
      {key(GgufImage::kArray, Bytes(uint32_t{8}) + Bytes(~uint64_t{0})), "key \"k\" is cut off"},
      {key(GgufImage::kString, Bytes(~uint64_t{0})), "key \"k\" is cut off"},
      {twice_key.Write(), "has the key \"count\" twice"},
      {twice_tensor.Write(), "has tensor \"first\" twice"},
      {alignment.Write(), "general.alignment is 48; expected a power of two"},
      {tensor(kF32, {}, 0), "tensor \"t\" has 0 dimensions"},
      {tensor(kF32, {1, 1, 1, 1, 1}, 0), "tensor \"t\" has 5 dimensions"},
      {tensor(kF32, {0}, 0), "tensor \"t\" has the dimensions [0]"},
      {tensor(kF32, {huge, huge}, 0), "product fit in 63 bits"},
      {tensor(kF32, {uint64_t{1} << 62}, 0), "more bytes than 63 bits count"},
      {tensor(kF32, {~uint64_t{0}}, 0), "product fit in 63 bits"},
      {tensor(kQ8_0, {33}, 0), "has rows of 33 elements, which are no whole blocks of Q8_0 (32)"},
      {tensor(145, {256}, 0), "tensor \"t\" is of IQ2_KS (of ik_llama.cpp), which is not read",
       kUnsupported},
      {tensor(9, {32}, 0), "tensor \"t\" is of Q8_1, which is not read", kUnsupported},
      {tensor(77, {32}, 0), "tensor \"t\" is of type 77, which is not read", kUnsupported},
      {tensor(kF32, {1}, 31), "begins at data offset 31, which is no multiple of the alignment"},
      {tensor(kF32, {17}, 0), "truncated: tensor \"t\" takes 68 bytes from data offset 0"},
      {tensor(kF32, {1}, ~uint64_t{0} - 31), "truncated: tensor \"t\" takes 4 bytes"},
      {tensor(kF32, {1}, 96), "truncated: tensor \"t\" takes 4 bytes from data offset 96"},
      {overlap.Write(), "the data of tensor \"third\" at offset 64 overlaps that of \"second\""},
  };
  for (const Case& c : cases) {
    INFO(c.message);
    REQUIRE_FAILS(Parse(c.image), c.code, c.message);
  }
}

TEST_CASE("every cut of a good file is refused") {
  const std::string image = Good().Write();
  REQUIRE_OK(Parse(image));
  for (size_t size = 0; size < image.size(); ++size) {
    INFO(size);
    REQUIRE_FALSE(Parse(image.substr(0, size)).ok());
  }
}

TEST_CASE("a thousand files with damaged bytes are read or refused") {
  const std::string image = Good().Write();
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = image;
    for (int j = 0; j <= i % 4; ++j) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    const auto file = Parse(damaged);
    refused += !file.ok();
    if (!file.ok()) continue;
    for (const GgufTensor& tensor : file->tensors) {
      const auto* begin = reinterpret_cast<const uint8_t*>(damaged.data());
      REQUIRE(tensor.data >= begin);
      REQUIRE(tensor.bytes <= begin + damaged.size() - tensor.data);
    }
    for (const GgufKey& key : file->keys) {
      static_cast<void>(key.value.AsInt64s());
      static_cast<void>(key.value.AsStrings());
      static_cast<void>(key.value.AsString());
    }
  }
  CHECK(refused > 200);
}

// Part `number` of `count` with one tensor, or none.
std::string Part(int number, int count, int tensors_in_all, bool tensor) {
  GgufImage image;
  if (number == 1) image.Key("general.architecture", "deepseek4");
  image.Key("split.no", GgufImage::kU16, Bytes(static_cast<uint16_t>(number - 1)));
  image.Key("split.count", GgufImage::kU16, Bytes(static_cast<uint16_t>(count)));
  image.Key("split.tensors.count", GgufImage::kI32, Bytes(int32_t{tensors_in_all}));
  if (tensor) image.Tensor("t" + std::to_string(number), kF32, {1}, "abc" + std::to_string(number));
  return image.Write();
}

TEST_CASE("any part opens a split model") {
  const TempFolder folder;
  const std::string first = folder.Write("m-00001-of-00003.gguf", Part(1, 3, 2, false));
  const std::string second = folder.Write("m-00002-of-00003.gguf", Part(2, 3, 2, true));
  const std::string third = folder.Write("m-00003-of-00003.gguf", Part(3, 3, 2, true));
  for (const std::string& path : {first, second, third}) {
    const auto model = OpenGguf(path);
    REQUIRE_OK(model);
    REQUIRE(model->parts.size() == 3);
    CHECK(model->Find("general.architecture")->AsString() == "deepseek4");
    CHECK(model->parts[0].tensors.empty());
    // Offsets are of each part's own data.
    CHECK(std::string(model->parts[1].tensors[0].data, model->parts[1].tensors[0].data + 4) ==
          "abc2");
    CHECK(std::string(model->parts[2].tensors[0].data, model->parts[2].tensors[0].data + 4) ==
          "abc3");
  }
  const auto found = GgufIn(folder.path());
  REQUIRE_OK(found);
  CHECK(*found == first);

  folder.Write("m-00003-of-00003.gguf", Part(2, 3, 2, true));
  REQUIRE_FAILS(OpenGguf(first), absl::StatusCode::kDataLoss,
                "m-00003-of-00003.gguf: is part 2 of 3 by its keys");
  folder.Write("m-00003-of-00003.gguf", Part(3, 3, 2, false));
  REQUIRE_FAILS(OpenGguf(first), absl::StatusCode::kDataLoss,
                "the 3 parts have 1 tensors; key split.tensors.count says 2");
  folder.Write("m-00003-of-00003.gguf", Part(3, 3, 2, true).substr(0, 150));
  REQUIRE_FAILS(OpenGguf(second), absl::StatusCode::kDataLoss, "m-00003-of-00003.gguf: ");
  std::filesystem::remove(third);
  REQUIRE_FAILS(OpenGguf(second), absl::StatusCode::kNotFound,
                "m-00003-of-00003.gguf: no such file; it is part 3 of the 3 of");
  const std::string renamed = folder.Write("renamed.gguf", Part(1, 3, 2, false));
  REQUIRE_FAILS(OpenGguf(renamed), absl::StatusCode::kDataLoss,
                "renamed.gguf: is one of 3 parts by its key split.count; its name must end in");
}

TEST_CASE("a folder has one model") {
  const TempFolder folder;
  REQUIRE_OK(GgufIn(folder.path()));
  CHECK(GgufIn(folder.path())->empty());
  const std::string model = folder.Write("model.gguf", Good().Write());
  GgufImage drafter, projector, mtp;
  drafter.Key("general.architecture", "dflash");
  projector.Key("general.architecture", "clip");
  mtp.Key("general.architecture", "deepseek4");
  mtp.Tensor("blk.43.nextn.enorm.weight", kF32, {1}, "abcd");
  folder.Write("dspark.gguf", drafter.Write());
  folder.Write("mmproj.gguf", projector.Write());
  folder.Write("mtp.gguf", mtp.Write());
  folder.Write("notes.txt", "");
  const auto found = GgufIn(folder.path());
  REQUIRE_OK(found);
  CHECK(*found == model);
  folder.Write("other.gguf", Good().Write());
  REQUIRE_FAILS(GgufIn(folder.path()), absl::StatusCode::kInvalidArgument,
                "/model.gguf, " + folder.path() + "/other.gguf");
}

}  // namespace
}  // namespace dsv4
