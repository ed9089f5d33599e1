/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

/* The call fails and names `argument`. */
#define EXPECT_ARGUMENT(call, argument)                              \
  do {                                                               \
    EXPECT((call) != DSV4_OK);                                       \
    EXPECT(strcmp(dsv4_error_get_argument(error), (argument)) == 0); \
    dsv4_error_free(error);                                          \
    error = NULL;                                                    \
  } while (0)

static void test_arguments(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_sync_options sync = DSV4_SYNC_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_engine* engine = open_bundled();
  dsv4_session* session = open_session(engine, NULL);
  dsv4_tokenizer* tokenizer = NULL;
  const int32_t unknown = 1 << 20;
  int32_t ids[4];
  char text[16];
  size_t count = 0;

  EXPECT(strcmp(dsv4_error_get_argument(NULL), "") == 0);
  EXPECT_ARGUMENT(dsv4_plan(NULL, &options, &info, NULL, 0, &error), "path");
  EXPECT_ARGUMENT(dsv4_plan("/nonexistent", &options, &info, NULL, 0, &error), "");
  options.threads = -1;
  EXPECT_ARGUMENT(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), "options.threads");
  EXPECT_ARGUMENT(dsv4_engine_open(MODEL, &options, &engine, &error), "options.threads");
  options.backend = 77;
  EXPECT_ARGUMENT(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), "options.backend");
  options.struct_size = 8;
  EXPECT_ARGUMENT(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), "options.struct_size");
  EXPECT_ARGUMENT(dsv4_session_get_tokens(NULL, NULL, NULL, &error), "session");
  EXPECT_ARGUMENT(dsv4_session_sync(session, NULL, 0, NULL, NULL, &error), "tokens");
  EXPECT_ARGUMENT(dsv4_session_sync(session, &unknown, 1, NULL, NULL, &error), "tokens");
  sync.log_probs_count = -1;
  EXPECT_ARGUMENT(dsv4_session_sync(session, ids, 0, &sync, NULL, &error), "tokens");
  EXPECT_ARGUMENT(dsv4_session_rewind(session, 5, NULL, &error), "position");
  sampling.top_p = 2;
  EXPECT_ARGUMENT(dsv4_session_set_sampling(session, &sampling, &error), "sampling.top_p");
  EXPECT_ARGUMENT(open_with(engine, &sampling, &session), "sampling.top_p");
  sampling.top_p = 0;
  sampling.banned_tokens = &unknown;
  sampling.banned_count = 1;
  EXPECT_ARGUMENT(dsv4_session_set_sampling(session, &sampling, &error),
                  "sampling.banned_tokens[0]");
  EXPECT_OK(dsv4_tokenizer_open(MODEL, &tokenizer, &error));
  EXPECT_ARGUMENT(dsv4_tokenizer_encode(tokenizer, "\xff", 1, 0, ids, 4, &count, &error), "text");
  EXPECT_ARGUMENT(dsv4_tokenizer_encode(tokenizer, "a", 1, 2, ids, 4, &count, &error), "flags");
  EXPECT_ARGUMENT(dsv4_tokenizer_decode(tokenizer, &unknown, 1, text, sizeof text, &count, &error),
                  "ids");
  dsv4_tokenizer_close(tokenizer);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

int main(void) {
  /* The values are a promise. */
  EXPECT(DSV4_OK == 0 && DSV4_ERR_INVALID_ARGUMENT == -1 && DSV4_ERR_NOT_FOUND == -2);
  EXPECT(DSV4_ERR_IO == -3 && DSV4_ERR_CORRUPT == -4 && DSV4_ERR_UNSUPPORTED == -5);
  EXPECT(DSV4_ERR_OUT_OF_HOST_MEMORY == -6 && DSV4_ERR_OUT_OF_DEVICE_MEMORY == -7);
  EXPECT(DSV4_ERR_CONTEXT_FULL == -8 && DSV4_ERR_OUT_OF_BLOCKS == -9 && DSV4_ERR_CANCELLED == -10);
  EXPECT(DSV4_ERR_BUSY == -11 && DSV4_ERR_DEVICE_LOST == -12);
  EXPECT(DSV4_ERR_VERSION_MISMATCH == -13 && DSV4_ERR_INTERNAL == -14);
  EXPECT(DSV4_ERR_SUSPENDED == -15);

  EXPECT(strcmp(dsv4_status_get_name(DSV4_OK), "OK") == 0);
  EXPECT(strcmp(dsv4_status_get_name(DSV4_ERR_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  EXPECT(strcmp(dsv4_status_get_name(DSV4_ERR_BUSY), "BUSY") == 0);
  EXPECT(strcmp(dsv4_status_get_name(DSV4_ERR_INTERNAL), "INTERNAL") == 0);
  EXPECT(strcmp(dsv4_status_get_name(DSV4_ERR_SUSPENDED), "SUSPENDED") == 0);
  EXPECT(strcmp(dsv4_status_get_name(1), "UNKNOWN") == 0);
  EXPECT(strcmp(dsv4_status_get_name(-16), "UNKNOWN") == 0);
  EXPECT(strcmp(dsv4_status_get_name(INT32_MIN), "UNKNOWN") == 0);

  /* No error. */
  EXPECT(strcmp(dsv4_error_get_message(NULL), "") == 0);
  dsv4_error_free(NULL);

  /* Errors are owned one by one, and are optional. */
  dsv4_error* first = NULL;
  dsv4_error* second = NULL;
  dsv4_tokenizer* tokenizer = NULL;
  EXPECT(dsv4_tokenizer_open("/nonexistent/one", &tokenizer, &first) == DSV4_ERR_NOT_FOUND);
  EXPECT(dsv4_tokenizer_open("/nonexistent/two", &tokenizer, &second) == DSV4_ERR_NOT_FOUND);
  EXPECT(strstr(dsv4_error_get_message(first), "/nonexistent/one") != NULL);
  EXPECT(strstr(dsv4_error_get_message(second), "/nonexistent/two") != NULL);
  EXPECT(dsv4_tokenizer_open("/nonexistent/three", &tokenizer, NULL) == DSV4_ERR_NOT_FOUND);
  dsv4_error_free(second);
  dsv4_error_free(first);

  /* A message is UTF-8, whatever it quotes. */
  EXPECT_FAILS(dsv4_tokenizer_open("/none/a\xff/b", &tokenizer, &error), DSV4_ERR_NOT_FOUND,
               "/none/a\xef\xbf\xbd/b");

  /* A stale pointer is overwritten, on success by NULL. */
  dsv4_error* stale = (dsv4_error*)&tokenizer;
  EXPECT(dsv4_tokenizer_open(MODEL, &tokenizer, &stale) == DSV4_OK);
  EXPECT(stale == NULL);
  dsv4_tokenizer_close(tokenizer);

  /* The argument at fault, in every part of the interface. */
  test_arguments();

  /* A message is one line even when what it names is not. */
  EXPECT_FAILS(dsv4_tokenizer_open("/nonexistent/\x1b[2J\x7f\xc2\x9b"
                                   "1m",
                                   &tokenizer, &error),
               DSV4_ERR_NOT_FOUND, "/nonexistent/ [2J  1m");
  EXPECT_FAILS(dsv4_tokenizer_open("/nonexistent/two\nlines", &tokenizer, &error),
               DSV4_ERR_NOT_FOUND, "nonexistent");
  return 0;
}
