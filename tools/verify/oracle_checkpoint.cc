// SPDX-License-Identifier: Apache-2.0
// Every element is a look-up or integer arithmetic on one 64-bit word; word i of a tensor depends
// on its name, the case's seed and i alone. So a tensor is written in parts of any size.
#include "tools/verify/oracle_checkpoint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"
#include "tools/verify/oracle_words.h"

namespace dsv4 {
namespace {

// The 16 magnitudes of a weight, exact in e4m3 and bf16, and the root mean square that the
// generator takes for them and for a uniform e2m1 nibble.
constexpr std::array<float, 16> kMagnitudes = {.125f, .125f, .25f,  .25f, .375f,  .375f, .5f,  .5f,
                                               .625f, .75f,  .875f, 1.f,  1.125f, 1.25f, 1.5f, 2.f};
constexpr double kMagnitudeRms = 0.8807;
constexpr double kE2M1Rms = 2.9262;

float Magnitude(uint64_t word) {
  const float magnitude = kMagnitudes[word & 15];
  return (word >> 4) & 1 ? -magnitude : magnitude;
}

// e4m3 of Magnitude(word) for each of the 32 values of the bits it reads: the float's exponent
// re-biased from 127 to 7, and three bits of its mantissa.
constexpr std::array<uint8_t, 32> kE4M3Bytes = [] {
  std::array<uint8_t, 32> bytes{};
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(kMagnitudes[i & 15]);
    bytes[i] = static_cast<uint8_t>((i >> 4) << 7 | ((bits >> 20) - (120u << 3)));
  }
  return bytes;
}();

// In [-1, 1), a multiple of 2^-23: exact in a float.
float Uniform(uint64_t word) {
  return static_cast<float>(static_cast<double>(word >> 40) / (1 << 23) - 1);
}

// Exponent of the power of two nearest to the factor that keeps a unit signal at `gain`.
int Log2Gain(double gain, int64_t fan_in, double rms) {
  return static_cast<int>(
      std::nearbyint(std::log2(gain / (std::sqrt(static_cast<double>(fan_in)) * rms))));
}

// How the words of a tensor become its elements.
enum class Fill {
  kE4M3,     // a signed magnitude
  kFp4Pair,  // any byte
  kE8M0,     // 127 + exponent - 1, + 0 or + 1
  kBf16,     // a signed magnitude times 2^exponent
  kNorm,     // bf16 in [0.75, 1.25)
  kF32,      // uniform in [-1, 1) times 2^exponent
  kHcScale,  // f32, 0.75 + uniform / 4
  kExperts,  // a row of K distinct expert numbers per word
};

struct Tensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  Fill fill;
  int exponent = 0;

  int64_t Bytes() const {
    int64_t bytes = DTypeBytes(dtype);
    for (const int64_t size : shape) bytes *= size;
    return bytes;
  }
};

// The checkpoint's tensors in the generator's order.
class TensorList {
 public:
  explicit TensorList(const ModelConfig& config) : c_(config) {
    const int64_t hidden = c_.hidden_size;
    Bf16("embed.weight", c_.vocab_size, hidden, std::sqrt(static_cast<double>(hidden)));
    Bf16("head.weight", c_.vocab_size, hidden, 2);
    Norm("norm.weight", hidden);
    HyperConnection("hc_head", kStreams, 1);
    for (int64_t layer = 0; layer < c_.num_hidden_layers; ++layer) {
      Block(absl::StrCat("layers.", layer), layer, c_.compress_ratios[layer]);
    }
    Block("mtp.0", c_.num_hidden_layers, c_.compress_ratios.back());
    Fp8("mtp.0.e_proj", hidden, hidden, 1);
    Fp8("mtp.0.h_proj", hidden, hidden, 1);
    for (const char* name : {"enorm", "hnorm", "norm"}) {
      Norm(absl::StrCat("mtp.0.", name, ".weight"), hidden);
    }
    HyperConnection("mtp.0.hc_head", kStreams, 1);
  }

  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  void Fp8(const std::string& name, int64_t n, int64_t k, double gain) {
    tensors_.push_back({name + ".weight", DType::kF8E4M3, {n, k}, Fill::kE4M3});
    tensors_.push_back({name + ".scale",
                        DType::kF8E8M0,
                        {CeilDiv(n, kFp8Block), CeilDiv(k, kFp8Block)},
                        Fill::kE8M0,
                        Log2Gain(gain, k, kMagnitudeRms)});
  }

  void Fp4(const std::string& name, int64_t n, int64_t k, double gain) {
    tensors_.push_back({name + ".weight", DType::kI8, {n, k / 2}, Fill::kFp4Pair});
    tensors_.push_back({name + ".scale",
                        DType::kF8E8M0,
                        {n, k / kFp4Run},
                        Fill::kE8M0,
                        Log2Gain(gain, k, kE2M1Rms)});
  }

  void Bf16(const std::string& name, int64_t n, int64_t k, double gain) {
    tensors_.push_back({name, DType::kBF16, {n, k}, Fill::kBf16, Log2Gain(gain, k, kMagnitudeRms)});
  }

  void Norm(const std::string& name, int64_t dim) {
    tensors_.push_back({name, DType::kBF16, {dim}, Fill::kNorm});
  }

  void F32(const std::string& name, std::vector<int64_t> shape, int exponent) {
    tensors_.push_back({name, DType::kF32, std::move(shape), Fill::kF32, exponent});
  }

  void HyperConnection(const std::string& prefix, int64_t mixes, int64_t scales) {
    const int64_t width = kStreams * c_.hidden_size;
    F32(prefix + "_fn", {mixes, width}, Log2Gain(1.7, width, 1));
    F32(prefix + "_base", {mixes}, 0);
    tensors_.push_back({prefix + "_scale", DType::kF32, {scales}, Fill::kHcScale});
  }

  void Compressor(const std::string& prefix, int64_t ratio, int64_t dim) {
    const int64_t width = ratio == 4 ? 2 * dim : dim;
    F32(prefix + ".ape", {ratio, width}, 0);
    Bf16(prefix + ".wkv.weight", width, c_.hidden_size, 1);
    Bf16(prefix + ".wgate.weight", width, c_.hidden_size, 2);
    Norm(prefix + ".norm.weight", dim);
  }

  void Attention(const std::string& a, int64_t ratio) {
    const int64_t hidden = c_.hidden_size, heads = c_.num_attention_heads;
    const int64_t groups = c_.o_groups, rank = c_.o_lora_rank;
    F32(a + ".attn_sink", {heads}, 0);
    Fp8(a + ".wq_a", c_.q_lora_rank, hidden, 1);
    Norm(a + ".q_norm.weight", c_.q_lora_rank);
    Fp8(a + ".wq_b", heads * kHeadDim, c_.q_lora_rank, 2);
    Fp8(a + ".wkv", kHeadDim, hidden, 1);
    Norm(a + ".kv_norm.weight", kHeadDim);
    Fp8(a + ".wo_a", groups * rank, heads * kHeadDim / groups, 2);
    Fp8(a + ".wo_b", hidden, groups * rank, 2);
    if (ratio != 0) Compressor(a + ".compressor", ratio, kHeadDim);
    if (ratio != 4) return;
    Fp8(a + ".indexer.wq_b", c_.index_n_heads * kIndexHeadDim, c_.q_lora_rank, 2);
    Bf16(a + ".indexer.weights_proj.weight", c_.index_n_heads, hidden, 1);
    Compressor(a + ".indexer.compressor", 4, kIndexHeadDim);
  }

  void Moe(const std::string& f, bool hash_routed) {
    const int64_t hidden = c_.hidden_size, inter = c_.moe_intermediate_size;
    constexpr double kGain = 1.5;
    Bf16(f + ".gate.weight", c_.n_routed_experts, hidden, 2);
    if (hash_routed) {
      tensors_.push_back({f + ".gate.tid2eid",
                          DType::kI64,
                          {c_.vocab_size, c_.num_experts_per_tok},
                          Fill::kExperts});
    } else {
      F32(f + ".gate.bias", {c_.n_routed_experts}, -2);
    }
    for (int64_t e = 0; e < c_.n_routed_experts; ++e) {
      const std::string expert = absl::StrCat(f, ".experts.", e);
      Fp4(expert + ".w1", inter, hidden, kGain);
      Fp4(expert + ".w3", inter, hidden, kGain);
      Fp4(expert + ".w2", hidden, inter, kGain);
    }
    const std::string shared = f + ".shared_experts";
    Fp8(shared + ".w1", inter, hidden, kGain);
    Fp8(shared + ".w3", inter, hidden, kGain);
    Fp8(shared + ".w2", hidden, inter, kGain);
  }

  void Block(const std::string& p, int64_t layer, int64_t ratio) {
    constexpr int64_t kMixes = (2 + kStreams) * kStreams;
    Norm(p + ".attn_norm.weight", c_.hidden_size);
    Norm(p + ".ffn_norm.weight", c_.hidden_size);
    HyperConnection(p + ".hc_attn", kMixes, 3);
    HyperConnection(p + ".hc_ffn", kMixes, 3);
    Attention(p + ".attn", ratio);
    Moe(p + ".ffn", layer < c_.num_hash_layers);
  }

  const ModelConfig& c_;
  std::vector<Tensor> tensors_;
};

// A file that is being written; the first failure is kept.
class OutputFile {
 public:
  explicit OutputFile(std::string path)
      : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
    if (file_ == nullptr) Fail();
  }
  ~OutputFile() {
    if (file_ != nullptr) std::fclose(file_);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  absl::Status Write(const void* data, size_t bytes) {
    if (status_.ok() && std::fwrite(data, 1, bytes, file_) != bytes) Fail();
    return status_;
  }
  absl::Status Write(absl::string_view text) { return Write(text.data(), text.size()); }

  absl::Status Close() {
    if (file_ != nullptr && std::fclose(std::exchange(file_, nullptr)) != 0) Fail();
    return status_;
  }

 private:
  void Fail() {
    if (!status_.ok()) return;
    status_ = IoError(path_, ": cannot write: ", std::generic_category().message(errno));
  }

  std::string path_;
  std::FILE* file_;
  absl::Status status_;
};

// Elements [begin, end) of `out`: words of one tensor turned into elements of T.
template <class T, class Element>
absl::Status WriteElements(int64_t count, OutputFile* file, const Element& element) {
  constexpr int64_t kPart = (int64_t{1} << 18) / sizeof(T);
  std::vector<T> part(static_cast<size_t>(std::min(count, kPart)));
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t size = std::min(kPart, count - begin);
    for (int64_t i = 0; i < size; ++i) part[i] = element(begin + i);
    DSV4_RETURN_IF_ERROR(file->Write(part.data(), size * sizeof(T)));
  }
  return absl::OkStatus();
}

absl::Status WriteTensor(const OracleCase& oracle, const Tensor& tensor, OutputFile* file) {
  const OracleWords words(oracle.seed, tensor.name);
  const int64_t count = tensor.Bytes() / DTypeBytes(tensor.dtype);
  const float scale = std::ldexp(1.f, tensor.exponent);
  switch (tensor.fill) {
    case Fill::kE4M3:
      return WriteElements<uint8_t>(count, file,
                                    [&](int64_t i) { return kE4M3Bytes[words[i] & 31]; });
    case Fill::kFp4Pair:
      return WriteElements<uint8_t>(count, file,
                                    [&](int64_t i) { return static_cast<uint8_t>(words[i]); });
    case Fill::kE8M0:
      return WriteElements<uint8_t>(count, file, [&](int64_t i) {
        return static_cast<uint8_t>(127 + tensor.exponent + static_cast<int>(words[i] % 3) - 1);
      });
    case Fill::kBf16:
      return WriteElements<uint16_t>(
          count, file, [&](int64_t i) { return FloatToBf16(Magnitude(words[i]) * scale); });
    case Fill::kNorm:
      return WriteElements<uint16_t>(count, file, [&](int64_t i) {
        return FloatToBf16(1 + (static_cast<float>(words[i] % 32) - 16) / 64);
      });
    case Fill::kF32:
      return WriteElements<float>(count, file,
                                  [&](int64_t i) { return Uniform(words[i]) * scale; });
    case Fill::kHcScale:
      return WriteElements<float>(count, file,
                                  [&](int64_t i) { return .75f + Uniform(words[i]) * .25f; });
    case Fill::kExperts: {
      const int64_t width = oracle.model.num_experts_per_tok;
      const auto experts = static_cast<uint64_t>(oracle.model.n_routed_experts);
      return WriteElements<int64_t>(count, file, [&](int64_t i) {
        const uint64_t word = words[i / width];
        const uint64_t step = (word >> 33) & 1 ? 1 : experts - 1;
        return static_cast<int64_t>((word % experts + static_cast<uint64_t>(i % width) * step) %
                                    experts);
      });
    }
  }
  return Internal("a fill without a rule");
}

absl::Status WriteShard(const OracleCase& oracle, absl::Span<const Tensor> tensors,
                        const std::string& path) {
  std::string header = "{";
  int64_t position = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t end = position + tensor.Bytes();
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", tensor.name, "\":{\"dtype\":\"",
                    DTypeName(tensor.dtype), "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", position, ",", end, "]}");
    position = end;
  }
  header += "}";
  header.resize(RoundUp<size_t>(header.size(), 8), ' ');

  OutputFile file(path);
  const uint64_t header_bytes = header.size();
  DSV4_RETURN_IF_ERROR(file.Write(&header_bytes, sizeof header_bytes));
  DSV4_RETURN_IF_ERROR(file.Write(header));
  for (const Tensor& tensor : tensors) {
    DSV4_RETURN_IF_ERROR(WriteTensor(oracle, tensor, &file));
  }
  return file.Close();
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  OutputFile file(path);
  DSV4_RETURN_IF_ERROR(file.Write(text));
  return file.Close();
}

}  // namespace

absl::Status WriteOracleCheckpoint(const OracleCase& oracle, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError(folder, ": cannot make the folder: ", error.message());
  DSV4_RETURN_IF_ERROR(WriteText(folder + "/config.json", oracle.model_json));

  const TensorList list(oracle.model);
  const absl::Span<const Tensor> tensors = list.tensors();
  const auto per_shard = CeilDiv(tensors.size(), static_cast<size_t>(oracle.shards));
  int64_t total = 0;
  std::string weight_map;
  for (int64_t shard = 0; shard < oracle.shards; ++shard) {
    const std::string file = oracle.shards == 1 ? "model.safetensors"
                                                : absl::StrFormat("model-%05d-of-%05d.safetensors",
                                                                  shard + 1, oracle.shards);
    const size_t begin = std::min(per_shard * static_cast<size_t>(shard), tensors.size());
    const absl::Span<const Tensor> part = tensors.subspan(begin, per_shard);
    DSV4_RETURN_IF_ERROR(WriteShard(oracle, part, absl::StrCat(folder, "/", file)));
    for (const Tensor& tensor : part) {
      total += tensor.Bytes();
      absl::StrAppend(&weight_map, weight_map.empty() ? "" : ",", "\n\"", tensor.name, "\": \"",
                      file, "\"");
    }
  }
  if (oracle.shards == 1) return absl::OkStatus();
  return WriteText(folder + "/model.safetensors.index.json",
                   absl::StrCat("{\n\"metadata\": {\n\"total_size\": ", total,
                                "\n},\n\"weight_map\": {", weight_map, "\n}\n}"));
}

}  // namespace dsv4
