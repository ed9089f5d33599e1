// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/messages.h"

#include <utility>

#include "examples/dsv4-server/error_json.h"

namespace server {
namespace {

std::string Event(const char* type, Json members) {
  Json event = {{"type", type}};
  event.update(members);
  return EventText(event, type);
}

// A block of content, as far as it has come; `empty`: without its text.
Json BlockOf(const Turn::Part& part, bool empty) {
  const std::string text = empty ? "" : part.text;
  switch (part.kind) {
    case Turn::Kind::kReasoning:
      return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
    case Turn::Kind::kText:
      return {{"type", "text"}, {"text", text}};
    default:
      return {{"type", "tool_use"},
              {"id", part.id},
              {"name", part.name},
              {"input", empty ? Json::object() : Json::parse(part.text)}};
  }
}

Json DeltaOf(Turn::Kind kind, const std::string& text) {
  switch (kind) {
    case Turn::Kind::kReasoning:
      return {{"type", "thinking_delta"}, {"thinking", text}};
    case Turn::Kind::kText:
      return {{"type", "text_delta"}, {"text", text}};
    default:
      return {{"type", "input_json_delta"}, {"partial_json", text}};
  }
}

}  // namespace

MessagesAnswer::MessagesAnswer(const Model& model, MessagesRequest request, Identity* identity)
    : model_(model),
      request_(std::move(request)),
      id_(identity->NewId("msg_")),
      turn_(request_.turn, [identity] { return identity->NewId("toolu_"); }) {}

Json MessagesAnswer::Usage(const dsv4::SessionStats& stats) const {
  return {{"input_tokens", stats.prompt_tokens - stats.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", stats.cached_tokens},
          {"output_tokens", turn_.tokens()}};
}

Json MessagesAnswer::Stop() const {
  const std::string string = turn_.StopString(model_, request_.prompt.sampling.stop_strings);
  Json reason = nullptr;
  if (!string.empty())
    reason = "stop_sequence";
  else if (turn_.finish() == DSV4_FINISH_STOP)
    reason = "end_turn";
  else if (turn_.finish() == DSV4_FINISH_TOOL_CALL)
    reason = "tool_use";
  else if (turn_.ended())
    reason = "max_tokens";
  return {{"stop_reason", reason}, {"stop_sequence", string.empty() ? Json() : Json(string)}};
}

Json MessagesAnswer::Message(const dsv4::SessionStats& stats) const {
  Json message = {{"id", id_},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", model_.name},
                  {"content", Json::array()}};
  message.update(Stop());
  message["usage"] = Usage(stats);
  return message;
}

std::string MessagesAnswer::Begin(const dsv4::SessionStats& stats) {
  return Event("message_start", {{"message", Message(stats)}});
}

std::string MessagesAnswer::EndBlock(size_t index) const {
  std::string text;
  if (turn_.parts()[index].kind == Turn::Kind::kReasoning)
    text = Event("content_block_delta",
                 {{"index", index}, {"delta", {{"type", "signature_delta"}, {"signature", ""}}}});
  return text + Event("content_block_stop", {{"index", index}});
}

std::string MessagesAnswer::Take(size_t, const Token& token, const dsv4::SessionStats&) {
  std::string text;
  const std::vector<Turn::Piece> pieces = turn_.Take(token);
  if (!stream()) return "";
  for (const Turn::Piece& piece : pieces) {
    const Turn::Part& part = turn_.parts()[piece.part];
    if (piece.begins) {
      if (piece.part > 0) text += EndBlock(piece.part - 1);
      text += Event("content_block_start",
                    {{"index", piece.part}, {"content_block", BlockOf(part, true)}});
    }
    if (!piece.text.empty())
      text += Event("content_block_delta",
                    {{"index", piece.part}, {"delta", DeltaOf(part.kind, piece.text)}});
  }
  return text;
}

std::string MessagesAnswer::End(const dsv4::SessionStats& stats) {
  const size_t parts = turn_.parts().size();
  return (parts > 0 ? EndBlock(parts - 1) : "") +
         Event("message_delta", {{"delta", Stop()}, {"usage", Usage(stats)}}) +
         Event("message_stop", Json::object());
}

std::string MessagesAnswer::Failure(const ApiError& error) {
  return EventText(AnthropicJsonOf(error), "error");
}

Json MessagesAnswer::Whole(const dsv4::SessionStats& stats) {
  Json message = Message(stats);
  for (const Turn::Part& part : turn_.parts()) {
    // A call that was cut off has no input.
    if (part.kind != Turn::Kind::kCall || part.whole)
      message["content"].push_back(BlockOf(part, false));
  }
  return message;
}

}  // namespace server
