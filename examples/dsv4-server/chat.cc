// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chat.h"

#include <algorithm>
#include <utility>

namespace server {
namespace {

// Appends to a text of `delta`.
void Append(Json* delta, const char* key, const std::string& text) {
  if (!delta->contains(key)) (*delta)[key] = "";
  (*delta)[key].get_ref<std::string&>() += text;
}

}  // namespace

ChatAnswer::ChatAnswer(const Model& model, const ChatRequest& request)
    : model_(model),
      log_probs_(request.log_probs),
      no_calls_(request.no_calls),
      one_call_(request.one_call),
      continuous_usage_(request.common.continuous_usage),
      top_log_probs_(request.top_log_probs),
      id_(NewId("chatcmpl-")),
      created_(SecondsSince1970()),
      reasons_(request.prompt.chat.thinking != DSV4_THINKING_OFF) {}

Json ChatAnswer::Object(const char* kind) const {
  return {{"id", id_}, {"object", kind}, {"created", created_}, {"model", model_.name}};
}

Json ChatAnswer::Chunk(Json delta, Json log_probs) const {
  Json chunk = Object("chat.completion.chunk");
  chunk["choices"] = Json::array({{{"index", 0},
                                   {"delta", std::move(delta)},
                                   {"logprobs", std::move(log_probs)},
                                   {"finish_reason", ended() ? Json(finish_reason_) : Json()}}});
  return chunk;
}

Json ChatAnswer::FirstChunk() const {
  return Chunk({{"role", "assistant"}, {"content", ""}}, nullptr);
}

Json ChatAnswer::Take(const Token& token, const dsv4::SessionStats& stats) {
  ++tokens_;
  if (reasons_) ++reasoning_tokens_;
  Json delta = Json::object();
  if (token.finish != DSV4_FINISH_NONE) {
    const bool dropped = no_calls_ && token.finish == DSV4_FINISH_TOOL_CALL;
    finish_reason_ = FinishReason(dropped ? DSV4_FINISH_STOP : token.finish);
  }
  for (const dsv4::Event& event : token.events) {
    Add(event, &delta);
    // A further call may have begun with this token.
    if (one_call_ && !calls_.empty() && calls_.front().whole) {
      finish_reason_ = FinishReason(DSV4_FINISH_TOOL_CALL);
      break;
    }
  }
  // Clients that count chunks count tokens, those whose text is held back, too.
  if (delta.empty() && !ended()) delta["content"] = "";
  Json log_probs = LogProbsOf(token);
  if (!log_probs.is_null())
    all_log_probs_.insert(all_log_probs_.end(), log_probs.begin(), log_probs.end());
  Json chunk = Chunk(std::move(delta),
                     log_probs.is_null() ? Json() : Json{{"content", std::move(log_probs)}});
  if (continuous_usage_) chunk["usage"] = Usage(stats);
  return chunk;
}

void ChatAnswer::Add(const dsv4::Event& event, Json* delta) {
  if (event.type != DSV4_PARSER_REASONING && event.type != DSV4_PARSER_MALFORMED) reasons_ = false;
  // The grammar leaves out the mark of calls, but the library also finds calls without it.
  const bool in_call = event.type == DSV4_PARSER_TOOL_CALL_START ||
                       event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS ||
                       event.type == DSV4_PARSER_TOOL_CALL_END;
  if (no_calls_ && in_call) return;
  const auto call_delta = [&](Json entry) {
    Json& list = (*delta)["tool_calls"];
    if (!list.is_null() && !entry.contains("id") && list.back()["index"] == entry["index"])
      list.back()["function"]["arguments"].get_ref<std::string&>() += event.text;
    else
      list.push_back(std::move(entry));
  };
  switch (event.type) {
    case DSV4_PARSER_REASONING:
      reasoning_ += event.text;
      return Append(delta, "reasoning_content", event.text);
    case DSV4_PARSER_TEXT:
      content_ += event.text;
      return Append(delta, "content", event.text);
    case DSV4_PARSER_TOOL_CALL_START:
      calls_.push_back({event.id, event.text, "", false});
      return call_delta({{"index", event.call},
                         {"id", event.id},
                         {"type", "function"},
                         {"function", {{"name", event.text}, {"arguments", ""}}}});
    case DSV4_PARSER_TOOL_CALL_ARGUMENTS:
      calls_.back().arguments += event.text;
      return call_delta({{"index", event.call}, {"function", {{"arguments", event.text}}}});
    case DSV4_PARSER_TOOL_CALL_END:
      calls_.back().whole = true;
      return;
    default:
      return;
  }
}

Json ChatAnswer::LogProbOf(int32_t token, float log_prob) const {
  const std::string text = model_.engine.tokenizer().Decode({&token, 1});
  // Of a token within a character the tokenizer shows no bytes.
  const bool whole = text.find("\xef\xbf\xbd") == std::string::npos;
  Json bytes = nullptr;
  if (whole) {
    bytes = Json::array();
    for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
  }
  return {{"token", text}, {"logprob", JsonLogProb(log_prob)}, {"bytes", std::move(bytes)}};
}

// Null where none were asked for. The token that ends the turn is no part of it.
Json ChatAnswer::LogProbsOf(const Token& token) const {
  if (!log_probs_ || !token.log_probs) return nullptr;
  if (token.id == model_.engine.info().eos_token) return Json::array();
  Json entry = LogProbOf(token.id, token.log_probs->log_prob);
  Json top = Json::array();
  const auto& likely = token.log_probs->top;
  for (size_t i = 0; i < std::min(likely.size(), top_log_probs_); ++i)
    top.push_back(LogProbOf(likely[i].token, likely[i].log_prob));
  entry["top_logprobs"] = std::move(top);
  return Json::array({std::move(entry)});
}

Json ChatAnswer::Usage(const dsv4::SessionStats& stats) const {
  return UsageOf(stats, tokens_, reasoning_tokens_);
}

Json ChatAnswer::LastChunk(const dsv4::SessionStats& stats) const {
  Json chunk = Object("chat.completion.chunk");
  chunk["choices"] = Json::array();
  chunk["usage"] = Usage(stats);
  return chunk;
}

Json ChatAnswer::Whole(const dsv4::SessionStats& stats) const {
  Json message = {{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  Json calls = Json::array();
  for (const Call& call : calls_) {
    if (!call.whole) continue;
    calls.push_back({{"id", call.id},
                     {"type", "function"},
                     {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!calls.empty()) {
    if (content_.empty()) message["content"] = nullptr;
    message["tool_calls"] = std::move(calls);
  }
  Json answer = Object("chat.completion");
  answer["choices"] =
      Json::array({{{"index", 0},
                    {"message", std::move(message)},
                    {"logprobs", log_probs_ ? Json{{"content", all_log_probs_}} : Json()},
                    {"finish_reason", finish_reason_}}});
  answer["usage"] = Usage(stats);
  return answer;
}

}  // namespace server
