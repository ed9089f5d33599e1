// SPDX-License-Identifier: Apache-2.0
// Converts text to token ids and back: byte-level BPE from a tokenizer.json of the HF tokenizers
// library. Supports the part of the format that this model family uses.
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
  // Whether the text may produce added tokens. False is the only safe choice for text of a user, a
  // tool or a model: it then never produces an added token, special or not.
  bool added_tokens = false;
};

struct DecodeOptions {
  bool skip_special_tokens = false;  // leaves out the added tokens with `special: true`
};

// Immutable. All member functions may run concurrently.
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

  // Encodes text. Does not add tokens such as begin of sentence. Time: O(n log w) for a text of n
  // bytes whose longest word has w bytes. Errors: InvalidArgument for text that is not UTF-8 (names
  // the byte).
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options = {}) const;

  // Encode, appended to `ids`. An error leaves `ids` unchanged.
  absl::Status EncodeTo(absl::string_view text, const EncodeOptions& options,
                        std::vector<int32_t>* ids) const;

  // Decodes ids to valid UTF-8. Each maximal ill-formed run of bytes becomes one U+FFFD. Errors:
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
