// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chat.h"

#include <utility>

#include "examples/dsv4-server/error_json.h"
#include "examples/dsv4-server/log_probs.h"

namespace server {
namespace {

// Appends to a text of `delta`.
void Append(Json* delta, const char* key, const std::string& text) {
  if (!delta->contains(key)) (*delta)[key] = "";
  (*delta)[key].get_ref<std::string&>() += text;
}

// What a piece adds to a message.
void Add(const Turn::Part& part, const Turn::Piece& piece, Json* delta) {
  if (part.kind == Turn::Kind::kReasoning) return Append(delta, "reasoning_content", piece.text);
  if (part.kind == Turn::Kind::kText) return Append(delta, "content", piece.text);
  Json call = {{"index", part.call}};
  if (piece.begins) call.update({{"id", part.id}, {"type", "function"}});
  call["function"] = Json::object();
  if (piece.begins) call["function"]["name"] = part.name;
  call["function"]["arguments"] = piece.text;
  (*delta)["tool_calls"].push_back(std::move(call));
}

}  // namespace

ChatAnswer::ChatAnswer(const Model& model, ChatRequest request, Identity* identity)
    : model_(model),
      request_(std::move(request)),
      id_(identity->NewId("chatcmpl-")),
      created_(identity->created()),
      choices_(request_.common.count,
               Choice{Turn(request_.turn, [identity] { return identity->NewId("call_"); })}) {}

std::vector<Candidate> ChatAnswer::candidates() const {
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < choices_.size(); ++i)
    candidates.push_back({&request_.prompt, request_.prompt.sampling.seed + i});
  return candidates;
}

Json ChatAnswer::Object(const char* kind) const {
  return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", model_.name}};
}

Json ChatAnswer::FinishOf(const Turn& turn) const {
  return turn.ended() ? Json(FinishReason(turn.finish())) : Json();
}

Json ChatAnswer::Chunk(size_t candidate, Json delta, Json log_probs) const {
  Json chunk = Object("chat.completion.chunk");
  chunk["choices"] = Json::array({{{"index", candidate},
                                   {"delta", std::move(delta)},
                                   {"logprobs", std::move(log_probs)},
                                   {"finish_reason", FinishOf(choices_[candidate].turn)}}});
  return chunk;
}

std::string ChatAnswer::Begin(const dsv4::SessionStats&) {
  std::string text;
  for (size_t i = 0; i < choices_.size(); ++i)
    text += EventText(Chunk(i, {{"role", "assistant"}, {"content", ""}}, nullptr));
  return text;
}

std::string ChatAnswer::Take(size_t candidate, const Token& token,
                             const dsv4::SessionStats& stats) {
  Choice& choice = choices_[candidate];
  Json delta = Json::object();
  for (const Turn::Piece& piece : choice.turn.Take(token))
    Add(choice.turn.parts()[piece.part], piece, &delta);
  // Clients that count chunks count tokens, those whose text is held back, too.
  if (delta.empty() && !choice.turn.ended()) delta["content"] = "";
  Json log_probs = LogProbs(token);
  if (!log_probs.is_null()) {
    choice.log_probs.insert(choice.log_probs.end(), log_probs.begin(), log_probs.end());
    log_probs = {{"content", Json(std::move(log_probs))}};
  }
  if (!stream()) return "";
  Json chunk = Chunk(candidate, std::move(delta), std::move(log_probs));
  if (request_.common.token_ids) chunk["choices"][0]["token_ids"] = {token.id};
  if (request_.common.continuous_usage) chunk["usage"] = Usage(stats);
  return EventText(chunk);
}

// Null where none were asked for. The token that ends the turn is no part of it.
Json ChatAnswer::LogProbs(const Token& token) const {
  if (!request_.log_probs || !token.log_probs) return nullptr;
  if (token.id == model_.engine.info().eos_token) return Json::array();
  return Json::array({LogProbsOf(model_, token, request_.top_log_probs)});
}

Json ChatAnswer::Usage(const dsv4::SessionStats& stats) const {
  int64_t tokens = 0, reasoning_tokens = 0;
  for (const Choice& choice : choices_) {
    tokens += choice.turn.tokens();
    reasoning_tokens += choice.turn.reasoning_tokens();
  }
  return UsageOf(stats, tokens, reasoning_tokens);
}

std::string ChatAnswer::End(const dsv4::SessionStats& stats) {
  std::string text;
  if (request_.common.include_usage) {
    Json chunk = Object("chat.completion.chunk");
    chunk["choices"] = Json::array();
    chunk["usage"] = Usage(stats);
    text = EventText(chunk);
  }
  return text + kStreamEnd;
}

std::string ChatAnswer::Failure(const ApiError& error) {
  return EventText(JsonOf(error)) + kStreamEnd;
}

Json ChatAnswer::MessageOf(const Turn& turn) const {
  const std::string content = turn.Text(Turn::Kind::kText);
  const std::string reasoning = turn.Text(Turn::Kind::kReasoning);
  Json message = {{"role", "assistant"}, {"content", content}};
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  Json calls = Json::array();
  for (const Turn::Part& part : turn.parts()) {
    if (!part.whole) continue;
    calls.push_back({{"id", part.id},
                     {"type", "function"},
                     {"function", {{"name", part.name}, {"arguments", part.text}}}});
  }
  if (!calls.empty()) {
    if (content.empty()) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
  }
  return message;
}

Json ChatAnswer::Whole(const dsv4::SessionStats& stats) {
  Json answer = Object("chat.completion");
  Json& choices = answer["choices"] = Json::array();
  for (const Choice& choice : choices_) {
    choices.push_back(
        {{"index", choices.size()},
         {"message", MessageOf(choice.turn)},
         {"logprobs", request_.log_probs ? Json{{"content", choice.log_probs}} : Json()},
         {"finish_reason", FinishOf(choice.turn)}});
    if (request_.common.token_ids) choices.back()["token_ids"] = choice.turn.token_ids();
  }
  answer["usage"] = Usage(stats);
  return answer;
}

}  // namespace server
