// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/tokenize.h"

#include <vector>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat_request.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/messages_form.h"

namespace server {
namespace {

std::vector<int32_t> ChatTokens(const Model& model, Fields* fields) {
  bool begun = false, hidden = false;
  Json messages = ReadMessages(fields, &begun);
  int64_t budget = 0;
  const dsv4::ChatOptions options = ReadThinking(model, fields, &budget, &hidden);
  if (const Json* tools = fields->Any("tools")) AddToSystem(&messages, "tools", *tools);
  return dsv4::RenderChat(model.engine.tokenizer(), TextOf(messages), options);
}

}  // namespace

std::string Tokenize(const Model& model, const Json& body) {
  Fields fields(model.rules, body);
  CheckModel(model, &fields);
  std::vector<int32_t> tokens;
  const auto prompt = fields.String("prompt");
  if (prompt && fields.Any("messages") != nullptr)
    throw InvalidField("messages", "and prompt exclude each other");
  if (prompt) {
    tokens = PromptTokens(model, *prompt, fields.Bool("add_special_tokens").value_or(true));
  } else {
    tokens = ChatTokens(model, &fields);
  }
  const bool strings = fields.Bool("return_token_strs").value_or(false);
  fields.LeaveOutOthers();
  // Tokens are written one by one.
  std::string answer = "{\"count\":" + std::to_string(tokens.size()) +
                       ",\"max_model_len\":" + std::to_string(model.engine.info().context_tokens) +
                       ",\"tokens\":[";
  for (size_t i = 0; i < tokens.size(); ++i)
    answer += (i > 0 ? "," : "") + std::to_string(tokens[i]);
  answer += ']';
  if (strings) {
    const char* separator = ",\"token_strs\":[";
    for (const int32_t token : tokens) {
      answer += separator + TextOf(model.engine.tokenizer().Decode({&token, 1}));
      separator = ",";
    }
    answer += tokens.empty() ? ",\"token_strs\":[]" : "]";
  }
  return answer + "}";
}

Json Detokenize(const Model& model, const Json& body) {
  Fields fields(model.rules, body);
  CheckModel(model, &fields);
  fields.Required("tokens");
  const std::vector<int32_t> tokens = fields.Tokens("tokens");
  fields.LeaveOutOthers();
  return {{"prompt", model.engine.tokenizer().Decode(tokens)}};
}

}  // namespace server
