/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

#define EXPECT_REFUSED(field, value, text)                               \
  do {                                                                   \
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;                         \
    dsv4_session* session = NULL;                                        \
    sampling.field = (value);                                            \
    EXPECT_FAILS(dsv4_session_open(engine, &sampling, &session, &error), \
                 DSV4_ERR_INVALID_ARGUMENT, text);                       \
    EXPECT(session == NULL);                                             \
  } while (0)

int main(void) {
  dsv4_engine* engine = open_bundled();
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  EXPECT_FAILS(dsv4_sampling_init(NULL, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_sampling_init(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling is NULL");
  sampling.struct_size = 39;
  EXPECT_FAILS(dsv4_sampling_init(engine, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling.struct_size is 39");

  /* The bundled model's generation_config.json says do_sample: false. */
  memset(&sampling, 0x55, sizeof sampling);
  sampling.struct_size = sizeof sampling;
  EXPECT_OK(dsv4_sampling_init(engine, &sampling, &error));
  EXPECT(sampling.struct_size == sizeof sampling);
  EXPECT(sampling.temperature == 0);
  EXPECT(sampling.reserved == 0);
  EXPECT(sampling.seed == 0);
  EXPECT(sampling.max_tokens == 0);

  EXPECT_REFUSED(temperature, -1, "temperature is -1");
  EXPECT_REFUSED(top_k, -2, "top_k is -2");
  EXPECT_REFUSED(top_p, 1.5f, "top_p is 1.5");
  EXPECT_REFUSED(min_p, -0.5f, "min_p is -0.5");
  EXPECT_REFUSED(max_tokens, -3, "max_tokens is -3");
  EXPECT_REFUSED(reserved, 9, "sampling.reserved is 9");
  EXPECT_REFUSED(struct_size, 8, "sampling.struct_size is 8");

  dsv4_session* session = NULL;
  EXPECT_OK(dsv4_session_open(engine, &sampling, &session, &error));
  sampling.temperature = -1;
  EXPECT_FAILS(dsv4_session_set_sampling(session, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "temperature is -1");
  EXPECT_FAILS(dsv4_session_set_sampling(session, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "sampling is NULL");
  EXPECT_FAILS(dsv4_session_set_sampling(NULL, &sampling, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  sampling.temperature = 0.5f;
  EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return 0;
}
