/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest useful program: asks the model in a folder one question and prints the answer as it
 * comes. README.md shows it.
 */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <string.h>

static void print_text(void* out, const dsv4_parser_event* event) {
  if (event->type == DSV4_PARSER_TEXT) fwrite(event->text, 1, event->text_length, out);
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: %s MODEL_DIR QUESTION\n", argv[0]), 2;
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_USER;
  message.content = argv[2];
  message.content_length = strlen(argv[2]);
  const dsv4_message* messages[] = {&message};
  dsv4_engine* engine = NULL;
  dsv4_session* session = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_error* error = NULL;
  dsv4_status failed = dsv4_engine_open(argv[1], NULL, &engine, &error);
  if (!failed) failed = dsv4_session_open(engine, NULL, &session, &error);
  if (!failed) failed = dsv4_session_sync_messages(session, messages, 1, NULL, NULL, &error);
  while (!failed && step.finish == DSV4_FINISH_NONE)
    failed = dsv4_session_step(session, print_text, stdout, &step, &error);
  printf("\n");
  if (failed)
    fprintf(stderr, "%s: %s\n", dsv4_status_get_name(failed), dsv4_error_get_message(error));
  dsv4_error_free(error);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return failed != DSV4_OK;
}
