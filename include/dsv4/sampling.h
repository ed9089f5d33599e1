/* SPDX-License-Identifier: Apache-2.0
 *
 * How a session chooses the next token.
 *
 * Order of the steps: repetition penalty, frequency and presence penalties, bias, bans,
 * temperature, top-k, top-p (over the tokens that top-k kept), min-p, renormalization. Ties go to
 * the lowest id. Random numbers come from a counter-based generator (key: the seed; counter: the
 * position), so a seed gives the same text whatever else the engine runs.
 *
 * 0 in a field is the model's own value, from generation_config.json, or its absence.
 */
#ifndef DSV4_SAMPLING_H_
#define DSV4_SAMPLING_H_

#include <dsv4/engine.h>
#include <dsv4/grammar.h>

DSV4_BEGIN_DECLS

/* Temperature of greedy sampling: always the most likely token. */
#define DSV4_GREEDY ((float)-1)
/* The call that takes the parameters draws a random seed. */
#define DSV4_SEED_RANDOM 9223372036854775807u

/* Sampling parameters. All fields 0 (DSV4_SAMPLING_INIT): the model's own sampling, without limits,
 * and always with the same seed. */
typedef struct dsv4_sampling {
  uint32_t struct_size;
  float temperature; /* 0 = the model's; DSV4_GREEDY */
  int32_t top_k;     /* keep the k most likely tokens; 0 = the model's; -1 = all */
  /* Keep the most likely tokens up to this total probability; (0, 1]; 0 = the model's; 1 = all. */
  float top_p;
  /* Drop tokens below min_p times the highest probability; (0, 1]; 0 = the model's; -1 = none. */
  float min_p;
  /* Applies to tokens of the prompt and of the output so far: positive logits are divided by it,
   * others multiplied. 0.01 to 100; 0 = the model's; 1 = off. */
  float repetition_penalty;
  /* Key of the random numbers. The same seed gives the same text, and 0 is a seed like any other:
   * two sessions with the same prompt that leave it 0 tell the same story. DSV4_SEED_RANDOM draws
   * one; dsv4_session_get_stats reports it. */
  uint64_t seed;
  /* Finish with DSV4_FINISH_LENGTH after this many tokens; 0 = the model's max_new_tokens, usually
   * none; -1 = no limit. */
  int64_t max_tokens;

  /* Apply to tokens of the output so far, not to the prompt of the last sync or turn. -2 to 2.
   * presence_penalty is subtracted from a token's logit once, frequency_penalty once for each
   * occurrence. */
  float presence_penalty;
  float frequency_penalty;

  /* The arrays below are read during the call only. An id outside the vocabulary is
   * INVALID_ARGUMENT. */
  /* Values added to the logits of tokens, -100 to 100. Several entries for a token add up. */
  const int32_t* bias_tokens; /* [bias_count] */
  const float* biases;        /* [bias_count] */
  uint64_t bias_count;
  const int32_t* banned_tokens; /* [banned_count] never chosen */
  uint64_t banned_count;
  /* [forced_count] The output begins with these tokens, whatever their probability. Each must have
   * a text and must not be banned. */
  const int32_t* forced_tokens;
  uint64_t forced_count;

  /* The longest reasoning, in tokens; 0 = no limit. At the limit the token that ends the reasoning
   * is forced. Applies if the prompt opens the reasoning. */
  int64_t max_thinking_tokens;

  /* Stop tokens and stop strings end the turn with DSV4_FINISH_STOP, as the model's own end token
   * does. A stop token gives no text. The text ends before the stop string. If several stop strings
   * occur, the one that is complete first counts, and of several that end together the longest.
   * UTF-8, at most 16 strings of 1 to 256 bytes. */
  const int32_t* stop_tokens;
  uint64_t stop_token_count;
  const char* const* stop_strings;
  const uint64_t* stop_string_lengths; /* in bytes; NULL: the strings are NUL-terminated */
  uint64_t stop_string_count;

  /* Above 0: dsv4_session_get_log_probs returns the log-probability of each new token and of this
   * many most likely tokens, computed from the unmodified logits. 0 to 20. */
  int32_t log_probs;
  /* Most tokens to draft for one verification pass: 0 = the engine's max_draft_tokens, -1 = none. A
   * DSpark drafter drafts fewer where more would cost time. Drafts change the speed, never the
   * text: a draft is kept only if it is the token that would be chosen anyway. */
  int32_t draft_tokens;

  /* The grammar that the output must match from the next token on; NULL = none. It must belong to
   * the session's engine. The session keeps a reference. */
  const dsv4_grammar* grammar;
} dsv4_sampling;
#define DSV4_SAMPLING_INIT                                                                         \
  {                                                                                                \
    sizeof(dsv4_sampling), 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, NULL, 0, NULL, 0, NULL, 0, 0, NULL, 0, \
        NULL, NULL, 0, 0, 0, NULL                                                                  \
  }

/* Fills *sampling with the values that 0 stands for on this model. sampling->struct_size must be
 * set. */
DSV4_API dsv4_status dsv4_sampling_init(const dsv4_engine* engine, dsv4_sampling* sampling,
                                        dsv4_error** error) DSV4_NOEXCEPT;

DSV4_END_DECLS

#endif /* DSV4_SAMPLING_H_ */
