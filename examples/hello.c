/* SPDX-License-Identifier: Apache-2.0
 *
 * The smallest useful program: asks the model in a folder one question and prints the answer as it
 * comes. README.md shows it.
 */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <string.h>

enum { kMaxPrompt = 1024 };

static dsv4_status ask(dsv4_engine* engine, const char* question, dsv4_error** error) {
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_USER;
  message.content = question;
  message.content_length = strlen(question);
  const dsv4_message* conversation[] = {&message};

  const dsv4_tokenizer* tokenizer = NULL;
  dsv4_status status = dsv4_engine_tokenizer(engine, &tokenizer, error);
  if (status != DSV4_OK) return status;
  int32_t prompt[kMaxPrompt];
  size_t length = 0;
  status = dsv4_chat_render(tokenizer, conversation, 1, DSV4_THINKING_OFF, prompt, kMaxPrompt,
                            &length, error);
  if (status != DSV4_OK) return status;
  if (length > kMaxPrompt) return DSV4_ERR_CONTEXT_FULL;

  dsv4_session* session = NULL;
  status = dsv4_session_open(engine, NULL, &session, error);
  if (status == DSV4_OK) status = dsv4_session_sync(session, prompt, length, NULL, NULL, error);
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (status == DSV4_OK && step.finish == DSV4_FINISH_NONE) {
    status = dsv4_session_step(session, &step, error);
    if (status == DSV4_OK) printf("%s", step.text);
  }
  printf("\n");
  dsv4_session_close(session);
  return status;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL_DIR QUESTION\n", argv[0]);
    return 2;
  }
  dsv4_engine* engine = NULL;
  dsv4_error* error = NULL;
  dsv4_status status = dsv4_engine_open(argv[1], NULL, &engine, &error);
  if (status == DSV4_OK) status = ask(engine, argv[2], &error);
  if (status != DSV4_OK)
    fprintf(stderr, "%s: %s\n", dsv4_status_name(status), dsv4_error_message(error));
  dsv4_error_free(error);
  dsv4_engine_close(engine);
  return status == DSV4_OK ? 0 : 1;
}
