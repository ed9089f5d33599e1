/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: many_engines_test FOLDER ROUNDS
 * Two engines with different models (the bundled one, and that of FOLDER), sixteen sessions and
 * eight threads in one process give what each session gives alone; and engines that are opened and
 * closed ROUNDS times leave no memory, thread, mapping or file behind.
 */
#define _POSIX_C_SOURCE 200809L

#include <dirent.h>
#include <pthread.h>

#include "tests/capi/expect.h"

enum { kEngines = 2, kThreads = 8, kPrompt = 40, kAnswer = 12 };

typedef struct {
  dsv4_engine* engine;
  int32_t vocab_size;
  int32_t answers[kThreads][kAnswer]; /* of each thread's prompt, by a session that is alone */
} Model;

/* Prompts of different lengths, of ids that look like nothing in particular. */
static int make_prompt(const Model* model, int seed, int32_t tokens[kPrompt]) {
  const int length = kPrompt - 3 * seed;
  int i;
  for (i = 0; i < length; ++i)
    tokens[i] = 3 + (seed * 131 + i * 37 + i * i / 5) % (model->vocab_size - 3);
  return length;
}

static dsv4_session* open_on(const Model* model, int seed) {
  /* Greedy, with nothing that ends the turn but the number of tokens. */
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  int32_t prompt[kPrompt];
  dsv4_session* session = NULL;
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  const int length = make_prompt(model, seed, prompt);
  options.sampling = &sampling;
  EXPECT(dsv4_session_open(model->engine, &options, &session, NULL) == DSV4_OK);
  EXPECT(dsv4_session_sync(session, prompt, (size_t)length, NULL, NULL, NULL) == DSV4_OK);
  return session;
}

static int32_t step(dsv4_session* session) {
  dsv4_step_result result = DSV4_STEP_RESULT_INIT;
  EXPECT(dsv4_session_step(session, NULL, NULL, &result, NULL) == DSV4_OK);
  return result.token;
}

static void open_model(const char* path, Model* model) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  options.backend = DSV4_BACKEND_CPU; /* a GPU's driver keeps threads and memory */
  options.context_tokens = 128;
  options.cache_tokens = 128 * kThreads;
  options.max_sessions = kThreads;
  EXPECT(dsv4_engine_open(path, &options, &model->engine, NULL) == DSV4_OK);
  EXPECT(dsv4_engine_get_info(model->engine, &info, NULL) == DSV4_OK);
  model->vocab_size = info.vocab_size;
}

typedef struct {
  const Model* models;
  int number;
} Worker;

/* One session of each model, stepped in turns. */
static void* work(void* argument) {
  const Worker* worker = argument;
  dsv4_session* sessions[kEngines];
  int engine, i;
  for (engine = 0; engine < kEngines; ++engine)
    sessions[engine] = open_on(&worker->models[engine], worker->number);
  for (i = 0; i < kAnswer; ++i) {
    for (engine = 0; engine < kEngines; ++engine)
      EXPECT(step(sessions[engine]) == worker->models[engine].answers[worker->number][i]);
  }
  for (engine = 0; engine < kEngines; ++engine) dsv4_session_close(sessions[engine]);
  return NULL;
}

static void test_together(const char* const paths[kEngines]) {
  static Model models[kEngines];
  Worker workers[kThreads];
  pthread_t threads[kThreads];
  int engine, seed, i;
  for (engine = 0; engine < kEngines; ++engine) {
    open_model(paths[engine], &models[engine]);
    for (seed = 0; seed < kThreads; ++seed) {
      dsv4_session* session = open_on(&models[engine], seed);
      for (i = 0; i < kAnswer; ++i) models[engine].answers[seed][i] = step(session);
      dsv4_session_close(session);
    }
  }
  EXPECT(models[0].vocab_size != models[1].vocab_size);
  for (i = 0; i < kThreads; ++i) {
    workers[i].models = models;
    workers[i].number = i;
    EXPECT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (i = 0; i < kThreads; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
  for (engine = 0; engine < kEngines; ++engine) dsv4_engine_close(models[engine].engine);
}

static long entries_of(const char* path) {
  DIR* folder = opendir(path);
  long count = 0;
  EXPECT(folder != NULL);
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static long lines_of(const char* path) {
  FILE* file = fopen(path, "r");
  long count = 0;
  int c;
  EXPECT(file != NULL);
  while ((c = getc(file)) != EOF) count += c == '\n';
  fclose(file);
  return count;
}

static long resident_kb(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long kb = -1;
  EXPECT(file != NULL);
  while (fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "VmRSS: %ld kB", &kb) == 1) break;
  }
  fclose(file);
  EXPECT(kb > 0);
  return kb;
}

static void open_and_close(const char* const paths[kEngines]) {
  int engine;
  for (engine = 0; engine < kEngines; ++engine) {
    Model model;
    open_model(paths[engine], &model);
    dsv4_session* session = open_on(&model, 1);
    step(session);
    step(session);
    /* In either order. */
    if (engine == 0) dsv4_session_close(session);
    dsv4_engine_close(model.engine);
    if (engine == 1) dsv4_session_close(session);
  }
}

static void test_growth(const char* const paths[kEngines], int rounds) {
  long threads, files, mappings, memory;
  int i;
  for (i = 0; i < 4; ++i) open_and_close(paths);
  threads = entries_of("/proc/self/task");
  files = entries_of("/proc/self/fd");
  mappings = lines_of("/proc/self/maps");
  memory = resident_kb();
  for (i = 0; i < rounds; ++i) {
    open_and_close(paths);
    EXPECT(entries_of("/proc/self/task") == threads);
    EXPECT(entries_of("/proc/self/fd") == files);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  /* The allocator's arenas come and go; what a round would leak adds up. Sanitizers map and keep
     memory of their own, and look for leaks themselves. */
  EXPECT(lines_of("/proc/self/maps") <= mappings + 8);
  if (resident_kb() > memory + 2048) {
    printf("%ld kB before %d rounds, %ld kB after\n", memory, rounds, resident_kb());
    exit(1);
  }
#else
  (void)memory;
  (void)mappings;
#endif
}

int main(int argc, char** argv) {
  const char* paths[kEngines];
  EXPECT(argc == 3);
  paths[0] = MODEL;
  paths[1] = argv[1];
  test_together(paths);
  test_growth(paths, atoi(argv[2]));
  return 0;
}
