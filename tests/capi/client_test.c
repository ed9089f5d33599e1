/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: client_test MODEL_FOLDER NEW_FILE
 * A client that calls every function and uses nothing but the public headers. It checks results,
 * and nothing that may grow within an ABI number (the version, sizes of structs): its binary runs
 * with every later library of the same number.
 */
#include <dsv4/dsv4.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                     \
  do {                                                       \
    if (!(condition)) {                                      \
      printf("client: line %d: %s\n", __LINE__, #condition); \
      exit(1);                                               \
    }                                                        \
  } while (0)

/* The call succeeds; its last argument is &error. */
#define OK(call)                                                                           \
  do {                                                                                     \
    if ((call) != DSV4_OK) {                                                               \
      printf("client: line %d: %s: %s\n", __LINE__, #call, dsv4_error_get_message(error)); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)

static dsv4_error* error;
static const char kQuestion[] = "What is the capital of France?";
static const char kAnswer[] = "The capital of France is Paris.";
static const char kJson[] =
    "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";

static dsv4_message ask(const char* question) {
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_USER;
  message.content = question;
  message.content_length = strlen(question);
  return message;
}

static void count_line(void* user, dsv4_log_level level, const char* message) {
  CHECK(level == DSV4_LOG_INFO || level == DSV4_LOG_WARNING || level == DSV4_LOG_ERROR);
  CHECK(message != NULL);
  ++*(int*)user;
}

static int32_t count_progress(void* user, dsv4_progress_phase phase, uint64_t done, uint64_t total,
                              dsv4_progress_unit unit) {
  CHECK(phase >= DSV4_PROGRESS_LOAD && phase <= DSV4_PROGRESS_RESTORE);
  CHECK(done <= total);
  CHECK(unit == (phase == DSV4_PROGRESS_PREFILL ? DSV4_UNIT_TOKENS : DSV4_UNIT_BYTES));
  ++((int*)user)[phase];
  return 0;
}

typedef struct {
  char text[512];
  int ends;
} Heard;

static void hear(void* user, const dsv4_parser_event* event) {
  Heard* heard = user;
  CHECK(event->struct_size >= sizeof *event);
  if (event->type == DSV4_PARSER_TEXT)
    strncat(heard->text, event->text, (size_t)event->text_length);
  heard->ends += event->type == DSV4_PARSER_END;
}

static void test_library(void) {
  dsv4_tokenizer* tokenizer = NULL;
  CHECK(dsv4_get_abi_version() == DSV4_ABI_VERSION);
  CHECK(strstr(dsv4_get_build_info(), dsv4_get_version()) != NULL);
  CHECK(strcmp(dsv4_status_get_name(DSV4_ERR_NOT_FOUND), "NOT_FOUND") == 0);
  CHECK(dsv4_tokenizer_open("/nonexistent", &tokenizer, &error) == DSV4_ERR_NOT_FOUND);
  CHECK(strstr(dsv4_error_get_message(error), "/nonexistent") != NULL);
  CHECK(strcmp(dsv4_error_get_argument(error), "") == 0);
  dsv4_error_free(error);
}

static void test_text(const char* folder) {
  static const char kCompletion[] =
      "It is Paris.<\xef\xbd\x9c"
      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  dsv4_parser_options parsing = DSV4_PARSER_OPTIONS_INIT;
  dsv4_tokenizer* tokenizer = NULL;
  dsv4_parser* parser = NULL;
  Heard heard;
  int32_t ids[256];
  char text[512], same[512];
  size_t count = 0, needed = 0, length = 0;
  OK(dsv4_tokenizer_open(folder, &tokenizer, &error));
  CHECK(dsv4_tokenizer_get_vocab_size(tokenizer) > 0);
  CHECK(dsv4_tokenizer_get_added_token(tokenizer, "</think>") >= 0);
  OK(dsv4_tokenizer_encode(tokenizer, kAnswer, strlen(kAnswer), DSV4_ENCODE_PLAIN, ids, 256, &count,
                           &error));
  OK(dsv4_tokenizer_decode(tokenizer, ids, count, text, sizeof text, &length, &error));
  CHECK(length == strlen(kAnswer) && memcmp(text, kAnswer, length) == 0);
  OK(dsv4_tokenizer_get_token_bytes(tokenizer, ids[0], text, sizeof text, &length, &error));
  CHECK(length > 0 && memcmp(text, kAnswer, length) == 0);

  OK(dsv4_parser_open(&parsing, &parser, &error));
  memset(&heard, 0, sizeof heard);
  OK(dsv4_parser_feed(parser, kCompletion, strlen(kCompletion), hear, &heard, &error));
  OK(dsv4_parser_end(parser, hear, &heard, &error));
  CHECK(heard.ends == 1 && strcmp(heard.text, "It is Paris.") == 0);
  dsv4_parser_close(parser);

  OK(dsv4_chat_render(tokenizer, kJson, strlen(kJson), &options, ids, 256, &count, &error));
  OK(dsv4_tokenizer_decode(tokenizer, ids, count, text, sizeof text, &length, &error));
  OK(dsv4_chat_render_text(kJson, strlen(kJson), &options, same, sizeof same, &needed, &error));
  CHECK(needed == length && length < sizeof text && memcmp(text, same, length) == 0);
  dsv4_tokenizer_close(tokenizer);
}

static void speak(dsv4_session* session, char text[512]) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  text[0] = '\0';
  while (step.finish == DSV4_FINISH_NONE) {
    OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    strncat(text, step.text, step.text_length);
  }
  CHECK(step.finish == DSV4_FINISH_STOP);
}

static void test_session(dsv4_engine* engine, int calls[8], const char* path) {
  const dsv4_tokenizer* tokenizer = NULL;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  dsv4_sync_options sync_options = DSV4_SYNC_OPTIONS_INIT;
  dsv4_sync_result synced = DSV4_SYNC_RESULT_INIT;
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_step_result* steps[1];
  dsv4_status status = DSV4_ERR_INTERNAL;
  dsv4_session *session = NULL, *fork = NULL;
  const int32_t* tokens = NULL;
  int32_t prompt[256];
  float log_prob = 1;
  int64_t pending = -1;
  size_t count = 0, length = 0, needed = 0;
  uint32_t words[2048 / 32];
  char text[512];
  uint8_t* image;
  steps[0] = &step;
  OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  OK(dsv4_chat_render(tokenizer, kJson, strlen(kJson), NULL, prompt, 256, &count, &error));
  OK(dsv4_sampling_init(engine, &sampling, &error));
  CHECK(sampling.temperature == DSV4_GREEDY);
  options.sampling = &sampling;
  OK(dsv4_session_open(engine, &options, &session, &error));
  sampling.log_probs = 1;
  OK(dsv4_session_set_sampling(session, &sampling, &error));
  OK(dsv4_session_sync(session, prompt, count, &sync_options, &synced, &error));
  CHECK(synced.pending_tokens == (int64_t)count);
  OK(dsv4_session_prefill(session, 0, count_progress, calls, &pending, &error));
  CHECK(pending == 0);
  dsv4_session_set_stopped(session, 1);
  dsv4_session_set_stopped(session, 0);
  memset(words, 0xff, sizeof words);
  OK(dsv4_session_set_allowed(session, words, 2048 / 32, &error));
  OK(dsv4_engine_step(engine, &session, 1, NULL, NULL, steps, &status, NULL, &error));
  CHECK(status == DSV4_OK && step.token >= 0);
  OK(dsv4_session_get_tokens(session, &tokens, &length, &error));
  CHECK(length == count + 1 && memcmp(tokens, prompt, count * sizeof *prompt) == 0);
  OK(dsv4_session_get_log_probs(session, (int64_t)count, &log_prob, NULL, NULL, 0, NULL, &error));
  CHECK(log_prob <= 0);
  OK(dsv4_session_fork(session, &fork, &error));
  OK(dsv4_session_rewind(session, (int64_t)count, &pending, &error));
  speak(session, text);
  CHECK(strcmp(text, kAnswer) == 0);
  OK(dsv4_session_get_stats(session, &stats, &error));
  CHECK(stats.prompt_tokens == (int64_t)count && stats.generated_tokens > 1);

  OK(dsv4_session_save(fork, path, count_progress, calls, &error));
  OK(dsv4_session_save_memory(fork, NULL, 0, &needed, &error));
  image = malloc(needed);
  CHECK(image != NULL);
  OK(dsv4_session_save_memory(fork, image, needed, &needed, &error));
  OK(dsv4_session_load(session, path, count_progress, calls, &error));
  speak(session, text);
  CHECK(strlen(text) > 0 && strcmp(kAnswer + strlen(kAnswer) - strlen(text), text) == 0);
  OK(dsv4_session_load_memory(fork, image, needed, &error));
  speak(fork, text);
  CHECK(strcmp(kAnswer + strlen(kAnswer) - strlen(text), text) == 0);
  free(image);
  dsv4_session_close(session);
  dsv4_session_close(fork);
}

static void test_grammars(dsv4_engine* engine) {
  static const char kPattern[] = "[0-9]{2}", kTools[] = "[{\"name\":\"f\"}]";
  const dsv4_tool_options options = DSV4_TOOL_OPTIONS_INIT;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_options session_options = DSV4_SESSION_OPTIONS_INIT;
  dsv4_session* session = NULL;
  dsv4_grammar* grammar = NULL;
  const int32_t prompt = 0;
  char text[512];
  size_t needed = 0;
  OK(dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, &options, &grammar, &error));
  dsv4_grammar_close(grammar);
  OK(dsv4_grammar_open_answer(engine, kTools, strlen(kTools), "{}", 2, &options, &grammar, &error));
  OK(dsv4_grammar_get_unenforced(grammar, text, sizeof text, &needed, &error));
  CHECK(needed == 2 && memcmp(text, "[]", 2) == 0);
  dsv4_grammar_close(grammar);
  OK(dsv4_grammar_open(engine, DSV4_GRAMMAR_REGEX, kPattern, strlen(kPattern), &grammar, &error));
  sampling.grammar = grammar;
  session_options.sampling = &sampling;
  OK(dsv4_session_open(engine, &session_options, &session, &error));
  dsv4_grammar_close(grammar);
  OK(dsv4_session_sync(session, &prompt, 1, NULL, NULL, &error));
  speak(session, text);
  CHECK(strlen(text) == 2 && strspn(text, "0123456789") == 2);
  dsv4_session_close(session);
}

static void hear_turn(dsv4_session* session) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  Heard heard;
  memset(&heard, 0, sizeof heard);
  while (step.finish == DSV4_FINISH_NONE)
    OK(dsv4_session_step(session, hear, &heard, &step, &error));
  CHECK(step.finish == DSV4_FINISH_STOP && heard.ends == 1);
  CHECK(strcmp(heard.text, kAnswer) == 0);
}

static void test_conversation(dsv4_engine* engine) {
  const dsv4_message question = ask(kQuestion);
  const dsv4_message* messages[1];
  const dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  dsv4_session* session = NULL;
  dsv4_sync_result synced = DSV4_SYNC_RESULT_INIT;
  Heard heard;
  char json[512];
  size_t needed = 0;
  messages[0] = &question;
  OK(dsv4_session_open(engine, NULL, &session, &error));
  OK(dsv4_session_sync_messages(session, messages, 1, &options, &synced, &error));
  CHECK(synced.pending_tokens > 0);
  hear_turn(session);
  OK(dsv4_session_get_reply_json(session, json, sizeof json, &needed, &error));
  CHECK(needed < sizeof json);
  json[needed] = '\0';
  CHECK(strstr(json, kAnswer) != NULL);
  OK(dsv4_session_sync_json(session, kJson, strlen(kJson), &options, &synced, &error));
  {
    void* users[1] = {&heard};
    dsv4_step_result pass = DSV4_STEP_RESULT_INIT, *passes[1] = {&pass};
    dsv4_status status = DSV4_ERR_INTERNAL;
    memset(&heard, 0, sizeof heard);
    OK(dsv4_engine_step(engine, &session, 1, hear, users, passes, &status, NULL, &error));
    CHECK(status == DSV4_OK);
  }
  OK(dsv4_session_end_turn(session, hear, &heard, &error));
  CHECK(heard.ends == 1);
  OK(dsv4_session_sync_messages(session, messages, 1, NULL, NULL, &error));
  hear_turn(session);
  dsv4_session_close(session);
}

int main(int argc, char** argv) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine_info plan = DSV4_ENGINE_INFO_INIT, info = DSV4_ENGINE_INFO_INIT;
  dsv4_device_info device = DSV4_DEVICE_INFO_INIT;
  dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  dsv4_engine_identity identity = DSV4_ENGINE_IDENTITY_INIT;
  dsv4_engine* engine = NULL;
  int calls[8] = {0}, lines = 0, phase;
  char description[4096];
  size_t needed = 0;
  CHECK(argc == 3);
  dsv4_log_set_callback(count_line, &lines, DSV4_LOG_INFO);
  test_library();
  test_text(argv[1]);
  options.context_tokens = 256;
  options.progress = count_progress;
  options.progress_user = calls;
  OK(dsv4_plan(argv[1], &options, &plan, &device, 1, &error));
  OK(dsv4_list_devices(NULL, 0, &needed, &error));
  CHECK(needed >= 2);
  CHECK(device.weight_bytes == plan.weight_bytes);
  CHECK(dsv4_group_create_id(&options, description, 0, &needed, NULL) == DSV4_ERR_INVALID_ARGUMENT);
  CHECK(dsv4_group_serve(argv[1], &options, NULL) == DSV4_ERR_INVALID_ARGUMENT);
  OK(dsv4_inspect(argv[1], description, sizeof description, &needed, &error));
  OK(dsv4_engine_open(argv[1], &options, &engine, &error));
  OK(dsv4_engine_get_info(engine, &info, &error));
  CHECK(info.context_tokens == 256 && info.weight_bytes == plan.weight_bytes);
  OK(dsv4_engine_get_identity(engine, &identity, &error));
  CHECK(needed < sizeof description);
  description[needed] = '\0';
  CHECK(strstr(description, identity.fingerprint) != NULL);
  test_session(engine, calls, argv[2]);
  test_grammars(engine);
  test_conversation(engine);
  OK(dsv4_engine_suspend(engine, NULL, &error));
  OK(dsv4_engine_resume(engine, NULL, NULL, &error));
  OK(dsv4_engine_get_metrics(engine, &metrics, &error));
  CHECK(metrics.generated_tokens > 0 && metrics.sessions == 0);
  dsv4_engine_close(engine);
  remove(argv[2]);
  for (phase = DSV4_PROGRESS_LOAD; phase <= DSV4_PROGRESS_RESTORE; ++phase) CHECK(calls[phase] > 0);
  CHECK(lines > 0);
  return 0;
}
