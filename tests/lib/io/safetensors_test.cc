// SPDX-License-Identifier: Apache-2.0
#include "lib/io/safetensors.h"

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::SafetensorsImage;

absl::StatusOr<std::vector<TensorEntry>> Parse(const std::string& image) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(image.data()), image.size()}, "f.st");
}

// One header entry of an F32 [2] tensor at bytes [begin, begin + 8).
std::string Entry(const std::string& name, int begin) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[2],"data_offsets":[)" + std::to_string(begin) +
         "," + std::to_string(begin + 8) + "]}";
}

TEST_CASE("tensors come in file order with their bytes") {
  // The header names b first, the data holds a first. Written by hand.
  const std::string image =
      SafetensorsImage(R"({"__metadata__":{"format":"pt"},)"
                       R"("b":{"dtype":"BF16","shape":[2,1],"data_offsets":[3,7]},)"
                       R"("a":{"data_offsets":[0,3],"shape":[3],"dtype":"I8"},)"
                       R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[3,3]},)"
                       R"("scalar":{"dtype":"I64","shape":[],"data_offsets":[7,15]}}   )",
                       "abcWXYZ12345678");
  const auto tensors = Parse(image);
  REQUIRE_OK(tensors);
  REQUIRE(tensors->size() == 4);
  const TensorEntry& a = (*tensors)[0];
  CHECK(a.name == "a");
  CHECK(a.dtype == DType::kI8);
  CHECK(a.shape == std::vector<int64_t>{3});
  CHECK(std::string(a.data, a.data + a.bytes) == "abc");
  CHECK((*tensors)[1].name == "none");
  CHECK((*tensors)[1].bytes == 0);
  const TensorEntry& b = (*tensors)[2];
  CHECK(b.name == "b");
  CHECK(b.dtype == DType::kBF16);
  CHECK(b.shape == std::vector<int64_t>{2, 1});
  CHECK(std::string(b.data, b.data + b.bytes) == "WXYZ");
  const TensorEntry& scalar = (*tensors)[3];
  CHECK(scalar.shape.empty());
  CHECK(std::string(scalar.data, scalar.data + scalar.bytes) == "12345678");
}

TEST_CASE("a file without tensors is a file without tensors") {
  const auto tensors = Parse(SafetensorsImage("{}", ""));
  REQUIRE_OK(tensors);
  CHECK(tensors->empty());
}

TEST_CASE("a damaged container is refused by name") {
  struct Case {
    std::string image, message;
  };
  const std::string data8(8, 'x'), data16(16, 'x');
  const auto with = [&](const std::string& fields) {
    return SafetensorsImage("{\"t\":{" + fields + "}}", data8);
  };
  const auto raw_length = [](uint64_t length) {
    std::string image;
    for (int i = 0; i < 8; ++i) image.push_back(static_cast<char>(length >> (8 * i)));
    return image + "{}";
  };
  std::string deep = "{\"t\":";
  for (int i = 0; i < 100000; ++i) deep += "[";
  const Case cases[] = {
      {"", "f.st: truncated: 0 bytes cannot hold"},
      {"\1\0\0", "f.st: truncated: 1 bytes cannot hold"},
      {raw_length(3), "f.st: truncated: the header takes 3 bytes, but only 2 follow"},
      {raw_length(100'000'001), "the header's length is 100000001 bytes; at most 100000000"},
      {raw_length(~uint64_t{0}), "the header's length is 18446744073709551615 bytes"},
      {SafetensorsImage("", ""), "f.st: the header is not valid JSON"},
      {SafetensorsImage("{\"t\":", ""), "f.st: the header is not valid JSON"},
      {SafetensorsImage("{\"\xff\":1}", ""), "f.st: the header is not valid JSON"},
      {SafetensorsImage(deep, ""), "f.st: the header is not valid JSON"},
      {SafetensorsImage("[]", ""), "f.st: the header is not a JSON object"},
      {SafetensorsImage("{\"__metadata__\":1}", ""), "__metadata__ is not a JSON object"},
      {SafetensorsImage("{\"t\":[1]}", ""), "tensor \"t\" is not described by a JSON object"},
      {SafetensorsImage("{" + Entry("t", 0) + "," + Entry("t", 8) + "}", data16),
       "the header has the key \"t\" twice"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n",
       "f.st: is a git-lfs pointer, not the file itself"},
      {with(R"("dtype":"F7","shape":[2],"data_offsets":[8,0])"),
       "tensor \"t\" has data_offsets [8, 0]"},
      {with(R"("dtype":7,"shape":[2],"data_offsets":[0,8])"),
       "tensor \"t\" has a dtype that is not a string"},
      {with(R"("shape":[2],"data_offsets":[0,8])"), "tensor \"t\" needs exactly one each of dtype"},
      {with(R"("dtype":"F32","data_offsets":[0,8])"), "tensor \"t\" needs exactly one each"},
      {with(R"("dtype":"F32","shape":[2])"), "tensor \"t\" needs exactly one each"},
      {with(R"("dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8])"),
       "tensor \"t\" needs exactly one each"},
      {with(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "has a shape that is not a list"},
      {with(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"),
       "tensor \"t\" has a shape that holds something other than sizes of 0 and up"},
      {with(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), "has a shape that holds"},
      {with(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"),
       "has a shape that holds"},
      {with(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"),
       "has 17 dimensions"},
      {with(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8])"),
       "tensor \"t\" has the shape [4294967296, 4294967296], more bytes than 64 bits count"},
      {with(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), "has 1 data_offsets instead of 2"},
      {with(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "has data_offsets [8, 0], but"},
      {with(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "has data_offsets that holds"},
      {with(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"),
       "tensor \"t\" has data_offsets [0, 8], but its shape [3] of F32 takes 12 bytes"},
      {with(R"("dtype":"F32","shape":[0],"data_offsets":[0,8])"), "of F32 takes 0 bytes"},
      {SafetensorsImage("{" + Entry("a", 0) + "," + Entry("b", 4) + "}", data16),
       "the data of tensor \"b\" at offset 4 overlaps that of \"a\", which ends at 8"},
      {SafetensorsImage("{" + Entry("a", 0) + "," + Entry("b", 0) + "}", data16), "overlaps"},
      {SafetensorsImage("{" + Entry("a", 0) + "," + Entry("b", 9) + "}", std::string(17, 'x')),
       "a hole of 1 bytes lies before tensor \"b\" at data offset 9"},
      {SafetensorsImage("{" + Entry("a", 4) + "}", std::string(12, 'x')),
       "a hole of 4 bytes lies before tensor \"a\""},
      {SafetensorsImage("{" + Entry("a", 0) + "," + Entry("b", 8) + "}", std::string(15, 'x')),
       "truncated: tensor \"b\" ends at data offset 16, but the file holds only 15 bytes of data"},
      {SafetensorsImage("{" + Entry("a", 0) + "}", std::string(9, 'x')),
       "1 bytes follow the last tensor's data"},
      {SafetensorsImage("{}", "x"), "1 bytes follow the last tensor's data"},
      {SafetensorsImage("{\"line\\nbreak\":1}", ""), "tensor \"line\\nbreak\" is not described"},
  };
  for (const Case& c : cases) {
    INFO(c.message);
    REQUIRE_FAILS(Parse(c.image), absl::StatusCode::kDataLoss, c.message);
  }
}

TEST_CASE("every cut of a good file is refused") {
  const std::string image =
      SafetensorsImage("{" + Entry("a", 0) + "," + Entry("b", 8) + "}", std::string(16, 'x'));
  REQUIRE_OK(Parse(image));
  for (size_t size = 0; size < image.size(); ++size) {
    REQUIRE_FAILS(Parse(image.substr(0, size)), absl::StatusCode::kDataLoss, "f.st: truncated");
  }
}

}  // namespace
}  // namespace dsv4
