// SPDX-License-Identifier: Apache-2.0
// Translates the keys to the text of a config.json, whose reader checks them; its messages then
// name the GGUF keys.
#include "lib/config/gguf_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// What all files of the architecture have.
constexpr char kFixedMembers[] =
    R"("scoring_func":"sqrtsoftplus","hidden_act":"silu","quantization_config":{)"
    R"("quant_method":"fp8","fmt":"e4m3","scale_fmt":"ue8m0","activation_scheme":"dynamic",)"
    R"("weight_block_size":[128,128]})";

enum class Kind { kInt, kReal, kBool, kInts };

// A key of config.json and that of GGUF, without the architecture where it begins with a dot.
struct KeyPair {
  const char* json;
  const char* gguf;
  Kind kind = Kind::kInt;
  bool required = true;
};

constexpr KeyPair kKeys[] = {
    {"hidden_size", ".embedding_length"},
    {"max_position_embeddings", ".context_length"},
    {"num_attention_heads", ".attention.head_count"},
    {"num_key_value_heads", ".attention.head_count_kv"},
    {"head_dim", ".attention.key_length"},
    {"rms_norm_eps", ".attention.layer_norm_rms_epsilon", Kind::kReal},
    {"q_lora_rank", ".attention.q_lora_rank"},
    {"o_lora_rank", ".attention.output_lora_rank"},
    {"o_groups", ".attention.output_group_count"},
    {"sliding_window", ".attention.sliding_window"},
    {"compress_ratios", ".attention.compress_ratios", Kind::kInts},
    {"compress_rope_theta", ".attention.compress_rope_freq_base", Kind::kReal},
    {"index_n_heads", ".attention.indexer.head_count", Kind::kInt, false},
    {"index_head_dim", ".attention.indexer.key_length", Kind::kInt, false},
    {"index_topk", ".attention.indexer.top_k", Kind::kInt, false},
    {"qk_rope_head_dim", ".rope.dimension_count"},
    {"rope_theta", ".rope.freq_base", Kind::kReal},
    {"n_routed_experts", ".expert_count"},
    {"num_experts_per_tok", ".expert_used_count"},
    {"n_shared_experts", ".expert_shared_count"},
    {"routed_scaling_factor", ".expert_weights_scale", Kind::kReal},
    {"norm_topk_prob", ".expert_weights_norm", Kind::kBool},
    {"num_hash_layers", ".hash_layer_count"},
    {"hc_mult", ".hyper_connection.count"},
    {"hc_sinkhorn_iters", ".hyper_connection.sinkhorn_iterations"},
    {"hc_eps", ".hyper_connection.epsilon", Kind::kReal},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
};
constexpr KeyPair kScalingKeys[] = {
    {"factor", ".rope.scaling.factor", Kind::kReal},
    {"original_max_position_embeddings", ".rope.scaling.original_context_length"},
    {"beta_fast", ".rope.scaling.yarn_beta_fast", Kind::kReal},
    {"beta_slow", ".rope.scaling.yarn_beta_slow", Kind::kReal},
};
// Keys that are read by functions of their own.
constexpr KeyPair kOtherKeys[] = {
    {"num_hidden_layers", ".block_count"}, {"moe_intermediate_size", ".expert_feed_forward_length"},
    {"swiglu_limit", ".swiglu_clamp_exp"}, {"scoring_func", ".expert_gating_func"},
    {"vocab_size", ".vocab_size"},         {"type", ".rope.scaling.type"},
};

std::string FullName(absl::string_view architecture, absl::string_view gguf) {
  return absl::StartsWith(gguf, ".") ? absl::StrCat(architecture, gguf) : std::string(gguf);
}

// What messages call a key of config.json, given with its path.
template <const char* architecture>
std::string GgufKeyName(absl::string_view json) {
  const size_t dot = json.rfind('.');
  const absl::string_view last = dot == absl::string_view::npos ? json : json.substr(dot + 1);
  const size_t bracket = last.find('[');
  for (const absl::Span<const KeyPair> keys :
       {absl::MakeConstSpan(kKeys), absl::MakeConstSpan(kScalingKeys),
        absl::MakeConstSpan(kOtherKeys)}) {
    for (const KeyPair& key : keys) {
      if (last.substr(0, bracket) != key.json) continue;
      const absl::string_view index =
          bracket == absl::string_view::npos ? absl::string_view() : last.substr(bracket);
      return absl::StrCat("key ", FullName(architecture, key.gguf), index);
    }
  }
  return std::string(json);
}

// The shortest text that reads back as this number: 1e-6 of an f32 is "1e-06". "" if it is not
// finite.
template <class T>
std::string NumberText(T value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  if (error != std::errc() || !std::isfinite(value)) return "";
  return {text, end};
}

std::string FloatText(const GgufValue& value) {
  const std::optional<double> number = value.AsDouble();
  return value.type == GgufType::kF32 ? NumberText(static_cast<float>(*number))
                                      : NumberText(*number);
}

class KeyReader {
 public:
  KeyReader(const GgufModel& model, absl::string_view architecture)
      : model_(model), architecture_(architecture) {}

  absl::Status status() const { return status_; }

  // nullptr if it is missing, with a failure if it is required.
  const GgufValue* Find(absl::string_view gguf, bool required) {
    const GgufValue* value = model_.Find(FullName(architecture_, gguf));
    if (value == nullptr && required) {
      Fail(InvalidArgument(Name(gguf),
                           " is missing; this reader knows files of llama.cpp's "
                           "converter and of ds4"));
    }
    return value;
  }

  void Add(const KeyPair& key, std::vector<std::string>* members) {
    const GgufValue* value = Find(key.gguf, key.required);
    if (value == nullptr) return;
    std::string text;
    const char* expected = "";
    switch (key.kind) {
      case Kind::kInt:
        expected = "an integer";
        if (const auto number = value->AsInt64()) text = absl::StrCat(*number);
        break;
      case Kind::kReal:
        expected = "a finite number";
        if (value->AsDouble()) text = FloatText(*value);
        break;
      case Kind::kBool:
        expected = "a bool";
        if (const auto flag = value->AsBool()) text = *flag ? "true" : "false";
        break;
      case Kind::kInts:
        expected = "an array of integers";
        if (const auto numbers = value->AsInt64s()) {
          text = absl::StrCat("[", absl::StrJoin(*numbers, ","), "]");
        }
        break;
    }
    if (text.empty()) {
      WrongType(key.gguf, *value, expected);
    } else {
      members->push_back(absl::StrCat("\"", key.json, "\":", text));
    }
  }

  void WrongType(absl::string_view gguf, const GgufValue& value, absl::string_view expected) {
    Fail(InvalidArgument(Name(gguf), " is of type ", GgufTypeName(value.type), "; expected ",
                         expected));
  }

  // A number, or an array of equal ones: one for each layer.
  template <class T, class One, class Many, class Text>
  std::string OneForAll(absl::string_view gguf, bool required, const One& one, const Many& many,
                        const Text& text) {
    const GgufValue* value = Find(gguf, required);
    if (value == nullptr) return "";
    std::optional<std::vector<T>> numbers = many(*value);
    if (const std::optional<T> number = one(*value)) numbers = std::vector<T>{*number};
    if (!numbers || numbers->empty() || text(numbers->front()).empty()) {
      WrongType(gguf, *value, "a finite number, or an array of them");
      return "";
    }
    const auto other = std::find_if(numbers->begin(), numbers->end(),
                                    [&](T number) { return !(number == numbers->front()); });
    if (other != numbers->end()) {
      Fail(Unsupported(Name(gguf), " is ", text(numbers->front()), " for layer 0 and ",
                       text(*other), " for layer ", other - numbers->begin(),
                       "; one value for all layers is supported"));
    }
    return text(numbers->front());
  }

  std::string IntForAll(absl::string_view gguf) {
    return OneForAll<int64_t>(
        gguf, true, [](const GgufValue& v) { return v.AsInt64(); },
        [](const GgufValue& v) { return v.AsInt64s(); },
        [](int64_t number) { return absl::StrCat(number); });
  }

  std::string RealForAll(absl::string_view gguf, bool required) {
    return OneForAll<double>(
        gguf, required, [](const GgufValue& v) { return v.AsDouble(); },
        [](const GgufValue& v) { return v.AsDoubles(); },
        [](double number) { return NumberText(static_cast<float>(number)); });
  }

  void Fail(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  std::string Name(absl::string_view gguf) const {
    return absl::StrCat(model_.path(), ": key ", FullName(architecture_, gguf));
  }

 private:
  const GgufModel& model_;
  const absl::string_view architecture_;
  absl::Status status_;
};

absl::Status CheckArchitecture(const GgufModel& model) {
  const absl::string_view name = GgufArchitecture(model);
  if (name == kGgufModel) return absl::OkStatus();
  if (name.empty()) {
    return InvalidArgument(model.path(), ": key general.architecture is missing");
  }
  if (name == kGgufDspark) {
    return Unsupported(model.path(), ": is a drafter (architecture dflash), not a model");
  }
  return Unsupported(model.path(), ": the architecture is ", Quoted(name),
                     "; only deepseek4 is supported");
}

// Blocks of a drafter in the model's own file: those with tensors *.nextn.*. ds4's files count one
// that is not there.
int64_t NextBlocks(const GgufModel& model, int64_t blocks) {
  const std::string last = absl::StrCat("blk.", blocks - 1, ".nextn.");
  for (const GgufFile& part : model.parts) {
    for (const GgufTensor& tensor : part.tensors) {
      if (absl::StartsWith(tensor.name, last)) return 1;
    }
  }
  return 0;
}

void AddLayers(const GgufModel& model, KeyReader* keys, std::vector<std::string>* members) {
  const GgufValue* value = keys->Find(".block_count", true);
  const std::optional<int64_t> blocks = value == nullptr ? std::nullopt : value->AsInt64();
  if (value != nullptr && !blocks) keys->WrongType(".block_count", *value, "an integer");
  if (blocks) {
    const int64_t next = NextBlocks(model, *blocks);
    members->push_back(absl::StrCat("\"num_hidden_layers\":", *blocks - next));
    members->push_back(absl::StrCat("\"num_nextn_predict_layers\":", next));
  }
}

void AddVocabulary(KeyReader* keys, std::vector<std::string>* members) {
  const GgufValue* size = keys->Find(".vocab_size", false);
  const GgufValue* tokens = keys->Find("tokenizer.ggml.tokens", size == nullptr);
  const std::optional<int64_t> number = size == nullptr ? std::nullopt : size->AsInt64();
  if (size != nullptr && !number) keys->WrongType(".vocab_size", *size, "an integer");
  if (tokens != nullptr && tokens->type != GgufType::kArray) {
    keys->WrongType("tokenizer.ggml.tokens", *tokens, "an array of strings");
  } else if (number && tokens != nullptr && static_cast<uint64_t>(*number) != tokens->count) {
    keys->Fail(InvalidArgument(keys->Name(".vocab_size"), " is ", *number,
                               ", but tokenizer.ggml.tokens has ", tokens->count, " tokens"));
  } else if (number || tokens != nullptr) {
    members->push_back(
        absl::StrCat("\"vocab_size\":", number ? static_cast<uint64_t>(*number) : tokens->count));
  }
}

void AddClamp(KeyReader* keys, std::vector<std::string>* members) {
  const std::string routed = keys->RealForAll(".swiglu_clamp_exp", true);
  const std::string shared = keys->RealForAll(".swiglu_clamp_shexp", false);
  if (!shared.empty() && shared != routed) {
    keys->Fail(Unsupported(keys->Name(".swiglu_clamp_shexp"), " is ", shared,
                           ", another value than swiglu_clamp_exp, which is ", routed));
  }
  members->push_back(absl::StrCat("\"swiglu_limit\":", routed));
}

void CheckFixed(KeyReader* keys) {
  const auto equal = [&](absl::string_view gguf, int64_t expected, bool required) {
    const GgufValue* value = keys->Find(gguf, required);
    if (value == nullptr) return;
    const std::optional<int64_t> number = value->AsInt64();
    if (!number) {
      keys->WrongType(gguf, *value, "an integer");
    } else if (*number != expected) {
      keys->Fail(
          Unsupported(keys->Name(gguf), " is ", *number, "; only ", expected, " is supported"));
    }
  };
  constexpr int64_t kSqrtSoftplus = 4;
  equal(".expert_gating_func", kSqrtSoftplus, true);
  equal(".attention.value_length", kHeadDim, true);
  equal(".expert_group_count", 0, false);
  equal(".expert_group_used_count", 0, false);
  const GgufValue* scaling = keys->Find(".rope.scaling.type", true);
  if (scaling != nullptr && scaling->AsString() != "yarn") {
    keys->Fail(Unsupported(keys->Name(".rope.scaling.type"), " is ",
                           Quoted(scaling->AsString().value_or("no string")),
                           "; only \"yarn\" is supported"));
  }
}

template <const char* architecture>
absl::StatusOr<ModelConfig> ReadKeysOf(const GgufModel& model) {
  KeyReader keys(model, architecture);
  std::vector<std::string> members, scaling = {R"("type":"yarn")"};
  AddLayers(model, &keys, &members);
  for (const KeyPair& key : kKeys) keys.Add(key, &members);
  for (const KeyPair& key : kScalingKeys) keys.Add(key, &scaling);
  members.push_back(
      absl::StrCat("\"moe_intermediate_size\":", keys.IntForAll(".expert_feed_forward_length")));
  AddVocabulary(&keys, &members);
  AddClamp(&keys, &members);
  CheckFixed(&keys);
  DSV4_RETURN_IF_ERROR(keys.status());
  const std::string json = absl::StrCat("{", absl::StrJoin(members, ","), ",\"rope_scaling\":{",
                                        absl::StrJoin(scaling, ","), "},", kFixedMembers, "}");
  return ParseModelConfig(json, model.path(), &GgufKeyName<architecture>);
}

// The tensor whose name ends so, in any part; null if there is none.
const GgufTensor* TensorEndingIn(const GgufModel& model, absl::string_view end) {
  for (const GgufFile& part : model.parts) {
    for (const GgufTensor& tensor : part.tensors) {
      if (absl::EndsWith(tensor.name, end)) return &tensor;
    }
  }
  return nullptr;
}

}  // namespace

absl::string_view GgufArchitecture(const GgufModel& model) {
  const GgufValue* value = model.Find("general.architecture");
  return value == nullptr ? absl::string_view() : value->AsString().value_or(absl::string_view());
}

absl::StatusOr<ModelConfig> ReadGgufConfig(const GgufModel& model) {
  DSV4_RETURN_IF_ERROR(CheckArchitecture(model));
  return ReadKeysOf<kGgufModel>(model);
}

absl::StatusOr<ModelConfig> ReadGgufDsparkConfig(const GgufModel& model) {
  return ReadKeysOf<kGgufDspark>(model);
}

absl::StatusOr<DsparkConfig> ReadGgufDsparkKeys(const GgufModel& model, int64_t layers,
                                                int64_t vocab_size) {
  const absl::string_view architecture = GgufArchitecture(model);
  KeyReader keys(model, architecture);
  DsparkConfig dspark;
  const auto number = [&](absl::string_view gguf, int64_t least, int64_t most) -> int64_t {
    const GgufValue* value = keys.Find(gguf, true);
    if (value == nullptr) return 0;
    const std::optional<int64_t> found = value->AsInt64();
    if (!found) {
      keys.WrongType(gguf, *value, "an integer");
    } else if (*found < least || *found > most) {
      keys.Fail(
          InvalidArgument(keys.Name(gguf), " is ", *found, "; expected ", least, " to ", most));
    }
    return found.value_or(0);
  };
  dspark.block_size = number(".block_size", 1, kMostBlockRows);
  dspark.noise_token_id = number("tokenizer.ggml.mask_token_id", 0, vocab_size - 1);
  constexpr absl::string_view kTargets = ".target_layers";
  if (const GgufValue* value = keys.Find(kTargets, true)) {
    std::vector<int64_t> numbers = value->AsInt64s().value_or(std::vector<int64_t>());
    std::sort(numbers.begin(), numbers.end());
    // The file counts from 1.
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 1 || numbers[i] > layers || (i > 0 && numbers[i] == numbers[i - 1])) {
        keys.Fail(InvalidArgument(keys.Name(kTargets), " has ", numbers[i],
                                  "; expected different numbers of 1 to ", layers));
      }
      dspark.target_layers.push_back(static_cast<int32_t>(numbers[i] - 1));
    }
    if (numbers.empty()) keys.WrongType(kTargets, *value, "an array of integers");
  }
  const GgufTensor* markov = TensorEndingIn(model, "markov_w1.weight");
  if (markov == nullptr || markov->dims.empty()) {
    keys.Fail(NotFound(model.path(), ": tensor markov_w1.weight is missing"));
  } else {
    dspark.markov_rank = markov->dims[0];
  }
  DSV4_RETURN_IF_ERROR(keys.status());
  return dspark;
}

}  // namespace dsv4
