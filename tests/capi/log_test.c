/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

struct seen {
  int calls;
  dsv4_log_level last_level;
  char last[512];
};

static void note(void* user, dsv4_log_level level, const char* message) {
  struct seen* seen = user;
  ++seen->calls;
  seen->last_level = level;
  EXPECT(strchr(message, '\n') == NULL);
  snprintf(seen->last, sizeof seen->last, "%s", message);
}

int main(void) {
  struct seen info = {0, 0, ""};
  struct seen warnings = {0, 0, ""};

  dsv4_log_set_callback(note, &info, DSV4_LOG_INFO);
  dsv4_engine_close(open_bundled());
  EXPECT(info.calls > 0);
  EXPECT(info.last_level == DSV4_LOG_INFO);
  EXPECT(strstr(info.last, "backend cpu") != NULL);

  /* Opening a sound model gives no reason to warn. */
  const int calls = info.calls;
  dsv4_log_set_callback(note, &warnings, DSV4_LOG_WARNING);
  dsv4_engine_close(open_bundled());
  EXPECT(warnings.calls == 0);

  dsv4_log_set_callback(NULL, NULL, DSV4_LOG_INFO);
  dsv4_engine_close(open_bundled());
  EXPECT(info.calls == calls);
  EXPECT(warnings.calls == 0);
  return 0;
}
