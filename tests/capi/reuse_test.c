/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are not computed again: rewinds, forks, and prefixes shared by sessions.
 */
#include "tests/capi/expect.h"

/* The case facts-0 of models/dsv4-tiny/gates.json. */
static const char kQuestion[] = "Do you know the capital of Russia?";
static const char kAnswer[] = "The capital of Russia is Moscow.";
enum { kAnswerTokens = 11, kLong = 600 };

static void expect_timeline(const dsv4_session* session, size_t expected) {
  const int32_t* tokens = NULL;
  size_t count = 0;
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT(count == expected);
}

static void test_rewind(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char text[256];
  int64_t pending = -1;
  int kept, i;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  const size_t count = render_question(engine, kQuestion, prompt);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  /* Each turn is a whole answer. The first `kept` tokens of the answer before are kept. */
  for (kept = 0; kept < kAnswerTokens; kept += 5) {
    size_t length = 0;
    text[0] = '\0';
    for (i = 0; i < kept; ++i) {
      dsv4_step_result step = DSV4_STEP_RESULT_INIT;
      EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
      strcat(text, step.text);
    }
    length = strlen(text);
    EXPECT(generate(session, text + length, sizeof text - length) == DSV4_FINISH_STOP);
    EXPECT(strcmp(text, kAnswer) == 0);
    expect_timeline(session, count + kAnswerTokens);

    EXPECT_OK(dsv4_session_rewind(session, (int64_t)count + 4, &pending, &error));
    EXPECT(pending >= 1 && pending <= 5);
    expect_timeline(session, count + 4);
    EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
    EXPECT(stats.generated_tokens == 4 && stats.used_tokens == (int64_t)count + 4);
    EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
    length = strlen(text);
    EXPECT(length < strlen(kAnswer) && strcmp(text, kAnswer + strlen(kAnswer) - length) == 0);

    EXPECT_OK(dsv4_session_rewind(session, (int64_t)count, NULL, &error));
  }
  EXPECT_FAILS(dsv4_session_rewind(session, -1, &pending, &error), DSV4_ERR_INVALID_ARGUMENT,
               "position -1 is not in 0..12");
  EXPECT_FAILS(dsv4_session_rewind(session, 13, &pending, &error), DSV4_ERR_INVALID_ARGUMENT,
               "position 13 is not in 0..12");
  EXPECT_FAILS(dsv4_session_rewind(NULL, 0, &pending, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");

  /* Into the prompt, whose tokens are computed again from its beginning; and to nothing. */
  EXPECT_OK(dsv4_session_rewind(session, 7, &pending, &error));
  EXPECT(pending == 7);
  EXPECT_OK(dsv4_session_rewind(session, 0, &pending, &error));
  EXPECT(pending == 0);
  expect_timeline(session, 0);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "empty");
  dsv4_session_close(session);
}

static void test_fork(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char texts[3][256];
  dsv4_session* sessions[4] = {NULL};
  dsv4_session* one_more = NULL;
  int i;
  const size_t count = render_question(engine, kQuestion, prompt);
  sessions[0] = open_session(engine, NULL);
  EXPECT_FAILS(dsv4_session_fork(sessions[0], NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "fork is NULL");
  EXPECT_FAILS(dsv4_session_fork(NULL, &one_more, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_OK(dsv4_session_sync(sessions[0], prompt, count, NULL, NULL, &error));
  /* Before the prompt is computed, and in the middle of the answer. */
  EXPECT_OK(dsv4_session_fork(sessions[0], &sessions[1], &error));
  texts[0][0] = '\0';
  for (i = 0; i < 4; ++i) {
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    EXPECT_OK(dsv4_session_step(sessions[0], NULL, NULL, &step, &error));
    strcat(texts[0], step.text);
  }
  EXPECT_OK(dsv4_session_fork(sessions[0], &sessions[2], &error));
  EXPECT_OK(dsv4_session_fork(sessions[0], &sessions[3], &error));
  EXPECT_FAILS(dsv4_session_fork(sessions[0], &one_more, &error), DSV4_ERR_OUT_OF_BLOCKS,
               "max_sessions");
  EXPECT(one_more == NULL);
  expect_timeline(sessions[2], count + 4);
  strcpy(texts[2], texts[0]);
  texts[1][0] = '\0';
  /* Each continues independently: with other tokens in shared blocks, and after the session that it
   * was forked from is closed. */
  EXPECT_OK(dsv4_session_sync(sessions[3], prompt + 1, count - 1, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_prefill(sessions[3], 0, NULL, NULL, NULL, &error));
  for (i = 0; i < 3; ++i) {
    const size_t length = strlen(texts[i]);
    EXPECT(generate(sessions[i], texts[i] + length, sizeof texts[i] - length) == DSV4_FINISH_STOP);
    EXPECT(strcmp(texts[i], kAnswer) == 0);
    dsv4_session_close(sessions[i]);
  }
  dsv4_session_close(sessions[3]);
}

static void ignore_event(void* user, const dsv4_parser_event* event) { (void)user, (void)event; }

/* A fork of a session on messages has the messages too, and the turn that is being generated. */
static void test_fork_of_messages(dsv4_engine* engine) {
  dsv4_session* sessions[2] = {NULL, NULL};
  char replies[2][512];
  size_t lengths[2];
  int i;
  EXPECT_OK(open_json_with(engine, NULL, json_of(kQuestion), NULL, &sessions[0]));
  for (i = 0; i < 5; ++i)
    EXPECT_OK(dsv4_session_step(sessions[0], ignore_event, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_fork(sessions[0], &sessions[1], &error));
  for (i = 0; i < 2; ++i) {
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    while (step.finish == DSV4_FINISH_NONE)
      EXPECT_OK(dsv4_session_step(sessions[i], ignore_event, NULL, &step, &error));
    EXPECT_OK(dsv4_session_get_reply_json(sessions[i], replies[i], sizeof replies[i], &lengths[i],
                                          &error));
    dsv4_session_close(sessions[i]);
  }
  EXPECT(lengths[0] == lengths[1] && memcmp(replies[0], replies[1], lengths[0]) == 0);
  replies[0][lengths[0]] = '\0';
  EXPECT(strstr(replies[0], kAnswer) != NULL);
}

/* Syncs and says what was reused. */
static dsv4_sync_result sync_to(dsv4_session* session, const int32_t* tokens, size_t count) {
  dsv4_sync_result result = DSV4_SYNC_RESULT_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  EXPECT_OK(dsv4_session_sync(session, tokens, count, NULL, &result, &error));
  EXPECT(result.reused_tokens + result.pending_tokens == (int64_t)count);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.cached_tokens == result.reused_tokens);
  EXPECT(stats.prefix_cache_tokens == result.prefix_cache_tokens);
  return result;
}

static void expect_reuse(const dsv4_sync_result result, int64_t reused, int64_t from_cache,
                         dsv4_reuse_limit limit, int64_t position) {
  EXPECT(result.reused_tokens == reused);
  EXPECT(result.prefix_cache_tokens == from_cache);
  EXPECT(result.limit == limit);
  EXPECT(result.limit_position == position);
}

static void test_sync(dsv4_engine* engine) {
  int32_t tokens[kLong];
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  int i;
  for (i = 0; i < kLong; ++i) tokens[i] = 3 + (i * 31 + i / 7) % 2000;
  dsv4_session* session = open_session(engine, NULL);
  expect_reuse(sync_to(session, tokens, kLong), 0, 0, DSV4_REUSE_NOT_CACHED, 0);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  expect_reuse(sync_to(session, tokens, kLong), kLong, 0, DSV4_REUSE_ALL, kLong);

  /* Other sessions take the two whole blocks; not those of another salt. */
  dsv4_session* other = open_session(engine, NULL);
  expect_reuse(sync_to(other, tokens, kLong), 512, 512, DSV4_REUSE_INCOMPLETE_BLOCK, 512);
  dsv4_session_close(other);
  dsv4_session_options salted = DSV4_SESSION_OPTIONS_INIT;
  salted.cache_salt = 77;
  EXPECT_OK(dsv4_session_open(engine, &salted, &other, &error));
  expect_reuse(sync_to(other, tokens, kLong), 0, 0, DSV4_REUSE_NOT_CACHED, 0);
  dsv4_session_close(other);

  /* The session's own rows: from the last restore point on, which is no later than the row whose
   * logits are wanted; up to where the tokens differ. */
  expect_reuse(sync_to(session, tokens, 512), 256, 0, DSV4_REUSE_NO_RESTORE_POINT, 511);
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  expect_reuse(sync_to(session, tokens, 512), 511, 0, DSV4_REUSE_LAST_TOKEN, 511);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  expect_reuse(sync_to(session, tokens, kLong), 512, 0, DSV4_REUSE_INCOMPLETE_BLOCK, 512);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  tokens[256] ^= 1;
  expect_reuse(sync_to(session, tokens, kLong), 256, 0, DSV4_REUSE_DIFFERENT, 256);
  dsv4_session_close(session);

  session = open_session(engine, NULL);
  tokens[300] ^= 1;
  sync_to(session, tokens, kLong);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  tokens[400] ^= 1;
  expect_reuse(sync_to(session, tokens, kLong), 256, 0, DSV4_REUSE_NO_RESTORE_POINT, 400);
  dsv4_session_close(session);
}

/* Callers that were built against earlier and later headers. */
static void test_struct_sizes(dsv4_engine* engine) {
  const int32_t tokens[] = {5, 6, 7};
  dsv4_session* session = NULL;
  struct {
    dsv4_session_options known;
    uint64_t later;
  } options = {DSV4_SESSION_OPTIONS_INIT, 0};
  options.known.struct_size = sizeof options;
  EXPECT_OK(dsv4_session_open(engine, &options.known, &session, &error));
  dsv4_session_close(session);
  options.later = 1;
  EXPECT_FAILS(dsv4_session_open(engine, &options.known, &session, &error), DSV4_ERR_UNSUPPORTED,
               "options sets a field at byte 24");
  options.known.struct_size = sizeof options.known - 1;
  EXPECT_FAILS(dsv4_session_open(engine, &options.known, &session, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.struct_size is 23");
  options.known.struct_size = sizeof options.known;
  options.known.reserved = 1;
  EXPECT_FAILS(dsv4_session_open(engine, &options.known, &session, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.reserved is 1");

  session = open_session(engine, NULL);
  dsv4_sync_result result = DSV4_SYNC_RESULT_INIT;
  result.struct_size = sizeof result - 1;
  EXPECT_FAILS(dsv4_session_sync(session, tokens, 3, NULL, &result, &error),
               DSV4_ERR_INVALID_ARGUMENT, "result.struct_size is 47");
  result.struct_size = sizeof result;
  EXPECT_OK(dsv4_session_sync(session, tokens, 3, NULL, &result, &error));
  EXPECT(result.pending_tokens == 3);
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.used_tokens == 3);
  struct {
    dsv4_session_stats known;
    uint64_t later;
  } longer = {DSV4_SESSION_STATS_INIT, UINT64_MAX};
  longer.known.struct_size = sizeof longer;
  EXPECT_OK(dsv4_session_get_stats(session, &longer.known, &error));
  EXPECT(longer.known.used_tokens == 3 && longer.later == 0);

  struct {
    dsv4_sync_options known;
    uint64_t later;
  } sync = {DSV4_SYNC_OPTIONS_INIT, 1};
  sync.known.struct_size = sizeof sync;
  EXPECT_FAILS(dsv4_session_sync(session, tokens, 2, &sync.known, NULL, &error),
               DSV4_ERR_UNSUPPORTED, "options sets a field at byte 16");
  sync.known.struct_size = 15;
  EXPECT_FAILS(dsv4_session_sync(session, tokens, 2, &sync.known, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.struct_size is 15");
  expect_timeline(session, 3);
  dsv4_session_close(session);
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 1024;
  dsv4_engine* engine = open_engine(options);
  test_rewind(engine);
  test_fork(engine);
  test_fork_of_messages(engine);
  test_sync(engine);
  test_struct_sizes(engine);
  dsv4_engine_close(engine);
  return 0;
}
