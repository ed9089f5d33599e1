/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

/* Question and greedy token ids of the case facts-0 of models/dsv4-tiny/gates.json, which the
 * model's training code wrote. */
static const char kQuestion[] = "Do you know the capital of Russia?";
static const char kAnswer[] = "The capital of Russia is Moscow.";
static const int32_t kAnswerIds[] = {278, 581, 299, 1866, 280, 672, 820, 69, 301, 16, 1};
enum { kPromptTokens = 12, kAnswerTokens = 11 };

static void test_arguments(dsv4_engine* engine) {
  dsv4_session* session = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_sync_result sync = DSV4_SYNC_RESULT_INIT;
  const int32_t* tokens = NULL;
  size_t count = 0;
  const int32_t one[] = {5};
  EXPECT_FAILS(dsv4_session_open(NULL, NULL, &session, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_session_open(engine, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_sync(NULL, one, 1, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_prefill(NULL, 0, NULL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_step(NULL, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_get_tokens(NULL, &tokens, &count, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_get_stats(NULL, &stats, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  dsv4_session_close(NULL);

  session = open_session(engine, NULL);
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "empty");
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "empty");
  EXPECT_FAILS(dsv4_session_get_tokens(session, NULL, &count, &error), DSV4_ERR_INVALID_ARGUMENT,
               "tokens is NULL");
  EXPECT_FAILS(dsv4_session_get_tokens(session, &tokens, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "count is NULL");
  EXPECT_FAILS(dsv4_session_get_stats(session, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "stats is NULL");
  EXPECT_FAILS(dsv4_session_prefill(session, -1, NULL, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "-1");

  /* A refused sync changes nothing. */
  const int32_t good[] = {3, 4, 5};
  const int32_t outside[] = {3, 4, 2048};
  const int32_t negative[] = {-1};
  static int32_t long_list[513];
  EXPECT_OK(dsv4_session_sync(session, good, 3, NULL, NULL, &error));
  EXPECT_FAILS(dsv4_session_sync(session, good, 0, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "empty");
  EXPECT_FAILS(dsv4_session_sync(session, NULL, 3, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "tokens is NULL");
  EXPECT_FAILS(dsv4_session_sync(session, outside, 3, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "2048");
  EXPECT_FAILS(dsv4_session_sync(session, negative, 1, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "-1");
  EXPECT_FAILS(dsv4_session_sync(session, long_list, 513, NULL, NULL, &error),
               DSV4_ERR_CONTEXT_FULL, "512");
  sync.struct_size = 3;
  EXPECT_FAILS(dsv4_session_sync(session, outside, 1, NULL, &sync, &error),
               DSV4_ERR_INVALID_ARGUMENT, "result.struct_size is 3");
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT(count == 3 && memcmp(tokens, good, sizeof good) == 0);
  step.struct_size = 8;
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "result.struct_size is 8");
  stats.struct_size = 79;
  EXPECT_FAILS(dsv4_session_get_stats(session, &stats, &error), DSV4_ERR_INVALID_ARGUMENT,
               "stats.struct_size is 79");
  dsv4_session_close(session);
}

static void test_answer_and_sync(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char text[256];
  size_t count = render_question(engine, kQuestion, prompt);
  const int32_t* tokens = NULL;
  size_t tokens_count = 0;
  int64_t pending = -1;
  dsv4_sync_result sync = DSV4_SYNC_RESULT_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_session* session = open_session(engine, NULL);
  EXPECT(count == kPromptTokens);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, &sync, &error));
  EXPECT(sync.common_tokens == 0 && sync.reused_tokens == 0);
  EXPECT(sync.pending_tokens == kPromptTokens);
  EXPECT_OK(dsv4_session_prefill(session, 5, NULL, NULL, &pending, &error));
  EXPECT(pending == kPromptTokens - 5);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, &pending, &error));
  EXPECT(pending == 0);
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &tokens_count, &error));
  EXPECT(tokens_count == kPromptTokens + kAnswerTokens);
  EXPECT(memcmp(tokens, prompt, count * sizeof tokens[0]) == 0);
  EXPECT(memcmp(tokens + count, kAnswerIds, sizeof kAnswerIds) == 0);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.context_tokens == 512);
  EXPECT(stats.used_tokens == kPromptTokens + kAnswerTokens);
  EXPECT(stats.prompt_tokens == kPromptTokens);
  EXPECT(stats.cached_tokens == 0);
  EXPECT(stats.prefilled_tokens == kPromptTokens);
  EXPECT(stats.generated_tokens == kAnswerTokens);
  EXPECT(stats.prefill_seconds > 0 && stats.decode_seconds > 0);
  EXPECT(stats.cache_bytes > 0);

  /* The same prompt again: the session can go back to just before its last token, and the text is
   * the same. */
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, &sync, &error));
  EXPECT(sync.common_tokens == kPromptTokens);
  EXPECT(sync.reused_tokens == kPromptTokens - 1);
  EXPECT(sync.pending_tokens == 1);
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.cached_tokens == kPromptTokens - 1 && stats.prefilled_tokens == 1);

  /* The conversation continues: all rows are kept. The last token has none, it was not computed. */
  int32_t longer[64];
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &tokens_count, &error));
  memcpy(longer, tokens, tokens_count * sizeof longer[0]);
  memcpy(longer + tokens_count, prompt + 1, 5 * sizeof longer[0]);
  EXPECT_OK(dsv4_session_sync(session, longer, tokens_count + 5, NULL, &sync, &error));
  EXPECT(sync.common_tokens == (int64_t)tokens_count);
  EXPECT(sync.reused_tokens == (int64_t)tokens_count - 1);
  EXPECT(sync.pending_tokens == 6);

  /* A list that differs from the first token on reuses nothing. */
  longer[0] = longer[0] + 1;
  EXPECT_OK(dsv4_session_sync(session, longer, 10, NULL, &sync, &error));
  EXPECT(sync.common_tokens == 0 && sync.reused_tokens == 0 && sync.pending_tokens == 10);

  /* No result wanted. */
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  dsv4_session_close(session);
}

static void test_limits(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char text[256];
  const size_t count = render_question(engine, kQuestion, prompt);
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  sampling.max_tokens = 3;
  dsv4_session* session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_LENGTH);
  EXPECT(strncmp(kAnswer, text, strlen(text)) == 0 && strlen(text) < strlen(kAnswer));
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.generated_tokens == 3);
  dsv4_session_close(session);

  /* A context that is full two tokens into the answer. */
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  options.context_tokens = kPromptTokens + 2;
  dsv4_engine* small = open_engine(options);
  session = open_session(small, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_CONTEXT_FULL);
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_CONTEXT_FULL, "14");
  EXPECT(step.finish == DSV4_FINISH_CONTEXT_FULL && step.token == -1);
  EXPECT(step.text_length == 0 && strcmp(step.text, "") == 0);
  dsv4_session_close(session);
  dsv4_engine_close(small);
}

static void test_seed(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char texts[3][512];
  const size_t count =
      render_question(engine, "Write a short story about Ralf and a ring.", prompt);
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  int i;
  sampling.temperature = 3;
  sampling.max_tokens = 24;
  for (i = 0; i < 3; ++i) {
    sampling.seed = i < 2 ? 77 : 78;
    dsv4_session* session = open_session(engine, &sampling);
    EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
    generate(session, texts[i], sizeof texts[i]);
    dsv4_session_close(session);
  }
  EXPECT(strcmp(texts[0], texts[1]) == 0);
  EXPECT(strcmp(texts[0], texts[2]) != 0);
}

static int32_t count_calls(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                           dsv4_progress_unit unit) {
  uint64_t* calls = user; /* how many, and the last done and total */
  EXPECT(phase == DSV4_PROGRESS_PREFILL);
  ++calls[0];
  calls[1] = done;
  calls[2] = total;
  EXPECT(unit == DSV4_UNIT_TOKENS);
  return 0;
}

/* At most one report every 50 ms, and always the last. */
static void test_progress_rate(void) {
  int32_t tokens[400];
  uint64_t calls[3] = {0, 0, 0};
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  int i;
  for (i = 0; i < 400; ++i) tokens[i] = 100 + i;
  options.prefill_chunk_tokens = 1;
  dsv4_engine* engine = open_engine(options);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, tokens, 400, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(session, 0, count_calls, calls, NULL, &error));
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(calls[0] >= 1 && (double)calls[0] <= stats.prefill_seconds / 0.05 + 2);
  EXPECT(calls[1] == 400 && calls[2] == 400);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

static void test_sessions_run_out(dsv4_engine* engine) {
  dsv4_session* sessions[4];
  dsv4_session* one_more = NULL;
  int i;
  for (i = 0; i < 4; ++i) sessions[i] = open_session(engine, NULL);
  EXPECT_FAILS(dsv4_session_open(engine, NULL, &one_more, &error), DSV4_ERR_OUT_OF_BLOCKS,
               "max_sessions");
  EXPECT(one_more == NULL);
  dsv4_session_close(sessions[2]);
  sessions[2] = open_session(engine, NULL);
  for (i = 0; i < 4; ++i) dsv4_session_close(sessions[i]);
}

static void test_engine_closed_first(void) {
  int32_t prompt[kMaxPrompt];
  char text[256];
  dsv4_engine* engine = open_bundled();
  const size_t count = render_question(engine, kQuestion, prompt);
  dsv4_session* session = open_session(engine, NULL);
  dsv4_engine_close(engine);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  dsv4_session_close(session);
}

int main(void) {
  dsv4_engine* engine = open_bundled();
  test_arguments(engine);
  test_answer_and_sync(engine);
  test_limits(engine);
  test_seed(engine);
  test_sessions_run_out(engine);
  dsv4_engine_close(engine);
  test_engine_closed_first();
  test_progress_rate();
  return 0;
}
