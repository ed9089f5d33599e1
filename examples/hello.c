/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest useful program: asks the model in a folder one question and prints the answer as it
 * comes. README.md shows it.
 */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <string.h>

static void print_text(void* user, const dsv4_parser_event* event) {
  if (event->type == DSV4_PARSER_TEXT) fwrite(event->text, 1, event->text_length, user);
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL_DIR QUESTION\n", argv[0]);
    return 2;
  }
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_USER;
  message.content = argv[2];
  message.content_length = strlen(argv[2]);
  const dsv4_message* messages[] = {&message};

  dsv4_engine* engine = NULL;
  dsv4_session* session = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_error* error = NULL;
  dsv4_status status = dsv4_engine_open(argv[1], NULL, &engine, &error);
  if (status == DSV4_OK)
    status = dsv4_session_open_messages(engine, NULL, messages, 1, NULL, &session, &error);
  while (status == DSV4_OK && step.finish == DSV4_FINISH_NONE)
    status = dsv4_session_step_events(session, print_text, stdout, &step, &error);
  printf("\n");
  if (status != DSV4_OK)
    fprintf(stderr, "%s: %s\n", dsv4_status_get_name(status), dsv4_error_get_message(error));
  dsv4_error_free(error);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return status == DSV4_OK ? 0 : 1;
}
