/* SPDX-License-Identifier: Apache-2.0
 * A client in C of the installed library: asks the model in a folder one question. */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <string.h>

static void print_text(void* user, const dsv4_parser_event* event) {
  if (event->type == DSV4_PARSER_TEXT) fwrite(event->text, 1, event->text_length, user);
}

int main(int argc, char** argv) {
  dsv4_engine* engine = NULL;
  dsv4_session* session = NULL;
  dsv4_error* error = NULL;
  dsv4_message message = DSV4_MESSAGE_INIT;
  const dsv4_message* messages[] = {&message};
  message.role = DSV4_ROLE_USER;
  message.content = argc == 3 ? argv[2] : "";
  message.content_length = strlen(message.content);
  dsv4_status status = dsv4_engine_open(argc > 1 ? argv[1] : "", NULL, &engine, &error);
  if (!status) status = dsv4_session_open(engine, NULL, &session, &error);
  if (status == DSV4_OK)
    status = dsv4_session_sync_messages(session, messages, 1, NULL, NULL, &error);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (!status && !step.finish)
    status = dsv4_session_step(session, print_text, stdout, &step, &error);
  if (status) fprintf(stderr, "%s\n", dsv4_error_get_message(error));
  dsv4_error_free(error);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return status != DSV4_OK;
}
