/* SPDX-License-Identifier: Apache-2.0
 *
 * A token mask that uses another session of its engine: calls that would wait for the mask's step
 * return BUSY, all others work, and the step continues undisturbed.
 */
#include <unistd.h>

#include "tests/capi/expect.h"

static const char kQuestion[] = "What is the capital of France?";
static const char kAnswer[] = "The capital of France is Paris.";

struct intruder {
  dsv4_engine* engine;
  dsv4_session *own, *other, *third;
  int32_t prompt[kMaxPrompt];
  size_t count;
  int calls;
};

static int32_t intrude(void* user, const int32_t* tokens, size_t count, int64_t prompt_tokens,
                       uint32_t* allowed, size_t words) {
  static uint8_t image[4 << 20];
  static const char kBusy[] = "called from a callback inside a step of the engine";
  struct intruder* it = user;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT, *result = &step;
  dsv4_status status = DSV4_OK;
  dsv4_error* failures[1] = {(dsv4_error*)it}; /* no error: to be overwritten */
  dsv4_session* opened = NULL;
  size_t needed = 0;
  (void)tokens, (void)count, (void)prompt_tokens, (void)allowed, (void)words;
  ++it->calls;
  EXPECT_FAILS(dsv4_session_prefill(it->other, 0, NULL, NULL, NULL, &error), DSV4_ERR_BUSY, kBusy);
  EXPECT_FAILS(dsv4_session_step(it->other, &step, &error), DSV4_ERR_BUSY, kBusy);
  EXPECT(step.token == 0 && step.finish == DSV4_FINISH_NONE); /* as it was */
  EXPECT_FAILS(dsv4_engine_step(it->engine, &it->other, 1, &result, &status, failures, &error),
               DSV4_ERR_BUSY, kBusy);
  EXPECT(status == DSV4_ERR_BUSY && failures[0] == NULL);
  EXPECT_FAILS(dsv4_session_step(it->own, &step, &error), DSV4_ERR_BUSY, "in use");

  EXPECT_OK(dsv4_session_open(it->engine, NULL, &opened, &error));
  EXPECT_OK(dsv4_session_sync(opened, it->prompt, it->count, NULL, NULL, &error));
  dsv4_session_close(opened);
  EXPECT_OK(dsv4_session_fork(it->other, &opened, &error));
  EXPECT_OK(dsv4_session_save_memory(it->third, image, sizeof image, &needed, &error));
  EXPECT(needed <= sizeof image);
  EXPECT_OK(dsv4_session_load_memory(opened, image, needed, &error));
  dsv4_session_close(opened);
  dsv4_session_cancel(it->other);
  return 0;
}

static void test_mask(const dsv4_engine_options* options, int together) {
  struct intruder it = {NULL, NULL, NULL, NULL, {0}, 0, 0};
  dsv4_step_result step = DSV4_STEP_RESULT_INIT, *result = &step;
  dsv4_status status = DSV4_OK;
  char text[256] = "";
  it.engine = open_engine(*options);
  it.own = open_session(it.engine, NULL);
  it.other = open_session(it.engine, NULL);
  it.third = open_session(it.engine, NULL);
  it.count = render_question(it.engine, kQuestion, it.prompt);
  EXPECT_OK(dsv4_session_sync(it.own, it.prompt, it.count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_sync(it.other, it.prompt, it.count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_sync(it.third, it.prompt, it.count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(it.third, 0, NULL, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_set_token_mask(it.own, intrude, &it, &error));
  while (step.finish == DSV4_FINISH_NONE) {
    if (together) {
      EXPECT_OK(dsv4_engine_step(it.engine, &it.own, 1, &result, &status, NULL, &error));
      EXPECT(status == DSV4_OK);
    } else {
      EXPECT_OK(dsv4_session_step(it.own, &step, &error));
    }
    strncat(text, step.text, 64);
  }
  EXPECT(strcmp(text, kAnswer) == 0);
  EXPECT(it.calls > 5);
  /* Outside the mask the other one steps, and was not cancelled. */
  EXPECT(generate(it.other, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(text, kAnswer) == 0);
  dsv4_session_close(it.own);
  dsv4_session_close(it.other);
  dsv4_session_close(it.third);
  dsv4_engine_close(it.engine);
}

/* Between the steps of a prefill its progress may use other sessions. */
static int32_t step_other(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                          dsv4_progress_unit unit) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  (void)phase, (void)done, (void)total, (void)unit;
  EXPECT_OK(dsv4_session_step(user, &step, &error));
  return 0;
}

static void test_progress(void) {
  int32_t prompt[kMaxPrompt];
  dsv4_engine* engine = open_bundled();
  const size_t count = render_question(engine, kQuestion, prompt);
  dsv4_session *session = open_session(engine, NULL), *other = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_sync(other, prompt, count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(session, 0, step_other, other, NULL, &error));
  dsv4_session_close(session);
  dsv4_session_close(other);
  dsv4_engine_close(engine);
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.max_sessions = 5;
  alarm(120); /* a call that waits for itself ends the test */
  for (int together = 0; together < 2; ++together) {
    options.threads = 1 + together;
    test_mask(&options, together);
  }
  test_progress();
  return 0;
}
