/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

#define EXPECT_REFUSED(field, value, text)                                                 \
  do {                                                                                     \
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;                                           \
    dsv4_session* session = NULL;                                                          \
    sampling.field = (value);                                                              \
    EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT, text); \
    EXPECT(session == NULL);                                                               \
  } while (0)

enum { kVocab = 2048, kSteps = 24 };
static const char kQuestion[] = "What is the capital of France?";

/* The first tokens of the answer to a question. None of them ends the turn. */
static void answer(dsv4_engine* engine, const dsv4_sampling* sampling, int count,
                   int32_t tokens[kSteps]) {
  int32_t prompt[kMaxPrompt];
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_session* session = NULL;
  const size_t length = render_question(engine, kQuestion, prompt);
  int i;
  EXPECT_OK(open_with(engine, sampling, &session));
  EXPECT_OK(dsv4_session_sync(session, prompt, length, NULL, NULL, &error));
  for (i = 0; i < count; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    tokens[i] = step.token;
  }
  dsv4_session_close(session);
}

static void test_lists(dsv4_engine* engine) {
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session* session = NULL;
  int32_t plain[kSteps], tokens[kSteps], list[3];
  float biases[2];
  answer(engine, &sampling, 3, plain);

  /* Arrays are copied: what they hold after the call does not matter. */
  list[0] = 300;
  list[1] = 301;
  list[2] = 302;
  sampling.forced_tokens = list;
  sampling.forced_count = 3;
  EXPECT_OK(open_with(engine, &sampling, &session));
  dsv4_session_close(session);
  answer(engine, &sampling, 3, tokens);
  EXPECT(tokens[0] == 300 && tokens[1] == 301 && tokens[2] == 302);
  sampling.forced_count = 1;
  list[0] = plain[0];
  answer(engine, &sampling, 3, tokens);
  EXPECT(memcmp(tokens, plain, 3 * sizeof tokens[0]) == 0);
  list[0] = kVocab;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "forced_tokens[0] is token 2048; expected 0 to 2047");

  /* The likeliest first token is banned; then favoured again. */
  memset(&sampling, 0, sizeof sampling);
  sampling.struct_size = sizeof sampling;
  list[0] = plain[0];
  sampling.banned_tokens = list;
  sampling.banned_count = 1;
  answer(engine, &sampling, 1, tokens);
  EXPECT(tokens[0] != plain[0]);
  list[1] = -1;
  sampling.banned_count = 2;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "banned_tokens[1] is token -1");

  sampling.banned_count = 0;
  list[0] = 400;
  list[1] = 401;
  biases[0] = 99;
  biases[1] = -100;
  sampling.bias_tokens = list;
  sampling.biases = biases;
  sampling.bias_count = 2;
  answer(engine, &sampling, 2, tokens);
  EXPECT(tokens[0] == 400 && tokens[1] == 400);
  biases[0] = -100;
  biases[1] = 100;
  answer(engine, &sampling, 2, tokens);
  EXPECT(tokens[0] == 401 && tokens[1] == 401);
  biases[1] = 101;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "logit_bias[1] of token 401 is 101");

  /* Parameters that are replaced while a session runs. */
  sampling.bias_count = 0;
  EXPECT_OK(open_with(engine, &sampling, &session));
  EXPECT_OK(dsv4_session_sync(session, plain, 3, NULL, NULL, &error));
  sampling.bias_count = 2;
  biases[1] = 100;
  EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
  memset(list, 0, sizeof list);
  memset(biases, 0, sizeof biases);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  EXPECT(step.token == 401);
  dsv4_session_close(session);
}

/* An answer of two tokens alone. The model prefers 501 to 500 by more than 2, but less than 40
 * logits, at each of its first steps. */
static void test_penalties(dsv4_engine* engine) {
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  int32_t tokens[kSteps];
  const int32_t pair[2] = {500, 501};
  const float biases[2] = {100, 100};
  int i, others;
  sampling.bias_tokens = pair;
  sampling.biases = biases;
  sampling.bias_count = 2;
  answer(engine, &sampling, kSteps, tokens);
  for (i = 0; i < kSteps; ++i) EXPECT(tokens[i] == 501);

  /* Once is not enough, every time is. */
  sampling.presence_penalty = 2;
  answer(engine, &sampling, kSteps, tokens);
  for (i = 0; i < kSteps; ++i) EXPECT(tokens[i] == 501);
  sampling.presence_penalty = 0;
  sampling.frequency_penalty = 2;
  answer(engine, &sampling, kSteps, tokens);
  for (i = others = 0; i < kSteps; ++i) others += tokens[i] == 500;
  EXPECT(tokens[0] == 501 && tokens[1] == 501 && others > 0);

  /* Negative logits grow a hundredfold. */
  sampling.frequency_penalty = 0;
  sampling.repetition_penalty = 100;
  answer(engine, &sampling, 2, tokens);
  EXPECT(tokens[0] == 501 && tokens[1] == 500);
}

/* Steps an answer to its end: its text, and how many tokens it has. */
static dsv4_finish speak(dsv4_engine* engine, const dsv4_sampling* sampling, char text[256],
                         size_t* count) {
  int32_t prompt[kMaxPrompt];
  const int32_t* tokens = NULL;
  const size_t length = render_question(engine, kQuestion, prompt);
  dsv4_session* session = open_session(engine, sampling);
  EXPECT_OK(dsv4_session_sync(session, prompt, length, NULL, NULL, &error));
  const dsv4_finish finish = generate(session, text, 256);
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, count, &error));
  *count -= length;
  dsv4_session_close(session);
  return finish;
}

static void test_stops(dsv4_engine* engine) {
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session* session = NULL;
  int32_t plain[kSteps];
  char text[256], head[256], expected[256];
  size_t count;
  sampling.max_tokens = 9;
  answer(engine, &sampling, 9, plain);
  EXPECT(speak(engine, &sampling, text, &count) == DSV4_FINISH_LENGTH && count == 9);

  /* A token ends the turn and gives no text. */
  int32_t stops[2] = {kVocab - 1, 0};
  stops[1] = plain[5];
  sampling.stop_tokens = stops;
  sampling.stop_token_count = 2;
  EXPECT(speak(engine, &sampling, head, &count) == DSV4_FINISH_STOP && count <= 6);
  sampling.stop_token_count = 0;
  sampling.max_tokens = (int64_t)count - 1;
  EXPECT(speak(engine, &sampling, expected, &count) == DSV4_FINISH_LENGTH);
  EXPECT(strcmp(head, expected) == 0);
  stops[0] = kVocab;
  sampling.stop_token_count = 1;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "stop_tokens[0] is token 2048");

  /* A string that lies across tokens; the text ends before it. With lengths, what follows them is
   * not looked at. */
  sampling.stop_token_count = 0;
  sampling.max_tokens = 9;
  const size_t begin = strlen(text) / 2;
  char stop[8] = {0};
  memcpy(stop, text + begin, 4);
  strcpy(expected, text);
  *strstr(expected, stop) = '\0';
  const char* strings[17] = {"no such text", stop};
  sampling.stop_strings = strings;
  sampling.stop_string_count = 2;
  EXPECT(speak(engine, &sampling, head, &count) == DSV4_FINISH_STOP);
  EXPECT(strcmp(head, expected) == 0);
  const uint64_t lengths[2] = {2, 4};
  strings[0] = "\x01\x02 no such text";
  strcpy(stop + 4, "xyz");
  sampling.stop_string_lengths = lengths;
  EXPECT(speak(engine, &sampling, head, &count) == DSV4_FINISH_STOP);
  EXPECT(strcmp(head, expected) == 0);

  sampling.stop_string_lengths = NULL;
  strings[1] = "";
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "stop_strings[1] has 0 bytes; expected 1 to 256");
  strings[1] = NULL;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "sampling.stop_strings[1] is NULL");
  for (count = 0; count < 17; ++count) strings[count] = "a";
  sampling.stop_string_count = 17;
  EXPECT_FAILS(open_with(engine, &sampling, &session), DSV4_ERR_INVALID_ARGUMENT,
               "stop_strings has 17 strings; expected at most 16");
}

/* The prompt opens the reasoning; its end is the token, not its text. */
static void test_thinking_budget(dsv4_engine* engine) {
  const char* messages = json_of(kQuestion);
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  const dsv4_tokenizer* tokenizer = NULL;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  int32_t prompt[kMaxPrompt];
  size_t count = 0;
  int i;
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  const int32_t end = dsv4_tokenizer_get_added_token(tokenizer, "</think>");
  options.thinking = DSV4_THINKING_HIGH;
  EXPECT_OK(dsv4_chat_render(tokenizer, messages, strlen(messages), &options, prompt, kMaxPrompt,
                             &count, &error));
  sampling.max_thinking_tokens = 3;
  dsv4_session* session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  for (i = 0; i < 4; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT((step.token == end) == (i == 3));
  }
  dsv4_session_close(session);
}

/* Drafts change no greedy token, and only happen when asked for. */
static void test_drafts(dsv4_engine* engine) {
  int32_t prompt[kMaxPrompt];
  char plain[256], text[256];
  size_t count;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const dsv4_finish finish = speak(engine, &sampling, plain, &count);
  options.max_draft_tokens = 2;
  dsv4_engine* drafting = open_engine(options);
  const size_t length = render_question(drafting, kQuestion, prompt);
  for (sampling.draft_tokens = -1; sampling.draft_tokens <= 2; ++sampling.draft_tokens) {
    dsv4_session* session = open_session(drafting, &sampling);
    EXPECT_OK(dsv4_session_sync(session, prompt, length, NULL, NULL, &error));
    EXPECT(generate(session, text, sizeof text) == finish);
    EXPECT(strcmp(text, plain) == 0);
    EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
    EXPECT((stats.drafted_tokens > 0) == (sampling.draft_tokens >= 0));
    dsv4_session_close(session);
  }
  dsv4_engine_close(drafting);
}

/* 0 is the model's own value; greedy, all tokens and "off" are values. */
static void test_defaults(dsv4_engine* engine) {
  dsv4_sampling sampling = DSV4_SAMPLING_INIT, defaults = DSV4_SAMPLING_INIT;
  int32_t own[kSteps], tokens[kSteps];
  answer(engine, &sampling, kSteps, own);
  EXPECT_OK(dsv4_sampling_init(engine, &defaults, &error));
  answer(engine, &defaults, kSteps, tokens);
  EXPECT(memcmp(tokens, own, sizeof own) == 0);
  sampling.temperature = DSV4_GREEDY;
  sampling.top_k = -1;
  sampling.top_p = 1;
  sampling.min_p = -1;
  sampling.repetition_penalty = 1;
  sampling.max_tokens = -1;
  answer(engine, &sampling, kSteps, tokens);
  EXPECT(memcmp(tokens, own, sizeof own) == 0);
}

/* Without a seed, two sessions say the same; a drawn seed is reported, and repeats. */
static void test_seeds(dsv4_engine* engine) {
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  int32_t first[kSteps], second[kSteps];
  uint64_t seeds[2];
  int i;
  sampling.temperature = 5;
  answer(engine, &sampling, kSteps, first);
  answer(engine, &sampling, kSteps, second);
  EXPECT(memcmp(first, second, sizeof first) == 0);
  sampling.seed = DSV4_SEED_RANDOM;
  for (i = 0; i < 2; ++i) {
    dsv4_session* session = open_session(engine, &sampling);
    EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
    seeds[i] = stats.seed;
    dsv4_session_close(session);
  }
  EXPECT(seeds[0] != seeds[1] && seeds[0] != DSV4_SEED_RANDOM);
  sampling.seed = seeds[0];
  answer(engine, &sampling, kSteps, first);
  sampling.seed = seeds[1];
  answer(engine, &sampling, kSteps, second);
  EXPECT(memcmp(first, second, sizeof first) != 0);
}

int main(void) {
  dsv4_engine* engine = open_bundled();
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  EXPECT_FAILS(dsv4_sampling_init(NULL, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_sampling_init(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling is NULL");
  sampling.struct_size = sizeof sampling - 1;
  EXPECT_FAILS(dsv4_sampling_init(engine, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling.struct_size is");

  /* The bundled model's generation_config.json says do_sample: false. */
  memset(&sampling, 0x55, sizeof sampling);
  sampling.struct_size = sizeof sampling;
  EXPECT_OK(dsv4_sampling_init(engine, &sampling, &error));
  EXPECT(sampling.struct_size == sizeof sampling);
  EXPECT(sampling.temperature == DSV4_GREEDY);
  EXPECT(sampling.top_k == -1 && sampling.top_p == 1 && sampling.min_p == -1);
  EXPECT(sampling.repetition_penalty == 1);
  EXPECT(sampling.seed == 0);
  EXPECT(sampling.max_tokens == -1);
  EXPECT(sampling.bias_tokens == NULL && sampling.biases == NULL && sampling.bias_count == 0);
  EXPECT(sampling.banned_tokens == NULL && sampling.banned_count == 0);
  EXPECT(sampling.forced_tokens == NULL && sampling.forced_count == 0);

  EXPECT_REFUSED(temperature, -2, "temperature is -2");
  EXPECT_REFUSED(top_k, -2, "top_k is -2");
  EXPECT_REFUSED(top_p, 1.5f, "top_p is 1.5");
  EXPECT_REFUSED(min_p, -0.5f, "min_p is -0.5");
  EXPECT_REFUSED(max_tokens, -3, "max_tokens is -3");
  EXPECT_REFUSED(repetition_penalty, -1, "repetition_penalty is -1");
  EXPECT_REFUSED(presence_penalty, 2.5f, "presence_penalty is 2.5");
  EXPECT_REFUSED(frequency_penalty, -3, "frequency_penalty is -3");
  EXPECT_REFUSED(max_thinking_tokens, -1, "max_thinking_tokens is -1");
  EXPECT_REFUSED(log_probs, 21, "log_probs is 21");
  EXPECT_REFUSED(draft_tokens, 8, "draft_tokens is 8");
  EXPECT_REFUSED(draft_tokens, 2, "max_draft_tokens = 1");
  EXPECT_REFUSED(stop_token_count, 4, "sampling.stop_tokens is NULL, but its size is 4");
  EXPECT_REFUSED(stop_string_count, 5, "sampling.stop_strings is NULL, but its size is 5");
  EXPECT_REFUSED(bias_count, 1, "sampling.bias_tokens is NULL, but its size is 1");
  EXPECT_REFUSED(banned_count, 2, "sampling.banned_tokens is NULL, but its size is 2");
  EXPECT_REFUSED(forced_count, 3, "sampling.forced_tokens is NULL, but its size is 3");
  EXPECT_REFUSED(struct_size, 8, "sampling.struct_size is 8");

  dsv4_session* session = NULL;
  EXPECT_OK(open_with(engine, &sampling, &session));
  sampling.temperature = -2;
  EXPECT_FAILS(dsv4_session_set_sampling(session, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "temperature is -2");
  EXPECT_FAILS(dsv4_session_set_sampling(session, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling is NULL");
  EXPECT_FAILS(dsv4_session_set_sampling(NULL, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  sampling.temperature = 0.5f;
  EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
  dsv4_session_close(session);
  test_lists(engine);
  test_penalties(engine);
  test_stops(engine);
  test_thinking_budget(engine);
  test_drafts(engine);
  test_defaults(engine);
  test_seeds(engine);
  dsv4_engine_close(engine);
  return 0;
}
