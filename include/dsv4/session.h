/* SPDX-License-Identifier: Apache-2.0
 *
 * A session: one sequence of tokens and its KV cache.
 *
 * A session is used by one thread at a time. It may move between threads. A call while another one
 * runs on the session returns BUSY, except dsv4_session_set_stopped. Sessions of one engine may be
 * used from several threads: steps that run at the same time are computed as one batch, and no
 * result depends on the other sessions.
 */
#ifndef DSV4_SESSION_H_
#define DSV4_SESSION_H_

#include <dsv4/parser.h>
#include <dsv4/sampling.h>

DSV4_BEGIN_DECLS

typedef struct dsv4_session dsv4_session;

/* Options of dsv4_session_open. */
typedef struct dsv4_session_options {
  uint32_t struct_size;
  uint32_t reserved;             /* 0 */
  const dsv4_sampling* sampling; /* NULL: DSV4_SAMPLING_INIT */
  /* The prefix cache shares prefixes only between sessions of the same salt. With a salt for each
   * user, no user can learn from response times what others asked. */
  uint64_t cache_salt;
} dsv4_session_options;
#define DSV4_SESSION_OPTIONS_INIT \
  { sizeof(dsv4_session_options), 0, NULL, 0 }

/* Opens an empty session. `options` may be NULL. On success the caller owns *session. Errors:
 * INVALID_ARGUMENT (names the field), UNSUPPORTED (stop strings without a tokenizer), OUT_OF_BLOCKS
 * (max_sessions are open), OUT_OF_HOST_MEMORY. */
DSV4_API dsv4_status dsv4_session_open(dsv4_engine* engine, const dsv4_session_options* options,
                                       dsv4_session** session, dsv4_error** error) DSV4_NOEXCEPT;

/* Closes the session and returns its cache blocks. Accepts NULL. */
DSV4_API void dsv4_session_close(dsv4_session* session) DSV4_NOEXCEPT;

/* Opens a copy of the session. The copy has the same tokens, held-back text, sampling parameters,
 * seed, allowed tokens and messages. The KV cache is shared copy-on-write. Errors: those of
 * dsv4_session_open. */
DSV4_API dsv4_status dsv4_session_fork(dsv4_session* session, dsv4_session** fork,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Replaces the sampling parameters from the next token on. */
DSV4_API dsv4_status dsv4_session_set_sampling(dsv4_session* session, const dsv4_sampling* sampling,
                                               dsv4_error** error) DSV4_NOEXCEPT;

/* Restricts the next token to the bits of `words`: token t may be chosen if bit t % 32 of
 * words[t / 32] is 1. For hosts with a constraint engine of their own, which set it before each
 * step.
 * - count: a word for each 32 tokens of the vocabulary, the last one rounded up; 0 removes the
 *   restriction. The words are copied.
 * - It holds for one token. A sync, a rewind and a load remove it, too. A step that fails keeps it.
 *   A fork has it, a saved session does not.
 * - Drafts pause while it is set, and tokens that were chosen but not delivered are dropped.
 * - The grammar, bans and forced tokens hold too. The step fails with INVALID_ARGUMENT if no token
 *   is left to choose.
 * Errors: INVALID_ARGUMENT for another count. */
DSV4_API dsv4_status dsv4_session_set_allowed(dsv4_session* session, const uint32_t* words,
                                              size_t count, dsv4_error** error) DSV4_NOEXCEPT;

/* Options of dsv4_session_sync. */
typedef struct dsv4_sync_options {
  uint32_t struct_size;
  int32_t log_probs_count; /* most likely tokens to report at each position, 0 to 20 */
  /* First position of the prompt whose log-probabilities dsv4_session_get_log_probs will return.
   * Tokens from there on are computed again, not reused. 1 to the last position, because token 0
   * has no prediction; 0 = none. */
  int64_t log_probs_begin;
} dsv4_sync_options;
#define DSV4_SYNC_OPTIONS_INIT \
  { sizeof(dsv4_sync_options), 0, 0 }

/* Why a sync did not reuse more tokens. */
typedef int32_t dsv4_reuse_limit;
#define DSV4_REUSE_ALL ((dsv4_reuse_limit)0)              /* all tokens are reused */
#define DSV4_REUSE_LAST_TOKEN ((dsv4_reuse_limit)1)       /* the last token's logits are needed */
#define DSV4_REUSE_DIFFERENT ((dsv4_reuse_limit)2)        /* the session's next token differs */
#define DSV4_REUSE_NO_RESTORE_POINT ((dsv4_reuse_limit)3) /* no restore point at the position */
#define DSV4_REUSE_NOT_CACHED ((dsv4_reuse_limit)4)       /* never computed, or evicted */
#define DSV4_REUSE_INCOMPLETE_BLOCK ((dsv4_reuse_limit)5) /* fewer than 256 tokens follow */

/* Result of dsv4_session_sync. */
typedef struct dsv4_sync_result {
  uint32_t struct_size;
  dsv4_reuse_limit limit;      /* why KV rows end at limit_position */
  int64_t common_tokens;       /* common prefix of the new tokens and the session's old ones */
  int64_t reused_tokens;       /* new tokens whose KV rows are reused */
  int64_t pending_tokens;      /* new tokens left to compute */
  int64_t prefix_cache_tokens; /* part of reused_tokens that came from the engine's prefix cache */
  /* KV rows exist for the tokens before this position. Reuse ends at a restore point at or before
   * it: if 700 of 1000 new tokens match the session's 900 old ones and the last restore point is at
   * 512, limit_position is 700, `limit` is DIFFERENT and reused_tokens is 512. */
  int64_t limit_position;
} dsv4_sync_result;
#define DSV4_SYNC_RESULT_INIT \
  { sizeof(dsv4_sync_result), 0, 0, 0, 0, 0, 0 }

/* Sets the session's tokens to `tokens[0..count)`, the whole prompt.
 * - KV rows of the common prefix are kept up to its last restore point (see dsv4_session_rewind).
 *   If the engine's prefix cache has a longer prefix, its rows are used instead.
 * - Computes nothing. The next prefill or step computes the pending tokens.
 * - options, result: may be NULL.
 * Errors, which leave the session unchanged: INVALID_ARGUMENT for an empty list, an id outside the
 * vocabulary or an option out of range; CONTEXT_FULL for more than context_tokens tokens. */
DSV4_API dsv4_status dsv4_session_sync(dsv4_session* session, const int32_t* tokens, size_t count,
                                       const dsv4_sync_options* options, dsv4_sync_result* result,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Truncates the session to its first `position` tokens. The removed tokens no longer affect text,
 * penalties and limits.
 *
 * Computes nothing. *pending (may be NULL) receives the number of tokens that the next prefill or
 * step will compute again. These are the tokens after the last restore point at or before
 * `position`, and at least the last token. Restore points exist at
 * - every multiple of 256 within the last 2048 tokens,
 * - every multiple of 4096 before those,
 * - the end of each turn, and the position before the last token of each prompt. The last 8 of
 *   these are always kept; earlier ones are dropped when the cache needs their memory.
 * Errors: INVALID_ARGUMENT if `position` is negative or beyond the end. */
DSV4_API dsv4_status dsv4_session_rewind(dsv4_session* session, int64_t position, int64_t* pending,
                                         dsv4_error** error) DSV4_NOEXCEPT;

/* Computes up to `max_tokens` pending tokens (0 = all), in chunks.
 * - *pending (may be NULL): receives the number of tokens left.
 * - progress: may be NULL.
 * Errors: those of dsv4_session_step. After CANCELLED (by `progress` or dsv4_session_set_stopped)
 * and OUT_OF_BLOCKS, completed chunks are kept. */
DSV4_API dsv4_status dsv4_session_prefill(dsv4_session* session, int64_t max_tokens,
                                          dsv4_progress_fn progress, void* progress_user,
                                          int64_t* pending, dsv4_error** error) DSV4_NOEXCEPT;

typedef int32_t dsv4_finish;
#define DSV4_FINISH_NONE ((dsv4_finish)0)         /* the turn continues: call again */
#define DSV4_FINISH_STOP ((dsv4_finish)1)         /* the model's end token, or a stop */
#define DSV4_FINISH_LENGTH ((dsv4_finish)2)       /* max_tokens reached */
#define DSV4_FINISH_CONTEXT_FULL ((dsv4_finish)3) /* context_tokens reached */
/* STOP in a turn that calls tools; only for sessions on messages. */
#define DSV4_FINISH_TOOL_CALL ((dsv4_finish)4)
/* The call failed. The turn has not ended; the next call continues it. */
#define DSV4_FINISH_CANCELLED ((dsv4_finish)5)
#define DSV4_FINISH_ERROR ((dsv4_finish)6)

/* Result of a step. */
typedef struct dsv4_step_result {
  uint32_t struct_size;
  int32_t token; /* the new token; -1 if there is none (a pending prompt, or a failure) */
  dsv4_finish finish;
  uint32_t text_length; /* bytes */
  /* The text that this token completes: whole UTF-8 characters, NUL-terminated, without the
   * end-of-turn token. "" if a character is still incomplete, and without a tokenizer. Text that
   * may begin a stop string is held back; the last token of the turn releases it, up to the stop
   * string. A view that lives until the next call on the session. */
  const char* text;
} dsv4_step_result;
#define DSV4_STEP_RESULT_INIT \
  { sizeof(dsv4_step_result), 0, 0, 0, NULL }

/* Computes the pending tokens, chooses one token and appends it.
 * - callback: for a step of the assistant's turn, in a session on messages. Receives the events
 * that the token completes: see <dsv4/conversation.h>. NULL: a step on tokens, without events.
 * - result: may be NULL.
 *
 * With drafts (dsv4_sampling.draft_tokens) one forward pass may choose several tokens. They are
 * delivered one per call; the calls after the first compute nothing. Tokens that are not delivered
 * yet are not part of the session, and any change of the session drops them.
 *
 * Errors:
 * - INVALID_ARGUMENT: the session is empty, or no token may be chosen.
 * - CONTEXT_FULL: no further token fits.
 * - OUT_OF_BLOCKS, OUT_OF_HOST_MEMORY, CANCELLED, DEVICE_LOST.
 * - BUSY: another call runs on the session.
 * After an error the computed part of the prompt is kept and the next call continues. *result then
 * has no token, no text and the finish CONTEXT_FULL, CANCELLED or ERROR. BUSY and wrong arguments
 * leave *result unchanged. */
DSV4_API dsv4_status dsv4_session_step(dsv4_session* session, dsv4_parser_event_fn callback,
                                       void* user, dsv4_step_result* result,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Stops the session (1), or lets it compute again (0). While it is stopped, the running prefill or
 * step and all later ones return CANCELLED, the later ones before they compute or deliver anything.
 * So a thread that ends a request need not know whether a call is running. Other functions are not
 * affected, and a fork is not stopped.
 * - CPU: the running call ends within the time of one layer of its pass. CUDA: within the time of
 *   two layers if the pass has more than 64 tokens. A smaller pass runs to its end, which takes no
 *   longer than a decode step. A pass computes at most prefill_chunk_tokens prompt tokens and, for
 *   each session, one token and its drafts.
 * - Completed passes are kept. Afterwards the session continues where it was, with the same tokens
 *   as without the stop.
 * - Other sessions in the same pass are not affected; their part is computed again.
 * Threads: any thread, at any time between open and close, also from callbacks and signal handlers.
 * Accepts NULL. Any value but 0 stops. */
DSV4_API void dsv4_session_set_stopped(dsv4_session* session, int32_t stopped) DSV4_NOEXCEPT;

/* The session's tokens, a view that lives until the next non-const call on the session. Threads:
 * several at once, as for all functions on a const session. BUSY while the session computes. */
DSV4_API dsv4_status dsv4_session_get_tokens(const dsv4_session* session, const int32_t** tokens,
                                             size_t* count, dsv4_error** error) DSV4_NOEXCEPT;

/* Natural log-probabilities at `position`, computed from the unmodified logits.
 * - *log_prob: receives the log-probability of the session's token at that position.
 * - top_tokens, top_log_probs: [capacity] receive the most likely tokens, most likely first; equal
 *   ones in the order of their ids. Both may be NULL if capacity is 0.
 * - *top_count: receives how many most likely tokens are known. May be NULL.
 *
 * Log-probabilities are kept for two kinds of positions; others are NOT_FOUND:
 * - the last token, if a step added it with dsv4_sampling.log_probs set: until the next non-const
 *   call on the session;
 * - computed prompt tokens that the last sync asked for (dsv4_sync_options): until the next sync,
 *   or a rewind before them. Forks do not keep these. */
DSV4_API dsv4_status dsv4_session_get_log_probs(const dsv4_session* session, int64_t position,
                                                float* log_prob, int32_t* top_tokens,
                                                float* top_log_probs, size_t capacity,
                                                size_t* top_count,
                                                dsv4_error** error) DSV4_NOEXCEPT;

/* Saves the session to a file.
 *
 * Saved: tokens, KV cache, compressor states, logits, the grammar and the position in it. A session
 * that loads the file continues with the same logits, bit for bit. Both engines must have the same
 * model, numerics and cache format, and both or neither must have loaded the checkpoint's drafter.
 *
 * Not saved: other sampling parameters, the allowed tokens, restore points, messages, drafts, and
 * tokens that were chosen but not delivered yet. The loading session chooses those again.
 *
 * - The file is about dsv4_session_stats.cache_bytes long. It is not encrypted. Only its owner can
 *   read it.
 * - The file replaces `path` when it is complete and on the disk. If the process is killed before,
 *   the old file remains, possibly with a file PATH.XXXXXX.tmp. Symbolic links are followed.
 * - progress: may be NULL.
 * Errors, which leave `path` unchanged: NOT_FOUND (no such folder), IO, INVALID_ARGUMENT (`path`
 * exists and is not a regular file), CANCELLED (by `progress`). */
DSV4_API dsv4_status dsv4_session_save(const dsv4_session* session, const char* path,
                                       dsv4_progress_fn progress, void* progress_user,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Saves the session to memory. *needed receives the size in bytes. Nothing is written if it exceeds
 * `capacity`. */
DSV4_API dsv4_status dsv4_session_save_memory(const dsv4_session* session, uint8_t* data,
                                              size_t capacity, size_t* needed,
                                              dsv4_error** error) DSV4_NOEXCEPT;

/* Loads a saved session into this one.
 * - Replaced: tokens, KV cache, compressor states, logits, and the grammar if one was saved.
 * - Kept: sampling parameters and salt. If no grammar was saved, the session's own
 *   grammar starts over with the next token. Statistics start with the saved prompt.
 * - What this session computes afterwards does not enter the prefix cache.
 * - progress: may be NULL.
 * - The file is treated as untrusted: it is checked as a whole before the session changes.
 * Errors, which leave the session unchanged: NOT_FOUND, IO, CORRUPT (not a saved session, truncated
 * or damaged), VERSION_MISMATCH (another format, model, tokenizer or cache format; the message says
 * which), UNSUPPORTED (a saved grammar that this library refuses), CONTEXT_FULL, OUT_OF_BLOCKS,
 * CANCELLED (by `progress`), INVALID_ARGUMENT.
 *
 * A session on messages (<dsv4/conversation.h>) keeps its messages; sync it to those of the saved
 * conversation before. It reuses the longest common prefix of the saved tokens and the rendered
 * prompt. Assistant turns count as sampled. dsv4_session_get_stats reports how many tokens were
 * reused. */
DSV4_API dsv4_status dsv4_session_load(dsv4_session* session, const char* path,
                                       dsv4_progress_fn progress, void* progress_user,
                                       dsv4_error** error) DSV4_NOEXCEPT;

/* Loads a saved session from `size` bytes that dsv4_session_save_memory wrote. Errors: those of
 * dsv4_session_load. */
DSV4_API dsv4_status dsv4_session_load_memory(dsv4_session* session, const uint8_t* data,
                                              size_t size, dsv4_error** error) DSV4_NOEXCEPT;

/* Alarms of a session: signs of damaged weights or a faulty device. Each is raised at most once
 * after a sync, counted in dsv4_engine_metrics, and reported to the log as a warning. The text is
 * never changed. NONFINITE_LOGITS and FROZEN_LOGITS also fail the step (INTERNAL): no token is
 * chosen. CANARY belongs to the engine: all its sessions have it while the engine is open. */
typedef int32_t dsv4_alarms;
#define DSV4_ALARM_NONFINITE_LOGITS ((dsv4_alarms)1) /* a logit is NaN or infinite */
#define DSV4_ALARM_FROZEN_LOGITS ((dsv4_alarms)2)    /* 4 successive tokens had the same logits */
#define DSV4_ALARM_TOKEN_RUN ((dsv4_alarms)4)        /* one token 256 times in a row */
#define DSV4_ALARM_BOS_RUN ((dsv4_alarms)8)          /* the BOS token 4 times in a row */
/* The session stopped drafting until its next sync, because fewer than 7 of the last 64 drafts were
 * accepted: verification costs more than it saves. */
#define DSV4_ALARM_FEW_ACCEPTED ((dsv4_alarms)16)
#define DSV4_ALARM_CANARY ((dsv4_alarms)32) /* see DSV4_CANARY_FAILED */

/* Statistics of a session. Counts are since its last sync. */
typedef struct dsv4_session_stats {
  uint32_t struct_size;
  dsv4_alarms alarms;       /* raised since the last sync: bits of DSV4_ALARM_ */
  uint64_t seed;            /* in effect */
  int64_t context_tokens;   /* the most tokens that the session may have */
  int64_t used_tokens;      /* tokens that it has */
  int64_t prompt_tokens;    /* tokens of the last sync */
  int64_t cached_tokens;    /* part of prompt_tokens that was reused */
  int64_t prefilled_tokens; /* prompt tokens computed */
  int64_t generated_tokens;
  double prefill_seconds;
  double decode_seconds;
  uint64_t cache_bytes; /* cache blocks and compressor states of the session */

  int64_t prefix_cache_tokens; /* part of cached_tokens that came from the engine's prefix cache */
  int64_t drafted_tokens;      /* drafts verified */
  int64_t accepted_tokens;     /* drafts accepted */
  int64_t draft_steps;         /* forward passes that verified drafts */
  double acceptance_length;    /* tokens per draft step: 1 + accepted drafts; 0 without steps */
  double first_acceptance;     /* share of steps that accepted their first draft; 0 without steps */
} dsv4_session_stats;
#define DSV4_SESSION_STATS_INIT \
  { sizeof(dsv4_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Returns the session's statistics. Threads: as dsv4_session_get_tokens. */
DSV4_API dsv4_status dsv4_session_get_stats(const dsv4_session* session, dsv4_session_stats* stats,
                                            dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SESSION_H_ */
