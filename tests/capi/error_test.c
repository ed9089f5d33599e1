/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

int main(void) {
  /* The values are a promise. */
  EXPECT(DSV4_OK == 0 && DSV4_ERR_INVALID_ARGUMENT == -1 && DSV4_ERR_NOT_FOUND == -2);
  EXPECT(DSV4_ERR_IO == -3 && DSV4_ERR_CORRUPT == -4 && DSV4_ERR_UNSUPPORTED == -5);
  EXPECT(DSV4_ERR_OUT_OF_HOST_MEMORY == -6 && DSV4_ERR_OUT_OF_DEVICE_MEMORY == -7);
  EXPECT(DSV4_ERR_CONTEXT_FULL == -8 && DSV4_ERR_OUT_OF_BLOCKS == -9 && DSV4_ERR_CANCELLED == -10);
  EXPECT(DSV4_ERR_BUSY == -11 && DSV4_ERR_DEVICE_LOST == -12);
  EXPECT(DSV4_ERR_VERSION_MISMATCH == -13 && DSV4_ERR_INTERNAL == -14);

  EXPECT(strcmp(dsv4_status_name(DSV4_OK), "OK") == 0);
  EXPECT(strcmp(dsv4_status_name(DSV4_ERR_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  EXPECT(strcmp(dsv4_status_name(DSV4_ERR_BUSY), "BUSY") == 0);
  EXPECT(strcmp(dsv4_status_name(DSV4_ERR_INTERNAL), "INTERNAL") == 0);
  EXPECT(strcmp(dsv4_status_name(1), "UNKNOWN") == 0);
  EXPECT(strcmp(dsv4_status_name(-15), "UNKNOWN") == 0);
  EXPECT(strcmp(dsv4_status_name(INT32_MIN), "UNKNOWN") == 0);

  /* No error. */
  EXPECT(dsv4_error_code(NULL) == DSV4_OK);
  EXPECT(strcmp(dsv4_error_message(NULL), "") == 0);
  dsv4_error_free(NULL);

  /* Errors are owned one by one, and are optional. */
  dsv4_error* first = NULL;
  dsv4_error* second = NULL;
  dsv4_tokenizer* tokenizer = NULL;
  EXPECT(dsv4_tokenizer_open("/nonexistent/one", &tokenizer, &first) == DSV4_ERR_NOT_FOUND);
  EXPECT(dsv4_tokenizer_open("/nonexistent/two", &tokenizer, &second) == DSV4_ERR_NOT_FOUND);
  EXPECT(strstr(dsv4_error_message(first), "/nonexistent/one") != NULL);
  EXPECT(strstr(dsv4_error_message(second), "/nonexistent/two") != NULL);
  EXPECT(dsv4_error_code(first) == DSV4_ERR_NOT_FOUND);
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

  /* A message is one line even when what it names is not. */
  EXPECT_FAILS(dsv4_tokenizer_open("/nonexistent/two\nlines", &tokenizer, &error),
               DSV4_ERR_NOT_FOUND, "nonexistent");
  return 0;
}
