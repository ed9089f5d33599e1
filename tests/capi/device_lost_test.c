/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA device that has too little memory, and one that fails: both are told by their own code,
 * and everything can be closed. The program exits with 77 where there is no device.
 */
#include "tests/capi/device_fault.h"
#include "tests/capi/expect.h"

static dsv4_engine_options cuda_options(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.backend = DSV4_BACKEND_CUDA;
  options.context_tokens = 1024;
  options.max_draft_tokens = 2;
  return options;
}

/* Memory that another program takes while weights are read. */
static void* taken[64];
static size_t taken_count;

static int32_t take_all(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                        dsv4_progress_unit unit) {
  size_t bytes = free_device_bytes();
  (void)user, (void)phase, (void)done, (void)total, (void)unit;
  while (bytes >= 1u << 20 && taken_count < 64) {
    void* memory = take_device_memory(bytes);
    if (memory == NULL) {
      bytes /= 2;
    } else {
      taken[taken_count++] = memory;
    }
  }
  return 0;
}

static void test_memory(void) {
  dsv4_engine* engine = NULL;
  dsv4_engine_options options = cuda_options();
  size_t left[3];
  int round;
  options.cache_tokens = (int64_t)1 << 33;
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_OUT_OF_DEVICE_MEMORY,
               "bytes free; the plan takes ");
  EXPECT(engine == NULL);
  options.cache_tokens = 8 << 20; /* more than the pieces that take_all leaves */
  options.progress = take_all;
  for (round = 0; round < 3; ++round) {
    EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_OUT_OF_DEVICE_MEMORY,
                 "bytes for the key/value cache");
    EXPECT(engine == NULL);
    while (taken_count > 0) give_back_device_memory(taken[--taken_count]);
    dsv4_engine_close(open_engine(cuda_options()));
    left[round] = free_device_bytes();
  }
  /* What the driver keeps for kernels that ran, it has by the first round. */
  if (left[2] != left[1]) printf("%zu bytes are left after %zu\n", left[2], left[1]);
  EXPECT(left[2] == left[1]);
}

static void test_fault(void) {
  enum { kPrompt = 40 };
  int32_t prompt[kPrompt];
  size_t needed = 0;
  uint8_t* image;
  dsv4_step_result result = DSV4_STEP_RESULT_INIT;
  dsv4_engine_options options = cuda_options();
  dsv4_engine* engine = open_engine(options);
  dsv4_engine* second = NULL;
  dsv4_session *session = NULL, *other = NULL;
  int i;
  for (i = 0; i < kPrompt; ++i) prompt[i] = 3 + i * 37;
  EXPECT_OK(dsv4_session_open(engine, NULL, &session, &error));
  EXPECT_OK(dsv4_session_open(engine, NULL, &other, &error));
  EXPECT_OK(dsv4_session_sync(session, prompt, kPrompt, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_sync(other, prompt, kPrompt, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &result, &error));
  EXPECT_OK(dsv4_session_save_memory(session, NULL, 0, &needed, &error));
  image = malloc(needed);
  EXPECT(image != NULL);
  EXPECT_OK(dsv4_session_save_memory(session, image, needed, &needed, &error));

  provoke_device_fault();
  for (i = 0; i < 3; ++i) {
    EXPECT_FAILS(dsv4_session_step(session, NULL, NULL, &result, &error), DSV4_ERR_DEVICE_LOST,
                 "cuda:0: ");
    EXPECT_FAILS(dsv4_session_prefill(other, 0, NULL, NULL, NULL, &error), DSV4_ERR_DEVICE_LOST,
                 "cuda:0: ");
  }
  EXPECT_FAILS(dsv4_session_save_memory(session, image, needed, &needed, &error),
               DSV4_ERR_DEVICE_LOST, "cuda:0: ");
  EXPECT_FAILS(dsv4_session_load_memory(other, image, needed, &error), DSV4_ERR_DEVICE_LOST,
               "cuda:0: ");
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &second, &error), DSV4_ERR_DEVICE_LOST, "cuda:0");
  EXPECT(second == NULL);
  free(image);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  dsv4_session_close(other);
  /* Other backends are as before. */
  options.backend = DSV4_BACKEND_CPU;
  dsv4_engine_close(open_engine(options));
}

int main(void) {
  if (!has_device()) {
    printf("skipped: no CUDA device\n");
    return 77;
  }
  test_memory();
  test_fault(); /* nothing works on the device after it */
  return 0;
}
