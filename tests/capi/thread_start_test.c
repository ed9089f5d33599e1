/* SPDX-License-Identifier: Apache-2.0
 *
 * A system that gives no more threads or memory: an engine is not opened, with an error that says
 * so, the threads made so far end, and the next one opens. This program's pthread_create stands
 * before that of the C library, for the library, too.
 */
#define _GNU_SOURCE /* RTLD_NEXT */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/capi/expect.h"

enum { kThreads = 4 };
static int left = -1; /* threads that the system still gives; below 0: any */

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (left == 0) return EAGAIN;
  if (left > 0) --left;
  return real(thread, attributes, run, argument);
}

static int threads_alive(void) {
  DIR* tasks = opendir("/proc/self/task");
  int count = -2; /* "." and ".." */
  EXPECT(tasks != NULL);
  while (readdir(tasks) != NULL) ++count;
  closedir(tasks);
  return count;
}

static void test_refused_threads(void) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine* engine = NULL;
  char expected[64];
  options.context_tokens = 512;
  options.threads = kThreads;
  for (int given = 0; given < kThreads - 1; ++given) {
    left = given;
    snprintf(expected, sizeof expected, "only %d of %d threads could be started (option threads)",
             given + 1, kThreads);
    const dsv4_status status = dsv4_engine_open(MODEL, &options, &engine, &error);
    left = -1;
    EXPECT(strcmp(dsv4_error_get_argument(error), "options.threads") == 0);
    EXPECT_FAILS(status, DSV4_ERR_OUT_OF_HOST_MEMORY, expected);
    EXPECT(engine == NULL && threads_alive() == 1);
  }
  left = kThreads - 1;
  EXPECT_OK(dsv4_engine_open(MODEL, &options, &engine, &error));
  EXPECT(left == 0 && threads_alive() == kThreads);
  left = -1;
  dsv4_engine_close(engine);
  engine = NULL;
  static const char* const kProfile[] = {"expert_profile=none/profile"};
  options.settings = kProfile;
  options.setting_count = 1;
  options.host_weight_bytes = 1;
  left = kThreads - 1;
  EXPECT_FAILS(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_ERR_OUT_OF_HOST_MEMORY,
               "cannot start a thread for the expert profile");
  left = -1;
  EXPECT(engine == NULL && threads_alive() == 1);
  EXPECT(threads_alive() == 1);
}

/* Without tricks: an address space in which only some of the threads' stacks find a place. */
static void test_address_space(void) {
  for (rlim_t megabytes = 40; megabytes <= 120; megabytes += 16) {
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
      const struct rlimit limit = {megabytes << 20, megabytes << 20};
      dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
      dsv4_engine* engine = NULL;
      options.threads = 8;
      if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
      const dsv4_status status = dsv4_engine_open(MODEL, &options, &engine, &error);
      const int named = status == DSV4_OK || dsv4_error_get_message(error)[0] != '\0';
      dsv4_engine_close(engine);
      _exit(named && (status == DSV4_OK || status == DSV4_ERR_OUT_OF_HOST_MEMORY) ? 0 : 1);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child);
    if (status != 0) printf("%d MB: status %#x\n", (int)megabytes, (unsigned)status);
    EXPECT(status == 0);
  }
}

int main(void) {
  test_refused_threads();
  test_address_space();
  return 0;
}
