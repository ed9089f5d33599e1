/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

static void test_open(void) {
  dsv4_tokenizer* tokenizer = NULL;
  EXPECT_FAILS(dsv4_tokenizer_open(NULL, &tokenizer, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_tokenizer_open(MODEL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "tokenizer is NULL");
  EXPECT_FAILS(dsv4_tokenizer_open(MODEL "/none.json", &tokenizer, &error), DSV4_ERR_NOT_FOUND,
               "none.json");
  EXPECT_FAILS(dsv4_tokenizer_open(MODEL "/../../include", &tokenizer, &error), DSV4_ERR_NOT_FOUND,
               "tokenizer.json");
  EXPECT_FAILS(dsv4_tokenizer_open(MODEL "/../../LICENSE", &tokenizer, &error), DSV4_ERR_CORRUPT,
               "LICENSE");
  EXPECT(tokenizer == NULL);
  dsv4_tokenizer_close(NULL);

  EXPECT_OK(dsv4_tokenizer_open(MODEL "/tokenizer.json", &tokenizer, &error));
  dsv4_tokenizer_close(tokenizer);
}

/* "The capital of Russia is Moscow." and its ids as the HF library gives them: gates.json. */
static const char kText[] = "The capital of Russia is Moscow.";
static const int32_t kIds[] = {278, 581, 299, 1866, 280, 672, 820, 69, 301, 16};
enum { kCount = sizeof kIds / sizeof kIds[0] };

static void test_encode(const dsv4_tokenizer* tokenizer) {
  int32_t ids[64];
  size_t count = 99;
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, kText, strlen(kText), DSV4_ENCODE_PLAIN, NULL, 0,
                                  &count, &error));
  EXPECT(count == kCount);
  memset(ids, 0x55, sizeof ids);
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, kText, strlen(kText), DSV4_ENCODE_PLAIN, ids, 4,
                                  &count, &error));
  EXPECT(count == kCount);
  EXPECT(memcmp(ids, kIds, 4 * sizeof ids[0]) == 0);
  EXPECT(ids[4] == 0x55555555);
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, kText, strlen(kText), DSV4_ENCODE_PLAIN, ids, 64,
                                  &count, &error));
  EXPECT(count == kCount);
  EXPECT(memcmp(ids, kIds, sizeof kIds) == 0);
  EXPECT(ids[kCount] == 0x55555555);

  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, NULL, 0, 0, NULL, 0, &count, &error));
  EXPECT(count == 0);

  /* A marker is a token in trusted text only. */
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, "</think>", 8, DSV4_ENCODE_ADDED_TOKENS, ids, 64,
                                  &count, &error));
  EXPECT(count == 1);
  EXPECT(ids[0] == dsv4_tokenizer_get_added_token(tokenizer, "</think>"));
  EXPECT_OK(
      dsv4_tokenizer_encode(tokenizer, "</think>", 8, DSV4_ENCODE_PLAIN, ids, 64, &count, &error));
  EXPECT(count > 1);

  EXPECT_FAILS(dsv4_tokenizer_encode(NULL, kText, 1, 0, ids, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "tokenizer is NULL");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, NULL, 1, 0, ids, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "text is NULL");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, kText, SIZE_MAX, 0, ids, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "the size of text");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, kText, 1, 0, NULL, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "ids is NULL");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, kText, 1, 0, ids, 64, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "count is NULL");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, kText, 1, 2, ids, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "flags is 2");
  EXPECT_FAILS(dsv4_tokenizer_encode(tokenizer, "ab\xff", 3, 0, ids, 64, &count, &error),
               DSV4_ERR_INVALID_ARGUMENT, "2");
}

static void test_decode(const dsv4_tokenizer* tokenizer) {
  char text[64];
  size_t length = 99;
  EXPECT_OK(dsv4_tokenizer_decode(tokenizer, kIds, kCount, NULL, 0, &length, &error));
  EXPECT(length == strlen(kText));
  memset(text, '#', sizeof text);
  EXPECT_OK(dsv4_tokenizer_decode(tokenizer, kIds, kCount, text, 5, &length, &error));
  EXPECT(length == strlen(kText));
  EXPECT(memcmp(text, "The c#", 6) == 0);
  EXPECT_OK(dsv4_tokenizer_decode(tokenizer, kIds, kCount, text, sizeof text, &length, &error));
  EXPECT(length == strlen(kText));
  EXPECT(memcmp(text, kText, length) == 0);
  EXPECT(text[length] == '#');
  EXPECT_OK(dsv4_tokenizer_decode(tokenizer, NULL, 0, NULL, 0, &length, &error));
  EXPECT(length == 0);

  const int32_t outside[] = {278, 5000};
  const int32_t negative[] = {-7};
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, outside, 2, text, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "5000");
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, negative, 1, text, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "-7");
  EXPECT_FAILS(dsv4_tokenizer_decode(NULL, kIds, 1, text, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "tokenizer is NULL");
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, NULL, 1, text, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "ids is NULL");
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, kIds, SIZE_MAX / 2, text, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "the size of ids");
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, kIds, 1, NULL, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "text is NULL");
  EXPECT_FAILS(dsv4_tokenizer_decode(tokenizer, kIds, 1, text, 64, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "length is NULL");
}

/* Texts whose tokens are parts of characters: in a row, their bytes are the text. */
static void test_token_bytes(const dsv4_tokenizer* tokenizer) {
  static const char kOdd[] = "z\xc3\xa4hlt \xf0\x9f\x99\x82 \xe6\x95\xb0";
  int32_t ids[64];
  char bytes[256], text[64];
  size_t count = 0, length = 0, total = 0;
  int parts = 0;
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, kOdd, strlen(kOdd), DSV4_ENCODE_PLAIN, ids, 64, &count,
                                  &error));
  for (size_t i = 0; i < count; i++) {
    EXPECT_OK(dsv4_tokenizer_get_token_bytes(tokenizer, ids[i], bytes + total, sizeof bytes - total,
                                             &length, &error));
    total += length;
    EXPECT_OK(dsv4_tokenizer_decode(tokenizer, ids + i, 1, text, sizeof text, &length, &error));
    parts += length == 3 && memcmp(text, "\xef\xbf\xbd", 3) == 0;
  }
  EXPECT(total == strlen(kOdd));
  EXPECT(memcmp(bytes, kOdd, total) == 0);
  EXPECT(parts > 0);

  const int32_t end = dsv4_tokenizer_get_added_token(tokenizer, "</think>");
  memset(bytes, '#', sizeof bytes);
  EXPECT_OK(dsv4_tokenizer_get_token_bytes(tokenizer, end, bytes, 3, &length, &error));
  EXPECT(length == 8);
  EXPECT(memcmp(bytes, "</t#", 4) == 0);
  EXPECT_OK(dsv4_tokenizer_get_token_bytes(tokenizer, end, NULL, 0, &length, &error));
  EXPECT(length == 8);
  EXPECT_FAILS(dsv4_tokenizer_get_token_bytes(tokenizer, 5000, bytes, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "5000");
  EXPECT_FAILS(dsv4_tokenizer_get_token_bytes(tokenizer, -1, bytes, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "-1");
  EXPECT_FAILS(dsv4_tokenizer_get_token_bytes(NULL, end, bytes, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "tokenizer is NULL");
  EXPECT_FAILS(dsv4_tokenizer_get_token_bytes(tokenizer, end, NULL, 64, &length, &error),
               DSV4_ERR_INVALID_ARGUMENT, "bytes is NULL");
  EXPECT_FAILS(dsv4_tokenizer_get_token_bytes(tokenizer, end, bytes, 64, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "length is NULL");
}

int main(void) {
  test_open();
  dsv4_tokenizer* tokenizer = NULL;
  EXPECT_OK(dsv4_tokenizer_open(MODEL, &tokenizer, &error));
  test_encode(tokenizer);
  test_decode(tokenizer);
  test_token_bytes(tokenizer);
  EXPECT(dsv4_tokenizer_get_vocab_size(tokenizer) > kIds[3]);
  EXPECT(dsv4_tokenizer_get_vocab_size(tokenizer) <= 2048);
  EXPECT(dsv4_tokenizer_get_vocab_size(NULL) == 0);
  EXPECT(dsv4_tokenizer_get_added_token(tokenizer, "no such token") == -1);
  EXPECT(dsv4_tokenizer_get_added_token(tokenizer, NULL) == -1);
  EXPECT(dsv4_tokenizer_get_added_token(NULL, "</think>") == -1);
  dsv4_tokenizer_close(tokenizer);
  return 0;
}
