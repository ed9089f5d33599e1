// SPDX-License-Identifier: Apache-2.0
#include "lib/text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/base/utf8.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/text/byte_alphabet.h"
#include "lib/text/completion_markup.h"
#include "lib/text/tokenizer_json.h"
#include "lib/text/vocabulary.h"

namespace dsv4 {
namespace {

// Null, missing, or a Sequence of nothing.
absl::Status RequireNoNormalizer(const JsonValue& root, absl::string_view where) {
  const JsonValue* normalizer = root.Find("normalizer");
  if (!normalizer || normalizer->IsNull()) return absl::OkStatus();
  const std::string place = absl::StrCat(where, ": normalizer");
  DSV4_ASSIGN_OR_RETURN(absl::string_view type, StringAt(*normalizer, "type", place));
  if (type == "Sequence") {
    DSV4_ASSIGN_OR_RETURN(const auto* steps, ArrayAt(*normalizer, "normalizers", place));
    if (steps->empty()) return absl::OkStatus();
    DSV4_ASSIGN_OR_RETURN(type, StringAt(steps->front(), "type", place));
  }
  return Unsupported(place, ": type ", Quoted(type), " is not supported");
}

absl::StatusOr<absl::string_view> StepType(const JsonValue& step, absl::string_view place) {
  return StringAt(step, "type", place);
}

absl::Status NotSupported(absl::string_view place, absl::string_view type) {
  return Unsupported(place, ": type ", Quoted(type), " is not supported");
}

absl::Status RequireByteLevelDecoder(const JsonValue& root, absl::string_view where) {
  const std::string place = absl::StrCat(where, ": decoder");
  const JsonValue* object = root.Find("decoder");
  if (!object || object->IsNull()) {
    return Unsupported(place, ": a tokenizer without one is not supported");
  }
  DSV4_ASSIGN_OR_RETURN(const absl::string_view type, StepType(*object, place));
  return type == "ByteLevel" ? absl::OkStatus() : NotSupported(place, type);
}

// The text of a special token of a template: its entry in "special_tokens", or its name.
absl::string_view TemplateToken(const JsonValue& processor, absl::string_view name) {
  const JsonValue* known = processor.Find("special_tokens");
  const JsonValue* token = known ? known->Find(name) : nullptr;
  const JsonValue* texts = token ? token->Find("tokens") : nullptr;
  if (!texts || !texts->AsArray() || texts->AsArray()->size() != 1) return name;
  const std::string* text = texts->AsArray()->front().AsString();
  return text ? absl::string_view(*text) : name;
}

// A template for one text: the text, with nothing but the begin of the sentence before it. The
// chat encoder writes that token, and texts are encoded without it.
absl::Status RequireNothingButBegin(const JsonValue& processor, absl::string_view place) {
  DSV4_ASSIGN_OR_RETURN(const auto* pieces, ArrayAt(processor, "single", place));
  bool has_text = false;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const JsonValue& piece = (*pieces)[i];
    const std::string piece_place = absl::StrCat(place, ": single[", i, "]");
    const JsonValue* special = piece.Find("SpecialToken");
    if (!special) {
      if (!piece.Find("Sequence") || has_text) {
        return Unsupported(piece_place, " is neither the text nor a token");
      }
      has_text = true;
      continue;
    }
    DSV4_ASSIGN_OR_RETURN(const absl::string_view name, StringAt(*special, "id", piece_place));
    const absl::string_view token = TemplateToken(processor, name);
    if (token != markup::kBeginOfSentence || i > 0) {
      return Unsupported(piece_place, " adds the token ", Quoted(token), "; only ",
                         Quoted(markup::kBeginOfSentence), " at the beginning is supported");
    }
  }
  return has_text ? absl::OkStatus() : Corrupt(place, ": single has no text");
}

// ByteLevel as a post-processor changes only offsets.
absl::Status CheckPostProcessor(const JsonValue& root, absl::string_view where) {
  const std::string place = absl::StrCat(where, ": post_processor");
  const JsonValue* object = root.Find("post_processor");
  if (!object || object->IsNull()) return absl::OkStatus();
  DSV4_ASSIGN_OR_RETURN(absl::string_view type, StepType(*object, place));
  absl::Span<const JsonValue> steps = absl::MakeConstSpan(object, 1);
  if (type == "Sequence") {
    DSV4_ASSIGN_OR_RETURN(const auto* processors, ArrayAt(*object, "processors", place));
    steps = *processors;
  }
  for (const JsonValue& step : steps) {
    DSV4_ASSIGN_OR_RETURN(type, StepType(step, place));
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") return NotSupported(place, type);
    DSV4_RETURN_IF_ERROR(RequireNothingButBegin(step, place));
  }
  return absl::OkStatus();
}

}  // namespace

Tokenizer::Tokenizer(AddedTokens added, PreTokenizer pre_tokenizer, Bpe bpe)
    : added_(std::move(added)), pre_tokenizer_(std::move(pre_tokenizer)), bpe_(std::move(bpe)) {}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Load(const std::string& path) {
  DSV4_ASSIGN_OR_RETURN(const std::string json, ReadFile(path, kMaxTokenizerBytes));
  return FromJson(json, path);
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::FromJson(absl::string_view json,
                                                                     absl::string_view source) {
  DSV4_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(json, source, kMaxTokenizerBytes));
  if (!root.AsObject())
    return Corrupt(source, ": is of kind ", root.KindName(), "; expected an object");
  // "truncation" and "padding" are left behind by tools that prepare batches of text, and say
  // nothing of how a text is encoded.
  DSV4_RETURN_IF_ERROR(RequireNoNormalizer(root, source));
  DSV4_RETURN_IF_ERROR(CheckPostProcessor(root, source));
  DSV4_RETURN_IF_ERROR(RequireByteLevelDecoder(root, source));
  DSV4_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::FromJson(root, source));
  DSV4_ASSIGN_OR_RETURN(AddedTokens added, AddedTokens::FromJson(root, source));

  const std::string model_place = absl::StrCat(source, ": model");
  const JsonValue* model = root.Find("model");
  if (!model) return Corrupt(source, ": key \"model\" is missing");
  DSV4_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::FromJson(*model, model_place));
  DSV4_ASSIGN_OR_RETURN(Bpe bpe, Bpe::FromJson(*model, vocabulary, model_place));
  for (const AddedToken& token : added.tokens()) {
    DSV4_RETURN_IF_ERROR(
        vocabulary.Add(token.content, token.id, absl::StrCat(source, ": added_tokens")));
  }

  std::unique_ptr<Tokenizer> tokenizer(
      new Tokenizer(std::move(added), std::move(pre_tokenizer), std::move(bpe)));
  tokenizer->token_bytes_.reserve(vocabulary.tokens().size());
  for (const absl::string_view token : vocabulary.tokens()) {
    // A token outside the byte alphabet stands for its own text.
    tokenizer->token_bytes_.push_back(AlphabetBytes(token).value_or(std::string(token)));
  }
  for (const AddedToken& token : tokenizer->added_.tokens()) {
    tokenizer->token_bytes_[token.id] = token.content;
    tokenizer->added_ids_.try_emplace(token.content, token.id);
  }
  for (const std::string& token : tokenizer->token_bytes_) {
    tokenizer->max_token_bytes_ = std::max(tokenizer->max_token_bytes_, token.size());
  }
  return tokenizer;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  std::vector<int32_t> ids;
  DSV4_RETURN_IF_ERROR(EncodeTo(text, options, &ids));
  return ids;
}

absl::Status Tokenizer::EncodeTo(absl::string_view text, const EncodeOptions& options,
                                 std::vector<int32_t>* ids) const {
  constexpr size_t kMaxTextBytes = std::numeric_limits<int32_t>::max();
  if (text.size() > kMaxTextBytes) {
    return InvalidArgument("a text of ", text.size(), " bytes, at most ", kMaxTextBytes,
                           " can be encoded");
  }
  const size_t valid = ValidUtf8Prefix(text);
  if (valid < text.size()) return InvalidArgument("the text is not UTF-8 at byte ", valid);

  const size_t old_size = ids->size();
  MatchState match_state;
  Bpe::Scratch scratch;
  const auto encode_plain = [&](absl::string_view plain) {
    return pre_tokenizer_.Split(plain, match_state, [&](absl::string_view word) {
      bpe_.Encode(word, scratch, *ids);
      return absl::OkStatus();
    });
  };
  const absl::Status status =
      options.added_tokens
          ? added_.Split(text, encode_plain, [&](int32_t id) { ids->push_back(id); })
          : encode_plain(text);
  if (!status.ok()) ids->resize(old_size);
  return status;
}

absl::StatusOr<std::string> Tokenizer::Decode(absl::Span<const int32_t> ids,
                                              const DecodeOptions& options) const {
  std::string bytes;
  for (const int32_t id : ids) {
    DSV4_ASSIGN_OR_RETURN(const absl::string_view token, TokenBytes(id));
    if (options.skip_special_tokens && IsSpecial(id)) continue;
    bytes.append(token.data(), token.size());
  }
  std::string text;
  text.reserve(bytes.size());
  if (AppendRepairedUtf8(bytes, &text) < bytes.size()) {
    text.append(kReplacementCharacter.data(), kReplacementCharacter.size());
  }
  return text;
}

absl::StatusOr<absl::string_view> Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    return InvalidArgument("token id ", id, " is not in [0, ", vocab_size(), ")");
  }
  if (!HasToken(id)) return InvalidArgument("token id ", id, " is not in the vocabulary");
  return absl::string_view(token_bytes_[id]);
}

bool Tokenizer::IsSpecial(int32_t id) const { return added_.IsSpecial(id); }

std::optional<int32_t> Tokenizer::FindAddedToken(absl::string_view content) const {
  const auto it = added_ids_.find(content);
  return it == added_ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

bool Tokenizer::HasToken(int32_t id) const {
  return id >= 0 && id < vocab_size() && !token_bytes_[id].empty();
}

}  // namespace dsv4
