// SPDX-License-Identifier: Apache-2.0
#include "lib/io/checkpoint.h"

#include <sys/mman.h>

#include <filesystem>
#include <numeric>

#include "tests/support/catch.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using test::SafetensorsImage;
using test::StoredTensor;
using test::TempFolder;

constexpr char kSingle[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

StoredTensor Bytes(const std::string& name, const std::string& bytes) {
  return {name, "I8", {static_cast<int64_t>(bytes.size())}, bytes};
}

std::string Content(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry* entry = checkpoint.Find(name);
  return entry == nullptr ? "(absent)" : std::string(entry->data, entry->data + entry->bytes);
}

TEST_CASE("the bundled model has the tensors of its two shards") {
  const auto checkpoint = Checkpoint::Open(test::BundledModel());
  REQUIRE_OK(checkpoint);
  // Counted in the shards' headers by a Python script; the bytes are the index's total_size.
  CHECK((*checkpoint)->tensors().size() == 921);
  CHECK((*checkpoint)->total_bytes() == 20234756);
  const TensorEntry* scale = (*checkpoint)->Find("mtp.0.ffn.experts.15.w3.scale");
  REQUIRE(scale != nullptr);
  CHECK(scale->dtype == DType::kF8E8M0);
  CHECK(scale->shape == std::vector<int64_t>{128, 8});
  CHECK((*checkpoint)->FileOf(*scale) ==
        test::BundledModel() + "/model-00002-of-00002.safetensors");
}

TEST_CASE("one file needs no index, and a model. prefix is stripped") {
  const TempFolder folder;
  folder.Write(kSingle, SafetensorsImage({Bytes("model.norm.weight", "ab"), Bytes("head", "cde")}));
  const auto checkpoint = Checkpoint::Open(folder.path());
  REQUIRE_OK(checkpoint);
  CHECK(Content(**checkpoint, "norm.weight") == "ab");
  CHECK(Content(**checkpoint, "head") == "cde");
  CHECK(Content(**checkpoint, "model.norm.weight") == "(absent)");
  CHECK((*checkpoint)->total_bytes() == 5);
}

TEST_CASE("an index joins its shards") {
  const TempFolder folder;
  folder.Write("one.safetensors", SafetensorsImage({Bytes("model.a", "A")}));
  folder.Write("two.safetensors", SafetensorsImage({Bytes("model.b", "B"), Bytes("extra", "E")}));
  folder.Write(kIndex, R"({"metadata":{"total_size":3},"weight_map":{
      "model.a":"one.safetensors","model.b":"two.safetensors"}})");
  const auto checkpoint = Checkpoint::Open(folder.path());
  REQUIRE_OK(checkpoint);
  CHECK(Content(**checkpoint, "a") == "A");
  CHECK(Content(**checkpoint, "b") == "B");
  CHECK(Content(**checkpoint, "extra") == "E");
}

TEST_CASE("a folder without a checkpoint is NotFound") {
  const TempFolder folder;
  REQUIRE_FAILS(Checkpoint::Open(folder.path()), absl::StatusCode::kNotFound,
                folder.path() + ": holds neither model.safetensors nor model.safetensors.index");
  REQUIRE_FAILS(Checkpoint::Open(folder.File("nothing")), absl::StatusCode::kNotFound,
                folder.File("nothing") + ": no such folder");
}

TEST_CASE("a truncated shard of the bundled model is refused by its path") {
  const TempFolder folder;
  folder.Write(kIndex, test::BundledFile(kIndex));
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  folder.Write(first, test::BundledFile(first));
  const std::string whole = test::BundledFile(second);
  folder.Write(second, whole.substr(0, whole.size() - 1));
  REQUIRE_FAILS(Checkpoint::Open(folder.path()), absl::StatusCode::kDataLoss,
                folder.File(second) + ": truncated: tensor \"");
  folder.Write(second, whole);
  REQUIRE_OK(Checkpoint::Open(folder.path()));
}

TEST_CASE("a damaged index or set of shards is refused by name") {
  const TempFolder folder;
  folder.Write("one.st", SafetensorsImage({Bytes("a", "A"), Bytes("b", "B")}));
  folder.Write("two.st", SafetensorsImage({Bytes("c", "C")}));
  folder.Write("again.st", SafetensorsImage({Bytes("model.a", "A")}));
  folder.Write("prefix.st", SafetensorsImage({Bytes("model.p", "P"), Bytes("p", "P")}));
  folder.Write("damaged.st", "damaged");
  struct Case {
    std::string index;
    absl::StatusCode code;
    std::string message;
  };
  using Code = absl::StatusCode;
  const Case cases[] = {
      {"", Code::kDataLoss, "index.json: not valid JSON"},
      {"not JSON", Code::kDataLoss, "index.json: not valid JSON"},
      {"{\"weight_map\":" + std::string(100000, '['), Code::kDataLoss,
       "index.json: not valid JSON"},
      {"[]", Code::kDataLoss, "index.json: has no object \"weight_map\""},
      {"{}", Code::kDataLoss, "index.json: has no object \"weight_map\""},
      {R"({"weight_map":[]})", Code::kDataLoss, "index.json: has no object \"weight_map\""},
      {R"({"weight_map":{}})", Code::kDataLoss, "index.json: \"weight_map\" lists no tensor"},
      {R"({"weight_map":{"a":1}})", Code::kDataLoss, "the shard of tensor \"a\" is not a string"},
      {R"({"weight_map":{"a":"../one.st"}})", Code::kDataLoss,
       "the shard of tensor \"a\" is \"../one.st\", not a file name inside the folder"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", Code::kDataLoss, "not a file name inside"},
      {R"({"weight_map":{"a":".."}})", Code::kDataLoss, "not a file name inside"},
      {R"({"weight_map":{"a":""}})", Code::kDataLoss, "not a file name inside"},
      {R"({"weight_map":{"a":"one.st\u0000"}})", Code::kDataLoss, "not a file name inside"},
      {R"({"weight_map":{"a":"one.st","a":"one.st"}})", Code::kDataLoss,
       "index.json: lists tensor \"a\" twice"},
      {R"({"weight_map":{"a":"one.st","model.a":"one.st"}})", Code::kDataLoss,
       "index.json: lists tensor \"model.a\" twice"},
      {R"({"weight_map":{"a":"one.st","z":"missing.st"}})", Code::kNotFound,
       "missing.st: no such file, though model.safetensors.index.json names it as a shard"},
      {R"({"weight_map":{"a":"one.st","z":"one.st"}})", Code::kDataLoss,
       "one.st: lacks tensor \"z\", which model.safetensors.index.json places there"},
      {R"({"weight_map":{"a":"one.st","b":"two.st"}})", Code::kDataLoss,
       "two.st: lacks tensor \"b\", which model.safetensors.index.json places there"},
      {R"({"weight_map":{"b":"one.st","a":"again.st"}})", Code::kDataLoss,
       "again.st: tensor \"a\" is also in " + folder.File("one.st")},
      {R"({"weight_map":{"p":"prefix.st"}})", Code::kDataLoss,
       "prefix.st: tensor \"p\" is also in this file, under another prefix"},
      {R"({"weight_map":{"d":"damaged.st"}})", Code::kDataLoss, "damaged.st: truncated"},
  };
  for (const Case& c : cases) {
    INFO(c.index.substr(0, 100));
    folder.Write(kIndex, c.index);
    REQUIRE_FAILS(Checkpoint::Open(folder.path()), c.code, c.message);
  }
}

TEST_CASE("a fingerprint sees headers, tensor ends and order, the full hash every byte") {
  const std::string long_tensor(3 * Checkpoint::kFingerprintBytes, 'x');
  struct Hashes {
    ContentHash fingerprint, full;
  };
  const auto hashes_of = [](const std::vector<StoredTensor>& tensors) {
    const TempFolder folder;
    folder.Write(kSingle, SafetensorsImage(tensors));
    const auto checkpoint = Checkpoint::Open(folder.path());
    REQUIRE_OK(checkpoint);
    return Hashes{(*checkpoint)->Fingerprint(), (*checkpoint)->FullHash()};
  };
  const std::vector<StoredTensor> tensors = {Bytes("a", long_tensor), Bytes("b", "short")};
  const Hashes base = hashes_of(tensors);
  REQUIRE(hashes_of(tensors).fingerprint == base.fingerprint);  // in another folder
  REQUIRE(hashes_of(tensors).full == base.full);

  const size_t seen[] = {0, Checkpoint::kFingerprintBytes - 1,
                         long_tensor.size() - Checkpoint::kFingerprintBytes,
                         long_tensor.size() - 1};
  for (const size_t at : seen) {
    std::vector<StoredTensor> changed = tensors;
    changed[0].bytes[at] = 'y';
    REQUIRE_FALSE(hashes_of(changed).fingerprint == base.fingerprint);
  }
  std::vector<StoredTensor> changed = tensors;
  changed[1].bytes[2] = 'y';
  REQUIRE_FALSE(hashes_of(changed).fingerprint == base.fingerprint);
  changed = tensors;
  changed[1].name = "c";
  REQUIRE_FALSE(hashes_of(changed).fingerprint == base.fingerprint);
  changed = tensors;
  changed[0].bytes[Checkpoint::kFingerprintBytes] = 'y';
  REQUIRE(hashes_of(changed).fingerprint == base.fingerprint);
  REQUIRE_FALSE(hashes_of(changed).full == base.full);
}

// Of a sparse file, whose pages come into memory as they are touched.
TEST_CASE("a fingerprint reads the ends of tensors and little else") {
  constexpr int64_t kTensorBytes = int64_t{4} << 20, kTensors = 32;
  const TempFolder folder;
  std::string header = "{";
  for (int64_t i = 0; i < kTensors; ++i) {
    absl::StrAppend(&header, i == 0 ? "" : ",", "\"t", i, "\":{\"dtype\":\"I8\",\"shape\":[",
                    kTensorBytes, "],\"data_offsets\":[", i * kTensorBytes, ",",
                    (i + 1) * kTensorBytes, "]}");
  }
  const std::string path = folder.Write(kSingle, SafetensorsImage(header + "}", ""));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + kTensors * kTensorBytes);
  const auto checkpoint = Checkpoint::Open(folder.path());
  REQUIRE_OK(checkpoint);
  (*checkpoint)->Fingerprint();

  const auto mapped = MappedFile::Open(path);
  REQUIRE_OK(mapped);
  std::vector<unsigned char> resident((mapped->bytes().size() + 4095) / 4096);
  REQUIRE(mincore(const_cast<uint8_t*>(mapped->bytes().data()), mapped->bytes().size(),
                  resident.data()) == 0);
  const int64_t pages =
      std::accumulate(resident.begin(), resident.end(), int64_t{0},
                      [](int64_t sum, unsigned char page) { return sum + (page & 1); });
  // Two ends of 4096 bytes each, which touch two pages each; and the header's.
  CHECK(pages <= 4 * kTensors + 4);
}

}  // namespace
}  // namespace dsv4
