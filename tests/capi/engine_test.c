/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/resource.h>

#include "tests/capi/expect.h"

struct progress {
  int calls;
  dsv4_progress_phase phase;
  uint64_t done, total;
  int32_t answer;
};

static int32_t note_progress(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                             dsv4_progress_unit unit) {
  struct progress* progress = user;
  EXPECT(done <= total);
  EXPECT(progress->calls == 0 || done >= progress->done);
  ++progress->calls;
  progress->phase = phase;
  progress->done = done;
  progress->total = total;
  EXPECT(unit == DSV4_UNIT_BYTES);
  return progress->answer;
}

static void test_arguments(void) {
  dsv4_engine* engine = NULL;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  const dsv4_tokenizer* tokenizer = NULL;
  EXPECT_FAILS(dsv4_engine_open(NULL, NULL, &engine, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_engine_open(MODEL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_engine_open("/nonexistent", NULL, &engine, &error), DSV4_ERR_NOT_FOUND,
               "/nonexistent");
  EXPECT_FAILS(dsv4_engine_get_info(NULL, &info, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT_FAILS(dsv4_engine_get_tokenizer(NULL, &tokenizer, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  EXPECT(engine == NULL);
  dsv4_engine_close(NULL);
}

/* Sets one field of otherwise default options. */
#define EXPECT_REFUSED(field, value, code, text)                                  \
  do {                                                                            \
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;                       \
    dsv4_engine* engine = NULL;                                                   \
    options.field = (value);                                                      \
    EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), code, text); \
    EXPECT(engine == NULL);                                                       \
  } while (0)

static void test_options(void) {
  EXPECT_REFUSED(backend, 9, DSV4_ERR_INVALID_ARGUMENT, "options.backend is 9");
  EXPECT_REFUSED(backend, -1, DSV4_ERR_INVALID_ARGUMENT, "options.backend is -1");
  EXPECT_REFUSED(device_count, 9, DSV4_ERR_INVALID_ARGUMENT, "options.device_count is 9");
  EXPECT_REFUSED(device_count, UINT32_MAX, DSV4_ERR_INVALID_ARGUMENT, "options.device_count");
  EXPECT_REFUSED(context_tokens, -1, DSV4_ERR_INVALID_ARGUMENT, "context_tokens");
  EXPECT_REFUSED(context_tokens, 16385, DSV4_ERR_INVALID_ARGUMENT, "context_tokens");
  EXPECT_REFUSED(cache_tokens, -1, DSV4_ERR_INVALID_ARGUMENT, "cache_tokens");
  EXPECT_REFUSED(cache_tokens, INT64_MAX, DSV4_ERR_INVALID_ARGUMENT, "cache_tokens");
  EXPECT_REFUSED(cache_tokens, INT64_C(1) << 40, DSV4_ERR_INVALID_ARGUMENT, "1099511627776 tokens");
  EXPECT_REFUSED(max_sessions, -1, DSV4_ERR_INVALID_ARGUMENT, "max_sessions");
  EXPECT_REFUSED(max_sessions, INT32_MAX, DSV4_ERR_INVALID_ARGUMENT, "max_sessions");
  EXPECT_REFUSED(prefill_chunk_tokens, -1, DSV4_ERR_INVALID_ARGUMENT, "prefill_chunk_tokens");
  EXPECT_REFUSED(threads, -1, DSV4_ERR_INVALID_ARGUMENT, "threads");
  EXPECT_REFUSED(max_draft_tokens, 8, DSV4_ERR_INVALID_ARGUMENT, "max_draft_tokens");
  EXPECT_REFUSED(max_draft_tokens, -2, DSV4_ERR_INVALID_ARGUMENT, "max_draft_tokens");
  EXPECT_REFUSED(drafter, 5, DSV4_ERR_INVALID_ARGUMENT, "options.drafter is 5");
  EXPECT_REFUSED(device_weight_bytes, -1, DSV4_ERR_INVALID_ARGUMENT, "device_weight_bytes = -1");
  EXPECT_REFUSED(host_weight_bytes, -1, DSV4_ERR_INVALID_ARGUMENT, "host_weight_bytes = -1");
  EXPECT_REFUSED(setting_count, 1, DSV4_ERR_INVALID_ARGUMENT, "options.settings is NULL");
  EXPECT_REFUSED(struct_size, 0, DSV4_ERR_INVALID_ARGUMENT, "options.struct_size is 0");
  EXPECT_REFUSED(struct_size, sizeof options - 1, DSV4_ERR_INVALID_ARGUMENT,
                 "options.struct_size is");
  EXPECT_REFUSED(struct_size, UINT32_MAX, DSV4_ERR_INVALID_ARGUMENT, "options.struct_size");

  const int32_t other_device[] = {5};
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  /* The CPU keeps a limit of device memory by using none. */
  options.context_tokens = 512;
  options.device_weight_bytes = 1;
  dsv4_engine_info limited = DSV4_ENGINE_INFO_INIT;
  EXPECT(dsv4_plan(MODEL, &options, &limited, NULL, 0, NULL) == DSV4_OK);
  options.backend = DSV4_BACKEND_CPU;
  EXPECT(dsv4_plan(MODEL, &options, &limited, NULL, 0, NULL) == DSV4_OK);
  EXPECT(limited.device_count == 1 && limited.backend_reason[0] == '\0');
  EXPECT(limited.second_set_operators[0] == '\0');
  /* A number of devices without their indices. */
  options.device_count = 2;
  EXPECT(dsv4_plan(MODEL, &options, &limited, NULL, 0, NULL) == DSV4_OK);
  EXPECT(limited.device_count == 2);
  options = (dsv4_engine_options)DSV4_ENGINE_OPTIONS_INIT;
  EXPECT(dsv4_plan(MODEL, &options, &limited, NULL, 0, NULL) == DSV4_OK);
  EXPECT(strstr(limited.backend_reason, "the CPU: about ") != NULL ||
         strstr(limited.backend_reason, "; not the CPU: about ") != NULL);
  dsv4_engine* engine = NULL;
  options.device_count = 1;
  options.devices = other_device;
  EXPECT(dsv4_engine_open(MODEL, &options, &engine, NULL) != DSV4_OK);
  const int32_t first_device[] = {0};
  options.devices = first_device;
  dsv4_engine_close(open_engine(options));

  const int32_t twice[] = {0, 0};
  options.device_count = 2;
  options.devices = twice;
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_INVALID_ARGUMENT,
               "option devices names 0 twice");
}

/* Rare options are texts: each with its error, which names the place and what is known. */
static void test_settings(void) {
  static const struct {
    const char* setting;
    dsv4_status code;
    const char* text;
  } cases[] = {
      {"numeric=exact", DSV4_ERR_INVALID_ARGUMENT,
       "options.settings[1] has the unknown key \"numeric\"; known keys: cache_format, canary, "
       "drafter_model, expert_profile, expert_profiles, numerics, step_limit_seconds, tuning_dir"},
      {"numerics", DSV4_ERR_INVALID_ARGUMENT, "is \"numerics\"; expected KEY=VALUE"},
      {"", DSV4_ERR_INVALID_ARGUMENT, "expected KEY=VALUE"},
      {NULL, DSV4_ERR_INVALID_ARGUMENT, "options.settings[1] is NULL"},
      {"numerics=fp64", DSV4_ERR_INVALID_ARGUMENT,
       "is \"numerics=fp64\"; known values: published, fp32, exact"},
      {"numerics=exact", DSV4_ERR_UNSUPPORTED, "reference"},
      {"canary=1", DSV4_ERR_INVALID_ARGUMENT, "known values: on, off"},
      {"cache_format=fp8", DSV4_ERR_INVALID_ARGUMENT,
       "known values: packed, bf16, fp8_per_tensor, f32"},
      {"cache_format=f32", DSV4_ERR_UNSUPPORTED,
       "option cache_format = f32 with published numerics"},
      {"step_limit_seconds=soon", DSV4_ERR_INVALID_ARGUMENT,
       "options.settings[1] is \"step_limit_seconds=soon\"; expected 0 (no limit) to 86400 "
       "seconds"},
      {"step_limit_seconds=-1", DSV4_ERR_INVALID_ARGUMENT, "expected 0 (no limit) to 86400"},
      {"step_limit_seconds=nan", DSV4_ERR_INVALID_ARGUMENT, "expected 0 (no limit) to 86400"},
      {"tuning_dir=tables", DSV4_ERR_UNSUPPORTED,
       "option tuning_dir = tables: backend cpu has no tuning tables"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    const char* const settings[] = {"numerics=published", cases[i].setting};
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.settings = settings;
    options.setting_count = 2;
    EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), cases[i].code, cases[i].text);
  }
  /* The last one of a key counts. */
  {
    const char* const settings[] = {"cache_format=f32", "cache_format=bf16"};
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.settings = settings;
    options.setting_count = 2;
    EXPECT_OK(dsv4_plan(MODEL, &options, &info, NULL, 0, &error));
    EXPECT(strcmp(info.cache_format, "bf16") == 0);
  }
  /* AUTO that takes the CPU waits for no driver; the CPU on request has no such setting. */
  {
    const char* const setting = "step_limit_seconds=0.5";
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.settings = &setting;
    options.setting_count = 1;
    EXPECT_OK(dsv4_plan(MODEL, &options, &info, NULL, 0, &error));
    options.backend = DSV4_BACKEND_CPU;
    EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_UNSUPPORTED,
                 "option step_limit_seconds: backend cpu waits for no driver");
  }
}

/* Two devices: the plan counts what lies on each. */
static void test_two_devices(void) {
  const int32_t both[] = {0, 1};
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info one = DSV4_ENGINE_INFO_INIT, two = DSV4_ENGINE_INFO_INIT;
  options.context_tokens = 512;
  EXPECT(dsv4_plan(MODEL, &options, &one, NULL, 0, NULL) == DSV4_OK);
  options.device_count = 2;
  options.devices = both;
  EXPECT(dsv4_plan(MODEL, &options, &two, NULL, 0, NULL) == DSV4_OK);
  EXPECT(one.device_count == 1 && two.device_count == 2);
  EXPECT(one.step_exchanges == 0 && one.token_exchange_bytes == 0);
  /* Four of each of 6 layers, and the logits. */
  EXPECT(two.step_exchanges == 25 && two.token_exchange_bytes > 0);
  EXPECT(one.device_weight_bytes == one.weight_bytes && one.device_cache_bytes == one.cache_bytes);
  EXPECT(two.weight_bytes == one.weight_bytes && two.cache_bytes == 2 * one.cache_bytes);
  EXPECT(two.cache_bytes == two.cache_window_bytes + two.cache_compressed_bytes +
                                two.cache_index_bytes + two.cache_state_bytes);
  EXPECT(two.device_weight_bytes < two.weight_bytes && two.device_cache_bytes == one.cache_bytes);
  EXPECT(two.device_workspace_bytes > 0 && two.device_workspace_bytes < two.workspace_bytes);

  /* The devices' bytes are those of the engine, planned and opened. */
  dsv4_engine* engine = NULL;
  dsv4_engine_info opened = DSV4_ENGINE_INFO_INIT;
  EXPECT_OK(dsv4_engine_open(MODEL, &options, &engine, &error));
  EXPECT_OK(dsv4_engine_get_info(engine, &opened, &error));
  opened.canary = two.canary; /* not of a plan */
  /* Neither are the rates that were measured. */
  EXPECT(strstr(opened.backend_reason, "rates measured at open: host memory ") != NULL);
  EXPECT(opened.predicted_decode_tokens_per_second > 0);
  EXPECT(opened.predicted_decode_tokens_per_second <= two.predicted_decode_tokens_per_second);
  opened.predicted_decode_tokens_per_second = two.predicted_decode_tokens_per_second;
  opened.backend_reason = two.backend_reason;
  EXPECT(memcmp(&two, &opened, sizeof two) == 0);
  uint64_t weights = 0, cache = 0, workspace = 0;
  dsv4_device_info planned[3] = {DSV4_DEVICE_INFO_INIT, DSV4_DEVICE_INFO_INIT,
                                 DSV4_DEVICE_INFO_INIT};
  planned[2].index = 77; /* there are two */
  EXPECT_OK(dsv4_plan(MODEL, &options, &two, planned, 3, &error));
  EXPECT(planned[2].index == 77);
  for (int32_t i = 0; i < 2; ++i) {
    EXPECT(planned[i].index == i && planned[i].weight_bytes < one.weight_bytes);
    weights += planned[i].weight_bytes;
    cache += planned[i].cache_bytes;
    workspace += planned[i].workspace_bytes;
  }
  /* What is not split both read. */
  EXPECT(weights > two.weight_bytes);
  EXPECT(cache == two.cache_bytes && workspace == two.workspace_bytes);
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &two, NULL, 1, &error), DSV4_ERR_INVALID_ARGUMENT,
               "devices is NULL, but its size is 1");
  planned[1].struct_size -= 4;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &two, planned, 2, &error), DSV4_ERR_INVALID_ARGUMENT,
               "devices[1].struct_size");
  dsv4_engine_close(engine);
}

static void test_groups(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  char id[1024];
  size_t needed = 0;
  EXPECT_FAILS(dsv4_group_create_id(NULL, id, sizeof id, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options is NULL");
  EXPECT_FAILS(dsv4_group_create_id(&options, id, sizeof id - 1, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "capacity is 1023; expected at least 1024");
  EXPECT_FAILS(dsv4_group_create_id(&options, id, sizeof id, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "needed is NULL");
  EXPECT_FAILS(dsv4_group_create_id(&options, id, sizeof id, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "option group_size = 0; a group has 2 to 8 processes");
  dsv4_group_options group = DSV4_GROUP_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  options.group = &group;
  group.id = "dsv4-group-1:";
  EXPECT_FAILS(dsv4_group_serve(MODEL, &options, &error), DSV4_ERR_INVALID_ARGUMENT,
               "option group_id = \"dsv4-group-1:\" is not a group id");
  group.id = "";
  EXPECT_FAILS(dsv4_group_serve(MODEL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT, "options is NULL");
  EXPECT_FAILS(dsv4_group_serve(MODEL, &options, &error), DSV4_ERR_INVALID_ARGUMENT,
               "option group_rank = 0");
  group.size = 2;
  EXPECT_FAILS(dsv4_group_create_id(&options, id, sizeof id, &needed, &error), DSV4_ERR_UNSUPPORTED,
               "group_size = 2 on backend cpu");
  group.rank = 1;
  EXPECT_FAILS(dsv4_group_serve(MODEL, &options, &error), DSV4_ERR_UNSUPPORTED,
               "group_size = 2 on backend cpu");
  group.size = 1;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "options.group.size is 1");
  group.size = 9;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "group_size = 9 is not in 1..8");
  group.size = 0;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "option group_rank = 1");
  group.reserved = 1;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "options.group.reserved");
}

/* A caller built against a newer header: a longer struct. */
static void test_longer_structs(void) {
  struct {
    dsv4_engine_options known;
    uint64_t later[2];
  } options = {DSV4_ENGINE_OPTIONS_INIT, {0, 0}};
  dsv4_engine* engine = NULL;
  options.known.struct_size = sizeof options;
  options.known.context_tokens = 300;
  EXPECT_OK(dsv4_engine_open(MODEL, &options.known, &engine, &error));

  struct longer_info {
    dsv4_engine_info known;
    uint64_t later, beyond;
  } info = {DSV4_ENGINE_INFO_INIT, UINT64_MAX, UINT64_MAX};
  info.known.struct_size = offsetof(struct longer_info, beyond);
  const uint32_t size = info.known.struct_size;
  EXPECT_OK(dsv4_engine_get_info(engine, &info.known, &error));
  EXPECT(info.known.struct_size == size);
  EXPECT(info.known.context_tokens == 300);
  EXPECT(info.later == 0);
  EXPECT(info.beyond == UINT64_MAX);

  info.known.struct_size = sizeof info.known - 1;
  EXPECT_FAILS(dsv4_engine_get_info(engine, &info.known, &error), DSV4_ERR_INVALID_ARGUMENT,
               "info.struct_size is");
  EXPECT_FAILS(dsv4_engine_get_info(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "info is NULL");
  dsv4_engine_close(engine);

  engine = NULL;
  options.later[1] = 1;
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options.known, &engine, &error), DSV4_ERR_UNSUPPORTED,
               "options sets a field at byte");
  EXPECT(engine == NULL);
}

/* The formats that published numerics can use: read back, with the bytes they take. */
static void test_cache_formats(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info[3] = {DSV4_ENGINE_INFO_INIT, DSV4_ENGINE_INFO_INIT, DSV4_ENGINE_INFO_INIT};
  const char* const settings[3] = {"cache_format=fp8_per_tensor", "cache_format=packed",
                                   "cache_format=bf16"};
  for (int i = 0; i < 3; ++i) {
    options.context_tokens = 1024;
    options.settings = &settings[i];
    options.setting_count = 1;
    dsv4_engine* engine = open_engine(options);
    EXPECT_OK(dsv4_engine_get_info(engine, &info[i], &error));
    EXPECT(strcmp(info[i].cache_format, strchr(settings[i], '=') + 1) == 0);
    dsv4_engine_close(engine);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT(info[i].cache_bytes < info[i + 1].cache_bytes);
    EXPECT(info[i].cache_window_bytes < info[i + 1].cache_window_bytes);
    EXPECT(info[i].cache_compressed_bytes < info[i + 1].cache_compressed_bytes);
    EXPECT(info[i].cache_index_bytes == info[i + 1].cache_index_bytes);
    EXPECT(info[i].cache_state_bytes == info[i + 1].cache_state_bytes);
  }
  /* A window block of 64 rows: 512 bytes a row, and 1024. */
  EXPECT(2 * info[0].cache_window_bytes == info[2].cache_window_bytes);
}

/* Each drafter where it is, and refused where it is not. */
static void test_drafters(void) {
  static const struct {
    const char* model;
    dsv4_drafter asked, found, checkpoint;
    int32_t most;
    const char* refusal;
  } cases[] = {
      {MODEL, DSV4_DRAFTER_AUTO, DSV4_DRAFTER_MTP, DSV4_DRAFTER_MTP, 7, NULL},
      {MODEL, DSV4_DRAFTER_MTP, DSV4_DRAFTER_MTP, DSV4_DRAFTER_MTP, 7, NULL},
      {MODEL, DSV4_DRAFTER_NGRAM, DSV4_DRAFTER_NGRAM, DSV4_DRAFTER_MTP, 7, NULL},
      {MODEL, DSV4_DRAFTER_DSPARK, 0, 0, 0,
       "option drafter = DSpark: the checkpoint's drafter is MTP"},
      {MODEL, DSV4_DRAFTER_NONE, 0, 0, 0, "option drafter = none"},
      {DSPARK_MODEL, DSV4_DRAFTER_AUTO, DSV4_DRAFTER_DSPARK, DSV4_DRAFTER_DSPARK, 5, NULL},
      {DSPARK_MODEL, DSV4_DRAFTER_NGRAM, DSV4_DRAFTER_NGRAM, DSV4_DRAFTER_DSPARK, 7, NULL},
      {DSPARK_MODEL, DSV4_DRAFTER_MTP, 0, 0, 0,
       "option drafter = MTP: the checkpoint's drafter is DSpark"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    options.max_draft_tokens = 7;
    options.drafter = cases[i].asked;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    if (cases[i].refusal != NULL) {
      EXPECT_FAILS(
          dsv4_plan(cases[i].model, &options, &info, NULL, 0, &error),
          cases[i].asked == DSV4_DRAFTER_NONE ? DSV4_ERR_INVALID_ARGUMENT : DSV4_ERR_NOT_FOUND,
          cases[i].refusal);
      continue;
    }
    EXPECT_OK(dsv4_plan(cases[i].model, &options, &info, NULL, 0, &error));
    EXPECT(info.drafter == cases[i].found);
    EXPECT(info.checkpoint_drafter == cases[i].checkpoint);
    EXPECT(info.max_draft_tokens == cases[i].most);
  }
}

/* Drafts take more: states of the rows that are verified, and the rows of the drafter. */
static void test_drafts(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info[2] = {DSV4_ENGINE_INFO_INIT, DSV4_ENGINE_INFO_INIT};
  for (int i = 0; i < 2; ++i) {
    options.max_draft_tokens = i == 0 ? -1 : 3;
    dsv4_engine* engine = open_engine(options);
    EXPECT_OK(dsv4_engine_get_info(engine, &info[i], &error));
    EXPECT(info[i].max_draft_tokens == 3 * i);
    EXPECT(info[i].cache_bytes == info[i].cache_window_bytes + info[i].cache_compressed_bytes +
                                      info[i].cache_index_bytes + info[i].cache_state_bytes);
    dsv4_engine_close(engine);
  }
  EXPECT(info[0].cache_window_bytes < info[1].cache_window_bytes);
  EXPECT(info[0].cache_state_bytes < info[1].cache_state_bytes);
  EXPECT(info[0].cache_compressed_bytes == info[1].cache_compressed_bytes);
  EXPECT(info[0].cache_index_bytes == info[1].cache_index_bytes);
}

/* Without a number: one draft of an MTP block, a block of DSpark's, three of n-grams. */
static void test_default_drafts(void) {
  static const struct {
    const char* model;
    dsv4_drafter asked, used;
    int32_t most;
  } cases[] = {{MODEL, DSV4_DRAFTER_AUTO, DSV4_DRAFTER_MTP, 1},
               {DSPARK_MODEL, DSV4_DRAFTER_AUTO, DSV4_DRAFTER_DSPARK, 5},
               {MODEL, DSV4_DRAFTER_NGRAM, DSV4_DRAFTER_NGRAM, 3},
               {MODEL, DSV4_DRAFTER_NONE, DSV4_DRAFTER_NONE, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
    options.drafter = cases[i].asked;
    EXPECT_OK(dsv4_plan(cases[i].model, &options, &info, NULL, 0, &error));
    EXPECT(info.drafter == cases[i].used && info.max_draft_tokens == cases[i].most);
    options.max_draft_tokens = -1;
    EXPECT_OK(dsv4_plan(cases[i].model, &options, &info, NULL, 0, &error));
    EXPECT(info.drafter == DSV4_DRAFTER_NONE && info.max_draft_tokens == 0);
  }
}

static void test_info(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 400;
  options.max_sessions = 2;
  options.prefill_chunk_tokens = 32;
  options.threads = 1;
  dsv4_engine* engine = open_engine(options);
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  EXPECT(info.struct_size == sizeof info);
  EXPECT(info.backend == DSV4_BACKEND_CPU);
  EXPECT(strcmp(info.numerics, "published") == 0);
  EXPECT(info.threads == 1);
  EXPECT(info.context_tokens == 400);
  EXPECT(info.cache_tokens == 400);
  EXPECT(info.max_sessions == 2);
  EXPECT(info.prefill_chunk_tokens == 32);
  /* The figures of models/dsv4-tiny/config.json and its index. */
  EXPECT(info.vocab_size == 2048);
  EXPECT(info.layers == 6);
  EXPECT(info.bos_token == 0);
  EXPECT(info.eos_token == 1);
  EXPECT(info.has_tokenizer == 1);
  EXPECT(info.checkpoint_drafter == DSV4_DRAFTER_MTP);
  EXPECT(info.drafter == DSV4_DRAFTER_MTP);
  EXPECT(info.weight_bytes >= 20234756u && info.weight_bytes < 30000000u);
  EXPECT(info.cache_bytes > 0);
  EXPECT(strcmp(info.cache_format, "packed") == 0);
  EXPECT(info.workspace_bytes > 0);

  const dsv4_tokenizer* tokenizer = NULL;
  EXPECT_FAILS(dsv4_engine_get_tokenizer(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "tokenizer is NULL");
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  EXPECT(dsv4_tokenizer_get_vocab_size(tokenizer) > 0);
  dsv4_engine_close(engine);

  engine = NULL;
  EXPECT_OK(dsv4_engine_open(MODEL, NULL, &engine, &error));
  EXPECT_OK(dsv4_engine_get_info(engine, &info, &error));
  EXPECT(info.context_tokens == 16384);
  EXPECT(info.max_sessions == 4);
  EXPECT(info.prefill_chunk_tokens == 256);
  EXPECT(info.threads >= 1);
  dsv4_engine_close(engine);
}

/* The views are the engine's own. The fingerprint: xxhsum -H2 of the headers, then the tensors'
 * ends. */
static void test_identity(void) {
  dsv4_engine* engine = open_bundled();
  dsv4_engine_identity identity = DSV4_ENGINE_IDENTITY_INIT, again = DSV4_ENGINE_IDENTITY_INIT;
  EXPECT_OK(dsv4_engine_get_identity(engine, &identity, &error));
  EXPECT(identity.struct_size == sizeof identity);
  EXPECT(identity.device[0] != '\0');
  EXPECT(strcmp(identity.weight_format, "fp8+fp4") == 0);
  EXPECT(strcmp(identity.fingerprint, "4eed995de9ce01b913fa2910801525a0") == 0);
  EXPECT_OK(dsv4_engine_get_identity(engine, &again, &error));
  EXPECT(again.device == identity.device && again.fingerprint == identity.fingerprint);
  EXPECT(strcmp(again.chat_encoder, "preview") == 0);
  EXPECT(strstr(again.chat_encoder_guess, "no keys of a DSpark drafter") != NULL);
  identity.struct_size = sizeof identity - 1;
  EXPECT_FAILS(dsv4_engine_get_identity(engine, &identity, &error), DSV4_ERR_INVALID_ARGUMENT,
               "identity.struct_size is");
  EXPECT_FAILS(dsv4_engine_get_identity(engine, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "identity is NULL");
  EXPECT_FAILS(dsv4_engine_get_identity(NULL, &again, &error), DSV4_ERR_INVALID_ARGUMENT,
               "engine is NULL");
  dsv4_engine_close(engine);
}

/* Counts and bytes are those of the index and the headers of the bundled model's files. */
static void test_inspect(void) {
  static const char* const parts[] = {
      "\"fingerprint\": \"4eed995de9ce01b913fa2910801525a0\", \"weight_format\": \"fp8+fp4\"",
      "\"has_mtp\": true, \"drafter\": \"mtp\", \"tokenizer\": {\"vocab_size\": ",
      "\"tensors\": {\"count\": 921, \"bytes\": 20234756, \"shards\": 2, ",
      "\"F8_E4M3\": {\"count\": 60, \"bytes\": 6356992}",
      "\"I8\": {\"count\": 336, \"bytes\": 5505024}",
      "\"hidden_size\": 256, \"num_hidden_layers\": 6, ",
      "\"max_position_embeddings\": 16384, \"vocab_size\": 2048, "};
  char json[8192], part[8];
  size_t needed = 0;
  EXPECT_OK(dsv4_inspect(MODEL, NULL, 0, &needed, &error));
  EXPECT(needed > 500 && needed < sizeof json);
  EXPECT_OK(dsv4_inspect(MODEL, json, sizeof json, &needed, &error));
  json[needed] = '\0';
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; ++i)
    EXPECT(strstr(json, parts[i]) != NULL);
  EXPECT_OK(dsv4_inspect(MODEL, part, sizeof part, &needed, &error));
  EXPECT(memcmp(part, json, sizeof part) == 0 && needed == strlen(json));
  EXPECT_FAILS(dsv4_inspect("/nonexistent", NULL, 0, &needed, &error), DSV4_ERR_NOT_FOUND,
               "/nonexistent");
  EXPECT_FAILS(dsv4_inspect(NULL, NULL, 0, &needed, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_inspect(MODEL, NULL, 1, &needed, &error), DSV4_ERR_INVALID_ARGUMENT,
               "json is NULL");
  EXPECT_FAILS(dsv4_inspect(MODEL, NULL, 0, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "needed is NULL");
}

static void test_progress(void) {
  struct progress progress = {0, 0, 0, 0, 0};
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine* engine = NULL;
  options.context_tokens = 256;
  options.progress = note_progress;
  options.progress_user = &progress;
  EXPECT_OK(dsv4_engine_open(MODEL, &options, &engine, &error));
  EXPECT(progress.calls >= 1);
  EXPECT(progress.phase == DSV4_PROGRESS_LOAD);
  EXPECT(progress.done == progress.total);
  EXPECT(progress.total >= 20234756u);
  dsv4_engine_close(engine);

  engine = NULL;
  progress.calls = 0;
  progress.answer = 1;
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_CANCELLED, "");
  EXPECT(progress.calls == 1);
  EXPECT(engine == NULL);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static long resident_pages(void) {
  long size = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  EXPECT(file != NULL);
  EXPECT(fscanf(file, "%ld %ld", &size, &resident) == 2);
  fclose(file);
  return resident;
}

/* Closing gives back what opening took: the pool of one engine alone is many pages. */
static void test_closing_returns_memory(void) {
  long before = 0;
  int i;
  for (i = 0; i < 25; ++i) {
    if (i == 5) before = resident_pages();
    dsv4_engine* engine = open_bundled();
    dsv4_session* session = NULL;
    EXPECT_OK(dsv4_session_open(engine, NULL, &session, &error));
    dsv4_session_close(session);
    dsv4_engine_close(engine);
  }
  EXPECT(resident_pages() < before + 1024);
}

/* With little address space left: a cache that does not fit is refused, and the library lives on.
 */
static void test_out_of_memory(void) {
  struct rlimit old_limit, limit;
  EXPECT(getrlimit(RLIMIT_AS, &old_limit) == 0);
  limit = old_limit;
  limit.rlim_cur = (rlim_t)2 << 30;
  EXPECT(setrlimit(RLIMIT_AS, &limit) == 0);
  EXPECT_REFUSED(cache_tokens, INT64_C(1) << 30, DSV4_ERR_OUT_OF_HOST_MEMORY, "");
  dsv4_engine_close(open_bundled());
  EXPECT(setrlimit(RLIMIT_AS, &old_limit) == 0);
}
#else
static void test_closing_returns_memory(void) {}
static void test_out_of_memory(void) {}
#endif

/* The CPU is the last; before it are GPUs, or one entry that says why there is none. */
static void test_list_devices(void) {
  dsv4_device devices[64];
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine* engine = NULL;
  size_t needed = 0, again = 0, i;
  EXPECT_OK(dsv4_list_devices(NULL, 0, &needed, &error));
  EXPECT(needed >= 2 && needed <= 64);
  for (i = 0; i < 64; ++i) devices[i] = (dsv4_device)DSV4_DEVICE_INIT;
  EXPECT_OK(dsv4_list_devices(devices, 64, &again, &error));
  EXPECT(again == needed);
  for (i = 0; i < needed; ++i) {
    EXPECT(devices[i].backend == (i + 1 < needed ? DSV4_BACKEND_CUDA : DSV4_BACKEND_CPU));
    EXPECT(devices[i].usable == (devices[i].reason[0] == '\0'));
    EXPECT((devices[i].index < 0) == (devices[i].name[0] == '\0'));
    EXPECT(devices[i].free_bytes <= devices[i].total_bytes);
  }
  EXPECT(devices[needed - 1].usable && devices[needed - 1].free_bytes > 0);
  EXPECT(devices[needed].name == NULL); /* not filled */
  /* What is not usable is refused with the same reason. */
  if (devices[0].index == -1) {
    EXPECT(needed == 2 && !devices[0].usable);
    options.backend = DSV4_BACKEND_CUDA;
    EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_UNSUPPORTED,
                 devices[0].reason);
  }
  devices[1].struct_size += 8;
  EXPECT_FAILS(dsv4_list_devices(devices, 2, &needed, &error), DSV4_ERR_INVALID_ARGUMENT,
               "devices[1].struct_size is");
  EXPECT_FAILS(dsv4_list_devices(NULL, 1, &needed, &error), DSV4_ERR_INVALID_ARGUMENT,
               "devices is NULL");
  EXPECT_FAILS(dsv4_list_devices(devices, 1, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "needed is NULL");
}

int main(void) {
  test_arguments();
  test_list_devices();
  test_options();
  test_settings();
  test_two_devices();
  test_groups();
  test_longer_structs();
  test_cache_formats();
  test_drafters();
  test_drafts();
  test_default_drafts();
  test_info();
  test_identity();
  test_inspect();
  test_progress();
  test_closing_returns_memory();
  test_out_of_memory();
  return 0;
}
