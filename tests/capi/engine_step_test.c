/* SPDX-License-Identifier: Apache-2.0
 *
 * Several sessions in one pass: each gives what it gives alone, and fails alone.
 */
#include <pthread.h>

#include "tests/capi/expect.h"

enum { kSessions = 3 };

/* Questions and answers of models/dsv4-tiny/gates.json. */
static const char* const kQuestions[kSessions] = {
    "Do you know the capital of Russia?", "What languages do you speak?", "Calculate 59 - 23."};
static const char* const kAnswers[kSessions] = {
    "The capital of Russia is Moscow.", "I speak English and a few words of other languages.",
    "59 - 23 = 36"};

static dsv4_session* ask(dsv4_engine* engine, const char* question) {
  int32_t prompt[kMaxPrompt];
  const size_t count = render_question(engine, question, prompt);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  return session;
}

/* Steps the sessions to their ends, two at least at a time; the passes that gave no token. */
static int answer_all(dsv4_engine* engine, dsv4_session* const sessions[kSessions],
                      char texts[kSessions][256]) {
  dsv4_session* active[kSessions];
  dsv4_step_result steps[kSessions], *results[kSessions];
  dsv4_status statuses[kSessions];
  dsv4_error* failure = NULL;
  int of[kSessions], count = kSessions, without_token = 0, i;
  for (i = 0; i < kSessions; ++i) {
    active[i] = sessions[i];
    of[i] = i;
    texts[i][0] = '\0';
  }
  while (count > 0) {
    for (i = 0; i < count; ++i) {
      memset(&steps[i], 0x55, sizeof steps[i]);
      steps[i].struct_size = sizeof steps[i];
      results[i] = &steps[i];
    }
    EXPECT(dsv4_engine_step(engine, active, (size_t)count, NULL, NULL, results, statuses, NULL,
                            &failure) == DSV4_OK);
    EXPECT(failure == NULL);
    int left = 0;
    for (i = 0; i < count; ++i) {
      EXPECT(statuses[i] == DSV4_OK);
      EXPECT(strlen(steps[i].text) == steps[i].text_length);
      strcat(texts[of[i]], steps[i].text);
      if (steps[i].token == -1) {
        EXPECT(steps[i].finish == DSV4_FINISH_NONE && steps[i].text_length == 0);
        ++without_token;
      }
      if (steps[i].finish != DSV4_FINISH_NONE) continue;
      active[left] = active[i];
      of[left++] = of[i];
    }
    count = left;
  }
  return without_token;
}

static void test_answers(dsv4_engine* engine) {
  dsv4_session* sessions[kSessions];
  char texts[kSessions][256];
  int i;
  for (i = 0; i < kSessions; ++i) sessions[i] = ask(engine, kQuestions[i]);
  /* Prompts of 10 tokens and more share passes of 16. */
  EXPECT(answer_all(engine, sessions, texts) > 0);
  for (i = 0; i < kSessions; ++i) {
    EXPECT(strcmp(texts[i], kAnswers[i]) == 0);
    dsv4_session_close(sessions[i]);
  }
}

struct caller {
  dsv4_engine* engine;
  dsv4_session* sessions[kSessions];
  char texts[kSessions][256];
};

static void* call(void* argument) {
  struct caller* caller = argument;
  answer_all(caller->engine, caller->sessions, caller->texts);
  return NULL;
}

/* Two threads step lists of sessions of one engine; a third one steps a single session. */
static void test_threads(dsv4_engine* engine) {
  struct caller callers[2];
  pthread_t threads[2];
  char text[256];
  int i, j;
  for (i = 0; i < 2; ++i) {
    callers[i].engine = engine;
    for (j = 0; j < kSessions; ++j) callers[i].sessions[j] = ask(engine, kQuestions[j]);
  }
  dsv4_session* single = ask(engine, kQuestions[0]);
  for (i = 0; i < 2; ++i) EXPECT(pthread_create(&threads[i], NULL, call, &callers[i]) == 0);
  EXPECT(generate(single, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswers[0]) == 0);
  dsv4_session_close(single);
  for (i = 0; i < 2; ++i) {
    EXPECT(pthread_join(threads[i], NULL) == 0);
    for (j = 0; j < kSessions; ++j) {
      EXPECT(strcmp(callers[i].texts[j], kAnswers[j]) == 0);
      dsv4_session_close(callers[i].sessions[j]);
    }
  }
}

static void test_misuse(dsv4_engine* engine) {
  dsv4_session* sessions[2] = {ask(engine, kQuestions[0]), ask(engine, kQuestions[1])};
  dsv4_session* list[2];
  dsv4_step_result steps[2] = {DSV4_STEP_RESULT_INIT, DSV4_STEP_RESULT_INIT};
  dsv4_step_result* results[2] = {&steps[0], &steps[1]};
  dsv4_status statuses[2] = {DSV4_OK, DSV4_OK};
  int i;
#define EXPECT_REFUSED(engine, sessions, results, statuses, text)                                 \
  EXPECT_FAILS(                                                                                   \
      dsv4_engine_step((engine), (sessions), 2, NULL, NULL, (results), (statuses), NULL, &error), \
      DSV4_ERR_INVALID_ARGUMENT, text)
  EXPECT_REFUSED(NULL, sessions, results, statuses, "engine is NULL");
  EXPECT_REFUSED(engine, NULL, results, statuses, "sessions is NULL");
  EXPECT_REFUSED(engine, sessions, NULL, statuses, "results is NULL");
  EXPECT_REFUSED(engine, sessions, results, NULL, "statuses is NULL");
  EXPECT_FAILS(
      dsv4_engine_step(engine, sessions, SIZE_MAX, NULL, NULL, results, statuses, NULL, &error),
      DSV4_ERR_INVALID_ARGUMENT, "the size of sessions");
  list[0] = sessions[0];
  list[1] = NULL;
  EXPECT_REFUSED(engine, list, results, statuses, "sessions[1] is NULL");
  EXPECT(statuses[0] == DSV4_ERR_INVALID_ARGUMENT && statuses[1] == DSV4_ERR_INVALID_ARGUMENT);
  list[1] = sessions[0];
  EXPECT_REFUSED(engine, list, results, statuses, "sessions[1] is named twice");
  results[1] = NULL;
  EXPECT_REFUSED(engine, sessions, results, statuses, "results[1] is NULL");
  results[1] = &steps[1];
  steps[1].struct_size = 8;
  EXPECT_REFUSED(engine, sessions, results, statuses, "results[1].struct_size is 8");
  steps[1].struct_size = sizeof steps[1];
  dsv4_engine* other = open_bundled();
  list[1] = open_session(other, NULL);
  EXPECT_REFUSED(engine, list, results, statuses, "sessions[1] is of another engine");
  EXPECT_REFUSED(other, list, results, statuses, "sessions[0] is of another engine");
  dsv4_session_close(list[1]);
  dsv4_engine_close(other);

  /* None of this used the sessions up, or changed them. */
  EXPECT_OK(dsv4_engine_step(engine, NULL, 0, NULL, NULL, NULL, NULL, NULL, &error));
  for (i = 0; i < 3; ++i)
    EXPECT_OK(dsv4_engine_step(engine, sessions, 2, NULL, NULL, results, statuses, NULL, &error));
  EXPECT_OK(dsv4_session_rewind(sessions[0], 12, NULL, &error));
  char text[256];
  EXPECT(generate(sessions[0], text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswers[0]) == 0);
  for (i = 0; i < 2; ++i) dsv4_session_close(sessions[i]);
}

/* The cache has six blocks of 256 tokens: one session holds four, and the other one needs three. */
static void test_one_runs_out_of_blocks(void) {
  int32_t tokens[2000];
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_session* sessions[3];
  dsv4_step_result steps[3] = {DSV4_STEP_RESULT_INIT, DSV4_STEP_RESULT_INIT, DSV4_STEP_RESULT_INIT};
  dsv4_step_result* results[3] = {&steps[0], &steps[1], &steps[2]};
  dsv4_status statuses[3];
  dsv4_error* errors[3];
  int32_t first = -1;
  int i, generated = 0, refused = 0;
  for (i = 0; i < 2000; ++i) tokens[i] = 3 + (i * 31 + i / 7) % 2000;
  options.context_tokens = 1024;
  options.cache_tokens = 768;
  options.max_sessions = 3;
  dsv4_engine* engine = open_engine(options);
  for (i = 0; i < 3; ++i) sessions[i] = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(sessions[0], tokens, 800, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_sync(sessions[1], tokens + 1000, 700, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(sessions[0], 0, NULL, NULL, NULL, &error));
  /* A slow machine computes fewer tokens of the second one's prompt in a step. */
  while (refused < 5) {
    EXPECT(generated < 200);
    EXPECT_OK(dsv4_engine_step(engine, sessions, 3, NULL, NULL, results, statuses, errors, &error));
    EXPECT(statuses[0] == DSV4_OK && errors[0] == NULL);
    EXPECT(steps[0].token >= 0);
    if (generated++ == 0) first = steps[0].token;
    EXPECT((statuses[1] != DSV4_OK) == (errors[1] != NULL));
    if (statuses[1] != DSV4_OK) {
      EXPECT(statuses[1] == DSV4_ERR_OUT_OF_BLOCKS);
      EXPECT(strstr(dsv4_error_get_message(errors[1]), "block") != NULL);
      ++refused;
    }
    /* Nothing was ever given to the third one. */
    EXPECT(statuses[2] == DSV4_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(dsv4_error_get_message(errors[2]), "empty") != NULL);
    for (i = 0; i < 3; ++i) dsv4_error_free(errors[i]);
  }
  /* With the first session's blocks the second one continues and reaches the same place. */
  dsv4_session_close(sessions[0]);
  EXPECT_OK(dsv4_session_step(sessions[1], NULL, NULL, &steps[1], &error));
  dsv4_session_close(sessions[1]);
  EXPECT_OK(dsv4_session_sync(sessions[2], tokens, 800, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_step(sessions[2], NULL, NULL, &steps[2], &error));
  EXPECT(steps[2].token == first);
  dsv4_session_close(sessions[2]);
  dsv4_engine_close(engine);
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.prefill_chunk_tokens = 16;
  options.max_sessions = 8;
  dsv4_engine* engine = open_engine(options);
  test_answers(engine);
  test_threads(engine);
  test_misuse(engine);
  dsv4_engine_close(engine);
  test_one_runs_out_of_blocks();
  return 0;
}
