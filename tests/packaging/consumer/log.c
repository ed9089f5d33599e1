/* SPDX-License-Identifier: Apache-2.0
 * A client that lets the library choose the device, and shows what its log says about it. The last
 * line is the backend's number. */
#include <dsv4/dsv4.h>
#include <stdio.h>

static void print_line(void* user, dsv4_log_level level, const char* message) {
  (void)level;
  fprintf(user, "log: %s\n", message);
}

int main(int argc, char** argv) {
  dsv4_engine* engine = NULL;
  dsv4_error* error = NULL;
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  dsv4_log_set_callback(print_line, stdout, DSV4_LOG_INFO);
  printf("build: %s\n", dsv4_get_build_info());
  dsv4_status status = dsv4_engine_open(argc == 2 ? argv[1] : "", NULL, &engine, &error);
  if (!status) status = dsv4_engine_get_info(engine, &info, &error);
  if (status) fprintf(stderr, "%s\n", dsv4_error_get_message(error));
  printf("%d\n", (int)info.backend);
  dsv4_error_free(error);
  dsv4_engine_close(engine);
  return status != DSV4_OK;
}
