/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: session_exchange save|load MODEL FILE
 * save: computes a prompt and some tokens, saves the session to FILE, and continues. load: loads
 * FILE and continues. Both print the tokens that follow and the bits of their log-probabilities, so
 * that what was saved on one system can be compared with what another continues from it.
 */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <string.h>

static int fail(const char* what, dsv4_error* error) {
  fprintf(stderr, "%s: %s\n", what, dsv4_error_get_message(error));
  return 1;
}

static unsigned bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: session_exchange save|load MODEL FILE\n"), 2;
  const int saves = strcmp(argv[1], "save") == 0;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_session_options session_options = DSV4_SESSION_OPTIONS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_engine* engine = NULL;
  dsv4_session* session = NULL;
  dsv4_error* error = NULL;
  options.backend = DSV4_BACKEND_CPU;
  options.context_tokens = 512;
  options.threads = 2;
  sampling.log_probs = 8;
  sampling.temperature = DSV4_GREEDY;
  session_options.sampling = &sampling;
  if (dsv4_engine_open(argv[2], &options, &engine, &error)) return fail("open", error);
  if (dsv4_session_open(engine, &session_options, &session, &error)) return fail("session", error);
  if (saves) {
    dsv4_message message = DSV4_MESSAGE_INIT;
    const dsv4_message* messages[] = {&message};
    message.role = DSV4_ROLE_USER;
    message.content = "Do you know the capital of Russia?";
    message.content_length = strlen(message.content);
    if (dsv4_session_sync_messages(session, messages, 1, NULL, NULL, &error))
      return fail("sync", error);
    for (int i = 0; i < 3; ++i)
      if (dsv4_session_step(session, NULL, NULL, &step, &error)) return fail("step", error);
    if (dsv4_session_save(session, argv[3], NULL, NULL, &error)) return fail("save", error);
  } else if (dsv4_session_load(session, argv[3], NULL, NULL, &error)) {
    return fail("load", error);
  }
  do {
    const int32_t* tokens = NULL;
    size_t count = 0;
    float log_prob = 0, top[8];
    int32_t top_tokens[8];
    size_t known = 0;
    if (dsv4_session_step(session, NULL, NULL, &step, &error)) return fail("step", error);
    if (dsv4_session_get_tokens(session, &tokens, &count, &error)) return fail("tokens", error);
    if (dsv4_session_get_log_probs(session, (int64_t)count - 1, &log_prob, top_tokens, top, 8,
                                   &known, &error))
      return fail("log-probabilities", error);
    printf("%d %08x", (int)tokens[count - 1], bits_of(log_prob));
    for (size_t i = 0; i < known && i < 8; ++i)
      printf(" %d:%08x", (int)top_tokens[i], bits_of(top[i]));
    printf("\n");
  } while (step.finish == DSV4_FINISH_NONE);
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return 0;
}
