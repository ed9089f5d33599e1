/* SPDX-License-Identifier: Apache-2.0
 * The events of streamed completions. Each becomes a line of `events`; expectations follow from
 * <dsv4/parser.h> and the published chat format by hand.
 */
#include "tests/capi/expect.h"

#define BAR "\xef\xbd\x9c"
#define UNDER "\xe2\x96\x81"
#define EOS "<" BAR "end" UNDER "of" UNDER "sentence" BAR ">"
#define DSML BAR "DSML" BAR

static char events[4096];
static dsv4_parser_event_type last_type;

static void append(const char* text, uint64_t length) {
  const size_t used = strlen(events);
  EXPECT(text != NULL);
  EXPECT(used + length < sizeof events);
  memcpy(events + used, text, length);
  events[used + length] = '\0';
}

/* Writes the event; text and reasoning continue the line of the event before. */
static void record(void* user, const dsv4_parser_event* event) {
  static const char* const names[] = {"?",         "reasoning", "text", "start",
                                      "arguments", "end_call",  "bad",  "end"};
  char number[16];
  EXPECT(user == events);
  EXPECT(event->struct_size == sizeof *event);
  EXPECT(event->type >= DSV4_PARSER_REASONING && event->type <= DSV4_PARSER_END);
  if (event->type != last_type || event->type > DSV4_PARSER_TOOL_CALL_ARGUMENTS) {
    append("\n", 1);
    append(names[event->type], strlen(names[event->type]));
    sprintf(number, "%d", (int)event->call);
    if (event->call >= 0) append(number, strlen(number));
    append(":", 1);
  }
  last_type = event->type;
  append(event->text, event->text_length);
  if (event->id_length > 0) append(" #", 2);
  append(event->id, event->id_length);
  if (event->reason_length > 0) append(" reason", 7);
  EXPECT(event->reason != NULL);
  if (event->type == DSV4_PARSER_TOOL_CALL_END && event->repaired) append(" repaired", 9);
  if (event->incomplete) append(" incomplete", 11);
  if (event->stopped) append(" stopped", 8);
}

static void forget(void) {
  events[0] = '\0';
  last_type = 0;
}

/* The whole completion, and every cut of it into two. */
static void expect_events(dsv4_thinking_mode thinking, const char* completion,
                          const char* expected) {
  dsv4_parser_options options = DSV4_PARSER_OPTIONS_INIT;
  dsv4_parser* parser = NULL;
  const size_t length = strlen(completion);
  size_t cut;
  options.thinking = thinking;
  EXPECT_OK(dsv4_parser_open(&options, &parser, &error));
  for (cut = 0; cut <= length; ++cut) {
    forget();
    EXPECT_OK(dsv4_parser_feed(parser, completion, cut, record, events, &error));
    EXPECT_OK(dsv4_parser_feed(parser, completion + cut, length - cut, record, events, &error));
    EXPECT_OK(dsv4_parser_end(parser, record, events, &error));
    if (strcmp(events, expected) != 0) {
      printf("cut at %d: %s\nexpected: %s\n", (int)cut, events, expected);
      exit(1);
    }
  }
  dsv4_parser_close(parser);
}

#define CALLS "\n\n<" DSML "tool_calls>\n"
#define END_CALLS "</" DSML "tool_calls>" EOS
#define INVOKE(name) "<" DSML "invoke name=\"" name "\">\n"
#define END_INVOKE "</" DSML "invoke>\n"
#define PARAMETER(name, string, value) \
  "<" DSML "parameter name=\"" name "\" string=\"" string "\">" value "</" DSML "parameter>\n"

static void test_events(void) {
  expect_events(DSV4_THINKING_OFF, "Hi, \xc3\xa9mile < 5" EOS,
                "\ntext:Hi, \xc3\xa9mile < 5\nend: stopped");
  expect_events(DSV4_THINKING_HIGH, "Hm.</think>Hi" EOS, "\nreasoning:Hm.\ntext:Hi\nend: stopped");
  expect_events(DSV4_THINKING_MAX, "Hm.", "\nreasoning:Hm.\nend:");
  expect_events(DSV4_THINKING_HIGH,
                "Hm.</think>Hi" CALLS INVOKE("f") PARAMETER("a", "true", "x\"y")
                    PARAMETER("b", "false", "[1]") END_INVOKE INVOKE("g") END_INVOKE END_CALLS,
                "\nreasoning:Hm.\ntext:Hi\nstart0:f #call_0"
                "\narguments0:{\"a\": \"x\\\"y\", \"b\": [1]}\nend_call0:"
                "\nstart1:g #call_1\narguments1:{}\nend_call1:\nend: stopped");
  /* Announced as JSON, and none. */
  expect_events(DSV4_THINKING_OFF,
                "Hi" CALLS INVOKE("f") PARAMETER("a", "false", "Paris") END_INVOKE END_CALLS,
                "\ntext:Hi\nstart0:f #call_0\narguments0:{\"a\": \"Paris\"}\nend_call0: repaired"
                "\nend: stopped");
  /* A marker without a place, malformed markup, a call that the end cuts off, broken bytes. */
  expect_events(DSV4_THINKING_OFF, "a<think>b" EOS,
                "\ntext:a\nbad:<think> reason\ntext:b\nend: stopped");
  expect_events(DSV4_THINKING_OFF, "a" CALLS INVOKE("f") PARAMETER("a", "true", "x") "junk" EOS,
                "\ntext:a\nstart0:f #call_0\narguments0:{\"a\": \"x\"}\nbad0: reason"
                "\ntext:\njunk\nend: stopped");
  expect_events(DSV4_THINKING_OFF,
                "a" CALLS INVOKE("f") PARAMETER("a", "true", "x") "<" DSML "param",
                "\ntext:a\nstart0:f #call_0\narguments0:{\"a\": \"x\"}"
                "\nend0:\n<" DSML "param incomplete");
  expect_events(DSV4_THINKING_OFF, "a\xff\xe2\x82z" EOS,
                "\ntext:a\xef\xbf\xbd\xef\xbf\xbdz\nend: stopped");
}

static void reenter(void* user, const dsv4_parser_event* event) {
  dsv4_parser* parser = (dsv4_parser*)user;
  (void)event;
  EXPECT_FAILS(dsv4_parser_feed(parser, "x", 1, reenter, user, &error), DSV4_ERR_BUSY,
               "parser is in use");
  EXPECT_FAILS(dsv4_parser_end(parser, reenter, user, &error), DSV4_ERR_BUSY, "parser is in use");
}

static void test_arguments(void) {
  dsv4_parser_options options = DSV4_PARSER_OPTIONS_INIT;
  dsv4_parser* parser = NULL;
  dsv4_parser_close(NULL);
  EXPECT_FAILS(dsv4_parser_open(NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT, "parser is NULL");
  options.thinking = 4;
  EXPECT_FAILS(dsv4_parser_open(&options, &parser, &error), DSV4_ERR_INVALID_ARGUMENT,
               "options.thinking is 4");
  options.thinking = DSV4_THINKING_OFF;
  options.id_prefix = "a\xff";
  EXPECT_FAILS(dsv4_parser_open(&options, &parser, &error), DSV4_ERR_INVALID_ARGUMENT,
               "options.id_prefix is not UTF-8 at byte 1");
  options.struct_size = 8;
  EXPECT_FAILS(dsv4_parser_open(&options, &parser, &error), DSV4_ERR_INVALID_ARGUMENT,
               "options.struct_size is 8");
  EXPECT(parser == NULL);
  options.struct_size = sizeof options;
  options.id_prefix = "x-";
  EXPECT_OK(dsv4_parser_open(&options, &parser, &error));
  forget();
  EXPECT_OK(dsv4_parser_feed(parser, CALLS INVOKE("f") END_INVOKE,
                             strlen(CALLS INVOKE("f") END_INVOKE), record, events, &error));
  EXPECT(strcmp(events, "\nstart0:f #x-0\narguments0:{}\nend_call0:") == 0);
  dsv4_parser_close(parser);

  /* Without options: no thinking. */
  EXPECT_OK(dsv4_parser_open(NULL, &parser, &error));
  EXPECT_FAILS(dsv4_parser_feed(NULL, "a", 1, record, events, &error), DSV4_ERR_INVALID_ARGUMENT,
               "parser is NULL");
  EXPECT_FAILS(dsv4_parser_end(NULL, record, events, &error), DSV4_ERR_INVALID_ARGUMENT,
               "parser is NULL");
  EXPECT_FAILS(dsv4_parser_feed(parser, NULL, 1, record, events, &error), DSV4_ERR_INVALID_ARGUMENT,
               "bytes is NULL");
  EXPECT_FAILS(dsv4_parser_feed(parser, "a", 1, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "callback is NULL");
  EXPECT_FAILS(dsv4_parser_end(parser, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "callback is NULL");
  EXPECT_OK(dsv4_parser_feed(parser, NULL, 0, record, events, &error));
  EXPECT_OK(dsv4_parser_feed(parser, "a", 1, reenter, parser, &error));
  EXPECT_OK(dsv4_parser_end(parser, reenter, parser, &error));
  forget();
  EXPECT_OK(dsv4_parser_feed(parser, "b", 1, record, events, &error));
  EXPECT_OK(dsv4_parser_end(parser, record, events, &error));
  EXPECT(strcmp(events, "\ntext:b\nend:") == 0);
  dsv4_parser_close(parser);
}

int main(void) {
  test_events();
  test_arguments();
  return 0;
}
