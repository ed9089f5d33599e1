/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter that is a const handle may be used by several threads at once: all such functions, on
 * the same handles, from several threads, with the results that one thread gets. ThreadSanitizer
 * watches over it where the build has it.
 */
#include <pthread.h>

#include "tests/capi/expect.h"

enum { kThreads = 4, kRounds = 20, kImage = 1 << 20 };

static const char kMessages[] = "[{\"role\": \"user\", \"content\": \"Calculate 59 - 23.\"}]";
static const char kAnswer[] = "59 - 23 = 36";

typedef struct {
  const dsv4_engine* engine;
  const dsv4_session* session;  /* with log-probabilities of its last token */
  const dsv4_session* messages; /* on messages, answered */
  const dsv4_tokenizer* tokenizer;
  dsv4_engine* shared; /* dsv4_session_open's exception */
} Handles;

/* What one round of calls gives: the same bytes each time. */
typedef struct {
  dsv4_engine_info info;
  dsv4_engine_identity identity;
  dsv4_sampling defaults;
  int32_t ids[64], last_token, top_tokens[2];
  char text[256], reply[512], rendered[512];
  float log_prob, top_log_probs[2];
  size_t id_count, text_length, reply_length, rendered_length, tokens, image_bytes;
  int64_t used_tokens;
  uint8_t image_sum;
} Findings;

static void call_all(const Handles* handles, Findings* found) {
  static const char kText[] = "Which threads may call? All of them.";
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  const dsv4_tokenizer* tokenizer = NULL;
  const int32_t* tokens = NULL;
  dsv4_session* opened = NULL;
  uint8_t* image = malloc(kImage);
  size_t i;
  EXPECT(image != NULL);
  memset(found, 0, sizeof *found);
  found->info.struct_size = sizeof found->info;
  found->identity.struct_size = sizeof found->identity;
  found->defaults.struct_size = sizeof found->defaults;
  EXPECT(dsv4_engine_get_info(handles->engine, &found->info, NULL) == DSV4_OK);
  EXPECT(dsv4_engine_get_identity(handles->engine, &found->identity, NULL) == DSV4_OK);
  EXPECT(dsv4_sampling_init(handles->engine, &found->defaults, NULL) == DSV4_OK);
  EXPECT(dsv4_engine_get_metrics(handles->engine, &metrics, NULL) == DSV4_OK);
  EXPECT(metrics.sessions > 0);
  EXPECT(dsv4_engine_get_tokenizer(handles->engine, &tokenizer, NULL) == DSV4_OK);
  EXPECT(tokenizer == handles->tokenizer);
  EXPECT(dsv4_tokenizer_encode(tokenizer, kText, sizeof kText - 1, 0, found->ids, 64,
                               &found->id_count, NULL) == DSV4_OK);
  EXPECT(dsv4_tokenizer_decode(tokenizer, found->ids, found->id_count, found->text,
                               sizeof found->text, &found->text_length, NULL) == DSV4_OK);
  EXPECT(strcmp(found->text, kText) == 0);
  EXPECT(dsv4_tokenizer_get_added_token(tokenizer, "</think>") > 0);
  EXPECT(dsv4_tokenizer_get_vocab_size(tokenizer) > 0);
  EXPECT(dsv4_chat_render_text(kMessages, sizeof kMessages - 1, NULL, found->rendered,
                               sizeof found->rendered, &found->rendered_length, NULL) == DSV4_OK);

  EXPECT(dsv4_session_get_tokens(handles->session, &tokens, &found->tokens, NULL) == DSV4_OK);
  found->last_token = tokens[found->tokens - 1];
  EXPECT(dsv4_session_get_log_probs(handles->session, (int64_t)found->tokens - 1, &found->log_prob,
                                    found->top_tokens, found->top_log_probs, 2, NULL,
                                    NULL) == DSV4_OK);
  EXPECT(dsv4_session_get_stats(handles->session, &stats, NULL) == DSV4_OK);
  found->used_tokens = stats.used_tokens;
  EXPECT(dsv4_session_save_memory(handles->session, image, kImage, &found->image_bytes, NULL) ==
         DSV4_OK);
  EXPECT(found->image_bytes <= kImage);
  for (i = 0; i < found->image_bytes; ++i) found->image_sum ^= image[i];
  EXPECT(dsv4_session_get_reply_json(handles->messages, found->reply, sizeof found->reply,
                                     &found->reply_length, NULL) == DSV4_OK);
  EXPECT(strstr(found->reply, kAnswer) != NULL);

  EXPECT(dsv4_session_open(handles->shared, NULL, &opened, NULL) == DSV4_OK);
  dsv4_session_close(opened);
  free(image);
}

typedef struct {
  const Handles* handles;
  const Findings* expected;
} Work;

static void* call_again(void* argument) {
  const Work* work = argument;
  Findings found;
  int i;
  for (i = 0; i < kRounds; ++i) {
    call_all(work->handles, &found);
    EXPECT(memcmp(&found, work->expected, sizeof found) == 0);
  }
  return NULL;
}

static void ignore_event(void* user, const dsv4_parser_event* event) { (void)user, (void)event; }

int main(void) {
  static Findings expected;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_session *session, *messages = NULL;
  pthread_t threads[kThreads];
  int32_t prompt[kMaxPrompt];
  Handles handles;
  Work work;
  int i;
  options.max_sessions = 2 + kThreads;
  handles.shared = open_engine(options);
  sampling.log_probs = 2;
  session = open_session(handles.shared, &sampling);
  const size_t count = render_question(handles.shared, "What is 2 + 3?", prompt);
  EXPECT_OK(dsv4_session_sync(session, prompt, count, NULL, NULL, &error));
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  EXPECT_OK(open_json_with(handles.shared, NULL, kMessages, NULL, &messages));
  while (step.finish == DSV4_FINISH_NONE)
    EXPECT_OK(dsv4_session_step(messages, ignore_event, NULL, &step, &error));

  handles.engine = handles.shared;
  handles.session = session;
  handles.messages = messages;
  EXPECT_OK(dsv4_engine_get_tokenizer(handles.engine, &handles.tokenizer, &error));
  call_all(&handles, &expected);
  work.handles = &handles;
  work.expected = &expected;
  for (i = 0; i < kThreads; ++i) EXPECT(pthread_create(&threads[i], NULL, call_again, &work) == 0);
  for (i = 0; i < kThreads; ++i) EXPECT(pthread_join(threads[i], NULL) == 0);
  dsv4_session_close(session);
  dsv4_session_close(messages);
  dsv4_engine_close(handles.shared);
  return 0;
}
