// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/common_request.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <random>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

// 64-bit FNV-1a.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::vector<std::string> ReadStop(Fields* fields) {
  const Json* stop = fields->Any("stop");
  if (stop != nullptr && stop->is_string()) return {stop->get<std::string>()};
  return fields->Strings("stop", "a string or a list of strings");
}

std::vector<dsv4::TokenBias> ReadBias(Fields* fields) {
  const Json* object = fields->Any("logit_bias");
  if (object == nullptr) return {};
  std::vector<dsv4::TokenBias> biases;
  if (!object->is_object()) throw InvalidField("logit_bias", "must be an object");
  for (const auto& [name, value] : object->items()) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), token);
    if (error != std::errc() || end != name.data() + name.size() || !IsNumber(value))
      throw InvalidRequest("logit_bias." + name,
                           "logit_bias." + name + ": expected a token id and a number");
    biases.push_back({token, static_cast<float>(NumberOf(value))});
  }
  return biases;
}

// Of a turn: the end-of-sentence token, and the markers of other turns.
void BanEnds(const Model& model, dsv4::Sampling* sampling) {
  sampling->banned_tokens.push_back(model.engine.info().eos_token);
  for (const char* marker : {"<｜User｜>", "<｜Assistant｜>"}) {
    const int32_t token = model.engine.tokenizer().AddedToken(marker);
    if (token >= 0) sampling->banned_tokens.push_back(token);
  }
}

void ReadSampling(const Model& model, Fields* fields, dsv4::Sampling* sampling) {
  const auto number = [&](const char* name, float* value) {
    if (const auto given = fields->Number(name)) *value = static_cast<float>(*given);
  };
  // 0 turns a step off; in the library it is the model's value.
  for (const char* name : {"temperature", "min_p"}) {
    // In the library a negative one has a meaning of its own.
    if (fields->Number(name).value_or(0) < 0) throw InvalidField(name, "must not be negative");
  }
  number("temperature", &sampling->temperature);
  if (sampling->temperature == 0) sampling->temperature = DSV4_GREEDY;
  number("top_p", &sampling->top_p);
  number("min_p", &sampling->min_p);
  if (sampling->min_p == 0) sampling->min_p = -1;
  number("presence_penalty", &sampling->presence_penalty);
  number("frequency_penalty", &sampling->frequency_penalty);
  number("repetition_penalty", &sampling->repetition_penalty);
  // -1 is what vLLM's clients say for all tokens, as the library does.
  if (const auto top_k = fields->Integer("top_k", -1, std::numeric_limits<int32_t>::max()))
    sampling->top_k = *top_k == 0 ? -1 : static_cast<int32_t>(*top_k);
  const auto seed = fields->Integer("seed", std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max());
  sampling->seed = seed ? static_cast<uint64_t>(*seed) : RandomNumber();
  sampling->stop_strings = ReadStop(fields);
  sampling->stop_tokens = fields->Tokens("stop_token_ids");
  sampling->biases = ReadBias(fields);
  const bool ignores_end = fields->Bool("ignore_eos").value_or(false);
  if (ignores_end) BanEnds(model, sampling);
  // What load tools send with it.
  if (fields->Integer("min_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(0) > 0 &&
      !ignores_end)
    throw InvalidField("min_tokens", "needs \"ignore_eos\": true");
}

// Fields of other servers that would change what is sampled, with the values that do not.
void RefuseOtherSampling(Fields* fields) {
  fields->RefuseUnless({
      {"allowed_token_ids"},
      {"bad_words"},
      {"dry_multiplier", {0}},
      {"dynatemp_range", {0}},
      {"encoder_repetition_penalty", {1}},
      {"grammar"},
      {"guided_choice"},
      {"guided_grammar"},
      {"guided_json"},
      {"guided_regex"},
      {"include_stop_str_in_output"},
      {"json_schema"},
      {"logits_processors"},
      {"mirostat", {0}},
      {"mirostat_mode", {0}},
      {"no_repeat_ngram_size", {0}},
      {"repeat_penalty", {0, 1}},
      {"structured_outputs"},
      {"tfs", {0, 1}},
      {"tfs_z", {0, 1}},
      {"top_a", {0}},
      {"top_n_sigma", {-1, 0}},
      {"typical_p", {0, 1}},
      {"use_beam_search"},
      {"xtc_probability", {0}},
  });
}

}  // namespace

void ReadCandidates(const Model& model, Fields* fields, CommonRequest* request) {
  const int32_t most = model.engine.info().max_sessions;
  request->count = static_cast<size_t>(fields->Integer("n", 1, most).value_or(1));
  request->token_ids = fields->Bool("return_token_ids").value_or(false);
  const Json* given = fields->Any("stream_options");
  if (given == nullptr) return;
  if (!request->stream) throw InvalidField("stream_options", "needs \"stream\": true");
  Fields options = fields->Sub(*given, "stream_options");
  request->include_usage = options.Bool("include_usage").value_or(false);
  request->continuous_usage = options.Bool("continuous_usage_stats").value_or(false);
  options.Ignore({"include_obfuscation"});
  options.LeaveOutOthers();
}

CommonRequest ReadCommon(const Model& model, Fields* fields) {
  CheckModel(model, fields);
  CommonRequest request;
  request.sampling = model.engine.default_sampling();
  ReadSampling(model, fields, &request.sampling);
  request.stream = fields->Bool("stream").value_or(false);
  if (const auto salt = fields->String("cache_salt")) request.cache_salt = HashOf(*salt);
  if (!fields->Bool("cache_prompt").value_or(true)) request.cache_salt = RandomNumber();
  fields->Ignore({"user", "metadata", "safety_identifier", "prompt_cache_key",
                  "prompt_cache_retention", "service_tier"});
  RefuseOtherSampling(fields);
  return request;
}

void CheckModel(const Model& model, Fields* fields) {
  const std::string name = fields->String("model").value_or(model.name);
  if (!IsServed(model, name)) throw NotServed(model, name);
}

bool IsServed(const Model& model, const std::string& name) {
  return model.any_name || name == model.name ||
         std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end();
}

ApiError NotServed(const Model& model, const std::string& name) {
  return {404, "invalid_request_error",
          "model \"" + name + "\" is not served here; \"" + model.name + "\" is", "model",
          "model_not_found"};
}

Json UsageOf(const dsv4::SessionStats& stats, int64_t completion_tokens, int64_t reasoning_tokens) {
  return {{"prompt_tokens", stats.prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", stats.prompt_tokens + completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", stats.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_tokens}}}};
}

uint64_t RandomNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

double JsonLogProb(float log_prob) { return std::max(log_prob, -9999.0f); }

const char* FinishReason(dsv4_finish finish) {
  switch (finish) {
    case DSV4_FINISH_STOP:
      return "stop";
    case DSV4_FINISH_TOOL_CALL:
      return "tool_calls";
    default:
      return "length";
  }
}

std::string EventText(const Json& json, const std::string& name) {
  const std::string head = name.empty() ? "" : "event: " + name + "\n";
  return head + "data: " + TextOf(json) + "\n\n";
}

}  // namespace server
