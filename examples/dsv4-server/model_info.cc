// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/model_info.h"

#include <filesystem>

#include "examples/dsv4-server/http_message.h"

namespace server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefix = "models--";

fs::path Normal(const std::string& folder) {
  fs::path path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();
}

Json Describe(const Model& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.opened},
          {"owned_by", "dsv4"},
          {"root", model.name},
          {"max_model_len", model.engine.info().context_tokens},
          // Anthropic's names.
          {"type", "model"},
          {"display_name", model.name}};
}

}  // namespace

std::string NameOfFolder(const std::string& folder) {
  const fs::path path = Normal(folder);
  // A snapshot of the hub, or a GGUF file anywhere in one.
  for (fs::path at = path; at.has_relative_path(); at = at.parent_path()) {
    const fs::path snapshots = at.parent_path();
    const std::string hub = snapshots.parent_path().filename().string();
    if (snapshots.filename() != "snapshots" || !hub.starts_with(kHubPrefix)) continue;
    std::string name = hub.substr(kHubPrefix.size());
    if (const size_t end = name.find("--"); end != std::string::npos) name.replace(end, 2, "/");
    return name;
  }
  return path.filename().string();
}

Json ListModels(const Model& model) {
  Json data = Json::array({Describe(model, model.name)});
  for (const std::string& alias : model.aliases) data.push_back(Describe(model, alias));
  const std::string last = model.aliases.empty() ? model.name : model.aliases.back();
  return {{"object", "list"},
          {"data", std::move(data)},
          {"first_id", model.name},
          {"last_id", last},
          {"has_more", false}};
}

Json DescribeModel(const Model& model, std::string_view name) {
  const std::string decoded = PercentDecoded(name);
  if (!IsServed(model, decoded)) throw NotServed(model, decoded);
  return Describe(model, decoded);
}

Json TokenizerInfo(const Model& model) {
  const auto& tokenizer = model.engine.tokenizer();
  const auto& info = model.engine.info();
  const auto text_of = [&](int32_t token) { return Json(tokenizer.Decode({&token, 1})); };
  return {{"tokenizer_class", "PreTrainedTokenizerFast"},
          {"bos_token", text_of(info.bos_token)},
          {"bos_token_id", info.bos_token},
          {"eos_token", text_of(info.eos_token)},
          {"eos_token_id", info.eos_token},
          {"pad_token", text_of(info.eos_token)},
          {"pad_token_id", info.eos_token},
          {"add_bos_token", true},
          {"add_eos_token", false},
          {"vocab_size", tokenizer.vocab_size()},
          {"model_max_length", info.context_tokens},
          {"chat_template", nullptr}};
}

}  // namespace server
