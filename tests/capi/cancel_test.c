/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping a session from another thread: the call ends inside what it computes, and the session
 * continues with the same tokens as a session that was not stopped.
 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <pthread.h>
#include <time.h>

#include "tests/capi/expect.h"

enum { kPrompt = 1500, kAnswer = 24 };

static void fill_prompt(int32_t tokens[kPrompt]) {
  int i;
  for (i = 0; i < kPrompt; ++i) tokens[i] = 3 + (i * 37 + i / 11) % 2000;
}

static void sleep_microseconds(long count) {
  const struct timespec time = {0, count * 1000};
  nanosleep(&time, NULL);
}

/* A thread that stops the session and lets it go, again and again. */
struct canceller {
  dsv4_session* session;
  long go_us, stopped_us;
  pthread_t thread;
  pthread_mutex_t mutex; /* guards running */
  int running;
};

static int runs(struct canceller* canceller) {
  EXPECT(pthread_mutex_lock(&canceller->mutex) == 0);
  const int running = canceller->running;
  EXPECT(pthread_mutex_unlock(&canceller->mutex) == 0);
  return running;
}

static void set_running(struct canceller* canceller, int running) {
  EXPECT(pthread_mutex_lock(&canceller->mutex) == 0);
  canceller->running = running;
  EXPECT(pthread_mutex_unlock(&canceller->mutex) == 0);
}

static void* stop_and_go(void* argument) {
  struct canceller* canceller = argument;
  while (runs(canceller)) {
    long us;
    sleep_microseconds(canceller->go_us);
    dsv4_session_set_stopped(canceller->session, 1);
    for (us = 0; us < canceller->stopped_us && runs(canceller); us += 100) sleep_microseconds(100);
    dsv4_session_set_stopped(canceller->session, 0);
  }
  return NULL;
}

static void start(struct canceller* canceller, long go_us, long stopped_us) {
  canceller->go_us = go_us;
  canceller->stopped_us = stopped_us;
  set_running(canceller, 1);
  EXPECT(pthread_create(&canceller->thread, NULL, stop_and_go, canceller) == 0);
}

static void stop(struct canceller* canceller) {
  set_running(canceller, 0);
  EXPECT(pthread_join(canceller->thread, NULL) == 0);
}

/* The prompt is one pass, which alone can be what is cancelled: nothing of it is kept. Steps are
 * cancelled until three were; what they were to give comes later. */
static void test_from_another_thread(dsv4_engine* engine, const int32_t* prompt,
                                     const int32_t* answer) {
  struct canceller canceller;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  const int32_t* tokens = NULL;
  dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  size_t count = 0;
  int64_t pending = -1;
  int cancelled = 0, i = 0;
  canceller.session = open_session(engine, NULL);
  EXPECT(pthread_mutex_init(&canceller.mutex, NULL) == 0);
  EXPECT_OK(dsv4_session_sync(canceller.session, prompt, kPrompt, NULL, NULL, &error));
  do { /* until the stop came while the call ran */
    start(&canceller, 5000, 60000000);
    EXPECT_FAILS(dsv4_session_prefill(canceller.session, kPrompt - 1, NULL, NULL, NULL, &error),
                 DSV4_ERR_CANCELLED, "with 1500 tokens pending");
    stop(&canceller);
    EXPECT_OK(dsv4_engine_get_metrics(engine, &metrics, &error));
  } while (metrics.cancelled_requests == 0);
  do { /* until a stop came during a step */
    EXPECT_OK(dsv4_session_sync(canceller.session, prompt, kPrompt, NULL, NULL, &error));
    EXPECT_OK(dsv4_session_prefill(canceller.session, 0, NULL, NULL, &pending, &error));
    EXPECT(pending == 0);
    start(&canceller, 100, 100);
    for (i = 0; i < kAnswer;) {
      const dsv4_status status = dsv4_session_step(canceller.session, NULL, NULL, &step, NULL);
      EXPECT(status == DSV4_OK || status == DSV4_ERR_CANCELLED);
      cancelled += status == DSV4_ERR_CANCELLED;
      if (status == DSV4_OK)
        EXPECT(step.token == answer[i++]);
      else
        EXPECT(step.finish == DSV4_FINISH_CANCELLED && step.token == -1 && step.text_length == 0);
      EXPECT_OK(dsv4_session_get_tokens(canceller.session, &tokens, &count, &error));
      EXPECT(count == (size_t)(kPrompt + i));
      if (cancelled == 3) set_running(&canceller, 0);
    }
    stop(&canceller);
  } while (cancelled == 0);
  EXPECT_OK(dsv4_engine_get_metrics(engine, &metrics, &error));
  EXPECT(metrics.cancelled_requests >= 1 && metrics.failed_requests == 0);
  dsv4_session_close(canceller.session);
  EXPECT(pthread_mutex_destroy(&canceller.mutex) == 0);
}

static int32_t cancel_session(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                              dsv4_progress_unit unit) {
  (void)phase, (void)done, (void)total, (void)unit;
  dsv4_session_set_stopped(user, 1);
  return 0;
}

/* From a callback, between passes of 16 tokens: those that are done are kept. */
static void test_from_a_callback(const int32_t* prompt, const int32_t* answer) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  int64_t pending = -1;
  int i;
  options.context_tokens = 2048;
  options.prefill_chunk_tokens = 16;
  dsv4_engine* engine = open_engine(options);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, kPrompt, NULL, NULL, &error));
  EXPECT_FAILS(dsv4_session_prefill(session, 0, cancel_session, session, &pending, &error),
               DSV4_ERR_CANCELLED, "cancelled with 1484 tokens");
  dsv4_session_set_stopped(session, 0);
  EXPECT_OK(dsv4_session_prefill(session, 1, NULL, NULL, &pending, &error));
  EXPECT(pending == kPrompt - 16 - 1);
  for (i = 0; i < kAnswer; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT(step.token == answer[i]);
  }
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

/* A stop meets calls that begin later, whatever they are, until the session is resumed. */
static void test_stopped(dsv4_engine* engine, const int32_t* prompt, const int32_t* answer) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT, *results[1] = {&step};
  dsv4_status status = DSV4_OK;
  dsv4_session* fork = NULL;
  int64_t pending = 0;
  int i;
  dsv4_session_set_stopped(NULL, 1);
  dsv4_session_set_stopped(NULL, 0);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, kPrompt, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  EXPECT(step.token == answer[0]);
  dsv4_session_set_stopped(session, 1);
  for (i = 0; i < 2; ++i) {
    EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_CANCELLED,
                 "stopped");
    EXPECT(step.finish == DSV4_FINISH_CANCELLED && step.token == -1);
    EXPECT_FAILS(dsv4_session_prefill(session, 0, NULL, NULL, &pending, &error), DSV4_ERR_CANCELLED,
                 "stopped");
    EXPECT_OK(dsv4_engine_step(engine, &session, 1, NULL, NULL, results, &status, NULL, &error));
    EXPECT(status == DSV4_ERR_CANCELLED && step.finish == DSV4_FINISH_CANCELLED);
  }
  EXPECT_OK(dsv4_session_fork(session, &fork, &error));
  EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
  EXPECT(step.token == answer[1]);
  dsv4_session_close(fork);
  dsv4_session_set_stopped(session, 0);
  for (i = 1; i < kAnswer; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT(step.token == answer[i]);
  }
  dsv4_session_close(session);
}

int main(void) {
  int32_t prompt[kPrompt], answer[kAnswer];
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  int i;
  fill_prompt(prompt);
  options.context_tokens = 2048;
  options.prefill_chunk_tokens = kPrompt;
  dsv4_engine* engine = open_engine(options);

  /* The tokens of a session that is not cancelled. The other sessions share no rows of it. */
  dsv4_session_options apart = DSV4_SESSION_OPTIONS_INIT;
  dsv4_session* session = NULL;
  apart.cache_salt = 1;
  apart.sampling = &sampling;
  EXPECT_OK(dsv4_session_open(engine, &apart, &session, &error));
  EXPECT_OK(dsv4_session_sync(session, prompt, kPrompt, NULL, NULL, &error));
  for (i = 0; i < kAnswer; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    answer[i] = step.token;
  }
  dsv4_session_close(session);

  test_from_another_thread(engine, prompt, answer);
  test_stopped(engine, prompt, answer);
  dsv4_engine_close(engine);
  test_from_a_callback(prompt, answer);
  return 0;
}
