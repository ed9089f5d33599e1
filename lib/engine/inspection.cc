// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/inspection.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/config/config.h"
#include "lib/engine/engine.h"
#include "lib/io/checkpoint.h"
#include "lib/io/content_hash.h"
#include "lib/io/json.h"
#include "lib/step/engine_text.h"
#include "lib/text/chat_profile.h"
#include "lib/text/python_json.h"
#include "lib/text/tokenizer.h"
#include "lib/weights/gguf_tensors.h"

namespace dsv4 {
namespace {

using Members = std::vector<JsonMember>;

JsonValue Number(int64_t number) { return JsonValue::FromNumberText(absl::StrCat(number)); }

JsonValue Text(absl::string_view text) { return JsonValue::FromString(std::string(text)); }

JsonValue OneOrList(const std::vector<int32_t>& tokens) {
  if (tokens.size() == 1) return Number(tokens.front());
  std::vector<JsonValue> list;
  for (const int32_t token : tokens) list.push_back(Number(token));
  return JsonValue::FromArray(std::move(list));
}

// By the keys of config.json.
JsonValue Dimensions(const ModelConfig& config) {
  std::vector<JsonValue> ratios;
  for (const int32_t ratio : config.compress_ratios) ratios.push_back(Number(ratio));
  Members members = {
      {"hidden_size", Number(config.hidden_size)},
      {"num_hidden_layers", Number(config.num_hidden_layers)},
      {"num_nextn_predict_layers", Number(config.num_nextn_predict_layers)},
      {"num_attention_heads", Number(config.num_attention_heads)},
      {"head_dim", Number(kHeadDim)},
      {"qk_rope_head_dim", Number(kRopeDim)},
      {"q_lora_rank", Number(config.q_lora_rank)},
      {"o_groups", Number(config.o_groups)},
      {"o_lora_rank", Number(config.o_lora_rank)},
      {"sliding_window", Number(kSlidingWindow)},
      {"index_n_heads", Number(config.index_n_heads)},
      {"index_topk", Number(config.index_topk)},
      {"n_routed_experts", Number(config.n_routed_experts)},
      {"num_experts_per_tok", Number(config.num_experts_per_tok)},
      {"moe_intermediate_size", Number(config.moe_intermediate_size)},
      {"num_hash_layers", Number(config.num_hash_layers)},
      {"hc_mult", Number(kStreams)},
      {"max_position_embeddings", Number(config.max_position_embeddings)},
      {"vocab_size", Number(config.vocab_size)},
      {"bos_token_id", Number(config.bos_token_id)},
      {"eos_token_id", OneOrList(config.eos_token_ids)},
      {"compress_ratios", JsonValue::FromArray(std::move(ratios))},
  };
  return JsonValue::FromObject(std::move(members));
}

JsonValue Tensors(const Checkpoint& checkpoint) {
  struct Total {
    int64_t count = 0, bytes = 0;
  };
  std::map<std::string, Total> totals;
  int64_t shards = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    Total& total = totals[std::string(tensor.dtype_name())];
    ++total.count;
    total.bytes += tensor.bytes;
    shards = std::max(shards, int64_t{tensor.file} + 1);
  }
  Members dtypes;
  for (const auto& [name, total] : totals) {
    dtypes.push_back({name, JsonValue::FromObject(
                                {{"count", Number(total.count)}, {"bytes", Number(total.bytes)}})});
  }
  return JsonValue::FromObject(
      {{"count", Number(static_cast<int64_t>(checkpoint.tensors().size()))},
       {"bytes", Number(checkpoint.total_bytes())},
       {"shards", Number(shards)},
       {"dtypes", JsonValue::FromObject(std::move(dtypes))}});
}

}  // namespace

absl::StatusOr<std::string> InspectModel(const std::string& folder) {
  DSV4_ASSIGN_OR_RETURN(const EnginePlan plan, Engine::Plan(folder, {}));
  DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                        OpenWeights(folder, plan.config()));
  JsonValue tokenizer, chat_encoder;
  if (plan.info().has_tokenizer) {
    EngineText text;
    DSV4_RETURN_IF_ERROR(text.Load(folder, plan.config().vocab_size));
    DSV4_ASSIGN_OR_RETURN(const Tokenizer* const loaded, text.tokenizer());
    tokenizer = JsonValue::FromObject({{"vocab_size", Number(loaded->vocab_size())}});
    const std::optional<FoundChatEncoder>& found = text.chat_encoder();
    if (found) {
      const auto text_or_null = [](const std::string& value) {
        return value.empty() ? JsonValue() : Text(value);
      };
      chat_encoder = JsonValue::FromObject({{"name", Text(ChatEncoderName(found->encoder))},
                                            {"file", text_or_null(found->file)},
                                            {"guess", text_or_null(found->guess)}});
    }
  }
  const DrafterKind own = plan.info().checkpoint_drafter;
  const JsonValue description = JsonValue::FromObject(
      {{"model_type", Text("deepseek_v4")},
       {"fingerprint", Text(HexOf(checkpoint->Fingerprint()))},
       {"weight_format", Text(plan.weight_format())},
       {"has_mtp", JsonValue::FromBool(own == DrafterKind::kMtp)},
       {"drafter",
        own == DrafterKind::kNone ? JsonValue() : Text(absl::AsciiStrToLower(DrafterName(own)))},
       {"tokenizer", std::move(tokenizer)},
       {"chat_encoder", std::move(chat_encoder)},
       {"tensors", Tensors(*checkpoint)},
       {"config", Dimensions(plan.config())}});
  std::string json;
  AppendPythonJson(description, &json);
  return json;
}

}  // namespace dsv4
