/* SPDX-License-Identifier: Apache-2.0
 *
 * What callers see of the choice of tokens, and what they have a say in: log-probabilities, the
 * allowed tokens, drafts.
 */
#include <math.h>

#include "tests/capi/expect.h"

/* The case facts-0 of models/dsv4-tiny/gates.json. */
static const char kQuestion[] = "Do you know the capital of Russia?";
static const char kAnswer[] = "The capital of Russia is Moscow.";
enum { kAnswerTokens = 11, kTop = 5, kVocab = 2048 };

struct log_probs {
  float chosen;
  int32_t tokens[kTop];
  float top[kTop];
};

static struct log_probs log_probs_at(const dsv4_session* session, int64_t position) {
  struct log_probs result;
  size_t count = 0;
  EXPECT_OK(dsv4_session_get_log_probs(session, position, &result.chosen, result.tokens, result.top,
                                       kTop, &count, &error));
  EXPECT(count == kTop);
  return result;
}

/* Those of the answer as it is generated, and those of the same tokens as a prompt. */
static void test_log_probs(dsv4_engine* engine) {
  int32_t list[kMaxPrompt], top_token = -1;
  struct log_probs expected[kAnswerTokens];
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_sync_options options = DSV4_SYNC_OPTIONS_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  float log_prob = 1, top_log_prob = 1;
  size_t count = render_question(engine, kQuestion, list), top_count = 0;
  const int64_t begin = (int64_t)count;
  int i, j;
  sampling.log_probs = kTop;
  dsv4_session* session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_sync(session, list, count, NULL, NULL, &error));
  for (i = 0; i < kAnswerTokens; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    list[count++] = step.token;
    expected[i] = log_probs_at(session, begin + i);
    /* Greedy: the most likely token, which is the first of those in order. */
    EXPECT(expected[i].tokens[0] == step.token && expected[i].top[0] == expected[i].chosen);
    double mass = 0;
    for (j = 0; j < kTop; ++j) {
      mass += exp(expected[i].top[j]);
      if (j > 0) EXPECT(expected[i].top[j] <= expected[i].top[j - 1]);
    }
    EXPECT(mass > 0.5 && mass <= 1.0001);
    EXPECT_FAILS(
        dsv4_session_get_log_probs(session, begin + i - 1, &log_prob, NULL, NULL, 0, NULL, &error),
        DSV4_ERR_NOT_FOUND, "position");
  }
  EXPECT(step.finish == DSV4_FINISH_STOP);
  /* Fewer than there are, and none. */
  EXPECT_OK(dsv4_session_get_log_probs(session, begin + kAnswerTokens - 1, &log_prob, &top_token,
                                       &top_log_prob, 1, &top_count, &error));
  EXPECT(top_count == kTop && top_token == step.token && top_log_prob == log_prob);
  EXPECT_OK(dsv4_session_get_log_probs(session, begin + kAnswerTokens - 1, &log_prob, NULL, NULL, 0,
                                       NULL, &error));
  EXPECT_FAILS(dsv4_session_get_log_probs(session, -1, &log_prob, NULL, NULL, 0, NULL, &error),
               DSV4_ERR_NOT_FOUND, "position -1");
  EXPECT_FAILS(dsv4_session_get_log_probs(session, 0, NULL, NULL, NULL, 0, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "log_prob is NULL");
  EXPECT_FAILS(dsv4_session_get_log_probs(session, 0, &log_prob, NULL, &log_prob, 1, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "top_tokens is NULL");
  EXPECT_FAILS(dsv4_session_get_log_probs(session, 0, &log_prob, list, NULL, 1, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "top_log_probs is NULL");
  EXPECT_FAILS(dsv4_session_get_log_probs(NULL, 0, &log_prob, NULL, NULL, 0, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "session is NULL");
  EXPECT_OK(dsv4_session_rewind(session, begin + kAnswerTokens, NULL, &error));
  EXPECT_FAILS(dsv4_session_get_log_probs(session, begin + kAnswerTokens - 1, &log_prob, NULL, NULL,
                                          0, NULL, &error),
               DSV4_ERR_NOT_FOUND, "position");

  options.log_probs_begin = begin;
  options.log_probs_count = kTop;
  EXPECT_OK(dsv4_session_sync(session, list, count, &options, NULL, &error));
  EXPECT_FAILS(dsv4_session_get_log_probs(session, begin, &log_prob, NULL, NULL, 0, NULL, &error),
               DSV4_ERR_NOT_FOUND, "position");
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  for (i = 0; i < kAnswerTokens; ++i) {
    const struct log_probs found = log_probs_at(session, begin + i);
    EXPECT(memcmp(&found, &expected[i], sizeof found) == 0);
  }
  EXPECT_FAILS(
      dsv4_session_get_log_probs(session, begin - 1, &log_prob, NULL, NULL, 0, NULL, &error),
      DSV4_ERR_NOT_FOUND, "position");
  options.log_probs_begin = (int64_t)count + 1;
  EXPECT_FAILS(dsv4_session_sync(session, list, count, &options, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "log_probs_begin is 24");
  options.log_probs_begin = 1;
  options.log_probs_count = 21;
  EXPECT_FAILS(dsv4_session_sync(session, list, count, &options, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "log_probs_count is 21");
  dsv4_session_close(session);
}

/* Allows one token at each place of the output: a text that the model would not have given. */
static void allow_only(dsv4_session* session, int32_t token) {
  uint32_t words[kVocab / 32] = {0};
  words[token / 32] |= UINT32_C(1) << (token % 32);
  EXPECT_OK(dsv4_session_set_allowed(session, words, kVocab / 32, &error));
}

static void test_allowed(dsv4_engine* engine, int32_t draft_tokens) {
  static const int32_t kScript[] = {300, 41, 1999, 300, 777, 1024};
  enum { kLength = sizeof kScript / sizeof kScript[0] };
  static const uint32_t kNone[kVocab / 32] = {0};
  int32_t prompt[kMaxPrompt];
  char text[256];
  int i;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  const size_t count = render_question(engine, kQuestion, prompt);
  sampling.draft_tokens = draft_tokens;
  dsv4_session* session = open_session(engine, &sampling);
  EXPECT_FAILS(dsv4_session_set_allowed(NULL, kNone, kVocab / 32, &error),
               DSV4_ERR_INVALID_ARGUMENT, "session is NULL");
  EXPECT_FAILS(dsv4_session_set_allowed(session, NULL, kVocab / 32, &error),
               DSV4_ERR_INVALID_ARGUMENT, "words is NULL");
  EXPECT_FAILS(dsv4_session_set_allowed(session, kNone, kVocab / 32 - 1, &error),
               DSV4_ERR_INVALID_ARGUMENT, "count is 63; expected 64");
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  for (i = 0; i < 3; ++i) {
    allow_only(session, kScript[i]);
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT(step.token == kScript[i]);
  }

  /* A fork has what was set, also when the other session is closed. */
  dsv4_session* fork = NULL;
  allow_only(session, kScript[3]);
  EXPECT_OK(dsv4_session_fork(session, &fork, &error));
  dsv4_session_close(session);
  for (i = 3; i < kLength; ++i) {
    if (i > 3) allow_only(fork, kScript[i]);
    EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
    EXPECT(step.token == kScript[i]);
  }
  /* A step that fails keeps it; then all is allowed. */
  EXPECT_OK(dsv4_session_set_allowed(fork, kNone, kVocab / 32, &error));
  for (i = 0; i < 2; ++i)
    EXPECT_FAILS(dsv4_session_step(fork, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
                 "token");
  EXPECT_OK(dsv4_session_set_allowed(fork, NULL, 0, &error));
  EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
  /* It is of one token, and a rewind removes it, too. */
  EXPECT_OK(dsv4_session_set_allowed(fork, kNone, kVocab / 32, &error));
  EXPECT_OK(dsv4_session_rewind(fork, (int64_t)count, NULL, &error));
  EXPECT(generate(fork, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  /* What is set while drafts wait to be delivered holds for the next token all the same. */
  EXPECT_OK(dsv4_session_rewind(fork, (int64_t)count, NULL, &error));
  for (i = 0; i < 2; ++i) EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
  allow_only(fork, kScript[0]);
  EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
  EXPECT(step.token == kScript[0]);
  dsv4_session_close(fork);
}

/* Drafts come one by one and change no text, stop strings and limits included. */
static void test_drafts(dsv4_engine* engine) {
  static const char* const kStops[] = {"is Mos"};
  int32_t prompt[kMaxPrompt];
  int kind;
  const size_t count = render_question(engine, kQuestion, prompt);
  for (kind = 0; kind < 3; ++kind) {
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    struct log_probs expected[kAnswerTokens];
    char texts[2][256] = {"", ""};
    int32_t tokens[2][kAnswerTokens];
    int lengths[2] = {0, 0}, drafted;
    dsv4_finish finishes[2];
    sampling.log_probs = kTop;
    if (kind == 1) sampling.max_tokens = 6;
    if (kind == 2) {
      sampling.stop_strings = kStops;
      sampling.stop_string_count = 1;
    }
    for (drafted = 0; drafted < 2; ++drafted) {
      dsv4_step_result step = DSV4_STEP_RESULT_INIT;
      dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
      const int32_t* timeline = NULL;
      size_t used = 0;
      sampling.draft_tokens = drafted ? 3 : -1;
      dsv4_session* session = open_session(engine, &sampling);
      EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
      while (step.finish == DSV4_FINISH_NONE) {
        const int i = lengths[drafted]++;
        EXPECT(i < kAnswerTokens);
        EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
        tokens[drafted][i] = step.token;
        strcat(texts[drafted], step.text);
        EXPECT_OK(dsv4_session_get_tokens(session, &timeline, &used, &error));
        EXPECT(used == count + (size_t)i + 1 && timeline[used - 1] == step.token);
        const struct log_probs found = log_probs_at(session, (int64_t)used - 1);
        if (drafted == 0) expected[i] = found;
        EXPECT(memcmp(&found, &expected[i], sizeof found) == 0);
      }
      finishes[drafted] = step.finish;
      EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
      EXPECT(stats.generated_tokens == lengths[drafted]);
      EXPECT((stats.alarms & DSV4_ALARM_FEW_ACCEPTED) == 0);
      EXPECT((stats.draft_steps > 0) == (drafted == 1));
      EXPECT(stats.accepted_tokens <= stats.drafted_tokens);
      EXPECT(stats.drafted_tokens <= 3 * stats.draft_steps);
      EXPECT(stats.first_acceptance >= 0 && stats.first_acceptance <= 1);
      if (drafted == 1) {
        EXPECT(stats.accepted_tokens > 0 && stats.first_acceptance > 0);
        EXPECT(fabs(stats.acceptance_length - 1 -
                    (double)stats.accepted_tokens / (double)stats.draft_steps) < 1e-9);
      } else {
        EXPECT(stats.drafted_tokens == 0 && stats.acceptance_length == 0);
      }
      dsv4_session_close(session);
    }
    EXPECT(lengths[0] == lengths[1]);
    EXPECT(memcmp(tokens[0], tokens[1], (size_t)lengths[0] * sizeof tokens[0][0]) == 0);
    EXPECT(strcmp(texts[0], texts[1]) == 0);
    EXPECT(finishes[0] == finishes[1]);
    EXPECT(finishes[0] == (kind == 1 ? DSV4_FINISH_LENGTH : DSV4_FINISH_STOP));
    EXPECT(strcmp(texts[0], kind == 0 ? kAnswer : texts[0]) == 0);
    if (kind == 2) EXPECT(strcmp(texts[0], "The capital of Russia ") == 0);
  }
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.max_draft_tokens = 3;
  dsv4_engine* engine = open_engine(options);
  test_log_probs(engine);
  test_allowed(engine, -1);
  test_allowed(engine, 0); /* the engine's */
  test_drafts(engine);
  dsv4_engine_close(engine);
  return 0;
}
