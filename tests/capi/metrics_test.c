/* SPDX-License-Identifier: Apache-2.0
 *
 * What dsv4_engine_get_metrics counts, against counts by hand and against sessions' statistics; and
 * engines that are suspended.
 */
#include "tests/capi/expect.h"

enum { kPromptTokens = 4, kSteps = 10 };

static const int32_t kPrompt[kPromptTokens] = {0, 300, 301, 302};

static dsv4_engine_metrics metrics_of(const dsv4_engine* engine) {
  dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  EXPECT_OK(dsv4_engine_get_metrics(engine, &metrics, &error));
  EXPECT(metrics.window_blocks_used + metrics.window_blocks_cached <= metrics.window_blocks);
  EXPECT(metrics.compressed_kv_blocks_used + metrics.compressed_kv_blocks_cached <=
         metrics.compressed_kv_blocks);
  EXPECT(metrics.state_slots_used + metrics.state_slots_cached <= metrics.state_slots);
  return metrics;
}

static void step_often(dsv4_session* session, int steps) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (steps-- > 0) EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
}

static void test_counts(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.max_draft_tokens = -1;
  dsv4_engine* engine = open_engine(options);
  dsv4_session *session, *other;
  dsv4_engine_metrics metrics = metrics_of(engine);
  const int32_t* tokens = NULL;
  int32_t copied[kPromptTokens + kSteps];
  size_t count = 0;
  EXPECT(metrics.sessions == 0 && metrics.steps == 0 && metrics.generated_tokens == 0);
  EXPECT(metrics.window_blocks > 0 && metrics.compressed_kv_blocks > 0 && metrics.state_slots > 0);
  EXPECT(metrics.compressed_kv_blocks_used == 0 && metrics.device_lost == 0);

  session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, kPrompt, kPromptTokens, NULL, NULL, &error));
  step_often(session, kSteps);
  metrics = metrics_of(engine);
  EXPECT(metrics.sessions == 1 && metrics.waiting_requests == 0);
  EXPECT(metrics.prompt_tokens == kPromptTokens && metrics.reused_tokens == 0);
  EXPECT(metrics.prefilled_tokens == kPromptTokens && metrics.generated_tokens == kSteps);
  /* The prompt except its last token; then one token at a time. The last one chosen has not been
   * computed. */
  EXPECT(metrics.steps == 1 + kSteps);
  EXPECT(metrics.step_tokens == kPromptTokens + kSteps - 1);
  EXPECT(metrics.step_seconds > 0);
  EXPECT(metrics.window_blocks_used > 0 && metrics.compressed_kv_blocks_used == 1);
  EXPECT(metrics.draft_steps == 0 && metrics.exchanged_bytes == 0);
  EXPECT(metrics.second_set_operators == 0);

  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT(count == kPromptTokens + kSteps);
  memcpy(copied, tokens, sizeof copied);
  EXPECT_OK(dsv4_session_sync(session, copied, count, NULL, NULL, &error));
  metrics = metrics_of(engine);
  EXPECT(metrics.prompt_tokens == kPromptTokens + kPromptTokens + kSteps);
  EXPECT(metrics.reused_tokens == kPromptTokens + kSteps - 1);
  EXPECT(metrics.prefix_cache_tokens == 0);

  other = open_session(engine, NULL);
  EXPECT(metrics_of(engine).sessions == 2);
  dsv4_session_close(other);
  dsv4_session_close(session);
  metrics = metrics_of(engine);
  EXPECT(metrics.sessions == 0 && metrics.compressed_kv_blocks_used == 0);
  EXPECT(metrics.failed_requests == 0 && metrics.cancelled_requests == 0);
  EXPECT(metrics.alarm_nonfinite_logits == 0 && metrics.alarm_frozen_logits == 0);
  dsv4_engine_close(engine);
}

/* The bundled model's canary; and without it. */
static void test_canary(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_engine* engine = open_bundled();
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  EXPECT(info.canary == DSV4_CANARY_PASSED && metrics_of(engine).alarm_canary == 0);
  dsv4_engine_close(engine);
  static const char* const kOff[] = {"canary=off"};
  options.settings = kOff;
  options.setting_count = 1;
  engine = open_engine(options);
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  EXPECT(info.canary == DSV4_CANARY_NONE);
  dsv4_engine_close(engine);
}

static int32_t cancel_at_once(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                              dsv4_progress_unit unit) {
  (void)user, (void)done, (void)total;
  EXPECT(phase == DSV4_PROGRESS_LOAD && unit == DSV4_UNIT_BYTES);
  return 1;
}

/* After 256 tokens of a session that decodes alone, the speed is reported beside the prediction. */
static void test_speed(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  options.max_draft_tokens = -1;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const int32_t never[] = {1}; /* the end of a turn */
  sampling.banned_tokens = never;
  sampling.banned_count = 1;
  dsv4_engine* engine = open_engine(options);
  dsv4_session* session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  EXPECT_OK(dsv4_session_sync(session, kPrompt, kPromptTokens, NULL, NULL, &error));
  step_often(session, 255);
  dsv4_engine_metrics metrics = metrics_of(engine);
  EXPECT(metrics.measured_decode_tokens_per_second == 0);
  EXPECT(metrics.predicted_decode_tokens_per_second == info.predicted_decode_tokens_per_second);
  step_often(session, 1);
  metrics = metrics_of(engine);
  /* All steps but that of the prompt. */
  EXPECT(metrics.measured_decode_tokens_per_second > 256 / metrics.step_seconds);
  EXPECT(metrics.measured_decode_tokens_per_second < 1e7);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

static void test_suspension(void) {
  dsv4_engine* engine = open_bundled();
  dsv4_session* session = open_session(engine, NULL);
  dsv4_session* straight = open_session(engine, NULL);
  dsv4_session* other = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  const int32_t *tokens = NULL, *expected = NULL;
  size_t count = 0, expected_count = 0;
  EXPECT_OK(dsv4_session_sync(straight, kPrompt, kPromptTokens, NULL, NULL, &error));
  step_often(straight, kSteps);
  EXPECT_OK(dsv4_session_sync(session, kPrompt, kPromptTokens, NULL, NULL, &error));
  step_often(session, kSteps / 2);

  EXPECT_FAILS(dsv4_engine_suspend(engine, "/nonexistent", &error), DSV4_ERR_NOT_FOUND,
               "/nonexistent");
  EXPECT(metrics_of(engine).suspended == 0);
  EXPECT_OK(dsv4_engine_suspend(engine, ".", &error));
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_SUSPENDED,
               "suspended");
  EXPECT(metrics_of(engine).suspended == 1 && metrics_of(engine).sessions == 2);
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT(count == kPromptTokens + kSteps / 2);
  other = open_session(engine, NULL);
  EXPECT_FAILS(dsv4_session_sync(other, kPrompt, kPromptTokens, NULL, NULL, &error),
               DSV4_ERR_SUSPENDED, "dsv4_engine_resume");
  dsv4_session_close(other);
  EXPECT_FAILS(dsv4_engine_resume(engine, cancel_at_once, NULL, &error), DSV4_ERR_CANCELLED,
               "cancel");
  EXPECT(metrics_of(engine).suspended == 1);
  EXPECT_OK(dsv4_engine_resume(engine, NULL, NULL, &error));
  EXPECT(metrics_of(engine).suspended == 0);

  step_often(session, kSteps - kSteps / 2);
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT_OK(dsv4_session_get_tokens(straight, &expected, &expected_count, &error));
  EXPECT(count == expected_count && memcmp(tokens, expected, count * sizeof *tokens) == 0);
  EXPECT_FAILS(dsv4_engine_suspend(NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT, "engine");
  EXPECT_FAILS(dsv4_engine_resume(NULL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT, "engine");

  /* An engine that is closed while it is suspended. */
  EXPECT_OK(dsv4_engine_suspend(engine, NULL, &error));
  dsv4_session_close(session);
  dsv4_session_close(straight);
  dsv4_engine_close(engine);
}

static void test_failures(void) {
  static const uint32_t kNone[2048 / 32] = {0};
  dsv4_engine* engine = open_bundled();
  dsv4_session* session = open_session(engine, NULL);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  EXPECT_OK(dsv4_session_sync(session, kPrompt, kPromptTokens, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_set_allowed(session, kNone, 2048 / 32, &error));
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "");
  EXPECT(metrics_of(engine).failed_requests == 1);
  EXPECT(metrics_of(engine).generated_tokens == 0);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

/* Drafts and an exchange between two devices. */
static void test_drafts_and_exchange(void) {
  static const int32_t kDevices[] = {0, 1};
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_engine_metrics metrics;
  dsv4_engine* engine;
  dsv4_session* session;
  dsv4_sampling sampling;
  options.max_draft_tokens = 3;
  options.devices = kDevices;
  options.device_count = 2;
  engine = open_engine(options);
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  sampling.struct_size = sizeof sampling;
  EXPECT_OK(dsv4_sampling_init(engine, &sampling, &error));
  sampling.draft_tokens = 3;
  session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_sync(session, kPrompt, kPromptTokens, NULL, NULL, &error));
  step_often(session, 3 * kSteps);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  metrics = metrics_of(engine);
  EXPECT(stats.drafted_tokens > 0 && stats.accepted_tokens > 0);
  EXPECT(metrics.draft_steps == (uint64_t)stats.draft_steps);
  EXPECT(metrics.drafted_tokens == (uint64_t)stats.drafted_tokens);
  EXPECT(metrics.accepted_tokens == (uint64_t)stats.accepted_tokens);
  EXPECT(info.token_exchange_bytes > 0);
  EXPECT(metrics.exchanged_bytes == metrics.step_tokens * info.token_exchange_bytes);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

static void test_arguments(void) {
  dsv4_engine* engine = open_bundled();
  dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  EXPECT_FAILS(dsv4_engine_get_metrics(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "metrics is NULL");
  EXPECT_FAILS(dsv4_engine_get_metrics(NULL, &metrics, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  dsv4_engine_close(engine);
}

int main(void) {
  test_counts();
  test_canary();
  test_speed();
  test_suspension();
  test_failures();
  test_drafts_and_exchange();
  test_arguments();
  return 0;
}
