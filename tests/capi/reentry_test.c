/* SPDX-License-Identifier: Apache-2.0
 *
 * A progress callback that uses another session of its engine.
 */
#include <unistd.h>

#include "tests/capi/expect.h"

static const char kQuestion[] = "What is the capital of France?";

/* Between the steps of a prefill its progress may use other sessions. */
static int32_t step_other(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                          dsv4_progress_unit unit) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  (void)phase, (void)done, (void)total, (void)unit;
  EXPECT_OK(dsv4_session_step(user, NULL, NULL, &step, &error));
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
  alarm(120); /* a call that waits for itself ends the test */
  test_progress();
  return 0;
}
