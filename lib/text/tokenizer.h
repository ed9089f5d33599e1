// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back: the byte-level BPE of a tokenizer.json of the HF tokenizers library,
// as far as this model family uses that format. It owns vocabulary, pre-tokenizer and added tokens;
// which of the tokens structure a chat is chat_encoder.h's, where sampled ids come from is
// lib/sampling's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/base/hash_table.h"
#include "lib/text/added_tokens.h"
#include "lib/text/bpe.h"
#include "lib/text/pre_tokenizer.h"

namespace dsv4 {

struct EncodeOptions {
  // Off: the text is plain, and no added token (special or not) comes out of it, whatever it
  // spells. The only safe choice for text that a user, a tool or a model wrote.
  bool added_tokens = false;
};

struct DecodeOptions {
  bool skip_special_tokens = false;  // leaves out the added tokens with `special: true`
};

// Immutable: every member function may be called from several threads at once.
class Tokenizer {
 public:
  // Reads the file `path`, a tokenizer.json. NotFound, IoError, and FromJson's errors.
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> Load(const std::string& path);

  // `source` names the document in messages. Corrupt: not JSON, longer than kMaxTokenizerBytes, a
  // missing or ill-typed key, a duplicate id, a merge of unknown tokens. Unsupported, by name: a
  // feature of the format that this family does not use (another normalizer, model or pre-tokenizer
  // step, dropout, byte fallback, ...).
  static absl::StatusOr<std::unique_ptr<const Tokenizer>> FromJson(absl::string_view json,
                                                                   absl::string_view source);

  // Adds no token of its own, such as begin of sentence. Time is linear in the text, times
  // log(length) within one word. InvalidArgument for text that is not UTF-8 (names the byte
  // offset).
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options = {}) const;

  // The same, appended to `ids`, which keeps its old content on error.
  absl::Status EncodeTo(absl::string_view text, const EncodeOptions& options,
                        std::vector<int32_t>* ids) const;

  // Always valid UTF-8: bytes that form no character become U+FFFD, one per maximal ill-formed run.
  // InvalidArgument for an id without a token. See streaming_decoder.h for one id at a time.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> ids,
                                     const DecodeOptions& options = {}) const;

  // Bytes of one token, not always whole UTF-8 characters; valid as long as the tokenizer.
  // InvalidArgument, naming the id, when it is negative, at or beyond vocab_size(), or has no
  // token.
  absl::StatusOr<absl::string_view> TokenBytes(int32_t id) const;

  // Whether `id` is an added token with `special: true`; false for ids without a token.
  bool IsSpecial(int32_t id) const;

  // Id of the added token (special or not) that is spelled `content`.
  std::optional<int32_t> FindAddedToken(absl::string_view content) const;

  // Ids lie in [0, max_id()]; there may be gaps, for which HasToken is false.
  int32_t max_id() const { return vocab_size() - 1; }
  int32_t vocab_size() const { return static_cast<int32_t>(token_bytes_.size()); }
  bool HasToken(int32_t id) const;
  size_t max_token_bytes() const { return max_token_bytes_; }  // of the longest token

 private:
  Tokenizer(AddedTokens added, PreTokenizer pre_tokenizer, Bpe bpe);

  AddedTokens added_;
  StringMap<int32_t> added_ids_;  // by content
  PreTokenizer pre_tokenizer_;
  Bpe bpe_;
  std::vector<std::string> token_bytes_;  // by id; empty for a gap
  size_t max_token_bytes_ = 0;
};

inline constexpr int64_t kMaxTokenizerBytes = int64_t{256} << 20;

}  // namespace dsv4
