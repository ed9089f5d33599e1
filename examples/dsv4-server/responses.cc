// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/responses.h"

#include <utility>

#include "examples/dsv4-server/log_probs.h"
#include "examples/dsv4-server/response_store.h"

namespace server {
namespace {

constexpr char kCompleted[] = "completed", kIncomplete[] = "incomplete",
               kInProgress[] = "in_progress";

// The one part that an item of text or of reasoning has.
Json ContentOf(Turn::Kind kind, const std::string& text, Json log_probs = Json::array()) {
  if (kind == Turn::Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", std::move(log_probs)}};
}

const char* IdPrefix(Turn::Kind kind) {
  switch (kind) {
    case Turn::Kind::kReasoning:
      return "rs_";
    case Turn::Kind::kText:
      return "msg_";
    default:
      return "fc_";
  }
}

// "response.output_text" and its like, to which .delta and .done belong.
std::string NameOf(Turn::Kind kind) {
  switch (kind) {
    case Turn::Kind::kReasoning:
      return "response.reasoning_text";
    case Turn::Kind::kText:
      return "response.output_text";
    default:
      return "response.function_call_arguments";
  }
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(const Model& model, ResponsesRequest request, Identity* identity)
    : model_(model),
      request_(std::move(request)),
      id_(identity->NewId("resp_")),
      created_(identity->created()),
      turn_(request_.turn, [identity] { return identity->NewId("call_"); }),
      identity_(identity) {
  if (request_.keeps_session) request_.prompt.keep_as = id_;
}

const char* ResponsesAnswer::Status() const {
  return turn_.finish() == DSV4_FINISH_STOP || turn_.finish() == DSV4_FINISH_TOOL_CALL
             ? kCompleted
             : kIncomplete;
}

// The end came before the part was whole.
bool ResponsesAnswer::Cut(size_t part) const {
  const Turn::Part& its = turn_.parts()[part];
  if (its.kind == Turn::Kind::kCall) return !its.whole;
  return part + 1 == turn_.parts().size() && Status() == kIncomplete;
}

Json ResponsesAnswer::Item(size_t index, bool begun) const {
  const Turn::Part& part = turn_.parts()[index];
  const char* status = begun ? kInProgress : Cut(index) ? kIncomplete : kCompleted;
  Json content = Json::array();
  if (!begun) content.push_back(ContentOf(part.kind, part.text, log_probs_[index]));
  switch (part.kind) {
    case Turn::Kind::kReasoning:
      return {{"id", item_ids_[index]},
              {"type", "reasoning"},
              {"summary", Json::array()},
              {"content", std::move(content)},
              {"status", status}};
    case Turn::Kind::kText:
      return {{"id", item_ids_[index]},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", std::move(content)}};
    default:
      return {{"id", item_ids_[index]}, {"type", "function_call"},
              {"status", status},       {"call_id", part.id},
              {"name", part.name},      {"arguments", begun ? "" : part.text}};
  }
}

Json ResponsesAnswer::Response(const char* status, const dsv4::SessionStats* stats) const {
  Json response = {{"id", id_},
                   {"object", "response"},
                   {"created_at", created_},
                   {"status", status},
                   {"error", nullptr},
                   {"incomplete_details", nullptr},
                   {"model", model_.name},
                   {"output", Json::array()},
                   {"truncation", "disabled"},
                   {"usage", nullptr}};
  response.update(request_.echoed);
  if (stats == nullptr) return response;
  if (status == kIncomplete) response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  for (size_t i = 0; i < turn_.parts().size(); ++i) response["output"].push_back(Item(i, false));
  response["usage"] = {{"input_tokens", stats->prompt_tokens},
                       {"input_tokens_details", {{"cached_tokens", stats->cached_tokens}}},
                       {"output_tokens", turn_.tokens()},
                       {"output_tokens_details", {{"reasoning_tokens", turn_.reasoning_tokens()}}},
                       {"total_tokens", stats->prompt_tokens + turn_.tokens()}};
  return response;
}

void ResponsesAnswer::Event(const std::string& type, Json members) {
  Json event = {{"type", type}, {"sequence_number", event_count_++}};
  event.update(members);
  events_ += EventText(event, type);
}

void ResponsesAnswer::ItemEvent(const std::string& type, size_t part, Json members) {
  Json all = {{"item_id", item_ids_[part]}, {"output_index", part}};
  if (turn_.parts()[part].kind != Turn::Kind::kCall) all["content_index"] = 0;
  all.update(members);
  Event(type, std::move(all));
}

void ResponsesAnswer::BeginItem(size_t part) {
  const Turn::Kind kind = turn_.parts()[part].kind;
  Event("response.output_item.added", {{"output_index", part}, {"item", Item(part, true)}});
  if (kind != Turn::Kind::kCall)
    ItemEvent("response.content_part.added", part, {{"part", ContentOf(kind, "")}});
}

void ResponsesAnswer::EndItem(size_t index) {
  const Turn::Part& part = turn_.parts()[index];
  const std::string done = NameOf(part.kind) + ".done";
  if (part.kind == Turn::Kind::kCall) {
    ItemEvent(done, index, {{"name", part.name}, {"arguments", part.text}});
  } else {
    Json members = {{"text", part.text}};
    if (part.kind == Turn::Kind::kText) members["logprobs"] = log_probs_[index];
    ItemEvent(done, index, std::move(members));
    ItemEvent("response.content_part.done", index,
              {{"part", ContentOf(part.kind, part.text, log_probs_[index])}});
  }
  Event("response.output_item.done", {{"output_index", index}, {"item", Item(index, false)}});
}

std::string ResponsesAnswer::Begin(const dsv4::SessionStats&) {
  Event("response.created", {{"response", Response(kInProgress, nullptr)}});
  Event("response.in_progress", {{"response", Response(kInProgress, nullptr)}});
  return std::exchange(events_, {});
}

Json ResponsesAnswer::TakeLogProbs(const Turn::Piece& piece) {
  if (piece.text.empty() && !piece.begins) return Json::array();
  Json entries = std::exchange(waiting_log_probs_, Json::array());
  if (turn_.parts()[piece.part].kind != Turn::Kind::kText) return Json::array();
  Json& all = log_probs_[piece.part];
  all.insert(all.end(), entries.begin(), entries.end());
  return entries;
}

std::string ResponsesAnswer::Take(size_t, const Token& token, const dsv4::SessionStats&) {
  const int64_t reasoning_tokens = turn_.reasoning_tokens();
  const std::vector<Turn::Piece> pieces = turn_.Take(token);
  const bool of_reasoning = turn_.reasoning_tokens() > reasoning_tokens;
  if (request_.log_probs && token.log_probs && !of_reasoning &&
      token.id != model_.engine.info().eos_token)
    waiting_log_probs_.push_back(LogProbsOf(model_, token, request_.top_log_probs));
  while (item_ids_.size() < turn_.parts().size()) {
    item_ids_.push_back(identity_->NewId(IdPrefix(turn_.parts()[item_ids_.size()].kind)));
    log_probs_.push_back(Json::array());
  }
  for (const Turn::Piece& piece : pieces) {
    Json log_probs = TakeLogProbs(piece);
    if (!stream()) continue;
    if (piece.begins) {
      if (piece.part > 0) EndItem(piece.part - 1);
      BeginItem(piece.part);
    }
    if (piece.text.empty()) continue;
    const Turn::Kind kind = turn_.parts()[piece.part].kind;
    Json members = {{"delta", piece.text}};
    if (kind == Turn::Kind::kText) members["logprobs"] = std::move(log_probs);
    ItemEvent(NameOf(kind) + ".delta", piece.part, std::move(members));
  }
  return std::exchange(events_, {});
}

std::string ResponsesAnswer::End(const dsv4::SessionStats& stats) {
  if (!turn_.parts().empty()) EndItem(turn_.parts().size() - 1);
  Event(std::string("response.") + Status(), {{"response", Finished(stats)}});
  return std::exchange(events_, {});
}

// The whole response, which is kept if the request says so.
Json ResponsesAnswer::Finished(const dsv4::SessionStats& stats) {
  Json response = Response(Status(), &stats);
  if (!request_.store) return response;
  model_.responses->Put(id_, {TextOf(response), TextOf(InputItems()), TextOf(Conversation()),
                              request_.keeps_session});
  return response;
}

// Their list, each with an id.
Json ResponsesAnswer::InputItems() {
  Json items = request_.input;
  if (items.is_string()) {
    Json content = Json::array({{{"type", "input_text"}, {"text", items}}});
    items = Json::array({{{"type", "message"}, {"role", "user"}, {"content", std::move(content)}}});
  }
  for (Json& item : items) {
    if (!item.contains("id") || !item["id"].is_string()) item["id"] = identity_->NewId("item_");
  }
  Json list = {{"object", "list"},
               {"first_id", items.empty() ? Json() : items.front()["id"]},
               {"last_id", items.empty() ? Json() : items.back()["id"]},
               {"has_more", false}};
  list["data"] = std::move(items);
  return list;
}

// The messages with the answer.
Json ResponsesAnswer::Conversation() const {
  Json messages = request_.messages;
  if (!request_.begun) messages.push_back({{"role", "assistant"}, {"content", ""}});
  Json& last = messages.back();
  if (const std::string reasoning = turn_.Text(Turn::Kind::kReasoning); !reasoning.empty())
    last["reasoning_content"] = reasoning;
  const std::string text = turn_.Text(Turn::Kind::kText);
  if (last["content"].is_string())
    last["content"] = last["content"].get<std::string>() + text;
  else
    last["content"].push_back({{"type", "text"}, {"text", text}});
  for (const Turn::Part& part : turn_.parts()) {
    if (part.kind != Turn::Kind::kCall || !part.whole) continue;
    last["tool_calls"].push_back({{"id", part.id},
                                  {"type", "function"},
                                  {"function", {{"name", part.name}, {"arguments", part.text}}}});
  }
  return messages;
}

std::string ResponsesAnswer::Failure(const ApiError& error) {
  Event("error", {{"code", error.code.empty() ? error.type : error.code},
                  {"message", error.message},
                  {"param", error.param.empty() ? Json() : Json(error.param)}});
  return std::exchange(events_, {});
}

Json ResponsesAnswer::Whole(const dsv4::SessionStats& stats) { return Finished(stats); }

}  // namespace server
