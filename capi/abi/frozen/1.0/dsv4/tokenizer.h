/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to token ids and back, without an engine or a GPU. All functions on an open tokenizer may be
 * called concurrently.
 */
#ifndef DSV4_TOKENIZER_H_
#define DSV4_TOKENIZER_H_

#include <dsv4/error.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_tokenizer dsv4_tokenizer;

/* Opens the tokenizer.json at `path`, a file or a model folder (UTF-8, NUL-terminated). On success
 * *tokenizer is owned by the caller. Errors: NOT_FOUND, IO, CORRUPT, UNSUPPORTED. */
DSV4_API dsv4_status dsv4_tokenizer_open(const char* path, dsv4_tokenizer** tokenizer,
                                         dsv4_error** error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_tokenizer_close(dsv4_tokenizer* tokenizer) DSV4_NOEXCEPT;

/* Flags of dsv4_tokenizer_encode. */
#define DSV4_ENCODE_PLAIN 0u        /* no added token is ever produced: for text from users */
#define DSV4_ENCODE_ADDED_TOKENS 1u /* markers become their ids: for trusted prompts */

/* Encodes `length` bytes of UTF-8. Writes up to `capacity` ids to `ids` (may be NULL when capacity
 * is 0) and the number needed to *count. Fewer written than needed is not an error: call again with
 * room for *count. Errors: INVALID_ARGUMENT for broken UTF-8 (names the byte) and unknown flags. */
DSV4_API dsv4_status dsv4_tokenizer_encode(const dsv4_tokenizer* tokenizer, const char* text,
                                           size_t length, uint32_t flags, int32_t* ids,
                                           size_t capacity, size_t* count,
                                           dsv4_error** error) DSV4_NOEXCEPT;

/* Decodes `count` ids to UTF-8 (added tokens by their text; incomplete sequences as U+FFFD). Writes
 * up to `capacity` bytes, without a terminator, and the number needed to *length. Errors:
 * INVALID_ARGUMENT for an id outside the vocabulary (names it). */
DSV4_API dsv4_status dsv4_tokenizer_decode(const dsv4_tokenizer* tokenizer, const int32_t* ids,
                                           size_t count, char* text, size_t capacity,
                                           size_t* length, dsv4_error** error) DSV4_NOEXCEPT;

/* The id of the added token with exactly this text (NUL-terminated), for example "</think>"; -1
 * when there is none. */
DSV4_API int32_t dsv4_tokenizer_added_token(const dsv4_tokenizer* tokenizer,
                                            const char* text) DSV4_NOEXCEPT;

/* One more than the highest token id. */
DSV4_API int32_t dsv4_tokenizer_vocab_size(const dsv4_tokenizer* tokenizer) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_TOKENIZER_H_ */
