/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one mutable timeline of tokens with its key/value rows. It belongs to one thread at a
 * time (it may change threads between calls; a call while another runs on it returns BUSY).
 * Sessions of one engine may be used from several threads at once.
 */
#ifndef DSV4_SESSION_H_
#define DSV4_SESSION_H_

#include <dsv4/sampling.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_session dsv4_session;

/* Opens an empty session with `sampling` (NULL: the model's defaults). Errors: INVALID_ARGUMENT
 * (names the field), OUT_OF_BLOCKS (max_sessions are open), OUT_OF_HOST_MEMORY. */
DSV4_API dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_sampling* sampling,
                                       dsv4_session** session, dsv4_error** error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_session_close(dsv4_session* session) DSV4_NOEXCEPT;

/* Replaces the sampling parameters from the next token on. */
DSV4_API dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                               dsv4_error** error) DSV4_NOEXCEPT;

typedef struct dsv4_sync_result {
  uint32_t struct_size;
  uint32_t reserved;      /* 0 */
  int64_t common_tokens;  /* the new list and the session agree on this many */
  int64_t reused_tokens;  /* of those, tokens whose key/value rows are kept */
  int64_t pending_tokens; /* tokens left to prefill */
} dsv4_sync_result;
#define DSV4_SYNC_RESULT_INIT \
  { sizeof(dsv4_sync_result), 0, 0, 0, 0 }

/* Makes the session's timeline equal to the whole list `tokens[0..count)`, keeping the key/value
 * rows of the common prefix as far as the session can go back: to its end, or to just
 * before the last token of the last prompt. Computes nothing. `result` may be NULL. Errors (the
 * session stays as it was): INVALID_ARGUMENT for an empty list or an id outside the vocabulary,
 * CONTEXT_FULL beyond context_tokens. */
DSV4_API dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t count,
                                       dsv4_sync_result* result, dsv4_error** error) DSV4_NOEXCEPT;

/* Computes pending tokens, up to `max_tokens` of them (0 = all), in chunks. *pending (may be NULL)
 * receives how many are left. On CANCELLED (by `progress`, which may be NULL) and OUT_OF_BLOCKS the
 * chunks done so far are kept. */
DSV4_API dsv4_status dsv4_session_prefill(dsv4_session* session, int64_t max_tokens,
                                          dsv4_progress_fn progress, void* progress_user,
                                          int64_t* pending, dsv4_error** error) DSV4_NOEXCEPT;

typedef int32_t dsv4_finish;
#define DSV4_FINISH_NONE ((dsv4_finish)0)         /* call again */
#define DSV4_FINISH_STOP ((dsv4_finish)1)         /* the model ended its turn */
#define DSV4_FINISH_LENGTH ((dsv4_finish)2)       /* max_tokens reached */
#define DSV4_FINISH_CONTEXT_FULL ((dsv4_finish)3) /* the context holds no further token */

typedef struct dsv4_step_result {
  uint32_t struct_size;
  int32_t token; /* the token that this step added */
  dsv4_finish finish;
  uint32_t text_length; /* bytes of text */
  /* The text that became complete with this token: whole UTF-8 characters, never the end-of-turn
   * token; "" while a character is unfinished or without a tokenizer. NUL-terminated. A view that
   * lives until the next call on the session. */
  const char* text;
} dsv4_step_result;
#define DSV4_STEP_RESULT_INIT \
  { sizeof(dsv4_step_result), 0, 0, 0, NULL }

/* Computes what is pending, samples one token and appends it to the timeline. Errors:
 * INVALID_ARGUMENT when the session is empty, CONTEXT_FULL when no further token fits,
 * OUT_OF_BLOCKS. */
DSV4_API dsv4_status dsv4_session_step(dsv4_session* session, dsv4_step_result* result,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* The timeline: a view that lives until the next non-const call on the session. Like the statistics
 * it may be read by several threads at once, but not while the session computes (BUSY). */
DSV4_API dsv4_status dsv4_session_tokens(const dsv4_session* session, const int32_t** tokens,
                                         size_t* count, dsv4_error** error) DSV4_NOEXCEPT;

typedef struct dsv4_session_stats {
  uint32_t struct_size;
  uint32_t reserved;        /* 0 */
  int64_t context_tokens;   /* limit */
  int64_t used_tokens;      /* length of the timeline */
  int64_t prompt_tokens;    /* of the last sync */
  int64_t cached_tokens;    /* of those, reused */
  int64_t prefilled_tokens; /* since the last sync */
  int64_t generated_tokens; /* since the last sync */
  double prefill_seconds;
  double decode_seconds;
  uint64_t cache_bytes; /* blocks held and compressor states */
} dsv4_session_stats;
#define DSV4_SESSION_STATS_INIT \
  { sizeof(dsv4_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

DSV4_API dsv4_status dsv4_session_get_stats(const dsv4_session* session, dsv4_session_stats* stats,
                                            dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SESSION_H_ */
