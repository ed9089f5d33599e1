// SPDX-License-Identifier: Apache-2.0
// Known misreadings of GGUF files, planted one at a time: each is found by the recorded rows of its
// format, or by what the published code computes of a whole model.
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/op/rope.h"
#include "lib/tensor/block_format.h"
#include "lib/tensor/dtype.h"
#include "tests/support/gguf_edit.h"
#include "tests/support/tensor_file.h"
#include "tests/tools/gguf_models.h"

namespace dsv4 {

// What the tested program has in place of the function: YaRN as `plant` says.
enum class RopePlant { kNone, kYarnEverywhere, kYarnNowhere };
static RopePlant rope_plant = RopePlant::kNone;

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier): the names that the linker's --wrap asks for.
void __real__ZN4dsv419FillRopeFrequenciesEddlddPf(double theta, double factor, int64_t original,
                                                  double fast, double slow, float* out);
void __wrap__ZN4dsv419FillRopeFrequenciesEddlddPf(double theta, double factor, int64_t original,
                                                  double fast, double slow, float* out) {
  if (rope_plant == RopePlant::kYarnEverywhere && factor == 0) {
    factor = 16, original = 1024, fast = 32, slow = 1;  // the model's
  } else if (rope_plant == RopePlant::kYarnNowhere) {
    factor = 0;
  }
  __real__ZN4dsv419FillRopeFrequenciesEddlddPf(theta, factor, original, fast, slow, out);
}
// NOLINTEND(bugprone-reserved-identifier)
}

namespace {

using test::EditedGguf;
using test::EditedTensor;
using test::TempFolder;

// A reader of `k` elements of a format.
using Reader = std::function<void(BlockType, const uint8_t*, int64_t, float*)>;

struct Misreading {
  const char* name;
  std::vector<BlockType> types;
  Reader reader;
};

// A reader that takes the right one's bytes for others: edit(block) changes a block.
template <class Edit>
Reader OnBytes(const Edit& edit) {
  return [edit](BlockType type, const uint8_t* data, int64_t k, float* out) {
    std::vector<uint8_t> bytes(data, data + BlockBytes(type, k));
    for (int64_t i = 0; i < k / InfoOf(type).elements; ++i) {
      edit(bytes.data() + i * InfoOf(type).bytes);
    }
    LoadBlocks(type, bytes.data(), k, out);
  };
}

struct Unpacked {
  std::vector<int8_t> codes;
  std::vector<float> scale, min;
};

// A reader of the right integers that has value(unpacked, i) for element i of a block.
template <class Value>
Reader OnCodes(const Value& value) {
  return [value](BlockType type, const uint8_t* data, int64_t k, float* out) {
    const BlockInfo& info = InfoOf(type);
    const auto n = static_cast<size_t>(info.elements);
    Unpacked block{std::vector<int8_t>(n), std::vector<float>(n / kBlockRun),
                   std::vector<float>(n / kBlockRun)};
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = i % info.elements;
      const uint8_t* const from = data + i / info.elements * info.bytes;
      if (at == 0) {
        UnpackBlocks(type, from, info.elements, block.codes.data(), block.scale.data(),
                     block.min.data());
      }
      out[i] = value(block, static_cast<size_t>(at), from);
    }
  };
}

float ScaleOf(const uint8_t* block) {  // the f16 scale of the IQ formats
  return F16ToFloat(static_cast<uint16_t>(block[0] | block[1] << 8));
}

void SwapNibbles(uint8_t* begin, int count) {
  for (int i = 0; i < count; ++i) begin[i] = static_cast<uint8_t>(begin[i] << 4 | begin[i] >> 4);
}

float Right(const Unpacked& b, size_t i) {
  return b.scale[i / kBlockRun] * static_cast<float>(b.codes[i]) - b.min[i / kBlockRun];
}

std::vector<Misreading> Misreadings() {
  using T = BlockType;
  const auto nothing_of_qh = [](int at, size_t bytes) {
    return OnBytes([=](uint8_t* block) { std::memset(block + at, 0, bytes); });
  };
  return {
      {"nibbles as neighbours", {T::kMxfp4}, OnBytes([](uint8_t* block) {
         uint8_t pairs[16];
         for (int j = 0; j < 16; ++j) {
           // The values 2i and 2i + 1 of byte i, where the right reader finds values j and j + 16.
           const auto code = [&](int i) { return block[1 + i / 2] >> (i % 2 * 4) & 15; };
           pairs[j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
         }
         std::memcpy(block + 1, pairs, sizeof pairs);
       })},
      {"E8M0 off by one", {T::kMxfp4}, OnBytes([](uint8_t* block) { ++block[0]; })},
      {"signs without parity",
       {T::kIq2Xxs, T::kIq2Xs, T::kIq3Xxs},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t* block) {
         const float value = Right(b, i);
         return i % 8 == 7 ? std::copysign(value, ScaleOf(block)) : value;
       })},
      {"scales without their half",
       {T::kIq2Xxs, T::kIq2Xs, T::kIq2S},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t* block) {
         return (b.scale[i / kBlockRun] - ScaleOf(block) / 8) * static_cast<float>(b.codes[i]);
       })},
      {"minima forgotten",
       {T::kQ2K, T::kQ4K, T::kQ5K, T::kQ4_1, T::kQ5_1},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t*) {
         return Right(b, i) + b.min[i / kBlockRun];
       })},
      {"minima added",
       {T::kQ2K, T::kQ4K, T::kQ5K, T::kQ4_1, T::kQ5_1},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t*) {
         return Right(b, i) + 2 * b.min[i / kBlockRun];
       })},
      {"scales for minima", {T::kQ2K}, OnBytes([](uint8_t* block) { SwapNibbles(block, 16); })},
      {"codes one after the other",
       {T::kQ2K},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t*) {
         const size_t byte = i / 4, from = byte / 32 * 128 + i % 4 * 32 + byte % 32;
         return b.scale[i / kBlockRun] * static_cast<float>(b.codes[from]) - b.min[i / kBlockRun];
       })},
      {"halves swapped",
       {T::kQ2K, T::kQ6K, T::kIq2Xxs, T::kIq3S},
       OnCodes([](const Unpacked& b, size_t i, const uint8_t*) { return Right(b, i ^ 128); })},
      {"high bits forgotten", {T::kQ5K}, nothing_of_qh(16, 32)},
      {"high grid bits forgotten", {T::kIq2S}, nothing_of_qh(66, 8)},
      {"high grid bits forgotten", {T::kIq3S}, nothing_of_qh(66, 8)},
      {"high bits one byte off", {T::kQ6K}, OnBytes([](uint8_t* block) {
         const uint8_t first = block[128];
         std::memmove(block + 128, block + 129, 63);
         block[128 + 63] = first;
       })},
      {"scale nibbles swapped", {T::kIq2Xs}, OnBytes([](uint8_t* b) { SwapNibbles(b + 66, 8); })},
      {"scale nibbles swapped", {T::kIq2S}, OnBytes([](uint8_t* b) { SwapNibbles(b + 74, 8); })},
      {"codes unsigned", {T::kQ8_0}, OnCodes([](const Unpacked& b, size_t i, const uint8_t*) {
         return b.scale[i / kBlockRun] * static_cast<float>(static_cast<uint8_t>(b.codes[i]));
       })},
  };
}

// The share of values that are not the recorded ones.
double ShareOfWrongRows(const Reader& reader, BlockType type, const char* rows) {
  static const auto* const formats = new EditedGguf(test::kGgufFolder + "formats.gguf");
  static const auto* const expected = new test::TensorFile(test::kGgufFolder + "rows.safetensors");
  const std::string name = std::string(InfoOf(type).name) + rows;
  for (const EditedTensor& tensor : formats->tensors) {
    if (tensor.name != name) continue;
    const std::vector<float> truth = expected->Read<float>(name);
    std::vector<float> values(truth.size());
    reader(type, tensor.bytes(), tensor.elements(), values.data());
    size_t wrong = 0;
    for (size_t i = 0; i < truth.size(); ++i) wrong += values[i] != truth[i];
    return static_cast<double>(wrong) / static_cast<double>(truth.size());
  }
  FAIL("no rows " << name);
  return 0;
}

TEST_CASE("the recorded rows find each misreading of a format") {
  for (const Misreading& misreading : Misreadings()) {
    for (const BlockType type : misreading.types) {
      INFO(InfoOf(type).name << ": " << misreading.name);
      for (const char* rows : {".quantised", ".random"}) {
        CHECK(ShareOfWrongRows(LoadBlocks, type, rows) == 0);
        CHECK(ShareOfWrongRows(misreading.reader, type, rows) > 0.02);
      }
    }
  }
}

// Correct code is within 2e-5. The smallest distance of a misreading is that of a scale or a bit of
// one format in one layer.
constexpr double kFound = 2e-3;

// The models, as what a misreading makes of them.
class Probe {
 public:
  explicit Probe(const std::string& model)
      : right(test::GgufFileOf(model, folder_)), expected_(test::GgufExpected(model)) {
    oracle_ = test::GgufCase();
    oracle_.prompts = {5};
    oracle_.record = {5};
  }

  // Of the logits behind a prompt of 5 tokens; infinite if the file is refused.
  double Distance(const EditedGguf& model) {
    refusal.clear();
    const auto tensors =
        test::RunGguf(oracle_, folder_.Write("model.gguf", model.Write()), Numerics::kExact);
    if (!tensors.ok()) {
      refusal = std::string(tensors.status().message());
      return INFINITY;
    }
    double sum = 0;
    for (const char* name : {"p5.prefill.logits", "p5.decode.logits"}) {
      sum += test::GgufDistance(*tensors, expected_, name, "exact") / 2;
    }
    return sum;
  }

  // Of an output of layer 0 at the last position of 300.
  double DistanceAfter300(const char* name) {
    OracleCase oracle = test::GgufCase();
    oracle.prompts = oracle.record = {300};
    const auto tensors =
        test::RunGguf(oracle, folder_.Write("model.gguf", right.Write()), Numerics::kExact);
    REQUIRE_OK(tensors);
    return test::GgufDistance(*tensors, expected_, name, "exact");
  }

 private:
  TempFolder folder_;

 public:
  EditedGguf right;
  std::string refusal;

 private:
  ExpectedTensors expected_;
  OracleCase oracle_;
};

TEST_CASE("the recorded logits find each misreading of a format") {
  std::set<BlockType> found;
  for (const char* name : {"tiny-mxfp4", "tiny-ds4-q2", "tiny-ud"}) {
    Probe probe(name);
    CHECK(probe.Distance(probe.right) <= 2e-5);
    for (const Misreading& misreading : Misreadings()) {
      for (const BlockType type : misreading.types) {
        EditedGguf model = probe.right;
        int changed = 0;
        for (EditedTensor& tensor : model.tensors) {
          if (tensor.block() != type) continue;
          std::vector<float> values(static_cast<size_t>(tensor.elements()));
          misreading.reader(type, tensor.bytes(), tensor.elements(), values.data());
          tensor.SetValues(values);
          ++changed;
        }
        if (changed == 0) continue;
        const double distance = probe.Distance(model);
        INFO(name << ", " << changed << " tensors of " << InfoOf(type).name << ": "
                  << misreading.name << ": " << distance);
        CHECK(distance > kFound);
        CHECK(std::isfinite(distance));
        found.insert(type);
      }
    }
  }
  // All formats of the models but BF16 and the like.
  CHECK(found.size() == 11);
}

// Rows of `bytes` each: row i of the result is row from(i).
template <class From>
void MoveRows(EditedTensor* tensor, size_t rows, const From& from) {
  const size_t bytes = tensor->data.size() / rows;
  std::string moved;
  for (size_t row = 0; row < rows; ++row) moved += tensor->data.substr(from(row) * bytes, bytes);
  tensor->data = moved;
}

// Pairs of neighbours where there were halves, in the last 64 of 512 rows.
size_t RopeHalves(size_t row) {
  const size_t at = row % 512, pair = at - 448;
  return at < 448 ? row : row / 512 * 512 + 448 + pair / 2 + pair % 2 * 32;
}

struct WrongModel {
  const char* name;
  std::function<void(EditedGguf*)> plant;
  bool refused = false;  // it may be
};

// Of every layer.
template <class Edit>
std::function<void(EditedGguf*)> InLayers(const std::string& tensor, const Edit& edit) {
  return [=](EditedGguf* model) {
    int edited = 0;
    for (EditedTensor& t : model->tensors) {
      if (!absl::EndsWith(t.name, "." + tensor)) continue;
      edit(&t);
      ++edited;
    }
    REQUIRE(edited > 0);
  };
}

std::vector<WrongModel> WrongModels() {
  const auto rows_of = [](const EditedTensor& t) {
    return static_cast<size_t>(t.elements() / t.row_elements());
  };
  // Scales the last 64 of 512 elements.
  const auto scale_rope = [](EditedTensor* t) {
    std::vector<float> values = t->Values();
    for (size_t i = 448; i < 512; ++i) values[i] *= 1 + 0.1f * std::log(16.0f);
    t->SetValues(values);
  };
  return {
      {"gate and up swapped",
       [](EditedGguf* model) {
         for (EditedTensor& t : model->tensors) {
           const size_t gate = t.name.find("ffn_gate_exps"), up = t.name.find("ffn_up_exps");
           if (gate != std::string::npos) t.name.replace(gate, 13, "ffn_up_exps");
           if (up != std::string::npos) t.name.replace(up, 11, "ffn_gate_exps");
         }
       }},
      {"one expert for all",
       InLayers("ffn_down_exps.weight",
                [](EditedTensor* t) { MoveRows(t, 4, [](size_t) { return 0; }); })},
      {"experts in steps of another type's size",
       InLayers("ffn_down_exps.weight",
                [](EditedTensor* t) {
                  const auto step = static_cast<size_t>(BlockBytes(BlockType::kIq2Xxs, 256 * 256));
                  const size_t size = t->data.size() / 4;
                  const std::string from = t->data;
                  for (size_t expert = 0; expert < 4; ++expert) {
                    t->data.replace(expert * size, size, from.substr(expert * step, size));
                  }
                }),
       true},
      {"experts as the middle dimension", InLayers("ffn_gate_exps.weight",
                                                   [](EditedTensor* t) {
                                                     MoveRows(t, 4 * 256, [](size_t row) {
                                                       return row % 256 * 4 + row / 256;
                                                     });
                                                   })},
      {"the embedding's rows one off",
       [](EditedGguf* model) {
         MoveRows(&model->Find("token_embd.weight"), 512,
                  [](size_t row) { return (row + 1) % 512; });
       }},
      {"the head tied to the embedding",
       [](EditedGguf* model) {
         EditedTensor& head = model->Find("output.weight");
         const EditedTensor& embedding = model->Find("token_embd.weight");
         head.type = embedding.type;
         head.data = embedding.data;
       }},
      {"RoPE in halves",
       InLayers("attn_kv.weight", [&](EditedTensor* t) { MoveRows(t, 512, RopeHalves); })},
      {"RoPE in halves, of queries",
       InLayers("attn_q_b.weight", [&](EditedTensor* t) { MoveRows(t, 1024, RopeHalves); })},
      {"heads in another order",
       InLayers("attn_q_b.weight",
                [](EditedTensor* t) { MoveRows(t, 2, [](size_t head) { return 1 - head; }); })},
      {"output groups in another order",
       InLayers("attn_output_a.weight",
                [](EditedTensor* t) { MoveRows(t, 2, [](size_t group) { return 1 - group; }); })},
      {"YaRN's attention factor", InLayers("attn_kv_a_norm.weight", scale_rope)},
      {"compressor positions transposed",
       [](EditedGguf* model) {
         EditedTensor& ape = model->Find("blk.1.attn_compressor_ape.weight");
         const std::vector<float> values = ape.Values();
         std::vector<float> read(values.size());
         for (size_t i = 0; i < values.size(); ++i) read[i] = values[i % 1024 * 4 + i / 1024];
         ape.SetValues(read);
       }},
      {"hash table transposed",
       [](EditedGguf* model) {
         MoveRows(&model->Find("blk.0.ffn_gate_tid2eid.weight"), 1024,
                  [](size_t i) { return i % 2 * 512 + i / 2; });
       }},
      {"rows of mixing weights in another order", InLayers("hc_attn_fn.weight",
                                                           [=](EditedTensor* t) {
                                                             const size_t rows = rows_of(*t);
                                                             MoveRows(t, rows, [=](size_t row) {
                                                               return rows - 1 - row;
                                                             });
                                                           })},
  };
}

TEST_CASE("the recorded logits find tensors that are put together wrongly") {
  for (const char* name : {"tiny-ds4-q2", "tiny-ud"}) {
    Probe probe(name);
    for (const WrongModel& wrong : WrongModels()) {
      EditedGguf model = probe.right;
      wrong.plant(&model);
      const double distance = probe.Distance(model);
      INFO(name << ": " << wrong.name << ": " << distance << " " << probe.refusal);
      CHECK(distance > kFound);
      // Scales that are read from other bytes may be no numbers.
      if (!wrong.refused) CHECK(probe.refusal.empty());
    }
  }
}

TEST_CASE("the recorded logits find offsets that count from another part of a split file") {
  Probe probe("tiny-ud");
  EditedGguf model = probe.right;
  std::string first;  // the data of the second file, the first that has some
  for (const EditedTensor& tensor : model.tensors) {
    if (tensor.part != 1) continue;
    first.resize(tensor.offset, '\0');
    first += tensor.data;
  }
  int moved = 0;
  for (EditedTensor& tensor : model.tensors) {
    if (tensor.part != 2 || tensor.offset + tensor.data.size() > first.size()) continue;
    tensor.data = first.substr(tensor.offset, tensor.data.size());
    ++moved;
  }
  REQUIRE(moved > 10);
  CHECK(probe.Distance(model) > kFound);
}

TEST_CASE("the recorded layers find YaRN where the model has none, and none where it has it") {
  Probe probe("tiny-ds4-q2");
  CHECK(probe.DistanceAfter300("p300.prefill.layer0.attn_out") <= 2e-5);
  rope_plant = RopePlant::kYarnEverywhere;
  CHECK(probe.DistanceAfter300("p300.prefill.layer0.attn_out") > kFound);
  rope_plant = RopePlant::kYarnNowhere;
  CHECK(probe.DistanceAfter300("p300.prefill.layer0.attn_out") <= 2e-5);
  CHECK(probe.DistanceAfter300("p300.prefill.layer1.attn_out") > kFound);
  rope_plant = RopePlant::kNone;
}

TEST_CASE("keys that mislead do not") {
  Probe probe("tiny-ds4-q2");
  std::set<std::string> seen;
  for (const auto& [name, value] : probe.right.keys) seen.insert(name);
  // There is no such block, and no such layer.
  CHECK(seen.count("deepseek4.nextn_predict_layers") == 1);
  const absl::StatusOr<GgufModel> file = OpenGguf(DSV4_BUILT_MODELS "/gguf/tiny-ds4-q2.gguf");
  REQUIRE_OK(file);
  CHECK(file->Find("deepseek4.nextn_predict_layers")->AsInt64() == 1);
  CHECK(file->Find("deepseek4.compress_ratios") == nullptr);
  CHECK(file->Find("deepseek4.attention.compress_ratios")->count >
        static_cast<uint64_t>(*file->Find("deepseek4.block_count")->AsInt64()));
  CHECK(probe.Distance(probe.right) <= 2e-5);
  // Whatever the file says it is.
  for (auto& [name, value] : probe.right.keys) {
    if (name == "general.file_type") value.second = test::Bytes(uint32_t{2});
    if (name == "tokenizer.ggml.add_bos_token") value.second = "\1";
  }
  CHECK(seen.count("general.file_type") == 1);
  CHECK(probe.Distance(probe.right) <= 2e-5);
}

TEST_CASE("dimensions in another order, and a head that is not there, are refused by name") {
  Probe probe("tiny-ds4-q2");
  const auto refused = [&](const std::string& name, const char* message) {
    EditedGguf model = probe.right;
    EditedTensor& tensor = model.Find(name);
    tensor.dims = {tensor.dims.rbegin(), tensor.dims.rend()};
    tensor.SetValues(std::vector<float>(static_cast<size_t>(tensor.elements())));
    CHECK(probe.Distance(model) == INFINITY);
    CHECK_THAT(probe.refusal, Catch::Contains(name) && Catch::Contains(message));
  };
  refused("blk.1.attn_q_a.weight", "has the shape [256, 128]; the configuration asks for");
  refused("blk.0.ffn_down_exps.weight", "has 256 experts in 3 dimensions; the model has 4");
  refused("token_embd.weight", "has the shape [256, 512]");
  EditedGguf model = probe.right;
  model.Find("output.weight").name = "output_other.weight";
  CHECK(probe.Distance(model) == INFINITY);
  CHECK_THAT(probe.refusal, Catch::Contains("output.weight is missing"));
}

}  // namespace
}  // namespace dsv4
