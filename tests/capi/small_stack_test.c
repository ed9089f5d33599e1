/* SPDX-License-Identifier: Apache-2.0
 * Calls on a thread with the stack that <dsv4/dsv4.h> asks for, with what nests as deep as is read.
 */
#include <pthread.h>

#include "tests/capi/expect.h"

#define BAR "\xef\xbd\x9c"
#define DSML BAR "DSML" BAR
#define EOS "<" BAR "end\xe2\x96\x81of\xe2\x96\x81sentence" BAR ">"

/* Sanitizers make frames larger. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kStackBytes = 1024 * 1024 };
#else
enum { kStackBytes = 128 * 1024 };
#endif

enum { kDepth = 985 }; /* within three more levels at most; 990 are read */

static const dsv4_tokenizer* tokenizer;
static dsv4_session* session;
static char nested[2 * 6000 + 16];

/* `depth` arrays, or objects, in each other. */
static const char* nest(int depth, int objects) {
  char* end = nested;
  for (int i = 0; i < depth; ++i) end += sprintf(end, "%s", objects ? "{\"a\":" : "[");
  *end++ = '1';
  for (int i = 0; i < depth; ++i) *end++ = objects ? '}' : ']';
  *end = '\0';
  return nested;
}

static dsv4_status render(const char* messages) {
  static char prompt[64 * 1024];
  static int32_t ids[64 * 1024];
  size_t needed = 0;
  const dsv4_status status = dsv4_chat_render_text(messages, strlen(messages), NULL, prompt,
                                                   sizeof prompt, &needed, &error);
  EXPECT(status != DSV4_OK || needed <= sizeof prompt);
  if (status != DSV4_OK) return status;
  EXPECT_OK(dsv4_chat_render(tokenizer, messages, strlen(messages), NULL, ids, 64 * 1024, &needed,
                             &error));
  return DSV4_OK;
}

static void count_call(void* ends, const dsv4_parser_event* event) {
  *(int*)ends += event->type == DSV4_PARSER_TOOL_CALL_END;
}

static void* run(void* unused) {
  static char text[64 * 1024], json[64 * 1024];
  const char* const formats[] = {
      "[{\"role\":\"system\",\"content\":\"\",\"response_format\":%s}]",
      "[{\"role\":\"system\",\"content\":\"\",\"tools\":[{\"type\":\"function\",\"function\":{"
      "\"a\":%s}}]}]",
      "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
      "\"arguments\":{\"a\":%s}}}]}]",
      "[{\"role\":\"user\",\"content\":\"\",\"ignored\":%s}]",
  };
  size_t i;
  int objects, ends = 0;
  for (objects = 0; objects < 2; ++objects) {
    for (i = 0; i < sizeof formats / sizeof formats[0]; ++i) {
      sprintf(text, formats[i], nest(kDepth - 3, objects));
      EXPECT_OK(render(text));
      sprintf(text, formats[i], nest(kDepth + 5, objects));
      EXPECT_FAILS(render(text), DSV4_ERR_UNSUPPORTED, "nested deeper than 990");
    }
    /* Arguments as a string, and what only a struct brings. */
    dsv4_message message = DSV4_MESSAGE_INIT;
    const dsv4_message* const list[] = {&message};
    dsv4_tool_call call = DSV4_TOOL_CALL_INIT;
    const dsv4_tool_call* const calls[] = {&call};
    message.role = DSV4_ROLE_SYSTEM;
    message.response_format = nest(kDepth, objects);
    message.response_format_length = strlen(nested);
    EXPECT_OK(dsv4_session_sync_messages(session, list, 1, NULL, NULL, &error));
    message.response_format = NULL;
    message.response_format_length = 0;
    message.role = DSV4_ROLE_ASSISTANT;
    sprintf(json, "{\"a\":%s}", nested);
    call.name = "f";
    call.name_length = 1;
    call.arguments = json;
    call.arguments_length = strlen(json);
    message.tool_calls = calls;
    message.tool_call_count = 1;
    EXPECT_OK(dsv4_session_sync_messages(session, list, 1, NULL, NULL, &error));
    /* A completion with such a value, and deeper. */
    sprintf(text,
            "\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
            "parameter name=\"a\" string=\"false\">%s</" DSML "parameter>\n</" DSML
            "invoke>\n</" DSML "tool_calls>" EOS,
            nest(2000, objects));
    dsv4_parser* parser = NULL;
    EXPECT_OK(dsv4_parser_open(NULL, &parser, &error));
    EXPECT_OK(dsv4_parser_feed(parser, text, strlen(text), count_call, &ends, &error));
    EXPECT_OK(dsv4_parser_end(parser, count_call, &ends, &error));
    dsv4_parser_close(parser);
  }
  EXPECT(ends == 2);
  return unused;
}

int main(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine* engine = NULL;
  pthread_attr_t attributes;
  pthread_t thread;
  options.context_tokens = 16 * 1024;
  engine = open_engine(options);
  session = open_session(engine, NULL);
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  EXPECT(pthread_attr_init(&attributes) == 0);
  EXPECT(pthread_attr_setstacksize(&attributes, kStackBytes) == 0);
  EXPECT(pthread_create(&thread, &attributes, run, NULL) == 0);
  EXPECT(pthread_join(thread, NULL) == 0);
  pthread_attr_destroy(&attributes);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return 0;
}
