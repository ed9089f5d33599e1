/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the C clients in this folder. A failed one prints where and why and ends the program; a
 * program that passes prints nothing.
 */
#ifndef TESTS_CAPI_EXPECT_H_
#define TESTS_CAPI_EXPECT_H_

#include <dsv4/dsv4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL DSV4_SOURCE_DIR "/models/dsv4-tiny"
/* The same with a DSpark drafter in place of the MTP block. */
#define DSPARK_MODEL DSV4_BUILT_MODELS "/dsv4-tiny-dspark"

/* What calls inside EXPECT_OK and EXPECT_FAILS pass as their last argument. */
static dsv4_error* error;

#define EXPECT(condition)                                              \
  do {                                                                 \
    if (!(condition)) {                                                \
      printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

#define EXPECT_OK(call) expect_status((call), DSV4_OK, "", __FILE__, __LINE__, #call)

/* The call fails with `code` and a message that contains `text`. */
#define EXPECT_FAILS(call, code, text) \
  expect_status((call), (code), (text), __FILE__, __LINE__, #call)

static inline void expect_status(dsv4_status status, dsv4_status code, const char* text,
                                 const char* file, int line, const char* call) {
  const char* message = dsv4_error_get_message(error);
  if (status != code || (error == NULL) != (code == DSV4_OK) || strstr(message, text) == NULL ||
      strchr(message, '\n') != NULL) {
    printf("%s:%d: %s: %s \"%s\"; expected %s with \"%s\"\n", file, line, call,
           dsv4_status_get_name(status), message, dsv4_status_get_name(code), text);
    exit(1);
  }
  dsv4_error_free(error);
  error = NULL;
}

/* The bundled model with a short context and the other given options. */
static inline dsv4_engine* open_engine(dsv4_engine_options options) {
  dsv4_engine* engine = NULL;
  if (options.context_tokens == 0) options.context_tokens = 512;
  EXPECT_OK(dsv4_engine_open(MODEL, &options, &engine, &error));
  EXPECT(engine != NULL);
  return engine;
}

static inline dsv4_engine* open_bundled(void) {
  const dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  return open_engine(options);
}

/* For EXPECT_OK and EXPECT_FAILS. `sampling` may be NULL. */
static inline dsv4_status open_with(dsv4_engine* engine, const dsv4_sampling* sampling,
                                    dsv4_session** session) {
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  options.sampling = sampling;
  return dsv4_session_open(engine, &options, session, &error);
}

static inline dsv4_session* open_session(dsv4_engine* engine, const dsv4_sampling* sampling) {
  dsv4_session* session = NULL;
  EXPECT_OK(open_with(engine, sampling, &session));
  EXPECT(session != NULL);
  return session;
}

static inline dsv4_message message_of(dsv4_role role, const char* content) {
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = role;
  message.content = content;
  message.content_length = strlen(content);
  return message;
}

enum { kMaxPrompt = 2048 };

/* A JSON array with one message of a user. `question` needs no escapes. */
static inline const char* json_of(const char* question) {
  static char json[1024];
  EXPECT(strpbrk(question, "\"\\\n") == NULL && strlen(question) < sizeof json - 64);
  snprintf(json, sizeof json, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
  return json;
}

/* The prompt of one user message. Returns its length. */
static inline size_t render_question(const dsv4_engine* engine, const char* question,
                                     int32_t ids[kMaxPrompt]) {
  const char* messages = json_of(question);
  const dsv4_tokenizer* tokenizer = NULL;
  size_t count = 0;
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  EXPECT_OK(dsv4_chat_render(tokenizer, messages, strlen(messages), NULL, ids, kMaxPrompt, &count,
                             &error));
  EXPECT(count > 0 && count <= kMaxPrompt);
  return count;
}

/* Opens a session on JSON messages. For EXPECT_OK and EXPECT_FAILS; *session is NULL on failure. */
static inline dsv4_status open_json_with(dsv4_engine* engine, const dsv4_session_options* options,
                                         const char* messages, const dsv4_chat_options* chat,
                                         dsv4_session** session) {
  dsv4_status status = dsv4_session_open(engine, options, session, &error);
  if (status != DSV4_OK) return status;
  status = dsv4_session_sync_json(*session, messages, strlen(messages), chat, NULL, &error);
  if (status == DSV4_OK) return status;
  dsv4_session_close(*session);
  *session = NULL;
  return status;
}

/* Steps to the end of the turn; the text goes to `text`. Returns the finish reason. */
static inline dsv4_finish generate(dsv4_session* session, char* text, size_t capacity) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  size_t length = 0;
  while (step.finish == DSV4_FINISH_NONE) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT(step.text != NULL && strlen(step.text) == step.text_length);
    EXPECT(length + step.text_length < capacity);
    memcpy(text + length, step.text, step.text_length);
    length += step.text_length;
  }
  text[length] = '\0';
  return step.finish;
}

#endif /* TESTS_CAPI_EXPECT_H_ */
