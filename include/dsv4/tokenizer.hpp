// SPDX-License-Identifier: Apache-2.0
//
// Conversion between text and token ids.
#ifndef DSV4_TOKENIZER_HPP_
#define DSV4_TOKENIZER_HPP_

#include <dsv4/tokenizer.h>
#include <dsv4/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsv4 {
inline namespace cpp {

// A view of a tokenizer that an engine or a Tokenizer owns. All functions may run concurrently.
class TokenizerView {
 public:
  // Views a C handle.
  explicit TokenizerView(const dsv4_tokenizer* tokenizer) noexcept : tokenizer_(tokenizer) {}

  // Encodes text. `flags`: DSV4_ENCODE_PLAIN for untrusted text, DSV4_ENCODE_ADDED_TOKENS for
  // trusted prompts.
  std::vector<int32_t> Encode(std::string_view text, uint32_t flags = DSV4_ENCODE_PLAIN) const {
    return detail::ReadAll<std::vector<int32_t>>(
        text.size() / 2 + 16, [&](int32_t* ids, std::size_t capacity, std::size_t* count) {
          detail::Call(dsv4_tokenizer_encode, tokenizer_, text.data(), text.size(), flags, ids,
                       capacity, count);
        });
  }

  // Decodes tokens. An incomplete character becomes U+FFFD.
  std::string Decode(Span<const int32_t> ids) const {
    return detail::ReadAll<std::string>(
        ids.size() * 8, [&](char* text, std::size_t capacity, std::size_t* length) {
          detail::Call(dsv4_tokenizer_decode, tokenizer_, ids.data(), ids.size(), text, capacity,
                       length);
        });
  }

  // The bytes of one token, which may be a part of a character.
  std::string TokenBytes(int32_t id) const {
    return detail::ReadAll<std::string>(
        32, [&](char* bytes, std::size_t capacity, std::size_t* length) {
          detail::Call(dsv4_tokenizer_get_token_bytes, tokenizer_, id, bytes, capacity, length);
        });
  }

  // The id of the added token whose text is `text`, for example "</think>". -1 if there is none.
  int32_t AddedToken(const std::string& text) const noexcept {
    return dsv4_tokenizer_get_added_token(tokenizer_, text.c_str());
  }

  // The size of the vocabulary: the highest token id plus one.
  int32_t vocab_size() const noexcept { return dsv4_tokenizer_get_vocab_size(tokenizer_); }

  // The C handle.
  const dsv4_tokenizer* get() const noexcept { return tokenizer_; }

 protected:
  const dsv4_tokenizer* tokenizer_;
};

// A tokenizer that is opened without an engine.
class Tokenizer : public TokenizerView {
 public:
  // `path`: a tokenizer.json or a model folder.
  explicit Tokenizer(const std::string& path) : TokenizerView(Open(path)) {}
  ~Tokenizer() { dsv4_tokenizer_close(const_cast<dsv4_tokenizer*>(tokenizer_)); }
  Tokenizer(Tokenizer&& other) noexcept : TokenizerView(std::exchange(other.tokenizer_, nullptr)) {}
  Tokenizer& operator=(Tokenizer&& other) noexcept {
    std::swap(tokenizer_, other.tokenizer_);
    return *this;
  }

 private:
  static dsv4_tokenizer* Open(const std::string& path) {
    detail::CheckAbi();
    dsv4_tokenizer* tokenizer = nullptr;
    detail::Call(dsv4_tokenizer_open, path.c_str(), &tokenizer);
    return tokenizer;
  }
};

}  // namespace cpp
}  // namespace dsv4

#endif  // DSV4_TOKENIZER_HPP_
