/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one mutable timeline of tokens with its key/value rows. It belongs to one thread at a
 * time (it may change threads between calls; a call while another runs on it returns BUSY, but for
 * dsv4_session_cancel). Sessions of one engine may be used from several threads at once: what they
 * compute at the same time is computed together, and no bit of a session depends on the others.
 */
#ifndef DSV4_SESSION_H_
#define DSV4_SESSION_H_

#include <dsv4/sampling.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_session dsv4_session;

/* How a session is opened. */
typedef struct dsv4_session_options {
  uint32_t struct_size;
  uint32_t reserved;             /* 0 */
  const dsv4_sampling* sampling; /* NULL: the model's defaults */
  /* The session shares prefixes with sessions of the same salt alone: to keep users apart who must
   * not learn from the time that a prompt takes what others asked. */
  uint64_t cache_salt;
} dsv4_session_options;
#define DSV4_SESSION_OPTIONS_INIT \
  { sizeof(dsv4_session_options), 0, NULL, 0 }

/* Opens an empty session. `options` may be NULL. Errors: INVALID_ARGUMENT (names the field),
 * UNSUPPORTED (stop strings without a tokenizer), OUT_OF_BLOCKS (max_sessions are open),
 * OUT_OF_HOST_MEMORY. */
DSV4_API dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_session_options* options,
                                       dsv4_session** session, dsv4_error** error) DSV4_NOEXCEPT;

/* Accepts NULL. */
DSV4_API void dsv4_session_close(dsv4_session* session) DSV4_NOEXCEPT;

/* Another session that goes on like this one: timeline, text held back, sampling parameters, seed
 * and token mask are the same; key/value rows are shared, not copied. Each then goes its own way. A
 * session on messages gives another one on messages. Errors as dsv4_session_open. */
DSV4_API dsv4_status dsv4_session_fork(dsv4_session* session, dsv4_session** fork,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Replaces the sampling parameters from the next token on. */
DSV4_API dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* The parameters in effect: where 0 means another value, that one, and the model's defaults for a
 * session that was given none. The arrays are views that live until the next non-const call on the
 * session; stop_string_lengths is set. */
DSV4_API dsv4_status dsv4_session_get_sampling(const dsv4_session* session, dsv4_sampling* sampling,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* Says which tokens may come next: clears in `allowed` the bits of those that must not. Token t is
 * bit t % 32 of allowed[t / 32], 0 <= t < vocab_size; all `words` words come with all bits set.
 * `tokens[0..count)` is the timeline, of it the first `prompt_tokens` the prompt; the others may be
 * drafts, so the answer must depend on the arguments alone. Called for each token and each draft,
 * on the thread of the call that steps the session, and must not call into it; to prefill or step
 * another session of the engine is BUSY there, also through dsv4_engine_step. A non-zero return
 * cancels the step (DSV4_ERR_CANCELLED). */
typedef int32_t (*dsv4_token_mask_fn)(void* user, const int32_t* tokens, size_t count,
                                      int64_t prompt_tokens, uint32_t* allowed, size_t words);

/* From the next token on; NULL allows all tokens again; what `user` points to must live until then.
 * A step at which no token is allowed that could be chosen is INVALID_ARGUMENT. A fork calls `mask`
 * with the same `user`, perhaps at the same time. */
DSV4_API dsv4_status dsv4_session_set_token_mask(dsv4_session* session, dsv4_token_mask_fn mask,
                                                 void* user, dsv4_error** error) DSV4_NOEXCEPT;

/* What a sync keeps besides key/value rows. */
typedef struct dsv4_sync_options {
  uint32_t struct_size;
  int32_t log_probs_count; /* this many of the most likely tokens at each position too; 0 to 20 */
  /* Log-probabilities of the tokens from this position on are kept for dsv4_session_log_probs, once
   * they are computed: none of their rows is reused. 1 to the last position (nothing comes before
   * token 0); 0 = none. */
  int64_t log_probs_begin;
} dsv4_sync_options;
#define DSV4_SYNC_OPTIONS_INIT \
  { sizeof(dsv4_sync_options), 0, 0 }

/* Why a sync reused no more tokens. */
typedef int32_t dsv4_reuse_limit;
#define DSV4_REUSE_ALL ((dsv4_reuse_limit)0)        /* it reused all of them */
#define DSV4_REUSE_LAST_TOKEN ((dsv4_reuse_limit)1) /* the rest is computed for its logits */
#define DSV4_REUSE_DIFFERENT ((dsv4_reuse_limit)2)  /* the session's own tokens go on otherwise */
#define DSV4_REUSE_NO_RESTORE_POINT ((dsv4_reuse_limit)3) /* rows, but no state to go on from */
#define DSV4_REUSE_NOT_CACHED ((dsv4_reuse_limit)4)       /* never seen, or evicted since */
#define DSV4_REUSE_INCOMPLETE_BLOCK ((dsv4_reuse_limit)5) /* fewer than 256 tokens follow */

/* What a sync found and left to do. */
typedef struct dsv4_sync_result {
  uint32_t struct_size;
  uint32_t reserved;      /* 0 */
  int64_t common_tokens;  /* the new list and the session agree on this many */
  int64_t reused_tokens;  /* tokens of the new list whose key/value rows are at hand */
  int64_t pending_tokens; /* tokens left to prefill */

  int64_t prefix_cache_tokens; /* of reused_tokens, from the engine's prefix cache */
  int64_t limit_position;      /* up to here the tokens are known; `limit` says what ends there */
  dsv4_reuse_limit limit;
  int32_t reserved2; /* 0 */
} dsv4_sync_result;
#define DSV4_SYNC_RESULT_INIT \
  { sizeof(dsv4_sync_result), 0, 0, 0, 0, 0, 0, 0, 0 }

/* Makes the session's timeline equal to the whole list `tokens[0..count)`. Key/value rows of the
 * common prefix are kept up to the last restore point in it (see dsv4_session_rewind); where the
 * engine's prefix cache, which all its sessions share, reaches further, its rows are taken.
 * Computes nothing. `options` and `result` may be NULL. Errors (the session stays as it was):
 * INVALID_ARGUMENT for an empty list, an id outside the vocabulary or an option out of its range,
 * CONTEXT_FULL beyond context_tokens. */
DSV4_API dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t count,
                                       const dsv4_sync_options* options, dsv4_sync_result* result,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Goes back to the first `position` tokens, 0 to as many as there are; text, penalties and limits
 * are then as if no more had ever been generated. *pending (may be NULL) receives how many of them
 * have to be computed again, which the next prefill or step does: those after the last restore
 * point at or before `position`, at least the last one. Restore points are every multiple of 256 in
 * the last 2048 tokens, every multiple of 4096 before, the end of every turn and the place before
 * the last token of its prompt; of these two kinds the last 8 are certain, earlier ones stay until
 * the cache is short of memory. Computes nothing. INVALID_ARGUMENT for other positions. */
DSV4_API dsv4_status dsv4_session_rewind(dsv4_session* session, int64_t position, int64_t* pending,
                                         dsv4_error** error) DSV4_NOEXCEPT;

/* Computes pending tokens, up to `max_tokens` of them (0 = all), in chunks. *pending (may be NULL)
 * receives how many are left. On CANCELLED (by `progress`, which may be NULL, or by
 * dsv4_session_cancel) and OUT_OF_BLOCKS the chunks done so far are kept. */
DSV4_API dsv4_status dsv4_session_prefill(dsv4_session* session, int64_t max_tokens,
                                          dsv4_progress_fn progress, void* progress_user,
                                          int64_t* pending, dsv4_error** error) DSV4_NOEXCEPT;

typedef int32_t dsv4_finish;
#define DSV4_FINISH_NONE ((dsv4_finish)0)         /* call again */
#define DSV4_FINISH_STOP ((dsv4_finish)1)         /* the model ended its turn, or a stop did */
#define DSV4_FINISH_LENGTH ((dsv4_finish)2)       /* max_tokens reached */
#define DSV4_FINISH_CONTEXT_FULL ((dsv4_finish)3) /* the context holds no further token */
/* As STOP, but the turn calls tools: dsv4_session_step_events alone, which reads them. */
#define DSV4_FINISH_TOOL_CALL ((dsv4_finish)4)
/* The call failed, as CANCELLED or otherwise; not the end of the turn: a further call goes on. */
#define DSV4_FINISH_CANCELLED ((dsv4_finish)5)
#define DSV4_FINISH_ERROR ((dsv4_finish)6)

/* What a step gave. */
typedef struct dsv4_step_result {
  uint32_t struct_size;
  int32_t token; /* the token that this step added; -1: none (dsv4_engine_step, or a failure) */
  dsv4_finish finish;
  uint32_t text_length; /* bytes of text */
  /* The text that became complete with this token: whole UTF-8 characters, never the end-of-turn
   * token; "" while a character is unfinished or without a tokenizer. Text that may be the
   * beginning of a stop string is held back for a later token; the one that finishes the turn gives
   * all that is held, up to the stop string. NUL-terminated. A view that lives until the next call
   * on the session. */
  const char* text;
} dsv4_step_result;
#define DSV4_STEP_RESULT_INIT \
  { sizeof(dsv4_step_result), 0, 0, 0, NULL }

/* Computes what is pending, chooses one token and appends it to the timeline.
 *
 * With drafts (dsv4_sampling.draft_tokens) one forward may choose several tokens. They are still
 * delivered one by one: the calls that deliver the further ones compute nothing. Until then they
 * are in neither the timeline nor the text, and a change of the session drops them. Drafts change
 * how fast tokens come, not which.
 *
 * Errors, after which the session goes on where it was: INVALID_ARGUMENT when the session is empty
 * or no token may come, CONTEXT_FULL when no further token fits, OUT_OF_BLOCKS, CANCELLED. What was
 * computed of the prompt is kept. *result then has no token, no text and a finish of its own:
 * CONTEXT_FULL, CANCELLED or ERROR; after BUSY and a wrong argument it is as it was. BUSY also on a
 * thread that is in a token mask's callback of a step of the engine. */
DSV4_API dsv4_status dsv4_session_step(dsv4_session* session, dsv4_step_result* result,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Steps `sessions[0..count)`, distinct ones of `engine`, in one pass: for hosts with one thread.
 * results[i] and statuses[i] are what dsv4_session_step would give for sessions[i]; but where a
 * prompt is pending the pass takes a part of it only, and without an error the token is -1: call
 * again. Prompts share prefill_chunk_tokens fairly and do not hold up the others. A session's
 * failure is its own: `errors`, which may be NULL, receives its owned error (NULL where there is
 * none).
 *
 * Errors of the call itself, before anything is computed: INVALID_ARGUMENT for a session that is
 * NULL, named twice or of another engine, or a bad struct; BUSY when a session is in use, or as of
 * dsv4_session_step; OUT_OF_HOST_MEMORY. Then all statuses are that code and all `errors` NULL
 * (unless an array is NULL), and nothing else is written. Concurrent, like dsv4_session_step, with
 * calls on other sessions. */
DSV4_API dsv4_status dsv4_engine_step(dsv4_engine* engine, dsv4_session* const* sessions,
                                      size_t count, dsv4_step_result* const* results,
                                      dsv4_status* statuses, dsv4_error** errors,
                                      dsv4_error** error) DSV4_NOEXCEPT;

/* Ends the dsv4_session_prefill or step that another thread is in on this session, as CANCELLED,
 * after at most one layer of what is being computed (a pass takes up to prefill_chunk_tokens rows
 * of prompts, and of each session a token and its drafts); a pass whose layers are done completes.
 * On backend CUDA layers are handed to the device ahead of time: a pass that has begun completes.
 * What was computed before is kept, and the session goes on from there with the tokens it would
 * have had. A pass that other sessions share is computed again without this one.
 *
 * May be called by any thread at any time between open and close, from signal handlers and
 * callbacks too. Harmless when nothing runs: a call that begins later is not cancelled. Accepts
 * NULL. */
DSV4_API void dsv4_session_cancel(dsv4_session* session) DSV4_NOEXCEPT;

/* Stops the session for good: as dsv4_session_cancel, and each dsv4_session_prefill and step that
 * begins later is CANCELLED before it computes or delivers anything, until dsv4_session_resume. For
 * hosts that end a request from another thread and cannot know whether a call is running. Other
 * functions work as before; a fork is not stopped. Both may be called as dsv4_session_cancel. */
DSV4_API void dsv4_session_stop(dsv4_session* session) DSV4_NOEXCEPT;

/* Takes dsv4_session_stop back: the session goes on where it was. */
DSV4_API void dsv4_session_resume(dsv4_session* session) DSV4_NOEXCEPT;

/* The timeline: a view that lives until the next non-const call on the session. Like the other
 * functions on a const session it may be called by several threads at once, but not while the
 * session computes (BUSY). */
DSV4_API dsv4_status dsv4_session_tokens(const dsv4_session* session, const int32_t** tokens,
                                         size_t* count, dsv4_error** error) DSV4_NOEXCEPT;

/* Natural log-probabilities under the unmodified logits: of the token at `position` of the timeline
 * to *log_prob, and of the most likely tokens there, most likely first, ties by the lowest id, up
 * to `capacity` of them to `top_tokens` and `top_log_probs` (both may be NULL when it is 0).
 * *top_count (may be NULL) receives how many there are.
 *
 * They are at hand for the last token, when a step added it with dsv4_sampling.log_probs set, until
 * the next non-const call on the session; and for the prompt's tokens that the last sync asked for,
 * as far as they are computed, until the next sync or a rewind before them. For other positions
 * NOT_FOUND. Forks have them of the last token alone. */
DSV4_API dsv4_status dsv4_session_log_probs(const dsv4_session* session, int64_t position,
                                            float* log_prob, int32_t* top_tokens,
                                            float* top_log_probs, size_t capacity,
                                            size_t* top_count, dsv4_error** error) DSV4_NOEXCEPT;

/* Why a session drafts no more, until its next sync. */
typedef int32_t dsv4_draft_stop;
#define DSV4_DRAFT_STOP_NONE ((dsv4_draft_stop)0)
/* Fewer than 7 of the last 64 drafts were accepted: verifying them costs more than it saves. */
#define DSV4_DRAFT_STOP_FEW_ACCEPTED ((dsv4_draft_stop)1)

/* Saves the session: timeline, key/value rows, states and logits. A session of any engine with the
 * same model, numerics and cache format, with the checkpoint's drafter planned or not as here, goes
 * on from them with the same logits, bit for bit. A grammar is saved, and how far the output is in
 * it. Not saved: the other sampling parameters, the token mask, restore points, messages (of a
 * session on messages), and drafts, with the tokens that they led to and that were not delivered
 * yet: the session that loads chooses these by its own rules.
 *
 * The file holds the conversation in the clear; it is readable by its owner only. It appears at
 * `path` (a symbolic link is followed), over what was there, when it is whole and on the disk: a
 * process that is killed meanwhile leaves what was there before, and perhaps a file
 * PATH.XXXXXX.tmp. About as long as cache_bytes.
 * `progress` may be NULL. Errors, after which `path` is as it was: NOT_FOUND (its folder), IO,
 * INVALID_ARGUMENT (a device, fifo, socket or folder is at `path`), CANCELLED (by `progress`). */
DSV4_API dsv4_status dsv4_session_save(const dsv4_session* session, const char* path,
                                       dsv4_progress_fn progress, void* progress_user,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* The same content to memory: *needed bytes, written when `capacity` holds them all. */
DSV4_API dsv4_status dsv4_session_save_memory(const dsv4_session* session, uint8_t* data,
                                              size_t capacity, size_t* needed,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* The session becomes the one that was saved; its sampling parameters, mask and salt stay, except
 * that a saved grammar takes the place of its own, and its statistics begin with the saved prompt.
 * A grammar of its own, where none was saved, begins with the next token. What it computes from
 * then on is not offered to other sessions by the prefix cache. Saved sessions are untrusted: all
 * of it is checked before anything changes. `progress` may be NULL. Errors, after which the session
 * is as it was: NOT_FOUND, IO, CORRUPT (no saved session, cut off, damaged), VERSION_MISMATCH (of
 * another format, model, tokenizer or cache format; the message says which), UNSUPPORTED (a saved
 * grammar that this library refuses), CONTEXT_FULL, OUT_OF_BLOCKS, CANCELLED (by `progress`),
 * INVALID_ARGUMENT.
 *
 * A session on messages keeps its messages: open it on those of the conversation that was saved. It
 * takes what of the saved timeline their prompt has in common with it, the assistant's turns as
 * they were sampled among it; dsv4_session_get_stats tells how many tokens that are. */
DSV4_API dsv4_status dsv4_session_load(dsv4_session* session, const char* path,
                                       dsv4_progress_fn progress, void* progress_user,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* The same of `size` bytes of memory, as dsv4_session_save_memory wrote them. */
DSV4_API dsv4_status dsv4_session_load_memory(dsv4_session* session, const uint8_t* data,
                                              size_t size, dsv4_error** error) DSV4_NOEXCEPT;

/* What a session holds, and what it has done since its last sync. */
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

  int64_t prefix_cache_tokens; /* of cached_tokens, from the engine's prefix cache */
  /* Since the last sync. */
  int64_t drafted_tokens;   /* that were verified */
  int64_t accepted_tokens;  /* of those */
  int64_t draft_steps;      /* forwards that verified drafts */
  double acceptance_length; /* tokens chosen per draft_steps, one more than accepted; 0 without */
  double first_acceptance;  /* share of draft_steps that accepted their first draft; 0 without */
  dsv4_draft_stop draft_stop;
  int32_t reserved2; /* 0 */
} dsv4_session_stats;
#define DSV4_SESSION_STATS_INIT \
  { sizeof(dsv4_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* What the session holds and has done. Threads as dsv4_session_tokens. */
DSV4_API dsv4_status dsv4_session_get_stats(const dsv4_session* session, dsv4_session_stats* stats,
                                            dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SESSION_H_ */
