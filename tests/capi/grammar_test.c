/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* nanosleep */

#include <pthread.h>
#include <time.h>

#include "tests/capi/expect.h"

static const char kSchema[] =
    "{\"type\":\"object\",\"properties\":{\"ok\":{\"type\":\"boolean\"}},\"required\":[\"ok\"],"
    "\"additionalProperties\":false}";
static const char kRules[] = "root ::= \"(\" root \")\" | \"x\"";
static const char kTools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":"
    "\"object\","
    "\"properties\":{\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9}},\"required\":"
    "[\"days\"],\"additionalProperties\":false}}},{\"name\":\"stop\"}]";

#define REFUSED(kind, source, code, text)                                                       \
  do {                                                                                          \
    dsv4_grammar* refused = NULL;                                                               \
    EXPECT_FAILS(dsv4_grammar_open(engine, (kind), (source), strlen(source), &refused, &error), \
                 code, text);                                                                   \
    EXPECT(refused == NULL);                                                                    \
  } while (0)

static void test_errors(dsv4_engine* engine) {
  dsv4_grammar* grammar = NULL;
  dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  REFUSED(DSV4_GRAMMAR_SCHEMA, "{\"minLength\":-1}", DSV4_ERR_INVALID_ARGUMENT,
          "schema#/minLength: expected an integer of 0 or more");
  REFUSED(DSV4_GRAMMAR_SCHEMA, "{\"properties\":{\"a/b\":{\"maxContains\":1}}}",
          DSV4_ERR_UNSUPPORTED, "schema#/properties/a~1b/maxContains");
  REFUSED(DSV4_GRAMMAR_SCHEMA, "{", DSV4_ERR_INVALID_ARGUMENT, "schema: line 1");
  REFUSED(DSV4_GRAMMAR_SCHEMA, "false", DSV4_ERR_INVALID_ARGUMENT, "no text matches");
  REFUSED(DSV4_GRAMMAR_REGEX, "(", DSV4_ERR_INVALID_ARGUMENT, "byte 2 of the pattern");
  REFUSED(DSV4_GRAMMAR_REGEX, "(a)\\1", DSV4_ERR_UNSUPPORTED, "of the pattern");
  REFUSED(DSV4_GRAMMAR_REGEX, "\xff", DSV4_ERR_INVALID_ARGUMENT, "not UTF-8");
  REFUSED(DSV4_GRAMMAR_EBNF, "a ::= \"b\"", DSV4_ERR_INVALID_ARGUMENT, "no rule \"root\"");
  EXPECT_FAILS(dsv4_grammar_open(NULL, DSV4_GRAMMAR_SCHEMA, "{}", 2, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "engine is NULL");
  EXPECT_FAILS(dsv4_grammar_open(engine, DSV4_GRAMMAR_SCHEMA, NULL, 2, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "source is NULL");
  EXPECT_FAILS(dsv4_grammar_open(engine, DSV4_GRAMMAR_REGEX, "a", 1, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "grammar is NULL");
  EXPECT_FAILS(dsv4_grammar_open_answer(engine, "[]", 2, NULL, 0, NULL, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "at least one tool");
  options.name = "unknown";
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error),
      DSV4_ERR_INVALID_ARGUMENT, "no tool is named \"unknown\"");
  options.name = NULL;
  options.choice = 3;
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error),
      DSV4_ERR_INVALID_ARGUMENT, "options.choice is 3");
  options.choice = DSV4_TOOL_CHOICE_AUTO;
  options.lenient = 2;
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error),
      DSV4_ERR_INVALID_ARGUMENT, "options.lenient is 2");
  options.lenient = 0;
  options.quick = -1;
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error),
      DSV4_ERR_INVALID_ARGUMENT, "options.quick is -1");
  options.quick = 0;
  options.struct_size = 8;
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error),
      DSV4_ERR_INVALID_ARGUMENT, "options.struct_size is 8");
  EXPECT(grammar == NULL);
  EXPECT_FAILS(dsv4_grammar_open(engine, 4, "a", 1, &grammar, &error), DSV4_ERR_INVALID_ARGUMENT,
               "kind is 4; expected a DSV4_GRAMMAR_ value");
  dsv4_grammar_close(NULL);
}

/* A schema that takes long to compile is refused at once with `quick`, and before that nothing of
 * it is left out. */
static void test_quick(dsv4_engine* engine) {
  static const char kLong[] =
      "{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"^.*a.*$\"},{\"pattern\":\"^.*b.*$\"},"
      "{\"pattern\":\"^.*c.*$\"},{\"pattern\":\"^.*d.*$\"},{\"pattern\":\"^.*e.*$\"},"
      "{\"pattern\":\"^.*f.*$\"},{\"pattern\":\"^.*g.*$\"},{\"pattern\":\"^.*h.*$\"},"
      "{\"pattern\":\"^.*i.*$\"},{\"pattern\":\"^.*j.*$\"},{\"pattern\":\"^.*k.*$\"},"
      "{\"pattern\":\"^.*l.*$\"},{\"pattern\":\"^.*m.*$\"},{\"pattern\":\"^.*n.*$\"}]}";
  dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  dsv4_grammar *grammar = NULL, *other = NULL;
  options.quick = 1;
  options.lenient = 1;
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, NULL, 0, kLong, strlen(kLong), &options, &grammar, &error),
      DSV4_ERR_UNSUPPORTED, "schema#");
  EXPECT(grammar == NULL);
  EXPECT_OK(dsv4_grammar_open_answer(engine, NULL, 0, kSchema, strlen(kSchema), &options, &grammar,
                                     &error));
  EXPECT_OK(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &other, &error));
  dsv4_grammar_close(grammar);
  dsv4_grammar_close(other);
  options.quick = 0;
  grammar = NULL;
  EXPECT_OK(
      dsv4_grammar_open_answer(engine, NULL, 0, kLong, strlen(kLong), &options, &grammar, &error));
  dsv4_grammar_close(grammar);
}

static void test_unenforced(dsv4_engine* engine) {
  static const char kWaived[] = "{\"pattern\":\"(a)\\\\1\",\"format\":\"mine\"}";
  static const char kExpected[] = "[{\"place\":\"schema#/pattern\",\"reason\":\"";
  dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  dsv4_grammar *lenient = NULL, *exact = NULL, *refused = NULL;
  char json[512];
  size_t needed = 0;
  options.lenient = 1;
  EXPECT_OK(dsv4_grammar_open_answer(engine, NULL, 0, kWaived, strlen(kWaived), &options, &lenient,
                                     &error));
  EXPECT_OK(dsv4_grammar_get_unenforced(lenient, NULL, 0, &needed, &error));
  EXPECT(needed < sizeof json);
  EXPECT_OK(dsv4_grammar_get_unenforced(lenient, json, sizeof json, &needed, &error));
  json[needed] = '\0';
  EXPECT(strncmp(json, kExpected, strlen(kExpected)) == 0);
  EXPECT(strstr(json, "{\"place\":\"schema#/format\",") != NULL);
  EXPECT_OK(dsv4_grammar_open_answer(engine, kTools, strlen(kTools), kSchema, strlen(kSchema), NULL,
                                     &exact, &error));
  EXPECT_OK(dsv4_grammar_get_unenforced(exact, json, sizeof json, &needed, &error));
  EXPECT(needed == 2 && memcmp(json, "[]", 2) == 0);
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, NULL, 0, kWaived, strlen(kWaived), NULL, &refused, &error),
      DSV4_ERR_UNSUPPORTED, "schema#/pattern");
  EXPECT_FAILS(
      dsv4_grammar_open_answer(engine, "{", 1, kSchema, strlen(kSchema), NULL, &refused, &error),
      DSV4_ERR_INVALID_ARGUMENT, "tools: line 1");
  EXPECT_FAILS(dsv4_grammar_open_answer(engine, NULL, 0, NULL, 2, NULL, &refused, &error),
               DSV4_ERR_INVALID_ARGUMENT, "schema is NULL");
  EXPECT_FAILS(dsv4_grammar_get_unenforced(NULL, json, 8, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "grammar is NULL");
  EXPECT_FAILS(dsv4_grammar_get_unenforced(exact, json, 8, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "needed is NULL");
  EXPECT_FAILS(dsv4_grammar_get_unenforced(exact, NULL, 8, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "json is NULL");
  EXPECT(refused == NULL);
  dsv4_grammar_close(lenient);
  dsv4_grammar_close(exact);
}

/* A session that is about to answer with the grammar. */
static dsv4_session* ask(dsv4_engine* engine, const dsv4_grammar* grammar, uint64_t seed) {
  int32_t prompt[kMaxPrompt];
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session* session = NULL;
  const size_t length = render_question(engine, "What is the capital of France?", prompt);
  sampling.temperature = 1.5f;
  sampling.seed = seed;
  sampling.grammar = grammar;
  session = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_sync(session, prompt, length, NULL, NULL, &error));
  return session;
}

static void answer(dsv4_engine* engine, const dsv4_grammar* grammar, uint64_t seed,
                   char text[2048]) {
  dsv4_session* session = ask(engine, grammar, seed);
  EXPECT(generate(session, text, 2048) == DSV4_FINISH_STOP);
  dsv4_session_close(session);
}

/* Without white space. */
static void squeeze(char* text) {
  char* to = text;
  for (; *text != '\0'; ++text) {
    if (strchr(" \t\r\n", *text) == NULL) *to++ = *text;
  }
  *to = '\0';
}

static void expect_ok_object(char* text) {
  squeeze(text);
  EXPECT(strcmp(text, "{\"ok\":true}") == 0 || strcmp(text, "{\"ok\":false}") == 0);
}

static void test_answers(dsv4_engine* engine) {
  static const char kBar[] =
      "<\xef\xbd\x9c"
      "DSML\xef\xbd\x9ctool_calls>";
  dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  dsv4_grammar *schema = NULL, *regex = NULL, *ebnf = NULL, *tools = NULL, *both = NULL;
  char text[2048];
  uint64_t seed;
  EXPECT_OK(
      dsv4_grammar_open(engine, DSV4_GRAMMAR_SCHEMA, kSchema, strlen(kSchema), &schema, &error));
  EXPECT_OK(dsv4_grammar_open(engine, DSV4_GRAMMAR_REGEX, "[0-9]{3}", 8, &regex, &error));
  EXPECT_OK(dsv4_grammar_open(engine, DSV4_GRAMMAR_EBNF, kRules, strlen(kRules), &ebnf, &error));
  options.choice = DSV4_TOOL_CHOICE_REQUIRED;
  options.name = "stop";
  EXPECT_OK(
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &tools, &error));
  options.choice = DSV4_TOOL_CHOICE_AUTO;
  options.name = NULL;
  EXPECT_OK(dsv4_grammar_open_answer(engine, kTools, strlen(kTools), kSchema, strlen(kSchema),
                                     &options, &both, &error));
  for (seed = 1; seed <= 3; ++seed) {
    size_t opened, closed;
    answer(engine, schema, seed, text);
    expect_ok_object(text);
    answer(engine, regex, seed, text);
    EXPECT(strlen(text) == 3 && strspn(text, "0123456789") == 3);
    answer(engine, ebnf, seed, text);
    opened = strspn(text, "(");
    closed = strspn(text + opened + 1, ")");
    EXPECT(text[opened] == 'x' && opened == closed && text[2 * opened + 1] == '\0');
    answer(engine, tools, seed, text);
    EXPECT(strstr(text, kBar) == text + 2);
    EXPECT(strstr(text, "invoke name=\"stop\">") != NULL && strstr(text, "weather") == NULL);
    answer(engine, both, seed, text);
    if (strstr(text, kBar) != text + 2) expect_ok_object(text);
  }
  dsv4_grammar_close(schema);
  dsv4_grammar_close(regex);
  dsv4_grammar_close(ebnf);
  dsv4_grammar_close(tools);
  dsv4_grammar_close(both);
}

/* The session keeps its grammar, and a saved one brings it along. */
static void test_lifetime(dsv4_engine* engine) {
  static uint8_t image[16 << 20];
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session *session = NULL, *loaded = NULL;
  dsv4_grammar* grammar = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  char text[2048] = "", rest[2048], again[2048];
  size_t needed = 0;
  EXPECT_OK(
      dsv4_grammar_open(engine, DSV4_GRAMMAR_SCHEMA, kSchema, strlen(kSchema), &grammar, &error));
  session = ask(engine, grammar, 1);
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  strncat(text, step.text, step.text_length);
  EXPECT_OK(dsv4_session_save_memory(session, image, sizeof image, &needed, &error));
  EXPECT(needed <= sizeof image);

  sampling.grammar = grammar;
  EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
  dsv4_grammar_close(grammar);
  EXPECT(generate(session, rest, sizeof rest) == DSV4_FINISH_STOP);
  strcat(text, rest);
  expect_ok_object(text);
  dsv4_session_close(session);

  sampling.grammar = NULL;
  loaded = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_load_memory(loaded, image, needed, &error));
  EXPECT(generate(loaded, again, sizeof again) == DSV4_FINISH_STOP);
  EXPECT(strcmp(again, rest) == 0);
  dsv4_session_close(loaded);

  {
    dsv4_engine* other = open_bundled();
    EXPECT_OK(dsv4_grammar_open(engine, DSV4_GRAMMAR_REGEX, "a", 1, &grammar, &error));
    sampling.grammar = grammar;
    EXPECT_FAILS(open_with(other, &sampling, &loaded), DSV4_ERR_INVALID_ARGUMENT,
                 "grammar was opened with another engine");
    dsv4_engine_close(other);
  }
  dsv4_grammar_close(grammar);
}

struct Answer {
  dsv4_session* session;
  char text[2048];
  dsv4_status status;
};

static void* step_to_the_end(void* user) {
  struct Answer* own = (struct Answer*)user;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  do {
    own->status = dsv4_session_step(own->session, NULL, NULL, &step, NULL);
    if (own->status != DSV4_OK) return NULL;
    if (strlen(own->text) + step.text_length < sizeof own->text)
      strncat(own->text, step.text, step.text_length);
  } while (step.finish == DSV4_FINISH_NONE);
  return NULL;
}

static void test_threads(dsv4_engine* engine) {
  static struct Answer answers[3];
  dsv4_grammar* grammar = NULL;
  pthread_t threads[3];
  int i;
  EXPECT_OK(
      dsv4_grammar_open(engine, DSV4_GRAMMAR_SCHEMA, kSchema, strlen(kSchema), &grammar, &error));
  for (i = 0; i < 3; ++i) answers[i].session = ask(engine, grammar, (uint64_t)i);
  dsv4_grammar_close(grammar);
  for (i = 0; i < 3; ++i)
    EXPECT(pthread_create(&threads[i], NULL, step_to_the_end, &answers[i]) == 0);
  for (i = 0; i < 3; ++i) {
    EXPECT(pthread_join(threads[i], NULL) == 0);
    EXPECT(answers[i].status == DSV4_OK);
    expect_ok_object(answers[i].text);
    dsv4_session_close(answers[i].session);
  }
}

/* A mask that takes some milliseconds: the other session has a token from each call meanwhile.
 * Returns how many such calls there were. */
static int slow_mask(dsv4_engine* engine) {
  /* In which one session has a token from each call, until its context is full. */
  enum { kMostCalls = 1000 };
  static const char kSlow[] =
      "{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"^.*a.*$\"},{\"pattern\":\"^.*b.*$\"},"
      "{\"pattern\":\"^.*c.*$\"},{\"pattern\":\"^.*d.*$\"},{\"pattern\":\"^.*e.*$\"},"
      "{\"pattern\":\"^.*f.*$\"},{\"pattern\":\"^.*g.*$\"},{\"pattern\":\"^.*h.*$\"},"
      "{\"pattern\":\"^.*i.*$\"},{\"pattern\":\"^.*j.*$\"},{\"pattern\":\"^.*k.*$\"},"
      "{\"pattern\":\"^.*l.*$\"},{\"pattern\":\"^.*m.*$\"},{\"pattern\":\"^.*n.*$\"}]}";
  dsv4_sampling sampling = DSV4_SAMPLING_INIT, endless = DSV4_SAMPLING_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_grammar* grammar = NULL;
  dsv4_session* sessions[2];
  dsv4_step_result slow = DSV4_STEP_RESULT_INIT, other = DSV4_STEP_RESULT_INIT;
  dsv4_step_result* results[2];
  dsv4_status statuses[2] = {DSV4_OK, DSV4_OK};
  int waited = 0;
  results[0] = &slow;
  results[1] = &other;
  sessions[0] = ask(engine, NULL, 1);
  sessions[1] = ask(engine, NULL, 2);
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  endless.banned_tokens = &info.eos_token;
  endless.banned_count = 1;
  EXPECT_OK(dsv4_session_set_sampling(sessions[1], &endless, &error));
  /* Their prompts. */
  do {
    EXPECT_OK(dsv4_engine_step(engine, sessions, 2, NULL, NULL, results, statuses, NULL, &error));
  } while (slow.token < 0 || other.token < 0);
  EXPECT_OK(dsv4_grammar_open(engine, DSV4_GRAMMAR_SCHEMA, kSlow, strlen(kSlow), &grammar, &error));
  sampling.grammar = grammar;
  EXPECT_OK(dsv4_session_set_sampling(sessions[0], &sampling, &error));
  dsv4_grammar_close(grammar);
  for (;;) {
    /* The masks' threads make way for others: on a busy machine they need long. */
    const struct timespec pause = {0, (waited < 100 ? waited : 100) * 1000000L};
    EXPECT_OK(dsv4_engine_step(engine, sessions, 2, NULL, NULL, results, statuses, NULL, &error));
    EXPECT(statuses[1] == DSV4_OK && other.token >= 0);
    if (statuses[0] != DSV4_OK || slow.token >= 0 || waited == kMostCalls) break;
    if (waited > 0) nanosleep(&pause, NULL);
    ++waited;
  }
  /* It was computed in the end, or needs more than the limit. */
  EXPECT(statuses[0] == DSV4_OK || statuses[0] == DSV4_ERR_UNSUPPORTED);
  EXPECT(waited < kMostCalls);
  dsv4_session_close(sessions[0]);
  dsv4_session_close(sessions[1]);
  return waited;
}

/* A step does not wait for such a mask. On a busy machine a mask may be ready before a step looks,
 * but hardly always. */
static void test_slow_mask(dsv4_engine* engine) {
  int rounds = 0;
  while (slow_mask(engine) == 0) {
    EXPECT(rounds < 50);
    ++rounds;
  }
}

int main(void) {
  dsv4_engine* engine = open_bundled();
  test_errors(engine);
  test_quick(engine);
  test_unenforced(engine);
  test_answers(engine);
  test_lifetime(engine);
  test_threads(engine);
  test_slow_mask(engine);
  dsv4_engine_close(engine);
  return 0;
}
