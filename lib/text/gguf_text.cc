// SPDX-License-Identifier: Apache-2.0
#include "lib/text/gguf_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/io/native_path.h"
#include "lib/text/python_json.h"

namespace dsv4 {
namespace {

// Types of tokens.
constexpr int64_t kNormal = 1, kControl = 3, kUserDefined = 4;

constexpr char kTemplateKey[] = "tokenizer.chat_template";

// What the tokenizer.json of the family says beside its tokens.
constexpr char kPreTokenizer[] =
    R"json("pre_tokenizer":{"type":"Sequence","pretokenizers":[)json"
    R"json({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated",)json"
    R"json("invert":false},{"type":"Split","pattern":{"Regex":"[一-龥\u3040-ゟ゠-ヿ]+"},)json"
    R"json("behavior":"Isolated","invert":false},{"type":"Split","pattern":{"Regex":)json"
    R"json("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?)json"
    R"json([\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"},)json"
    R"json("behavior":"Isolated","invert":false},{"type":"ByteLevel",)json"
    R"json("add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})json";
constexpr char kDecoder[] =
    R"json("normalizer":null,"post_processor":null,"decoder":{"type":"ByteLevel",)json"
    R"json("add_prefix_space":true,"trim_offsets":true,"use_regex":true})json";

absl::StatusOr<std::vector<absl::string_view>> Strings(const GgufModel& model,
                                                       absl::string_view key) {
  const GgufValue* value = model.Find(key);
  if (value == nullptr) return Corrupt(model.path(), ": key ", key, " is missing");
  std::optional<std::vector<absl::string_view>> strings = value->AsStrings();
  if (!strings) return Corrupt(model.path(), ": key ", key, " is no array of strings");
  return *std::move(strings);
}

absl::string_view StringOr(const GgufModel& model, absl::string_view key) {
  const GgufValue* value = model.Find(key);
  return value == nullptr ? absl::string_view() : value->AsString().value_or(absl::string_view());
}

absl::Status ExpectString(const GgufModel& model, absl::string_view key,
                          std::initializer_list<absl::string_view> known) {
  if (model.Find(key) == nullptr) return Corrupt(model.path(), ": key ", key, " is missing");
  const absl::string_view text = StringOr(model, key);
  if (std::count(known.begin(), known.end(), text) != 0) return absl::OkStatus();
  return Unsupported(model.path(), ": key ", key, " is ", Quoted(text), "; only ",
                     Quoted(*known.begin()), " is supported");
}

void AppendString(absl::string_view text, std::string* out) {
  AppendPythonJson(JsonValue::FromString(std::string(text)), out);
}

// Whether a token is one that decoders may leave out. Files do not say: control tokens are all of
// the form <｜...｜>, also those of chats, which are not special.
bool IsSpecial(const GgufModel& model, int64_t id, absl::string_view token) {
  for (const char* key : {"bos", "eos", "padding"}) {
    const GgufValue* value = model.Find(absl::StrCat("tokenizer.ggml.", key, "_token_id"));
    if (value != nullptr && value->AsInt64() == id) return true;
  }
  return absl::StrContains(token, "place▁holder") || token == "<|EOT|>";
}

// Which of the texts of an encoder `text` has; nullopt: none.
std::optional<ChatEncoder> EncoderBy(absl::string_view text, absl::string_view newer,
                                     absl::string_view older) {
  if (absl::StrContains(text, newer)) return ChatEncoder::k0731;
  if (!older.empty() && absl::StrContains(text, older)) return ChatEncoder::kPreview;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> GgufTokenizerJson(const GgufModel& model) {
  constexpr char kTypes[] = "tokenizer.ggml.token_type";
  DSV4_RETURN_IF_ERROR(ExpectString(model, "tokenizer.ggml.model", {"gpt2"}));
  DSV4_RETURN_IF_ERROR(ExpectString(model, "tokenizer.ggml.pre", {"joyai-llm", "deepseek-v3"}));
  DSV4_ASSIGN_OR_RETURN(const auto tokens, Strings(model, "tokenizer.ggml.tokens"));
  DSV4_ASSIGN_OR_RETURN(const auto merges, Strings(model, "tokenizer.ggml.merges"));
  const GgufValue* value = model.Find(kTypes);
  const auto types = value == nullptr ? std::nullopt : value->AsInt64s();
  if (!types || types->size() != tokens.size()) {
    return Corrupt(
        model.path(), ": key ", kTypes,
        types ? absl::StrCat(" has ", types->size(), " entries for ", tokens.size(), " tokens")
              : " is missing, or no array of integers");
  }
  std::string added, vocabulary, list;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int64_t type = (*types)[id];
    if (type == kControl || type == kUserDefined) {
      absl::StrAppend(&added, added.empty() ? "" : ",", "{\"id\":", id, ",\"content\":");
      AppendString(tokens[id], &added);
      absl::StrAppend(&added, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,",
                      "\"normalized\":false,\"special\":",
                      IsSpecial(model, static_cast<int64_t>(id), tokens[id]) ? "true" : "false",
                      "}");
    } else if (type == kNormal) {
      if (!vocabulary.empty()) vocabulary += ',';
      AppendString(tokens[id], &vocabulary);
      absl::StrAppend(&vocabulary, ":", id);
    }
  }
  if (added.empty() && vocabulary.empty()) {
    return NotFound(model.path(), ": no tokenizer: key ", kTypes,
                    " says that all tokens are unused");
  }
  for (const absl::string_view merge : merges) {
    if (!list.empty()) list += ',';
    AppendString(merge, &list);
  }
  return absl::StrCat("{\"version\":\"1.0\",\"added_tokens\":[", added, "],", kDecoder, ",",
                      kPreTokenizer, ",\"model\":{\"type\":\"BPE\",\"vocab\":{", vocabulary,
                      "},\"merges\":[", list, "]}}");
}

std::optional<FoundChatEncoder> GgufChatEncoder(const GgufModel& model) {
  // The newer encoder's template has both texts.
  if (const auto encoder =
          EncoderBy(StringOr(model, kTemplateKey), "Beyond maximum", "Absolute maximum")) {
    return FoundChatEncoder{*encoder, kTemplateKey, ""};
  }
  constexpr char kVersionKey[] = "general.base_model.0.version";
  if (const auto encoder = EncoderBy(StringOr(model, kVersionKey), "0731", "")) {
    return FoundChatEncoder{*encoder, kVersionKey, ""};
  }
  const std::string name = FileNameOf(model.path());
  if (const auto encoder = EncoderBy(name, "0731", "")) return FoundChatEncoder{*encoder, name, ""};
  return std::nullopt;
}

}  // namespace dsv4
