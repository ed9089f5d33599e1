/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L /* mkdtemp, mkstemp */
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/capi/expect.h"

static const char kQuestion[] = "Do you know the capital of Russia?";
static const char kAnswer[] = "The capital of Russia is Moscow.";

static dsv4_session* open_asked(dsv4_engine* engine) {
  static int32_t prompt[kMaxPrompt];
  const size_t count = render_question(engine, kQuestion, prompt);
  dsv4_session* session = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  return session;
}

static void test_file(dsv4_engine* engine, const char* path) {
  dsv4_session* session = open_asked(engine);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  char text[256];
  char beginning[256] = "";
  for (int i = 0; i < 3; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    strncat(beginning, step.text, 64);
  }
  EXPECT_OK(dsv4_session_save(session, path, NULL, NULL, &error));

  dsv4_session* loaded = open_session(engine, NULL);
  EXPECT_OK(dsv4_session_load(loaded, path, NULL, NULL, &error));
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  EXPECT_OK(dsv4_session_get_stats(loaded, &stats, &error));
  EXPECT(stats.generated_tokens == 3);
  EXPECT(generate(loaded, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strncmp(kAnswer, beginning, strlen(beginning)) == 0);
  EXPECT(strcmp(kAnswer + strlen(beginning), text) == 0);
  dsv4_session_close(loaded);

  /* The saved session continues, too. */
  EXPECT(generate(session, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(kAnswer + strlen(beginning), text) == 0);
  dsv4_session_close(session);
}

struct watcher {
  dsv4_progress_phase phase;
  int calls, cancels;
  uint64_t done, total;
};

static int32_t watch(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                     dsv4_progress_unit unit) {
  struct watcher* watcher = user;
  EXPECT(phase == watcher->phase && watcher->done < done && done <= total);
  EXPECT(watcher->calls == 0 || watcher->total == total);
  ++watcher->calls;
  watcher->done = done;
  watcher->total = total;
  EXPECT(unit == DSV4_UNIT_BYTES);
  return watcher->cancels;
}

/* What is cancelled leaves the file and the session as they were. */
static void test_progress(dsv4_engine* engine, const char* path) {
  struct watcher saving = {DSV4_PROGRESS_SAVE, 0, 0, 0, 0};
  struct watcher restoring = {DSV4_PROGRESS_RESTORE, 0, 0, 0, 0};
  size_t needed = 0, count = 0;
  const int32_t* tokens = NULL;
  char text[256];
  dsv4_session* session = open_asked(engine);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_save_memory(session, NULL, 0, &needed, &error));
  EXPECT_OK(dsv4_session_save(session, path, watch, &saving, &error));
  EXPECT(saving.calls >= 1 && saving.done == needed && saving.total == needed);

  dsv4_session* loaded = open_session(engine, NULL);
  restoring.cancels = 1;
  EXPECT_FAILS(dsv4_session_load(loaded, path, watch, &restoring, &error), DSV4_ERR_CANCELLED,
               "loading was cancelled");
  EXPECT(restoring.calls == 1);
  EXPECT_OK(dsv4_session_get_tokens(loaded, &tokens, &count, &error));
  EXPECT(count == 0);
  memset(&saving, 0, sizeof saving);
  saving.phase = DSV4_PROGRESS_SAVE;
  saving.cancels = 1;
  EXPECT_FAILS(dsv4_session_save(loaded, path, watch, &saving, &error), DSV4_ERR_CANCELLED,
               "saving was cancelled");
  memset(&restoring, 0, sizeof restoring);
  restoring.phase = DSV4_PROGRESS_RESTORE;
  EXPECT_OK(dsv4_session_load(loaded, path, watch, &restoring, &error));
  EXPECT(restoring.done == needed && restoring.total == needed);
  EXPECT(generate(loaded, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(kAnswer, text) == 0);
  dsv4_session_close(loaded);
  dsv4_session_close(session);
}

static void test_memory(dsv4_engine* engine) {
  dsv4_session* session = open_asked(engine);
  char text[256];
  size_t needed = 0, again = 0;
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_save_memory(session, NULL, 0, &needed, &error));
  EXPECT(needed > 1000);
  uint8_t* data = malloc(needed);
  EXPECT(data != NULL);
  data[0] = 1;
  EXPECT_OK(dsv4_session_save_memory(session, data, needed - 1, &again, &error));
  EXPECT(again == needed && data[0] == 1);
  EXPECT_OK(dsv4_session_save_memory(session, data, needed, &again, &error));
  EXPECT(again == needed);

  dsv4_session* loaded = open_session(engine, NULL);
  data[needed / 2] ^= 1;
  EXPECT_FAILS(dsv4_session_load_memory(loaded, data, needed, &error), DSV4_ERR_CORRUPT, "damaged");
  data[needed / 2] ^= 1;
  EXPECT_FAILS(dsv4_session_load_memory(loaded, data, needed - 1, &error), DSV4_ERR_CORRUPT,
               "bytes");
  EXPECT_OK(dsv4_session_load_memory(loaded, data, needed, &error));
  EXPECT(generate(loaded, text, sizeof text) == DSV4_FINISH_STOP);
  EXPECT(strcmp(kAnswer, text) == 0);
  dsv4_session_close(loaded);
  dsv4_session_close(session);

  /* An engine without drafts lacks rows that this image has. */
  dsv4_engine_options plain = DSV4_ENGINE_OPTIONS_INIT;
  plain.max_draft_tokens = -1;
  dsv4_engine* other = open_engine(plain);
  loaded = open_session(other, NULL);
  EXPECT_FAILS(dsv4_session_load_memory(loaded, data, needed, &error), DSV4_ERR_VERSION_MISMATCH,
               "draft");
  dsv4_session_close(loaded);
  dsv4_engine_close(other);
  free(data);
}

static void test_refusals(dsv4_engine* engine, const char* path) {
  dsv4_session* session = open_session(engine, NULL);
  size_t needed = 0;
  uint8_t byte = 0;
  EXPECT_FAILS(dsv4_session_save(NULL, path, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_save(session, NULL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_session_save(session, "/nonexistent/file", NULL, NULL, &error),
               DSV4_ERR_NOT_FOUND, "/nonexistent/file");
  EXPECT_FAILS(dsv4_session_save_memory(session, NULL, 1, &needed, &error),
               DSV4_ERR_INVALID_ARGUMENT, "data is NULL");
  EXPECT_FAILS(dsv4_session_save_memory(session, &byte, 1, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "needed is NULL");
  EXPECT_FAILS(dsv4_session_load(NULL, path, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_FAILS(dsv4_session_load(session, NULL, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_session_load(session, "/nonexistent/file", NULL, NULL, &error),
               DSV4_ERR_NOT_FOUND, "/nonexistent/file");
  EXPECT_FAILS(dsv4_session_load(session, MODEL "/config.json", NULL, NULL, &error),
               DSV4_ERR_CORRUPT, "config.json: not a saved session");
  EXPECT_FAILS(dsv4_session_load_memory(session, NULL, 1, &error), DSV4_ERR_INVALID_ARGUMENT,
               "data is NULL");
  EXPECT_FAILS(dsv4_session_load_memory(session, NULL, 0, &error), DSV4_ERR_CORRUPT, "too few");
  /* An empty session can be saved, and loaded over another one. */
  EXPECT_OK(dsv4_session_save(session, path, NULL, NULL, &error));
  dsv4_session* asked = open_asked(engine);
  EXPECT_OK(dsv4_session_load(asked, path, NULL, NULL, &error));
  const int32_t* tokens = NULL;
  size_t count = 1;
  EXPECT_OK(dsv4_session_get_tokens(asked, &tokens, &count, &error));
  EXPECT(count == 0);
  dsv4_session_close(asked);
  dsv4_session_close(session);
}

/* Only a regular file is replaced, and one behind a symbolic link where it is. */
static void test_special_files(dsv4_engine* engine) {
  enum { kFifo, kSocket, kFolder, kFifoLink, kDangling, kFileLink, kPaths };
  char folder[] = "/tmp/dsv4_special_XXXXXX", paths[kPaths][sizeof folder + 16], temporary[64];
  struct stat before, after;
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  dsv4_session* session = open_session(engine, NULL);
  EXPECT(mkdtemp(folder) != NULL);
  for (int i = 0; i < kPaths; ++i) snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
  snprintf(temporary, sizeof temporary, "%s/file", folder);
  EXPECT(mkfifo(paths[kFifo], 0600) == 0);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  strcpy(address.sun_path, paths[kSocket]);
  EXPECT(fd >= 0 && bind(fd, (const struct sockaddr*)&address, sizeof address) == 0);
  EXPECT(mkdir(paths[kFolder], 0700) == 0);
  EXPECT(symlink("0", paths[kFifoLink]) == 0);
  EXPECT(symlink("nothing", paths[kDangling]) == 0);
  EXPECT(symlink("file", paths[kFileLink]) == 0);
  for (int i = 0; i < kFileLink; ++i) {
    EXPECT(lstat(paths[i], &before) == 0);
    if (i == kDangling) {
      EXPECT_FAILS(dsv4_session_save(session, paths[i], NULL, NULL, &error), DSV4_ERR_NOT_FOUND,
                   "no such file");
    } else {
      EXPECT_FAILS(dsv4_session_save(session, paths[i], NULL, NULL, &error),
                   DSV4_ERR_INVALID_ARGUMENT, "not a regular file");
    }
    EXPECT(lstat(paths[i], &after) == 0);
    EXPECT(before.st_mode == after.st_mode && before.st_ino == after.st_ino);
  }
  for (int i = 0; i < kFileLink; ++i) EXPECT((i == kFolder ? rmdir : unlink)(paths[i]) == 0);
  EXPECT_OK(dsv4_session_save(session, temporary, NULL, NULL, &error));
  EXPECT(stat(temporary, &before) == 0);
  EXPECT_OK(dsv4_session_save(session, paths[kFileLink], NULL, NULL, &error));
  EXPECT(lstat(paths[kFileLink], &after) == 0 && S_ISLNK(after.st_mode));
  EXPECT(stat(temporary, &after) == 0 && after.st_ino != before.st_ino);
  EXPECT_OK(dsv4_session_load(session, temporary, NULL, NULL, &error));
  EXPECT(unlink(paths[kFileLink]) == 0 && unlink(temporary) == 0);
  EXPECT(rmdir(folder) == 0); /* nothing else was left there */
  close(fd);
  dsv4_session_close(session);
}

static int32_t forbidden;

static int32_t count_pending(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                             dsv4_progress_unit unit) {
  (void)phase, (void)done, (void)unit;
  *(uint64_t*)user = total;
  return 0;
}

/* Tokens that drafts chose before the save and that were not delivered: the session that loads
 * chooses its own by its own rules, and computes no more than the last token for it. */
static void test_tokens_ahead(void) {
  static uint8_t image[8 << 20];
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  size_t needed = 0, count = 0;
  int ahead = 0;
  options.context_tokens = 1024;
  options.max_draft_tokens = 5;
  dsv4_engine* engine = open_engine(options);
  sampling.draft_tokens = 5;
  dsv4_session* session = open_asked(engine);
  EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
  for (int i = 0; i < 8; ++i) {
    EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    EXPECT_OK(dsv4_session_save_memory(session, image, sizeof image, &needed, &error));
    EXPECT(needed <= sizeof image);
    dsv4_session* fork = NULL; /* what comes next, and whether it is there already */
    dsv4_session_stats stats = DSV4_SESSION_STATS_INIT, next = DSV4_SESSION_STATS_INIT;
    EXPECT_OK(dsv4_session_fork(session, &fork, &error));
    EXPECT_OK(dsv4_session_get_stats(fork, &stats, &error));
    EXPECT_OK(dsv4_session_step(fork, NULL, NULL, &step, &error));
    EXPECT_OK(dsv4_session_get_stats(fork, &next, &error));
    ahead += stats.draft_steps == next.draft_steps && i > 0;
    forbidden = step.token;
    dsv4_session_close(fork);
    for (int how = 0; how < 4; ++how) {
      dsv4_sampling own = DSV4_SAMPLING_INIT;
      dsv4_session* loaded = open_session(engine, NULL);
      if (how == 1) own.banned_tokens = &forbidden, own.banned_count = 1;
      if (how == 2) own.log_probs = 1;
      EXPECT_OK(dsv4_session_set_sampling(loaded, &own, &error));
      EXPECT_OK(dsv4_session_load_memory(loaded, image, needed, &error));
      if (how == 3) {
        uint64_t pending = 0;
        EXPECT_OK(dsv4_session_prefill(loaded, 0, count_pending, &pending, NULL, &error));
        EXPECT(pending <= 1);
      }
      if (how == 0) {
        uint32_t words[2048 / 32];
        memset(words, 0xff, sizeof words);
        words[forbidden / 32] &= ~(UINT32_C(1) << (forbidden % 32));
        EXPECT_OK(dsv4_session_set_allowed(loaded, words, 2048 / 32, &error));
      }
      EXPECT_OK(dsv4_session_step(loaded, NULL, NULL, &step, &error));
      EXPECT((step.token == forbidden) == (how >= 2));
      if (how == 2) {
        float log_prob = 1, expected = 2;
        const int32_t* tokens = NULL;
        dsv4_session* straight = open_session(engine, &own);
        EXPECT_OK(dsv4_session_get_tokens(loaded, &tokens, &count, &error));
        EXPECT_OK(dsv4_session_get_log_probs(loaded, (int64_t)count - 1, &log_prob, NULL, NULL, 0,
                                             NULL, &error));
        EXPECT_OK(dsv4_session_sync(straight, tokens, count - 1, NULL, NULL, &error));
        EXPECT_OK(dsv4_session_step(straight, NULL, NULL, &step, &error));
        EXPECT_OK(dsv4_session_get_log_probs(straight, (int64_t)count - 1, &expected, NULL, NULL, 0,
                                             NULL, &error));
        EXPECT(log_prob == expected);
        dsv4_session_close(straight);
      }
      dsv4_session_close(loaded);
    }
  }
  EXPECT(ahead > 0);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
}

static void test_plan(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 512;
  options.max_draft_tokens = 2;
  dsv4_engine_info plan = DSV4_ENGINE_INFO_INIT;
  dsv4_engine_info opened = DSV4_ENGINE_INFO_INIT;
  EXPECT_OK(dsv4_plan(MODEL, &options, &plan, NULL, 0, &error));
  dsv4_engine* engine = open_engine(options);
  EXPECT_OK(dsv4_engine_get_info(engine, &opened, &error));
  EXPECT(plan.weight_bytes > 20000000 && plan.cache_bytes > 0 && plan.workspace_bytes > 0);
  EXPECT(plan.canary == DSV4_CANARY_NONE && opened.canary == DSV4_CANARY_PASSED);
  opened.canary = plan.canary;
  /* Those of an engine come of rates that were measured when it was opened. */
  EXPECT(opened.predicted_decode_tokens_per_second > 0);
  opened.predicted_decode_tokens_per_second = plan.predicted_decode_tokens_per_second;
  opened.predicted_prefill_tokens_per_second = plan.predicted_prefill_tokens_per_second;
  EXPECT(strstr(opened.backend_reason, "measured") != NULL);
  opened.backend_reason = plan.backend_reason;
  EXPECT(memcmp(&plan, &opened, sizeof plan) == 0);
  dsv4_engine_close(engine);
  EXPECT_FAILS(dsv4_plan(NULL, &options, &plan, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "path is NULL");
  EXPECT_FAILS(dsv4_plan(MODEL, &options, NULL, NULL, 0, &error), DSV4_ERR_INVALID_ARGUMENT,
               "info is NULL");
  EXPECT_FAILS(dsv4_plan("/nonexistent", NULL, &plan, NULL, 0, &error), DSV4_ERR_NOT_FOUND,
               "config.json");
  const char* const exact[] = {"numerics=exact"};
  options.settings = exact;
  options.setting_count = 1;
  options.backend = DSV4_BACKEND_CPU;
  EXPECT_FAILS(dsv4_plan(MODEL, &options, &plan, NULL, 0, &error), DSV4_ERR_UNSUPPORTED,
               "reference");
}

int main(void) {
  char path[] = "/tmp/dsv4_session_XXXXXX";
  const int fd = mkstemp(path);
  EXPECT(fd >= 0);
  close(fd);
  dsv4_engine* engine = open_bundled();
  test_file(engine, path);
  test_progress(engine, path);
  test_memory(engine);
  test_refusals(engine, path);
  test_special_files(engine);
  dsv4_engine_close(engine);
  test_tokens_ahead();
  test_plan();
  unlink(path);
  return 0;
}
