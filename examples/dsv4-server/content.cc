// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/content.h"

#include <algorithm>
#include <cctype>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/fields.h"

namespace server {
namespace {

constexpr int kDeepest = 4;  // parts in parts

std::string TextOfList(const FieldRules& rules, const Json& list, const std::string& path,
                       int depth);

// The word for a part, by its type: "image" for "input_image", for example.
std::string KindOf(const std::string& type) {
  for (const char* kind : {"image", "audio", "video", "document", "file"}) {
    if (type.find(kind) != std::string::npos) return kind;
  }
  const std::string plain = PlainType(type);
  return plain.empty() ? "part" : plain;
}

std::string Placeholder(const FieldRules& rules, const Json& part, const std::string& type,
                        const std::string& path) {
  if (rules.strict)
    throw InvalidRequest(path + ".type", path + ".type: \"" + type + "\" is not supported");
  const std::string kind = KindOf(type);
  rules.Say("content of the type " + PlainType(type) + " is left out");
  std::string name;
  for (const char* key : {"title", "filename", "name"}) {
    const auto given = part.find(key);
    if (name.empty() && given != part.end() && given->is_string()) name = *given;
  }
  return "[" + kind + (name.empty() ? "" : " " + name) + " left out: the model reads text only]";
}

// Of a document or a search result whose content is text.
std::string DocumentText(const FieldRules& rules, const Json& part, const std::string& type,
                         const std::string& path, int depth) {
  std::string head;
  if (const auto title = part.find("title"); title != part.end() && title->is_string())
    head = title->get<std::string>() + "\n";
  const auto source = part.find("source");
  if (source != part.end() && source->is_object()) {
    const std::string kind = source->value("type", Json()).is_string()
                                 ? source->value("type", std::string())
                                 : std::string();
    const auto data = source->find("data"), content = source->find("content");
    if (kind == "text" && data != source->end() && data->is_string())
      return head + data->get<std::string>();
    if (kind == "content" && content != source->end())
      return head + (content->is_string()
                         ? content->get<std::string>()
                         : TextOfList(rules, *content, path + ".source.content", depth + 1));
  }
  const auto content = part.find("content");
  if (content != part.end() && content->is_array())
    return head + TextOfList(rules, *content, path + ".content", depth + 1);
  return Placeholder(rules, part, type, path);
}

std::string PartText(const FieldRules& rules, const Json& part, const std::string& path,
                     int depth) {
  if (part.is_string()) return part.get<std::string>();
  Fields fields(rules, part, path);
  const std::string type = fields.String("type").value_or("text");
  if (type == "text" || type == "input_text" || type == "output_text" || type == "summary_text" ||
      type == "reasoning_text")
    return fields.RequiredString("text");
  if (type == "refusal") return fields.RequiredString("refusal");
  if ((type == "document" || type == "search_result") && depth < kDeepest)
    return DocumentText(rules, part, type, path, depth);
  return Placeholder(rules, part, type, path);
}

std::string TextOfList(const FieldRules& rules, const Json& list, const std::string& path,
                       int depth) {
  if (!list.is_array()) throw InvalidField(path, "must be a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) text += "\n";
    text += PartText(rules, list[i], path + "[" + std::to_string(i) + "]", depth);
  }
  return text;
}

}  // namespace

Json ReadContent(const FieldRules& rules, const Json& content, const std::string& path) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw InvalidField(path, "must be a string or a list of parts");
  Json parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i)
    parts.push_back({{"type", "text"},
                     {"text", ReadPart(rules, content[i], path + "[" + std::to_string(i) + "]")}});
  return parts;
}

std::string ReadPart(const FieldRules& rules, const Json& part, const std::string& path) {
  return PartText(rules, part, path, 0);
}

std::string PlainType(const std::string& type) {
  std::string plain = type.substr(0, 40);
  std::replace_if(
      plain.begin(), plain.end(),
      [](unsigned char c) { return !(std::isalnum(c) || c == '_' || c == '-' || c == '.'); }, '?');
  return plain;
}

}  // namespace server
