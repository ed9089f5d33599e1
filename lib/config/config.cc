// SPDX-License-Identifier: Apache-2.0
// Both documents are read through json.h, which keeps the text of numbers, so that errors can name
// key and value.
#include "lib/config/config.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/json.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// Far above any published model, and low enough that no product of dimensions in the library nears
// the end of int64.
constexpr int64_t kMaxDim = 1 << 16;    // hidden_size, ranks, expert width
constexpr int64_t kMaxCount = 1 << 12;  // layers, heads, experts
constexpr int64_t kMaxVocab = 1 << 24;  // tokens
constexpr int64_t kScaleBlock = 128;    // dims that are cut into FP8 scale blocks

// A value as a message shows it.
std::string ValueText(const JsonValue& value) {
  if (const std::string* text = value.AsString()) return Quoted(*text);
  if (const std::string* text = value.AsNumberText()) return text->substr(0, 64);
  if (const std::optional<bool> flag = value.AsBool()) return *flag ? "true" : "false";
  return value.IsNull() ? "null" : absl::StrCat("an ", value.KindName());
}

// Reads the members of one JSON object. A read that fails gives 0; the first failure is kept in
// `status`, so that a caller reads all it needs and asks once. A required key must be there and not
// be null.
class Fields {
 public:
  using KeyName = std::string (*)(absl::string_view);

  // `path` is what precedes a key in messages: "rope_scaling." for that object's.
  Fields(const JsonValue& object, absl::string_view source, std::string path, absl::Status* status,
         KeyName key_name = nullptr)
      : object_(object),
        source_(source),
        path_(std::move(path)),
        status_(*status),
        key_name_(key_name) {}

  const JsonValue* Optional(absl::string_view key) const {
    const JsonValue* value = object_.Find(key);
    return value == nullptr || value->IsNull() ? nullptr : value;
  }

  const JsonValue* Required(absl::string_view key) {
    const JsonValue* value = Optional(key);
    if (value == nullptr) Fail(InvalidArgument(Name(key), " is missing"));
    return value;
  }

  // An integer in [low, high].
  int64_t Int(absl::string_view key, int64_t low, int64_t high) {
    const JsonValue* value = Required(key);
    return value == nullptr ? 0 : IntOf(key, *value, low, high);
  }

  int64_t IntOf(absl::string_view name, const JsonValue& value, int64_t low, int64_t high) {
    const std::optional<int64_t> number = value.AsInt64();
    if (number && *number >= low && *number <= high) return *number;
    Fail(InvalidArgument(Name(name), " is ", ValueText(value), "; expected an integer from ", low,
                         " to ", high));
    return 0;
  }

  int64_t MultipleOf128(absl::string_view key) {
    const int64_t number = Int(key, kScaleBlock, kMaxDim);
    if (number % kScaleBlock != 0) {
      Fail(InvalidArgument(Name(key), " is ", number, "; expected a multiple of ", kScaleBlock));
    }
    return number;
  }

  // A finite number in [low, high].
  double Real(absl::string_view key, double low, double high) {
    const JsonValue* value = Required(key);
    if (value == nullptr) return 0;
    double number = 0;
    const std::string* text = value->AsNumberText();
    if (text != nullptr && absl::SimpleAtod(*text, &number) && number >= low && number <= high) {
      return number;
    }
    Fail(InvalidArgument(Name(key), " is ", ValueText(*value), "; expected a number from ", low,
                         " to ", high));
    return 0;
  }

  // Values that the family or the kernels fix. Another value of the right kind is Unsupported.
  void Fixed(absl::string_view key, int64_t expected) {
    const JsonValue* value = Required(key);
    if (value == nullptr || value->AsInt64() == expected) return;
    Refuse(key, *value, value->AsInt64().has_value(), absl::StrCat(expected));
  }
  void Fixed(absl::string_view key, bool expected) {
    const JsonValue* value = Required(key);
    if (value == nullptr || value->AsBool() == expected) return;
    Refuse(key, *value, value->AsBool().has_value(), expected ? "true" : "false");
  }
  // Keys of other models, which say the same as the family's when they have this value.
  void FixedIfPresent(absl::string_view key, bool expected) {
    if (Optional(key) != nullptr) Fixed(key, expected);
  }
  void FixedIfPresent(absl::string_view key, double expected) {
    const JsonValue* value = Optional(key);
    if (value == nullptr) return;
    const std::string* text = value->AsNumberText();
    double number = 0;
    const bool is_number = text != nullptr && absl::SimpleAtod(*text, &number);
    if (!is_number || number != expected) Refuse(key, *value, is_number, absl::StrCat(expected));
  }
  void Fixed(absl::string_view key, const char* expected) {
    if (Required(key) != nullptr) FixedIfPresent(key, expected);
  }
  void FixedIfPresent(absl::string_view key, const char* expected) {
    OneOfIfPresent(key, {expected});
  }
  // Empty where it is absent.
  std::string OneOfIfPresent(absl::string_view key,
                             std::initializer_list<absl::string_view> expected) {
    const JsonValue* value = Optional(key);
    if (value == nullptr) return {};
    const std::string* text = value->AsString();
    if (text != nullptr && std::count(expected.begin(), expected.end(), *text) != 0) return *text;
    Refuse(key, *value, text != nullptr,
           absl::StrJoin(expected, " or ",
                         [](std::string* out, absl::string_view name) { *out += Quoted(name); }));
    return {};
  }

  // Empty where it is absent.
  std::string TextIfPresent(absl::string_view key) {
    const JsonValue* value = Optional(key);
    if (value == nullptr) return {};
    if (const std::string* text = value->AsString()) return *text;
    Fail(InvalidArgument(Name(key), " is ", ValueText(*value), "; expected a text"));
    return {};
  }

  // The members of a required object; none after a failure, which the caller need not look at.
  std::optional<Fields> Object(absl::string_view key) {
    const JsonValue* value = Required(key);
    if (value == nullptr) return std::nullopt;
    if (value->AsObject() != nullptr) {
      return Fields(*value, source_, absl::StrCat(path_, key, "."), &status_, key_name_);
    }
    Fail(InvalidArgument(Name(key), " is ", ValueText(*value), "; expected an object"));
    return std::nullopt;
  }

  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  std::string Name(absl::string_view key) const {
    const std::string path = absl::StrCat(path_, key);
    return absl::StrCat(source_, ": ", key_name_ == nullptr ? path : key_name_(path));
  }

 private:
  void Refuse(absl::string_view key, const JsonValue& value, bool right_kind,
              const std::string& expected) {
    const std::string text = absl::StrCat(Name(key), " is ", ValueText(value));
    Fail(right_kind ? Unsupported(text, "; only ", expected, " is supported")
                    : InvalidArgument(text, "; expected ", expected));
  }

  const JsonValue& object_;
  absl::string_view source_;
  std::string path_;
  absl::Status& status_;
  KeyName key_name_;
};

absl::StatusOr<JsonValue> ParseObject(absl::string_view json, absl::string_view source) {
  DSV4_ASSIGN_OR_RETURN(JsonValue root, ParseJson(json, source, kMaxConfigBytes));
  if (root.AsObject() == nullptr) {
    return Corrupt(source, ": the document is ", ValueText(root), "; expected an object");
  }
  return root;
}

// A token, or a list of them.
std::vector<int32_t> ReadTokens(Fields* f, absl::string_view key, const JsonValue& value,
                                int64_t highest) {
  const std::vector<JsonValue>* list = value.AsArray();
  std::vector<int32_t> tokens;
  for (const JsonValue& id :
       list != nullptr ? absl::MakeConstSpan(*list) : absl::MakeConstSpan(&value, 1)) {
    tokens.push_back(static_cast<int32_t>(f->IntOf(key, id, 0, highest)));
  }
  return tokens;
}

// Keys of generation_config.json that are read, or that set nothing.
bool IsFollowed(absl::string_view key) {
  constexpr absl::string_view kKeys[] = {
      "do_sample",          "temperature",         "top_p",        "min_p",        "top_k",
      "repetition_penalty", "max_new_tokens",      "eos_token_id", "bos_token_id", "pad_token_id",
      "_from_model_config", "transformers_version"};
  return std::count(std::begin(kKeys), std::end(kKeys), key) != 0;
}

void CheckQuantization(Fields f) {
  f.Fixed("quant_method", "fp8");
  f.Fixed("fmt", "e4m3");
  f.Fixed("scale_fmt", "ue8m0");
  f.Fixed("activation_scheme", "dynamic");
  const JsonValue* block = f.Required("weight_block_size");
  if (block == nullptr) return;
  const std::vector<JsonValue>* sizes = block->AsArray();
  const bool fits = sizes != nullptr && sizes->size() == 2 &&
                    (*sizes)[0].AsInt64() == kScaleBlock && (*sizes)[1].AsInt64() == kScaleBlock;
  if (!fits) {
    f.Fail(Unsupported(f.Name("weight_block_size"), " is not [128, 128], the only one supported"));
  }
}

// The family scales angles alone: neither their sines and cosines nor logits.
RopeScaling ReadRopeScaling(Fields f) {
  RopeScaling scaling;
  f.FixedIfPresent("attention_factor", 1.0);
  f.FixedIfPresent("mscale", 0.0);
  f.FixedIfPresent("mscale_all_dim", 0.0);
  f.FixedIfPresent("truncate", true);
  // Older configurations say "type", later ones "rope_type".
  f.FixedIfPresent("rope_type", "yarn");
  if (f.Optional("rope_type") == nullptr) f.Fixed("type", "yarn");
  scaling.factor = f.Real("factor", 1, 1e6);
  scaling.original_max_position_embeddings =
      f.Int("original_max_position_embeddings", 1, kMaxInt32);
  scaling.beta_fast = f.Real("beta_fast", 1e-3, 1e6);
  scaling.beta_slow = f.Real("beta_slow", 1e-3, 1e6);
  if (scaling.beta_slow > scaling.beta_fast) {
    f.Fail(InvalidArgument(f.Name("beta_slow"), " is ", scaling.beta_slow,
                           ", more than beta_fast, which is ", scaling.beta_fast));
  }
  return scaling;
}

// The names of a list with one for each layer; none after a failure.
// REQUIRES: the number of layers was read.
std::vector<std::string> LayerNames(Fields* f, absl::string_view key, const JsonValue& value,
                                    int64_t layers,
                                    std::initializer_list<absl::string_view> known) {
  const std::vector<JsonValue>* list = value.AsArray();
  if (list == nullptr || static_cast<int64_t>(list->size()) != layers) {
    f->Fail(InvalidArgument(f->Name(key), " is ", ValueText(value), "; expected a list of ", layers,
                            " names (num_hidden_layers)"));
    return {};
  }
  std::vector<std::string> names;
  for (const JsonValue& item : *list) {
    const std::string* name = item.AsString();
    if (name == nullptr || std::count(known.begin(), known.end(), *name) == 0) {
      f->Fail(Unsupported(f->Name(key), "[", names.size(), "] is ", ValueText(item), "; only ",
                          absl::StrJoin(known, ", "), " are supported"));
      return {};
    }
    names.push_back(*name);
  }
  return names;
}

// transformers 5 writes names of the layers' kinds in place of compress_ratios.
void ReadLayerTypes(Fields* f, ModelConfig* c) {
  constexpr absl::string_view kKey = "layer_types", kRates = "compress_rates";
  constexpr absl::string_view kSparse = "compressed_sparse_attention";
  constexpr absl::string_view kHeavy = "heavily_compressed_attention";
  const JsonValue* value = f->Optional(kKey);
  if (value == nullptr) return;
  if (f->Optional(kRates) != nullptr) {
    if (std::optional<Fields> rates = f->Object(kRates)) {
      rates->FixedIfPresent(kSparse, 4.0);
      rates->FixedIfPresent(kHeavy, 128.0);
    }
  }
  std::vector<int32_t> ratios;
  for (const std::string& name :
       LayerNames(f, kKey, *value, c->num_hidden_layers, {"sliding_attention", kSparse, kHeavy})) {
    ratios.push_back(name == kSparse ? 4 : name == kHeavy ? 128 : 0);
  }
  if (f->Optional("compress_ratios") == nullptr) {
    c->compress_ratios = std::move(ratios);
    return;
  }
  for (size_t i = 0; i < std::min(ratios.size(), c->compress_ratios.size()); ++i) {
    if (ratios[i] == c->compress_ratios[i]) continue;
    f->Fail(InvalidArgument(f->Name(kKey), "[", i, "] is for the ratio ", ratios[i],
                            ", but compress_ratios[", i, "] is ", c->compress_ratios[i]));
    return;
  }
}

// Reads num_hash_layers from the kinds of layers: the first layers have the first kind.
void ReadMlpLayerTypes(Fields* f, ModelConfig* c) {
  constexpr absl::string_view kKey = "mlp_layer_types", kHash = "hash_moe";
  const JsonValue* value = f->Optional(kKey);
  if (value == nullptr) return;
  const std::vector<std::string> names =
      LayerNames(f, kKey, *value, c->num_hidden_layers, {kHash, "moe"});
  const auto begin = names.begin();
  const auto first_other = std::find(begin, names.end(), "moe");
  if (std::count(first_other, names.end(), kHash) != 0) {
    f->Fail(Unsupported(f->Name(kKey), " has hash_moe behind moe; only the first layers may be"));
  }
  const int64_t count = first_other - begin;
  if (f->Optional("num_hash_layers") == nullptr) {
    c->num_hash_layers = count;
  } else if (!names.empty() && c->num_hash_layers != count) {
    f->Fail(InvalidArgument(f->Name(kKey), " has ", count,
                            " layers of hash_moe, but num_hash_layers is ", c->num_hash_layers));
  }
}

// REQUIRES: the number of layers was read. Further entries are for the drafter: in the published
// files one for each of its blocks. Other tools write any number of them.
void ReadCompressRatios(Fields* f, ModelConfig* c) {
  constexpr absl::string_view kKey = "compress_ratios";
  if (f->Optional(kKey) == nullptr && f->Optional("layer_types") != nullptr) return;
  const JsonValue* value = f->Required(kKey);
  if (value == nullptr) return;
  const std::vector<JsonValue>* ratios = value->AsArray();
  if (ratios == nullptr) {
    f->Fail(InvalidArgument(f->Name(kKey), " is ", ValueText(*value), "; expected an array"));
    return;
  }
  if (static_cast<int64_t>(ratios->size()) < c->num_hidden_layers) {
    f->Fail(InvalidArgument(f->Name(kKey), " has ", ratios->size(), " entries; at least ",
                            c->num_hidden_layers, " expected (num_hidden_layers)"));
    return;
  }
  for (size_t i = 0; i < ratios->size(); ++i) {
    const std::string name = absl::StrCat(kKey, "[", i, "]");
    const std::optional<int64_t> ratio = (*ratios)[i].AsInt64();
    if (!ratio || (*ratio != 0 && *ratio != 4 && *ratio != 128)) {
      f->Fail(InvalidArgument(f->Name(name), " is ", ValueText((*ratios)[i]),
                              "; expected 0, 4 or 128"));
      return;
    }
    if (static_cast<int64_t>(i) >= c->num_hidden_layers && *ratio != 0) {
      f->Fail(Unsupported(f->Name(name), " is ", *ratio, "; only 0 is supported past the layers"));
      return;
    }
    c->compress_ratios.push_back(static_cast<int32_t>(*ratio));
  }
}

void ReadAttention(Fields* f, ModelConfig* c) {
  f->Fixed("head_dim", kHeadDim);
  // transformers 5 may write the second key in place of the first.
  constexpr absl::string_view kRotated = "partial_rotary_factor";
  f->FixedIfPresent(kRotated, static_cast<double>(kRopeDim) / kHeadDim);
  if (f->Optional("qk_rope_head_dim") != nullptr || f->Optional(kRotated) == nullptr) {
    f->Fixed("qk_rope_head_dim", kRopeDim);
  }
  f->FixedIfPresent("rope_interleave", true);
  f->FixedIfPresent("attention_bias", false);
  f->Fixed("sliding_window", kSlidingWindow);
  f->Fixed("num_key_value_heads", int64_t{1});
  c->num_attention_heads = f->Int("num_attention_heads", 1, kMaxCount);
  c->q_lora_rank = f->MultipleOf128("q_lora_rank");
  c->o_groups = f->Int("o_groups", 1, kMaxCount);
  c->o_lora_rank = f->MultipleOf128("o_lora_rank");
  if (c->o_groups > 0 && c->num_attention_heads % c->o_groups != 0) {
    f->Fail(InvalidArgument(f->Name("o_groups"), " is ", c->o_groups,
                            ", which does not divide num_attention_heads, ",
                            c->num_attention_heads));
  }
  ReadCompressRatios(f, c);
  ReadLayerTypes(f, c);
  if (std::count(c->compress_ratios.begin(), c->compress_ratios.end(), 4) > 0) {
    f->Fixed("index_head_dim", kIndexHeadDim);
    c->index_n_heads = f->Int("index_n_heads", 1, kMaxCount);
    c->index_topk = f->Int("index_topk", 1, kMaxDim);
  }
}

void ReadMoe(Fields* f, ModelConfig* c) {
  f->Fixed("n_shared_experts", int64_t{1});
  f->Fixed("norm_topk_prob", true);
  f->FixedIfPresent("mlp_bias", false);
  f->FixedIfPresent("n_group", 1.0);
  f->FixedIfPresent("topk_group", 1.0);
  f->FixedIfPresent("first_k_dense_replace", 0.0);
  f->FixedIfPresent("moe_layer_freq", 1.0);
  f->FixedIfPresent("topk_method", "noaux_tc");
  f->Fixed("scoring_func", "sqrtsoftplus");
  f->Fixed("hidden_act", "silu");
  // The tensors' dtypes determine the experts' format.
  c->expert_dtype = f->OneOfIfPresent("expert_dtype", {"fp4", "fp8"});
  c->n_routed_experts = f->Int("n_routed_experts", 1, kMaxCount);
  c->num_experts_per_tok = f->Int("num_experts_per_tok", 1, kMaxCount);
  if (c->num_experts_per_tok > c->n_routed_experts) {
    f->Fail(InvalidArgument(f->Name("num_experts_per_tok"), " is ", c->num_experts_per_tok,
                            ", more than n_routed_experts, which is ", c->n_routed_experts));
  }
  c->moe_intermediate_size = f->MultipleOf128("moe_intermediate_size");
  if (f->Optional("num_hash_layers") != nullptr || f->Optional("mlp_layer_types") == nullptr) {
    c->num_hash_layers = f->Int("num_hash_layers", 0, kMaxCount);
  }
  ReadMlpLayerTypes(f, c);
  if (c->num_hash_layers > c->num_hidden_layers) {
    f->Fail(InvalidArgument(f->Name("num_hash_layers"), " is ", c->num_hash_layers,
                            ", more than num_hidden_layers, which is ", c->num_hidden_layers));
  }
  c->routed_scaling_factor = f->Real("routed_scaling_factor", 1e-6, 1e6);
  c->swiglu_limit = f->Real("swiglu_limit", 0, 1e6);
}

// REQUIRES: layers and vocabulary are read.
void ReadDspark(Fields* f, ModelConfig* c) {
  constexpr absl::string_view kKey = "dspark_target_layer_ids";
  constexpr int64_t kMaxTaps = 64;
  DsparkConfig& dspark = c->dspark;
  dspark.block_size = f->Int("dspark_block_size", 1, kMostBlockRows);
  dspark.noise_token_id = f->Int("dspark_noise_token_id", 0, c->vocab_size - 1);
  dspark.markov_rank = f->Int("dspark_markov_rank", 1, kMaxDim);
  const JsonValue* value = f->Required(kKey);
  if (value == nullptr) return;
  const std::vector<JsonValue>* layers = value->AsArray();
  if (layers == nullptr || layers->empty() || static_cast<int64_t>(layers->size()) > kMaxTaps) {
    f->Fail(InvalidArgument(f->Name(kKey), " is ", ValueText(*value), "; expected a list of 1 to ",
                            kMaxTaps, " layers"));
    return;
  }
  for (const JsonValue& layer : *layers) {
    dspark.target_layers.push_back(
        static_cast<int32_t>(f->IntOf(kKey, layer, 0, c->num_hidden_layers - 1)));
  }
  // The published code concatenates in the order of the layers.
  std::sort(dspark.target_layers.begin(), dspark.target_layers.end());
  const auto twice = std::adjacent_find(dspark.target_layers.begin(), dspark.target_layers.end());
  if (twice != dspark.target_layers.end()) {
    f->Fail(InvalidArgument(f->Name(kKey), " names layer ", *twice, " twice"));
  }
}

// A base of the rotation, from `key` of `f` and from rope_theta of an object of rope_parameters,
// which must agree where both have one.
double ReadTheta(Fields* f, absl::string_view key, Fields* parameters) {
  constexpr absl::string_view kTheta = "rope_theta";
  if (parameters == nullptr || parameters->Optional(kTheta) == nullptr) {
    return f->Real(key, 2, 1e12);
  }
  const double theta = parameters->Real(kTheta, 2, 1e12);
  if (f->Optional(key) != nullptr && f->Real(key, 2, 1e12) != theta) {
    f->Fail(InvalidArgument(parameters->Name(kTheta), " is ", theta, ", but ", key, " is ",
                            ValueText(*f->Optional(key))));
  }
  return theta;
}

bool operator==(const RopeScaling& a, const RopeScaling& b) {
  return a.factor == b.factor &&
         a.original_max_position_embeddings == b.original_max_position_embeddings &&
         a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow;
}

// transformers 5 writes rope_parameters in place of rope_scaling: one object for each of the two
// rotations ("main" without scaling, "compress"), or, from tools that do not know the family, one
// with rope_theta.
void ReadPositions(Fields* f, ModelConfig* c) {
  constexpr absl::string_view kNew = "rope_parameters", kOld = "rope_scaling";
  constexpr double kRotated = static_cast<double>(kRopeDim) / kHeadDim;
  c->max_position_embeddings = f->Int("max_position_embeddings", 1, kMaxInt32);
  const bool is_new = f->Optional(kNew) != nullptr;
  std::optional<Fields> parameters = is_new ? f->Object(kNew) : std::nullopt;
  if (is_new && !parameters) return;
  const bool is_pair = parameters && (parameters->Optional("main") != nullptr ||
                                      parameters->Optional("compress") != nullptr);
  std::optional<Fields> main = is_pair ? parameters->Object("main") : std::nullopt;
  std::optional<Fields> compress = is_pair ? parameters->Object("compress") : std::nullopt;
  if (is_pair && (!main || !compress)) return;
  if (is_pair) {
    main->FixedIfPresent("rope_type", "default");
    main->FixedIfPresent("partial_rotary_factor", kRotated);
    compress->FixedIfPresent("partial_rotary_factor", kRotated);
  }
  Fields* const first = main ? &*main : parameters ? &*parameters : nullptr;
  c->rope_theta = ReadTheta(f, "rope_theta", first);
  c->compress_rope_theta = ReadTheta(f, "compress_rope_theta", compress ? &*compress : nullptr);
  if (parameters) c->rope_scaling = ReadRopeScaling(compress ? *compress : *parameters);
  if (parameters && f->Optional(kOld) == nullptr) return;
  const std::optional<Fields> scaling = f->Object(kOld);
  if (!scaling) return;
  const RopeScaling old = ReadRopeScaling(*scaling);
  if (parameters && !(old == c->rope_scaling)) {
    f->Fail(InvalidArgument(f->Name(kOld), " and ", kNew, " differ"));
  }
  c->rope_scaling = old;
}

}  // namespace

const char* DrafterName(DrafterKind kind) {
  switch (kind) {
    case DrafterKind::kNone:
      return "none";
    case DrafterKind::kMtp:
      return "MTP";
    case DrafterKind::kDspark:
      return "DSpark";
    case DrafterKind::kNgram:
      return "n-gram";
  }
  return "unknown";
}

DrafterKind DrafterOf(const ModelConfig& config) {
  const bool stages =
      static_cast<int64_t>(config.compress_ratios.size()) > config.num_hidden_layers;
  if (config.dspark.block_size > 0 && stages) return DrafterKind::kDspark;
  return config.num_nextn_predict_layers > 0 ? DrafterKind::kMtp : DrafterKind::kNone;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view source,
                                             std::string (*key_name)(absl::string_view)) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseObject(json, source));
  absl::Status status;
  Fields f(root, source, "", &status, key_name);
  ModelConfig c;
  f.FixedIfPresent("model_type", "deepseek_v4");
  f.FixedIfPresent("tie_word_embeddings", false);
  c.hidden_size = f.MultipleOf128("hidden_size");
  c.num_hidden_layers = f.Int("num_hidden_layers", 1, kMaxCount);
  c.num_nextn_predict_layers = f.Int("num_nextn_predict_layers", 0, kMaxCount);
  ReadAttention(&f, &c);
  ReadMoe(&f, &c);
  f.Fixed("hc_mult", kStreams);
  c.hc_sinkhorn_iters = f.Int("hc_sinkhorn_iters", 1, 1000);
  c.hc_eps = f.Real("hc_eps", 1e-30, 1);
  c.rms_norm_eps = f.Real("rms_norm_eps", 1e-30, 1);
  ReadPositions(&f, &c);
  c.vocab_size = f.Int("vocab_size", 1, kMaxVocab);
  if (f.Optional("dspark_block_size")) ReadDspark(&f, &c);
  c.bos_token_id = f.Int("bos_token_id", 0, c.vocab_size - 1);
  if (const JsonValue* eos = f.Required("eos_token_id")) {
    c.eos_token_ids = ReadTokens(&f, "eos_token_id", *eos, c.vocab_size - 1);
    if (c.eos_token_ids.empty()) {
      f.Fail(InvalidArgument(f.Name("eos_token_id"),
                             " is an empty list; expected at least one token id"));
    }
  }
  if (f.Optional("dsv4_synthetic_layers")) {
    c.synthetic_layers = f.Int("dsv4_synthetic_layers", 1, c.num_hidden_layers);
    c.synthetic_mix = f.TextIfPresent("dsv4_synthetic_mix");
  }
  if (const std::optional<Fields> quantization = f.Object("quantization_config")) {
    CheckQuantization(*quantization);
  }
  DSV4_RETURN_IF_ERROR(status);
  return c;
}

absl::StatusOr<GenerationConfig> ParseGenerationConfig(absl::string_view json,
                                                       absl::string_view source) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseObject(json, source));
  absl::Status status;
  Fields f(root, source, "", &status);
  GenerationConfig g;
  if (const JsonValue* flag = f.Optional("do_sample")) {
    if (!flag->AsBool()) {
      f.Fail(InvalidArgument(f.Name("do_sample"), " is ", ValueText(*flag),
                             "; expected true or false"));
    }
    g.do_sample = flag->AsBool().value_or(false);
  }
  if (f.Optional("temperature")) g.temperature = f.Real("temperature", 0, 1e6);
  if (f.Optional("top_p")) g.top_p = f.Real("top_p", 0, 1);
  if (f.Optional("min_p")) g.min_p = f.Real("min_p", 0, 1);
  if (f.Optional("top_k")) g.top_k = f.Int("top_k", 0, kMaxInt32);
  if (const JsonValue* eos = f.Optional("eos_token_id")) {
    g.eos_token_ids = ReadTokens(&f, "eos_token_id", *eos, kMaxInt32);
  }
  if (f.Optional("repetition_penalty")) {
    g.repetition_penalty = f.Real("repetition_penalty", 0.01, 100);
  }
  if (f.Optional("max_new_tokens")) g.max_new_tokens = f.Int("max_new_tokens", 1, kMaxInt32);
  for (const JsonMember& member : *root.AsObject()) {
    if (!member.value.IsNull() && !IsFollowed(member.key)) g.unused_keys.push_back(member.key);
  }
  DSV4_RETURN_IF_ERROR(status);
  return g;
}

ModelConfig FirstLayers(const ModelConfig& config, int64_t layers) {
  ModelConfig first = config;
  const auto begin = first.compress_ratios.begin();
  first.compress_ratios.erase(begin + layers, begin + config.num_hidden_layers);
  first.num_hidden_layers = layers;
  first.num_hash_layers = std::min(first.num_hash_layers, layers);
  // As many taps as there are layers, at the last ones.
  std::vector<int32_t>& taps = first.dspark.target_layers;
  taps.resize(std::min(taps.size(), static_cast<size_t>(layers)));
  std::iota(taps.begin(), taps.end(),
            static_cast<int32_t>(layers) - static_cast<int32_t>(taps.size()));
  return first;
}

}  // namespace dsv4
