/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library must leave to its host: output, the process's end, signals, locale, folder and
 * environment. This program's own definitions stand before those of the C library, for the library
 * and for what it uses; they note every call that is made while it works and while it fails with
 * every code that can be provoked here. Whatever reaches stdout and stderr by other ways is found
 * in the file that both of them are.
 */
#define _GNU_SOURCE /* RTLD_NEXT, memfd_create */

#include <dlfcn.h>
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/capi/expect.h"

static volatile int armed; /* the library is being called */
static char surprise[256]; /* the first call that it must not make */
static pthread_mutex_t surprise_mutex = PTHREAD_MUTEX_INITIALIZER;

static void note(const char* function, const char* argument) {
  if (!armed) return;
  pthread_mutex_lock(&surprise_mutex);
  if (surprise[0] == '\0') {
    /* Not by stdio, which would be seen itself. */
    strncat(surprise, function, 100);
    strncat(surprise, " ", 2);
    strncat(surprise, argument, 100);
  }
  pthread_mutex_unlock(&surprise_mutex);
}

/* Declares `real`, the definition behind this program's own. */
#define REAL(type, name, parameters) \
  type(*real) parameters;            \
  *(void**)&real = dlsym(RTLD_NEXT, #name)

#define TRAP(type, name, parameters, arguments, argument) \
  type name parameters {                                  \
    REAL(type, name, parameters);                         \
    note(#name, argument);                                \
    return real arguments;                                \
  }

#define TRAP_END(name, parameters, arguments)                                  \
  void name parameters {                                                       \
    REAL(void, name, parameters);                                              \
    if (armed) {                                                               \
      static const char kText[] = #name " of the process\n";                   \
      if (saved_stderr >= 0) dup2(saved_stderr, 2);                            \
      if (real_write(2, kText, sizeof kText - 1) < 0) kill(getpid(), SIGKILL); \
      armed = 0;                                                               \
    }                                                                          \
    real arguments;                                                            \
    for (;;) pause();                                                          \
  }

static int saved_stdout = -1, saved_stderr = -1;

static ssize_t real_write(int fd, const void* data, size_t size) {
  REAL(ssize_t, write, (int, const void*, size_t));
  return real(fd, data, size);
}

ssize_t write(int fd, const void* data, size_t size) {
  if (fd <= 2) note("write", "to stdin, stdout or stderr");
  return real_write(fd, data, size);
}

ssize_t read(int fd, void* data, size_t size) {
  REAL(ssize_t, read, (int, void*, size_t));
  if (fd <= 2) note("read", "of stdin, stdout or stderr");
  return real(fd, data, size);
}

TRAP_END(exit, (int code), (code))
TRAP_END(_exit, (int code), (code))
TRAP_END(_Exit, (int code), (code))
TRAP_END(quick_exit, (int code), (code))
TRAP_END(abort, (void), ())

TRAP(char*, getenv, (const char* name), (name), name)
TRAP(char*, secure_getenv, (const char* name), (name), name)
TRAP(int, setenv, (const char* name, const char* value, int over), (name, value, over), name)
TRAP(int, unsetenv, (const char* name), (name), name)
TRAP(int, putenv, (char* text), (text), text)
TRAP(char*, setlocale, (int category, const char* locale), (category, locale),
     locale != NULL ? locale : "NULL")
TRAP(locale_t, uselocale, (locale_t locale), (locale), "")
TRAP(int, chdir, (const char* path), (path), path)
TRAP(int, fchdir, (int fd), (fd), "")
TRAP(char*, getcwd, (char* path, size_t size), (path, size), "")
TRAP(int, raise, (int signal), (signal), "")
TRAP(int, kill, (pid_t process, int signal), (process, signal), "")
TRAP(unsigned, alarm, (unsigned seconds), (seconds), "")
TRAP(mode_t, umask, (mode_t mask), (mask), "")
TRAP(pid_t, fork, (void), (), "")
TRAP(int, system, (const char* command), (command), command)
TRAP(int, sigaction, (int number, const struct sigaction* action, struct sigaction* old),
     (number, action, old), "")
TRAP(int, sigprocmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old), "")
TRAP(int, pthread_sigmask, (int how, const sigset_t* set, sigset_t* old), (how, set, old), "")

typedef void (*handler_fn)(int);
TRAP(handler_fn, signal, (int number, handler_fn handler), (number, handler), "")

/* The codes seen so far, as bits of their negated values. */
static unsigned seen;

static void expect_code(dsv4_status status, dsv4_status code) {
  armed = 0;
  if (status != code || (error != NULL) != (code != DSV4_OK)) {
    char text[400];
    const int length =
        snprintf(text, sizeof text, "%s \"%s\"; expected %s\n", dsv4_status_get_name(status),
                 dsv4_error_get_message(error), dsv4_status_get_name(code));
    if (real_write(saved_stdout, text, (size_t)length) < 0) abort();
    exit(1);
  }
  seen |= 1u << -code;
  dsv4_error_free(error);
  error = NULL;
  armed = 1;
}

static int32_t cancel(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                      dsv4_progress_unit unit) {
  (void)user, (void)phase, (void)done, (void)total, (void)unit;
  return 1;
}

static int32_t enter_again(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                           dsv4_progress_unit unit) {
  (void)phase, (void)done, (void)total, (void)unit;
  expect_code(dsv4_session_rewind(user, 0, NULL, &error), DSV4_ERR_BUSY);
  return 0;
}

static void ignore_event(void* user, const dsv4_parser_event* event) { (void)user, (void)event; }

static void work(const char* saved) {
  static const char kMessages[] = "[{\"role\": \"user\", \"content\": \"What is 2 + 3?\"}]";
  static const char kNoJson[] = "[{]";
  static int32_t prompt[kMaxPrompt];
  static uint8_t image[4 << 20];
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_engine *engine = NULL, *other = NULL;
  dsv4_session *sessions[5] = {NULL}, *drafting = NULL;
  static const char* const kExact[] = {"numerics=exact"};
  const dsv4_tokenizer* tokenizer = NULL;
  size_t count = 0, needed = 0;
  char text[512];
  char long_path[5000];
  int i;

  options.backend = DSV4_BACKEND_CPU; /* a GPU's driver has its own manners */
  options.context_tokens = 256;
  options.prefill_chunk_tokens = 4;
  expect_code(dsv4_engine_open(MODEL, &options, &engine, &error), DSV4_OK);
  expect_code(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_OK);
  expect_code(dsv4_engine_get_tokenizer(engine, &tokenizer, &error), DSV4_OK);
  expect_code(dsv4_chat_render(tokenizer, kMessages, sizeof kMessages - 1, NULL, prompt, kMaxPrompt,
                               &count, &error),
              DSV4_OK);

  expect_code(dsv4_engine_open(NULL, &options, &other, &error), DSV4_ERR_INVALID_ARGUMENT);
  expect_code(dsv4_engine_open("/nonexistent", &options, &other, &error), DSV4_ERR_NOT_FOUND);
  memset(long_path, 'a', sizeof long_path - 1);
  long_path[0] = '/';
  long_path[sizeof long_path - 1] = '\0';
  expect_code(dsv4_session_open(engine, NULL, &sessions[0], &error), DSV4_OK);
  expect_code(dsv4_session_load(sessions[0], long_path, NULL, NULL, &error), DSV4_ERR_IO);
  expect_code(dsv4_chat_render(tokenizer, kNoJson, sizeof kNoJson - 1, NULL, prompt, kMaxPrompt,
                               &needed, &error),
              DSV4_ERR_CORRUPT);
  options.settings = kExact;
  options.setting_count = 1;
  expect_code(dsv4_plan(MODEL, &options, &info, NULL, 0, &error), DSV4_ERR_UNSUPPORTED);
  options.setting_count = 0;

  for (i = 1; i < 4; ++i)
    expect_code(dsv4_session_open(engine, NULL, &sessions[i], &error), DSV4_OK);
  expect_code(dsv4_session_open(engine, NULL, &sessions[4], &error), DSV4_ERR_OUT_OF_BLOCKS);
  for (i = 0; i < 300; ++i) prompt[count + (size_t)i] = 300;
  expect_code(dsv4_session_sync(sessions[0], prompt, 257, NULL, NULL, &error),
              DSV4_ERR_CONTEXT_FULL);

  expect_code(dsv4_session_sync(sessions[0], prompt, count, NULL, NULL, &error), DSV4_OK);
  expect_code(dsv4_session_prefill(sessions[0], 0, cancel, NULL, NULL, &error), DSV4_ERR_CANCELLED);
  expect_code(dsv4_session_prefill(sessions[0], 0, enter_again, sessions[0], NULL, &error),
              DSV4_OK);
  for (i = 0; i < 5; ++i)
    expect_code(dsv4_session_step(sessions[0], NULL, NULL, &step, &error), DSV4_OK);
  expect_code(dsv4_session_save(sessions[0], saved, NULL, NULL, &error), DSV4_OK);
  expect_code(dsv4_session_load(sessions[1], saved, NULL, NULL, &error), DSV4_OK);
  expect_code(dsv4_session_step(sessions[1], NULL, NULL, &step, &error), DSV4_OK);
  expect_code(dsv4_session_save_memory(sessions[0], image, sizeof image, &needed, &error), DSV4_OK);

  options.max_draft_tokens = -1;
  expect_code(dsv4_engine_open(MODEL, &options, &other, &error), DSV4_OK);
  expect_code(dsv4_session_open(other, NULL, &drafting, &error), DSV4_OK);
  expect_code(dsv4_session_load_memory(drafting, image, needed, &error), DSV4_ERR_VERSION_MISMATCH);

  options.cache_tokens = (int64_t)1 << 34; /* terabytes */
  expect_code(dsv4_engine_open(MODEL, &options, &other, &error), DSV4_ERR_OUT_OF_HOST_MEMORY);

  dsv4_session_close(drafting);
  dsv4_session_close(sessions[3]);
  expect_code(dsv4_session_open(engine, NULL, &sessions[3], &error), DSV4_OK);
  expect_code(
      dsv4_session_sync_json(sessions[3], kMessages, sizeof kMessages - 1, NULL, NULL, &error),
      DSV4_OK);
  for (step.finish = DSV4_FINISH_NONE; step.finish == DSV4_FINISH_NONE;)
    expect_code(dsv4_session_step(sessions[3], ignore_event, NULL, &step, &error), DSV4_OK);
  expect_code(dsv4_session_get_reply_json(sessions[3], text, sizeof text, &needed, &error),
              DSV4_OK);
  for (i = 0; i < 4; ++i) dsv4_session_close(sessions[i]);
  dsv4_engine_close(engine);
  dsv4_engine_close(other);
}

int main(void) {
  char saved[] = "/tmp/dsv4_surprise_XXXXXX";
  char* (*const read_environment)(const char*) = getenv;
  const struct rlimit memory = {(rlim_t)64 << 30, (rlim_t)64 << 30};
  const int output = memfd_create("output", 0), file = mkstemp(saved);
  EXPECT(output >= 0 && file >= 0);
  EXPECT(setrlimit(RLIMIT_AS, &memory) == 0);
  saved_stdout = dup(1);
  saved_stderr = dup(2);
  EXPECT(dup2(output, 1) == 1 && dup2(output, 2) == 2);
  armed = 1;
  work(saved);
  armed = 0;
  fflush(NULL);
  const off_t printed = lseek(output, 0, SEEK_END);
  EXPECT(dup2(saved_stdout, 1) == 1 && dup2(saved_stderr, 2) == 2);
  unlink(saved);

  EXPECT(printed == 0);
  if (surprise[0] != '\0') printf("the library called %s\n", surprise);
  EXPECT(surprise[0] == '\0');
  /* All codes but those that take a device, or a bug. */
  const unsigned all = (1u << (-DSV4_ERR_INTERNAL + 1)) - 1;
  const unsigned without =
      1u << -DSV4_ERR_OUT_OF_DEVICE_MEMORY | 1u << -DSV4_ERR_DEVICE_LOST | 1u << -DSV4_ERR_INTERNAL;
  EXPECT(seen == (all & ~without));

  /* The traps work. */
  armed = 1;
  read_environment("HOME");
  armed = 0;
  EXPECT(strcmp(surprise, "getenv HOME") == 0);
  return 0;
}
