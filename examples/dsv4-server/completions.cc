// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/completions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

int64_t CodePoints(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

// The one prompt, of a list with one entry, too.
const Json& OnePrompt(Fields* fields) {
  const Json* prompt = fields->Any("prompt");
  if (prompt == nullptr) throw InvalidRequest("prompt", "prompt is missing");
  const bool is_list = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!is_list) return *prompt;
  if (prompt->size() > 1)
    throw InvalidRequest(
        "prompt", "prompt has " + std::to_string(prompt->size()) + " entries; one is supported");
  return prompt->front();
}

void ReadPrompt(const Model& model, Fields* fields, CompletionRequest* request) {
  const Json& prompt = OnePrompt(fields);
  const bool begin = fields->Bool("add_special_tokens").value_or(true);
  if (prompt.is_string()) {
    request->prompt_text = prompt.get<std::string>();
    request->prompt.tokens = PromptTokens(model, request->prompt_text, begin);
  } else {
    request->prompt.tokens = TokensOf(prompt, "prompt");
    request->prompt_text = model.engine.tokenizer().Decode(request->prompt.tokens);
  }
  if (request->prompt.tokens.empty()) throw InvalidRequest("prompt", "prompt is empty");
}

}  // namespace

std::vector<int32_t> PromptTokens(const Model& model, const std::string& text, bool begin) {
  std::vector<int32_t> tokens;
  if (begin) tokens.push_back(model.engine.info().bos_token);
  const std::vector<int32_t> rest = model.engine.tokenizer().Encode(text, DSV4_ENCODE_ADDED_TOKENS);
  tokens.insert(tokens.end(), rest.begin(), rest.end());
  return tokens;
}

CompletionRequest ReadCompletion(const Model& model, const Json& body) {
  Fields fields(body);
  CompletionRequest request;
  request.common = ReadCommon(model, &fields);
  request.prompt.sampling = request.common.sampling;
  request.prompt.cache_salt = request.common.cache_salt;
  ReadPrompt(model, &fields, &request);
  request.echo = fields.Bool("echo").value_or(false);
  if (const auto count = fields.Integer("logprobs", 0, 20))
    request.log_probs = static_cast<size_t>(*count);
  if (const auto best_of = fields.Integer("best_of", 1, 128); best_of.value_or(1) != 1)
    throw InvalidRequest("best_of", "best_of above 1 is not supported");
  const int64_t max_tokens =
      fields.Integer("max_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(16);
  fields.RefuseOthers();
  request.no_tokens = max_tokens == 0;
  if (request.no_tokens && !request.echo)
    throw InvalidRequest("max_tokens", "max_tokens 0 needs \"echo\": true");
  dsv4::Sampling* sampling = &request.prompt.sampling;
  // The prompt is computed for a token, which is then dropped.
  sampling->max_tokens = std::max<int64_t>(max_tokens, 1);
  if (request.log_probs)
    sampling->log_probs = static_cast<int32_t>(std::max<size_t>(*request.log_probs, 1));
  request.prompt.prompt_log_probs = request.echo && request.log_probs;
  return request;
}

CompletionAnswer::CompletionAnswer(const Model& model, const CompletionRequest& request)
    : model_(model), request_(request), id_(NewId("cmpl-")), created_(SecondsSince1970()) {}

std::string CompletionAnswer::TextOf(int32_t token) const {
  return model_.engine.tokenizer().Decode({&token, 1});
}

// The first token of a prompt has none: null.
void CompletionAnswer::AddLogProbs(int32_t token, const dsv4::LogProbs* log_probs,
                                   LogProbLists* lists) {
  const std::string text = TextOf(token);
  lists->tokens.push_back(text);
  lists->offsets.push_back(offset_);
  offset_ += CodePoints(text);
  if (log_probs == nullptr) {
    lists->values.push_back(nullptr);
    lists->top.push_back(nullptr);
    return;
  }
  lists->values.push_back(JsonLogProb(log_probs->log_prob));
  Json top = Json::object();
  // Of tokens with the same text the most likely one is shown. The chosen token is among them.
  for (size_t i = 0; i < std::min(log_probs->top.size(), *request_.log_probs); ++i) {
    const dsv4::TokenLogProb& likely = log_probs->top[i];
    top.emplace(TextOf(likely.token), JsonLogProb(likely.log_prob));
  }
  top.emplace(text, JsonLogProb(log_probs->log_prob));
  lists->top.push_back(std::move(top));
}

Json CompletionAnswer::Take(const Token& token, const dsv4::SessionStats& stats) {
  LogProbLists lists;
  std::string text;
  const bool first = tokens_ == 0;
  if (first && request_.echo) {
    text = request_.prompt_text;
    if (request_.log_probs) {
      for (size_t i = 0; i < request_.prompt.tokens.size(); ++i)
        AddLogProbs(request_.prompt.tokens[i], i == 0 ? nullptr : &token.prompt_log_probs[i - 1],
                    &lists);
    }
  }
  if (request_.no_tokens) {
    finish_reason_ = FinishReason(DSV4_FINISH_LENGTH);
  } else {
    ++tokens_;
    text += token.text;
    if (token.log_probs) AddLogProbs(token.id, &*token.log_probs, &lists);
    if (token.finish != DSV4_FINISH_NONE) finish_reason_ = FinishReason(token.finish);
  }
  text_ += text;
  const auto add = [](Json* all, const Json& some) {
    all->insert(all->end(), some.begin(), some.end());
  };
  add(&all_.tokens, lists.tokens);
  add(&all_.values, lists.values);
  add(&all_.top, lists.top);
  add(&all_.offsets, lists.offsets);
  Json chunk = Object(Json::array({Choice(std::move(text), lists)}));
  if (request_.common.continuous_usage) chunk["usage"] = Usage(stats);
  return chunk;
}

Json CompletionAnswer::Object(Json choices) const {
  return {{"id", id_},
          {"object", "text_completion"},
          {"created", created_},
          {"model", model_.name},
          {"choices", std::move(choices)}};
}

Json CompletionAnswer::Choice(std::string text, const LogProbLists& log_probs) const {
  Json lists = nullptr;
  if (request_.log_probs)
    lists = {{"tokens", log_probs.tokens},
             {"token_logprobs", log_probs.values},
             {"top_logprobs", log_probs.top},
             {"text_offset", log_probs.offsets}};
  return {{"index", 0},
          {"text", std::move(text)},
          {"logprobs", std::move(lists)},
          {"finish_reason", ended() ? Json(finish_reason_) : Json()}};
}

Json CompletionAnswer::Usage(const dsv4::SessionStats& stats) const {
  return UsageOf(stats, tokens_, 0);
}

Json CompletionAnswer::LastChunk(const dsv4::SessionStats& stats) const {
  Json chunk = Object(Json::array());
  chunk["usage"] = Usage(stats);
  return chunk;
}

Json CompletionAnswer::Whole(const dsv4::SessionStats& stats) const {
  Json answer = Object(Json::array({Choice(text_, all_)}));
  answer["usage"] = Usage(stats);
  return answer;
}

}  // namespace server
