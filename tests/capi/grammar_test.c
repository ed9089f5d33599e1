/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

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

#define REFUSED(open, source, code, text)                                               \
  do {                                                                                  \
    dsv4_grammar* refused = NULL;                                                       \
    EXPECT_FAILS(open(engine, (source), strlen(source), &refused, &error), code, text); \
    EXPECT(refused == NULL);                                                            \
  } while (0)

static void test_errors(dsv4_engine* engine) {
  dsv4_grammar* grammar = NULL;
  dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  REFUSED(dsv4_grammar_open_schema, "{\"minLength\":-1}", DSV4_ERR_INVALID_ARGUMENT,
          "schema#/minLength: expected an integer of 0 or more");
  REFUSED(dsv4_grammar_open_schema, "{\"a/b\":1}", DSV4_ERR_UNSUPPORTED, "schema#/a~1b");
  REFUSED(dsv4_grammar_open_schema, "{", DSV4_ERR_INVALID_ARGUMENT, "schema: line 1");
  REFUSED(dsv4_grammar_open_schema, "false", DSV4_ERR_INVALID_ARGUMENT, "no text matches");
  REFUSED(dsv4_grammar_open_regex, "(", DSV4_ERR_INVALID_ARGUMENT, "byte 2 of the pattern");
  REFUSED(dsv4_grammar_open_regex, "a\\b", DSV4_ERR_UNSUPPORTED, "of the pattern");
  REFUSED(dsv4_grammar_open_regex, "\xff", DSV4_ERR_INVALID_ARGUMENT, "not UTF-8");
  REFUSED(dsv4_grammar_open_ebnf, "a ::= \"b\"", DSV4_ERR_INVALID_ARGUMENT, "no rule \"root\"");
  EXPECT_FAILS(dsv4_grammar_open_schema(NULL, "{}", 2, &grammar, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_grammar_open_schema(engine, NULL, 2, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "schema is NULL");
  EXPECT_FAILS(dsv4_grammar_open_regex(engine, "a", 1, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "grammar is NULL");
  EXPECT_FAILS(dsv4_grammar_open_tools(engine, "[]", 2, NULL, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "at least one tool");
  options.name = "unknown";
  EXPECT_FAILS(dsv4_grammar_open_tools(engine, kTools, strlen(kTools), &options, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "no tool is named \"unknown\"");
  options.name = NULL;
  options.choice = 3;
  EXPECT_FAILS(dsv4_grammar_open_tools(engine, kTools, strlen(kTools), &options, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.choice is 3");
  options.choice = DSV4_TOOL_CHOICE_AUTO;
  options.lenient = 2;
  EXPECT_FAILS(dsv4_grammar_open_tools(engine, kTools, strlen(kTools), &options, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.lenient is 2");
  options.lenient = 0;
  options.struct_size = 8;
  EXPECT_FAILS(dsv4_grammar_open_tools(engine, kTools, strlen(kTools), &options, &grammar, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.struct_size is 8");
  EXPECT(grammar == NULL);
  EXPECT_FAILS(dsv4_grammar_share(NULL, &grammar, &error), DSV4_ERR_INVALID_ARGUMENT,
               "grammar is NULL");
  dsv4_grammar_close(NULL);
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
  dsv4_grammar *schema = NULL, *regex = NULL, *ebnf = NULL, *tools = NULL;
  char text[2048];
  uint64_t seed;
  EXPECT_OK(dsv4_grammar_open_schema(engine, kSchema, strlen(kSchema), &schema, &error));
  EXPECT_OK(dsv4_grammar_open_regex(engine, "[0-9]{3}", 8, &regex, &error));
  EXPECT_OK(dsv4_grammar_open_ebnf(engine, kRules, strlen(kRules), &ebnf, &error));
  options.choice = DSV4_TOOL_CHOICE_REQUIRED;
  options.name = "stop";
  EXPECT_OK(dsv4_grammar_open_tools(engine, kTools, strlen(kTools), &options, &tools, &error));
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
  }
  dsv4_grammar_close(schema);
  dsv4_grammar_close(regex);
  dsv4_grammar_close(ebnf);
  dsv4_grammar_close(tools);
}

/* The session keeps its grammar; a saved one brings it along; what is shown may be set again. */
static void test_lifetime(dsv4_engine* engine) {
  static uint8_t image[16 << 20];
  dsv4_sampling sampling = DSV4_SAMPLING_INIT, shown = DSV4_SAMPLING_INIT;
  dsv4_session *session = NULL, *loaded = NULL;
  dsv4_grammar *grammar = NULL, *shared = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  char text[2048] = "", rest[2048], again[2048];
  size_t needed = 0;
  EXPECT_OK(dsv4_grammar_open_schema(engine, kSchema, strlen(kSchema), &grammar, &error));
  session = ask(engine, grammar, 1);
  dsv4_grammar_close(grammar);
  EXPECT_OK(dsv4_session_step(session, &step, &error));
  strncat(text, step.text, step.text_length);
  EXPECT_OK(dsv4_session_save_memory(session, image, sizeof image, &needed, &error));
  EXPECT(needed <= sizeof image);

  EXPECT_OK(dsv4_session_get_sampling(session, &shown, &error));
  EXPECT(shown.grammar != NULL);
  EXPECT_OK(dsv4_grammar_share(shown.grammar, &shared, &error));
  shown.temperature = 0;
  EXPECT_OK(dsv4_session_set_sampling(session, &shown, &error));
  EXPECT(generate(session, rest, sizeof rest) == DSV4_FINISH_STOP);
  strcat(text, rest);
  expect_ok_object(text);
  dsv4_session_close(session);

  loaded = open_session(engine, &sampling);
  EXPECT_OK(dsv4_session_get_sampling(loaded, &shown, &error));
  EXPECT(shown.grammar == NULL);
  EXPECT_OK(dsv4_session_load_memory(loaded, image, needed, &error));
  EXPECT_OK(dsv4_session_get_sampling(loaded, &shown, &error));
  EXPECT(shown.grammar != NULL);
  EXPECT(generate(loaded, again, sizeof again) == DSV4_FINISH_STOP);
  EXPECT(strcmp(again, rest) == 0);
  shown.grammar = NULL;
  EXPECT_OK(dsv4_session_set_sampling(loaded, &shown, &error));
  EXPECT_OK(dsv4_session_get_sampling(loaded, &shown, &error));
  EXPECT(shown.grammar == NULL);
  dsv4_session_close(loaded);

  answer(engine, shared, 1, text);
  expect_ok_object(text);
  {
    dsv4_engine* other = open_bundled();
    sampling.grammar = shared;
    EXPECT_FAILS(open_with(other, &sampling, &loaded), DSV4_ERR_INVALID_ARGUMENT,
                 "grammar was opened with another engine");
    dsv4_engine_close(other);
  }
  dsv4_grammar_close(shared);
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
    own->status = dsv4_session_step(own->session, &step, NULL);
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
  EXPECT_OK(dsv4_grammar_open_schema(engine, kSchema, strlen(kSchema), &grammar, &error));
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

int main(void) {
  dsv4_engine* engine = open_bundled();
  test_errors(engine);
  test_answers(engine);
  test_lifetime(engine);
  test_threads(engine);
  dsv4_engine_close(engine);
  return 0;
}
