/* SPDX-License-Identifier: Apache-2.0
 *
 * How a session chooses the next token. Order: penalties (repetition, then frequency and presence),
 * bias, bans, temperature, top-k, top-p (of what top-k left), min-p, renormalise. Ties go to the
 * lowest id. The random numbers come from a counter (key: the seed; counter: the position), so the
 * same seed gives the same text whatever else runs.
 */
#ifndef DSV4_SAMPLING_H_
#define DSV4_SAMPLING_H_

#include <dsv4/engine.h>
#include <dsv4/grammar.h>

DSV4_BEGIN_DECLS

/* Sampling parameters; 0 in every field is greedy and without a limit. */
typedef struct dsv4_sampling {
  uint32_t struct_size;
  float temperature; /* >= 0; 0 = greedy: the most likely token */
  int32_t top_k;     /* keep the k most likely tokens; 0 = all */
  float top_p;       /* keep the most likely tokens that reach this share; (0, 1], 0 = 1 */
  float min_p;       /* drop tokens below this share of the most likely one's; [0, 1] */
  /* Tokens of the prompt and of the output so far: logits above 0 are divided by it, others are
   * multiplied. 0.01 to 100; 0 and 1 = off. */
  float repetition_penalty;
  uint64_t seed;
  int64_t max_tokens; /* stop with DSV4_FINISH_LENGTH after this many tokens; 0 = no limit */

  /* Taken off the logits of tokens of the output so far: once, and as often as they occur there.
   * The prompt, which does not count, is what the last sync or turn began with. -2 to 2. */
  float presence_penalty;
  float frequency_penalty;

  /* The arrays below are read during the call that they are given to. Ids outside the vocabulary
   * are INVALID_ARGUMENT. */
  /* Added to the logits of these tokens, -100 to 100; several entries of one token add up. */
  const int32_t* bias_tokens; /* [bias_count] */
  const float* biases;        /* [bias_count] */
  uint64_t bias_count;
  const int32_t* banned_tokens; /* [banned_count] never chosen */
  uint64_t banned_count;
  /* [forced_count] The output begins with these, whatever their probability. None may be banned or
   * without text. */
  const int32_t* forced_tokens;
  uint64_t forced_count;

  /* Where the prompt opens the reasoning, the token that ends it is forced after this many tokens
   * of it; 0 = no limit. */
  int64_t max_thinking_tokens;

  /* What ends the turn with DSV4_FINISH_STOP besides the model itself: any of these tokens, which
   * then gives no text; or one of these strings in the text, which then ends before it. The first
   * one complete counts, of several the longest. UTF-8, at most 16 of 1 to 256 bytes. */
  const int32_t* stop_tokens;
  uint64_t stop_token_count;
  const char* const* stop_strings;
  const uint64_t* stop_string_lengths; /* NULL: they are NUL-terminated */
  uint64_t stop_string_count;

  /* Above 0: the log-probability of each token is at hand (dsv4_session_log_probs), and those of
   * this many most likely tokens. They are of the model's logits as they are. 0 to 20. */
  int32_t log_probs;
  /* Most tokens that the model drafts for one forward to verify: 0 = none, up to the engine's
   * max_draft_tokens; a DSpark drafter makes as many of them as pay. Drafts make the text come
   * faster, and it stays the same: a draft is kept where it is the token that would be chosen
   * anyway. */
  int32_t draft_tokens;

  /* What the output must match, from the next token on, of the session's engine; NULL = anything.
   * The session keeps it. One that dsv4_session_get_sampling shows lives until the session's
   * sampling is set or a saved session is loaded. */
  const dsv4_grammar* grammar;
} dsv4_sampling;
#define DSV4_SAMPLING_INIT                                                                         \
  {                                                                                                \
    sizeof(dsv4_sampling), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0, \
        NULL, NULL, 0, 0, 0, NULL                                                                  \
  }

/* Fills *sampling with the model's defaults (generation_config.json; greedy when it says so). The
 * size field must be set. */
DSV4_API dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                                        dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SAMPLING_H_ */
