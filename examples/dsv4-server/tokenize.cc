// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/tokenize.h"

#include <vector>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat_request.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/output_form.h"

namespace server {
namespace {

std::vector<int32_t> ChatTokens(const Model& model, Fields* fields) {
  Json messages = ReadMessages(fields);
  int64_t budget = 0;
  const dsv4::ChatOptions options = ReadThinking(model, fields, &budget);
  if (const Json* tools = fields->Any("tools")) AddToSystem(&messages, "tools", *tools);
  return dsv4::RenderChatJson(model.engine.tokenizer(), TextOf(messages), options);
}

}  // namespace

Json Tokenize(const Model& model, const Json& body) {
  Fields fields(body);
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
  fields.RefuseOthers();
  Json answer = {{"count", tokens.size()},
                 {"max_model_len", model.engine.info().context_tokens},
                 {"tokens", tokens}};
  if (strings) {
    Json texts = Json::array();
    for (const int32_t token : tokens)
      texts.push_back(model.engine.tokenizer().Decode({&token, 1}));
    answer["token_strs"] = std::move(texts);
  }
  return answer;
}

Json Detokenize(const Model& model, const Json& body) {
  Fields fields(body);
  CheckModel(model, &fields);
  fields.Required("tokens");
  const std::vector<int32_t> tokens = fields.Tokens("tokens");
  fields.RefuseOthers();
  return {{"prompt", model.engine.tokenizer().Decode(tokens)}};
}

}  // namespace server
