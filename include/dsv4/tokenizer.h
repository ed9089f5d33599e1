/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversion between text and token ids, without an engine or a GPU. All functions on an open
 * tokenizer may run concurrently.
 */
#ifndef DSV4_TOKENIZER_H_
#define DSV4_TOKENIZER_H_

#include <dsv4/error.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_tokenizer dsv4_tokenizer;

/* Opens a tokenizer. `path` (UTF-8, NUL-terminated) names a tokenizer.json, a folder that holds
 * one, or a GGUF file, whose keys are read if no tokenizer.json lies beside it. On success the
 * caller owns *tokenizer. Errors: NOT_FOUND, IO, CORRUPT, UNSUPPORTED. */
DSV4_API dsv4_status dsv4_tokenizer_open(const char* path, dsv4_tokenizer** tokenizer,
                                         dsv4_error** error) DSV4_NOEXCEPT;

/* Closes the tokenizer. Accepts NULL. */
DSV4_API void dsv4_tokenizer_close(dsv4_tokenizer* tokenizer) DSV4_NOEXCEPT;

/* Flags of dsv4_tokenizer_encode. */
#define DSV4_ENCODE_PLAIN 0u        /* never produces an added token: for untrusted text */
#define DSV4_ENCODE_ADDED_TOKENS 1u /* markers become added tokens: for trusted prompts */

/* Encodes `length` bytes of UTF-8.
 * - ids: receives up to `capacity` token ids. May be NULL if capacity is 0.
 * - *count: receives the number of ids in the result. If it exceeds `capacity`, the call still
 *   succeeds; call again with more room.
 * Errors: INVALID_ARGUMENT for invalid UTF-8 (names the byte) and for unknown flags. */
DSV4_API dsv4_status dsv4_tokenizer_encode(const dsv4_tokenizer* tokenizer, const char* text,
                                           size_t length, uint32_t flags, int32_t* ids,
                                           size_t capacity, size_t* count,
                                           dsv4_error** error) DSV4_NOEXCEPT;

/* Decodes `count` ids to UTF-8. Added tokens give their text. An incomplete UTF-8 sequence gives
 * U+FFFD.
 * - text: receives up to `capacity` bytes, without a terminator.
 * - *length: receives the length of the result in bytes.
 * Errors: INVALID_ARGUMENT for an id outside the vocabulary (names it). */
DSV4_API dsv4_status dsv4_tokenizer_decode(const dsv4_tokenizer* tokenizer, const int32_t* ids,
                                           size_t count, char* text, size_t capacity,
                                           size_t* length, dsv4_error** error) DSV4_NOEXCEPT;

/* The bytes of one token. They may be a part of a UTF-8 character. The bytes of the tokens of an
 * encoded text, one after the other, are that text.
 * - bytes: receives up to `capacity` bytes, without a terminator.
 * - *length: receives the number of bytes of the token.
 * Errors: INVALID_ARGUMENT for an id outside the vocabulary (names it). */
DSV4_API dsv4_status dsv4_tokenizer_get_token_bytes(const dsv4_tokenizer* tokenizer, int32_t id,
                                                    char* bytes, size_t capacity, size_t* length,
                                                    dsv4_error** error) DSV4_NOEXCEPT;

/* The id of the added token whose text is `text` (NUL-terminated), for example "</think>". -1 if
 * there is none. */
DSV4_API int32_t dsv4_tokenizer_get_added_token(const dsv4_tokenizer* tokenizer,
                                                const char* text) DSV4_NOEXCEPT;

/* The size of the vocabulary: the highest token id plus one. */
DSV4_API int32_t dsv4_tokenizer_get_vocab_size(const dsv4_tokenizer* tokenizer) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_TOKENIZER_H_ */
