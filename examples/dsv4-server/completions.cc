// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/completions.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/error_json.h"

namespace server {
namespace {

int64_t CodePoints(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

CompletionRequest::Entry ReadPrompt(const Model& model, const Json& given, const std::string& path,
                                    bool begin) {
  CompletionRequest::Entry entry;
  if (given.is_string()) {
    entry.text = given.get<std::string>();
    entry.prompt.tokens = PromptTokens(model, entry.text, begin);
  } else {
    entry.prompt.tokens = TokensOf(given, path);
    entry.text = model.engine.tokenizer().Decode(entry.prompt.tokens);
  }
  if (entry.prompt.tokens.empty()) throw InvalidField(path, "is empty");
  return entry;
}

void ReadPrompts(const Model& model, Fields* fields, CompletionRequest* request) {
  const Json& given = fields->Required("prompt");
  const bool begin = fields->Bool("add_special_tokens").value_or(true);
  const bool is_list = given.is_array() && !given.empty() && !given.front().is_number();
  const Json list = is_list ? given : Json::array({given});
  const auto most = static_cast<size_t>(model.engine.info().max_sessions);
  if (list.size() * request->common.count > most)
    throw InvalidField("prompt", "has " + std::to_string(list.size()) + " entries of " +
                                     std::to_string(request->common.count) +
                                     " candidates; the server computes " + std::to_string(most) +
                                     " together");
  for (const Json& prompt : list) {
    const std::string path =
        is_list ? "prompt[" + std::to_string(request->prompts.size()) + "]" : "prompt";
    request->prompts.push_back(ReadPrompt(model, prompt, path, begin));
  }
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
  Fields fields(model.rules, body);
  CompletionRequest request;
  request.common = ReadCommon(model, &fields);
  ReadCandidates(model, &fields, &request.common);
  ReadPrompts(model, &fields, &request);
  request.echo = fields.Bool("echo").value_or(false);
  if (const auto count = fields.Integer("logprobs", 0, 20))
    request.log_probs = static_cast<size_t>(*count);
  const auto count = static_cast<int64_t>(request.common.count);
  if (fields.Integer("best_of", 1, 128).value_or(count) != count)
    throw InvalidField("best_of", "other than n is not supported");
  const int64_t max_tokens =
      fields.Integer("max_tokens", 0, std::numeric_limits<int32_t>::max()).value_or(16);
  fields.RefuseUnless({{"suffix"}, {"prompt_logprobs", {0}}});
  fields.LeaveOutOthers();
  request.no_tokens = max_tokens == 0;
  if (request.no_tokens && !request.echo)
    throw InvalidField("max_tokens", "0 needs \"echo\": true");
  dsv4::Sampling* sampling = &request.common.sampling;
  // The prompt is computed for a token, which is then dropped.
  sampling->max_tokens = std::max<int64_t>(max_tokens, 1);
  if (request.log_probs)
    sampling->log_probs = static_cast<int32_t>(std::max<size_t>(*request.log_probs, 1));
  for (CompletionRequest::Entry& entry : request.prompts) {
    entry.prompt.sampling = *sampling;
    entry.prompt.cache_salt = request.common.cache_salt;
    entry.prompt.prompt_log_probs = request.echo && request.log_probs;
  }
  return request;
}

CompletionAnswer::CompletionAnswer(const Model& model, CompletionRequest request,
                                   Identity* identity)
    : model_(model),
      request_(std::move(request)),
      id_(identity->NewId("cmpl-")),
      created_(identity->created()),
      choices_(request_.prompts.size() * request_.common.count) {}

std::vector<Candidate> CompletionAnswer::candidates() const {
  std::vector<Candidate> candidates;
  for (const CompletionRequest::Entry& entry : request_.prompts) {
    for (size_t i = 0; i < request_.common.count; ++i)
      candidates.push_back({&entry.prompt, entry.prompt.sampling.seed + i});
  }
  return candidates;
}

std::string CompletionAnswer::TextOf(int32_t token) const {
  return model_.engine.tokenizer().Decode({&token, 1});
}

void CompletionAnswer::AddLogProbs(int32_t token, const dsv4::LogProbs* log_probs, Choice* choice,
                                   LogProbLists* lists) const {
  const std::string text = TextOf(token);
  lists->tokens.push_back(text);
  lists->offsets.push_back(choice->offset);
  choice->offset += CodePoints(text);
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

std::string CompletionAnswer::Take(size_t candidate, const Token& token,
                                   const dsv4::SessionStats& stats) {
  Choice& choice = choices_[candidate];
  const CompletionRequest::Entry& entry = request_.prompts[candidate / request_.common.count];
  LogProbLists lists;
  std::string text;
  if (choice.tokens.empty() && request_.echo) {
    text = entry.text;
    if (request_.log_probs) {
      const std::vector<int32_t>& tokens = entry.prompt.tokens;
      for (size_t i = 0; i < tokens.size(); ++i)
        AddLogProbs(tokens[i], i == 0 ? nullptr : &token.prompt_log_probs[i - 1], &choice, &lists);
    }
  }
  if (request_.no_tokens) {
    choice.finish = DSV4_FINISH_LENGTH;
  } else {
    choice.tokens.push_back(token.id);
    text += token.text;
    if (token.log_probs) AddLogProbs(token.id, &*token.log_probs, &choice, &lists);
    choice.finish = token.finish;
  }
  choice.text += text;
  const auto add = [](Json* all, const Json& some) {
    all->insert(all->end(), some.begin(), some.end());
  };
  add(&choice.lists.tokens, lists.tokens);
  add(&choice.lists.values, lists.values);
  add(&choice.lists.top, lists.top);
  add(&choice.lists.offsets, lists.offsets);
  if (!stream()) return "";
  Json chunk = Object(Json::array({ChoiceOf(candidate, std::move(text), lists)}));
  if (request_.common.token_ids) chunk["choices"][0]["token_ids"] = {token.id};
  if (request_.common.continuous_usage) chunk["usage"] = Usage(stats);
  return EventText(chunk);
}

Json CompletionAnswer::Object(Json choices) const {
  return {{"id", id_},
          {"object", "text_completion"},
          {"created", created_},
          {"model", model_.name},
          {"choices", std::move(choices)}};
}

Json CompletionAnswer::ChoiceOf(size_t candidate, std::string text,
                                const LogProbLists& log_probs) const {
  Json lists = nullptr;
  if (request_.log_probs)
    lists = {{"tokens", log_probs.tokens},
             {"token_logprobs", log_probs.values},
             {"top_logprobs", log_probs.top},
             {"text_offset", log_probs.offsets}};
  const dsv4_finish finish = choices_[candidate].finish;
  return {{"index", candidate},
          {"text", std::move(text)},
          {"logprobs", std::move(lists)},
          {"finish_reason", finish == DSV4_FINISH_NONE ? Json() : Json(FinishReason(finish))}};
}

// Of several prompts: of all of them.
Json CompletionAnswer::Usage(const dsv4::SessionStats& stats) const {
  dsv4::SessionStats all = stats;
  all.prompt_tokens = 0;
  for (const CompletionRequest::Entry& entry : request_.prompts)
    all.prompt_tokens += static_cast<int64_t>(entry.prompt.tokens.size());
  int64_t tokens = 0;
  for (const Choice& choice : choices_) tokens += static_cast<int64_t>(choice.tokens.size());
  return UsageOf(all, tokens, 0);
}

std::string CompletionAnswer::End(const dsv4::SessionStats& stats) {
  std::string text;
  if (request_.common.include_usage) {
    Json chunk = Object(Json::array());
    chunk["usage"] = Usage(stats);
    text = EventText(chunk);
  }
  return text + kStreamEnd;
}

std::string CompletionAnswer::Failure(const ApiError& error) {
  return EventText(JsonOf(error)) + kStreamEnd;
}

Json CompletionAnswer::Whole(const dsv4::SessionStats& stats) {
  Json choices = Json::array();
  for (size_t i = 0; i < choices_.size(); ++i) {
    choices.push_back(ChoiceOf(i, choices_[i].text, choices_[i].lists));
    if (request_.common.token_ids) choices.back()["token_ids"] = choices_[i].tokens;
  }
  Json answer = Object(std::move(choices));
  answer["usage"] = Usage(stats);
  return answer;
}

}  // namespace server
