// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/turn.h"

namespace server {

std::vector<Turn::Piece> Turn::Take(const Token& token) {
  tokens_.push_back(token.id);
  if (token.finish != DSV4_FINISH_NONE) {
    const bool dropped = options_.no_calls && token.finish == DSV4_FINISH_TOOL_CALL;
    finish_ = dropped ? DSV4_FINISH_STOP : token.finish;
  }
  std::vector<Piece> pieces;
  for (const dsv4::Event& event : token.events) {
    if (event.type != DSV4_PARSER_REASONING && event.type != DSV4_PARSER_MALFORMED)
      reasons_ = false;
    const bool in_call = event.type == DSV4_PARSER_TOOL_CALL_START ||
                         event.type == DSV4_PARSER_TOOL_CALL_ARGUMENTS ||
                         event.type == DSV4_PARSER_TOOL_CALL_END;
    // The grammar leaves out the mark of calls, but the library also finds calls without it.
    if (in_call && options_.no_calls) continue;
    if (in_call) {
      Add(Kind::kCall, event, &pieces);
      // A further call may have begun with this token.
      if (options_.one_call && parts_.back().whole) {
        finish_ = DSV4_FINISH_TOOL_CALL;
        break;
      }
    } else if (event.type == DSV4_PARSER_REASONING) {
      if (!options_.hides_reasoning) Add(Kind::kReasoning, event, &pieces);
    } else if (event.type == DSV4_PARSER_TEXT) {
      Add(Kind::kText, event, &pieces);
    }
  }
  // The token that ends the reasoning is one of it, and the first of the text is not.
  if (reasons_) ++reasoning_tokens_;
  return pieces;
}

void Turn::Add(Kind kind, const dsv4::Event& event, std::vector<Piece>* pieces) {
  if (event.type == DSV4_PARSER_TOOL_CALL_END) {
    parts_.back().whole = true;
    return;
  }
  const bool begins =
      event.type == DSV4_PARSER_TOOL_CALL_START || parts_.empty() || parts_.back().kind != kind;
  if (begins) parts_.emplace_back().kind = kind;
  Part& part = parts_.back();
  if (event.type == DSV4_PARSER_TOOL_CALL_START) {
    // The event's own id is the same in every conversation, and clients tell calls apart by it.
    part.id = new_call_id_();
    part.name = event.text;
    part.call = static_cast<size_t>(event.call);
    pieces->push_back({parts_.size() - 1, true, ""});
    return;
  }
  part.text += event.text;
  if (!begins && !pieces->empty() && pieces->back().part == parts_.size() - 1)
    pieces->back().text += event.text;
  else
    pieces->push_back({parts_.size() - 1, begins, event.text});
}

std::string Turn::Text(Kind kind) const {
  std::string text;
  for (const Part& part : parts_) {
    if (part.kind == kind) text += part.text;
  }
  return text;
}

std::string Turn::StopString(const Model& model, const std::vector<std::string>& strings) const {
  if (finish_ != DSV4_FINISH_STOP || strings.empty() ||
      tokens_.back() == model.engine.info().eos_token)
    return "";
  // As dsv4_sampling says: the first one complete counts, of several the longest.
  const std::string text = model.engine.tokenizer().Decode(tokens_);
  std::string stop;
  size_t stop_end = std::string::npos;
  for (const std::string& string : strings) {
    const size_t begin = text.find(string);
    if (begin == std::string::npos) continue;
    const size_t end = begin + string.size();
    if (end > stop_end || (end == stop_end && string.size() <= stop.size())) continue;
    stop = string;
    stop_end = end;
  }
  return stop;
}

}  // namespace server
