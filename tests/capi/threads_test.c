/* SPDX-License-Identifier: Apache-2.0
 *
 * One session from two threads is refused; sessions of one engine on their own threads give what
 * each gives alone.
 */
#include <pthread.h>

#include "tests/capi/expect.h"

enum { kCalls = 10 };

struct intruder {
  dsv4_engine* engine;
  dsv4_session* session;
  dsv4_status statuses[kCalls];
  int calls;
};

/* Tries every function on a session that another thread is computing on. */
static void* intrude(void* argument) {
  struct intruder* intruder = argument;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const int32_t* tokens;
  const int32_t one = 3;
  size_t count;
  float log_prob;
  dsv4_step_result* result = &step;
  dsv4_session* fork = NULL;
  dsv4_status status = DSV4_OK;
  intruder->statuses[0] = dsv4_session_step(intruder->session, NULL, NULL, &step, NULL);
  intruder->statuses[1] = dsv4_session_sync(intruder->session, &one, 1, NULL, NULL, NULL);
  intruder->statuses[2] = dsv4_session_get_tokens(intruder->session, &tokens, &count, NULL);
  intruder->statuses[3] = dsv4_session_get_stats(intruder->session, &stats, NULL);
  intruder->statuses[4] = dsv4_session_set_sampling(intruder->session, &sampling, NULL);
  intruder->statuses[5] = dsv4_session_set_allowed(intruder->session, NULL, 0, NULL);
  intruder->statuses[6] =
      dsv4_session_get_log_probs(intruder->session, 0, &log_prob, NULL, NULL, 0, NULL, NULL);
  intruder->statuses[7] = dsv4_session_fork(intruder->session, &fork, NULL);
  dsv4_session_close(fork);
  intruder->statuses[8] = dsv4_engine_step(intruder->engine, &intruder->session, 1, NULL, NULL,
                                           &result, &status, NULL, NULL);
  EXPECT(status == intruder->statuses[8]);
  intruder->statuses[9] = dsv4_session_rewind(intruder->session, 1, NULL, NULL);
  return NULL;
}

static int32_t call_intruder(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                             dsv4_progress_unit unit) {
  struct intruder* intruder = user;
  pthread_t thread;
  EXPECT(phase == DSV4_PROGRESS_PREFILL && done <= total);
  if (intruder->calls++ > 0) return 0;
  EXPECT(pthread_create(&thread, NULL, intrude, intruder) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  EXPECT(unit == DSV4_UNIT_TOKENS);
  return 0;
}

static int32_t cancel(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                      dsv4_progress_unit unit) {
  (void)user, (void)phase, (void)done, (void)total;
  EXPECT(unit == DSV4_UNIT_TOKENS);
  return 1;
}

static void test_busy(dsv4_engine* engine) {
  int32_t tokens[100];
  int64_t pending = -1;
  int i;
  struct intruder intruder = {engine, NULL, {0}, 0};
  for (i = 0; i < 100; ++i) tokens[i] = 100 + i;
  EXPECT_OK(dsv4_session_open(engine, NULL, &intruder.session, &error));
  EXPECT_OK(dsv4_session_sync(intruder.session, tokens, 100, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(intruder.session, 0, call_intruder, &intruder, &pending, &error));
  EXPECT(pending == 0);
  EXPECT(intruder.calls >= 1);
  for (i = 0; i < kCalls; ++i) EXPECT(intruder.statuses[i] == DSV4_ERR_BUSY);
  /* Free again. */
  intrude(&intruder);
  for (i = 0; i < kCalls; ++i)
    EXPECT(intruder.statuses[i] == (i == 6 ? DSV4_ERR_NOT_FOUND : DSV4_OK));

  /* Cancelling keeps what is done: one chunk of 16. */
  EXPECT_OK(dsv4_session_sync(intruder.session, tokens + 1, 99, NULL, NULL, &error));
  EXPECT_FAILS(dsv4_session_prefill(intruder.session, 0, cancel, NULL, &pending, &error),
               DSV4_ERR_CANCELLED, "");
  EXPECT_OK(dsv4_session_prefill(intruder.session, 1, NULL, NULL, &pending, &error));
  EXPECT(pending == 99 - 16 - 1);
  dsv4_session_close(intruder.session);
}

struct speaker {
  dsv4_engine* engine;
  const char* question;
  char text[256];
};

static void* speak(void* argument) {
  struct speaker* speaker = argument;
  char messages[256];
  dsv4_session* session = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]",
           speaker->question);
  EXPECT(dsv4_session_open(speaker->engine, NULL, &session, NULL) == DSV4_OK);
  EXPECT(dsv4_session_sync_json(session, messages, strlen(messages), NULL, NULL, NULL) == DSV4_OK);
  while (step.finish == DSV4_FINISH_NONE) {
    EXPECT(dsv4_session_step(session, NULL, NULL, &step, NULL) == DSV4_OK);
    strncat(speaker->text, step.text, sizeof speaker->text - strlen(speaker->text) - 1);
  }
  dsv4_session_close(session);
  return NULL;
}

/* Questions and answers of models/dsv4-tiny/gates.json. */
static void test_sessions_on_threads(dsv4_engine* engine) {
  struct speaker speakers[3] = {{engine, "Do you know the capital of Russia?", ""},
                                {engine, "What languages do you speak?", ""},
                                {engine, "Calculate 59 - 23.", ""}};
  static const char* const kAnswers[3] = {"The capital of Russia is Moscow.",
                                          "I speak English and a few words of other languages.",
                                          "59 - 23 = 36"};
  pthread_t threads[3];
  int i;
  for (i = 0; i < 3; ++i) EXPECT(pthread_create(&threads[i], NULL, speak, &speakers[i]) == 0);
  for (i = 0; i < 3; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
  for (i = 0; i < 3; ++i) EXPECT(strcmp(speakers[i].text, kAnswers[i]) == 0);
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.prefill_chunk_tokens = 16;
  dsv4_engine* engine = open_engine(options);
  test_busy(engine);
  test_sessions_on_threads(engine);
  dsv4_engine_close(engine);
  return 0;
}
