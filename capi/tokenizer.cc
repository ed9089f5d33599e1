// SPDX-License-Identifier: Apache-2.0
// include/dsv4/tokenizer.h.
#include <dsv4/tokenizer.h>

#include <memory>
#include <string>

#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/struct_io.h"
#include "lib/base/status_macros.h"
#include "lib/text/tokenizer_files.h"

dsv4_status dsv4_tokenizer_open(const char* path, dsv4_tokenizer** tokenizer,
                                dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(path, "path"));
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_ASSIGN_OR_RETURN(const dsv4::TokenizerText text, dsv4::ReadTokenizer(path));
    auto handle = std::make_unique<dsv4_tokenizer>();
    DSV4_ASSIGN_OR_RETURN(handle->owned, dsv4::Tokenizer::FromJson(text.json, text.source));
    handle->tokenizer = handle->owned.get();
    handle->encoder = text.encoder.encoder;
    *tokenizer = handle.release();
    return absl::OkStatus();
  });
}

void dsv4_tokenizer_close(dsv4_tokenizer* tokenizer) noexcept { delete tokenizer; }

dsv4_status dsv4_tokenizer_encode(const dsv4_tokenizer* tokenizer, const char* text, size_t length,
                                  uint32_t flags, int32_t* ids, size_t capacity, size_t* count,
                                  dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArray(text, length, "text"));
    DSV4_RETURN_IF_ERROR(CheckArray(ids, capacity, "ids"));
    DSV4_RETURN_IF_ERROR(NotNull(count, "count"));
    if ((flags & ~DSV4_ENCODE_ADDED_TOKENS) != 0)
      return dsv4::InvalidValue("flags", " is ", flags, "; expected DSV4_ENCODE_ values");
    const dsv4::EncodeOptions options{.added_tokens = (flags & DSV4_ENCODE_ADDED_TOKENS) != 0};
    const absl::StatusOr<std::vector<int32_t>> encoded =
        tokenizer->tokenizer->Encode({text, length}, options);
    if (!encoded.ok()) return dsv4::WithArgument(encoded.status(), "text");
    CopyArrayOut(*encoded, ids, capacity, count);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_tokenizer_decode(const dsv4_tokenizer* tokenizer, const int32_t* ids, size_t count,
                                  char* text, size_t capacity, size_t* length,
                                  dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArray(ids, count, "ids"));
    DSV4_RETURN_IF_ERROR(CheckArray(text, capacity, "text"));
    DSV4_RETURN_IF_ERROR(NotNull(length, "length"));
    const absl::StatusOr<std::string> decoded = tokenizer->tokenizer->Decode({ids, count});
    if (!decoded.ok()) return dsv4::WithArgument(decoded.status(), "ids");
    CopyArrayOut(*decoded, text, capacity, length);
    return absl::OkStatus();
  });
}

dsv4_status dsv4_tokenizer_get_token_bytes(const dsv4_tokenizer* tokenizer, int32_t id, char* bytes,
                                           size_t capacity, size_t* length,
                                           dsv4_error** error) noexcept {
  using namespace dsv4::capi;
  return Guard(error, [&]() -> absl::Status {
    DSV4_RETURN_IF_ERROR(NotNull(tokenizer, "tokenizer"));
    DSV4_RETURN_IF_ERROR(CheckArray(bytes, capacity, "bytes"));
    DSV4_RETURN_IF_ERROR(NotNull(length, "length"));
    const absl::StatusOr<absl::string_view> token = tokenizer->tokenizer->TokenBytes(id);
    if (!token.ok()) return dsv4::WithArgument(token.status(), "id");
    CopyArrayOut(*token, bytes, capacity, length);
    return absl::OkStatus();
  });
}

int32_t dsv4_tokenizer_get_added_token(const dsv4_tokenizer* tokenizer, const char* text) noexcept {
  if (tokenizer == nullptr || text == nullptr) return -1;
  return tokenizer->tokenizer->FindAddedToken(text).value_or(-1);
}

int32_t dsv4_tokenizer_get_vocab_size(const dsv4_tokenizer* tokenizer) noexcept {
  return tokenizer != nullptr ? tokenizer->tokenizer->vocab_size() : 0;
}
