/* SPDX-License-Identifier: Apache-2.0
 *
 * A host that loads the library, unloads it and loads it again: each time an engine opens, gives
 * the same tokens and closes. usage: capi_load_twice_test LIBRARY
 */
#include <dlfcn.h>

#include "tests/capi/expect.h"

enum { kTimes = 3, kTokens = 8 };

/* Declares `name`, the library's function of that name. */
#define FIND(name)                                \
  __typeof__(&dsv4_##name) name;                  \
  *(void**)&name = dlsym(library, "dsv4_" #name); \
  EXPECT(name != NULL)

static void generate_with(void* library, int32_t tokens[kTokens]) {
  static const int32_t kPrompt[] = {0, 11, 12, 13};
  const dsv4_engine_options options = {.struct_size = sizeof options, .context_tokens = 512};
  dsv4_engine* engine = NULL;
  dsv4_session* session = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  int i;
  FIND(engine_open);
  FIND(engine_close);
  FIND(session_open);
  FIND(session_close);
  FIND(session_sync);
  FIND(session_step);
  EXPECT(engine_open(MODEL, &options, &engine, NULL) == DSV4_OK);
  EXPECT(session_open(engine, NULL, &session, NULL) == DSV4_OK);
  EXPECT(session_sync(session, kPrompt, 4, NULL, NULL, NULL) == DSV4_OK);
  for (i = 0; i < kTokens; ++i) {
    EXPECT(session_step(session, NULL, NULL, &step, NULL) == DSV4_OK);
    tokens[i] = step.token;
  }
  session_close(session);
  engine_close(engine);
}

int main(int argc, char** argv) {
  int32_t first[kTokens], again[kTokens];
  int time;
  EXPECT(argc == 2);
  for (time = 0; time < kTimes; ++time) {
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    EXPECT(library != NULL);
    generate_with(library, time == 0 ? first : again);
    EXPECT(dlclose(library) == 0);
    /* Gone: the next round maps it anew. */
    EXPECT(dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) == NULL);
    EXPECT(time == 0 || memcmp(first, again, sizeof first) == 0);
  }
  return 0;
}
