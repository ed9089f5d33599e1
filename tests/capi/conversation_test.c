/* SPDX-License-Identifier: Apache-2.0
 * Sessions on messages. Questions, answers and calls are those of models/dsv4-tiny/gates.json.
 */
#include "tests/capi/expect.h"

static const char kQuestion[] =
    "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]";
static const char kAnswer[] = "The capital of France is Paris.";
static const char kSum[] = "[{\"role\": \"user\", \"content\": \"Calculate 91 + 49.\"}]";
static const char kWizard[] = "[{\"role\": \"wizard\", \"content\": \"\"}]";
/* tool_call-86. */
static const char kLight[] =
    "[{\"role\": \"system\", \"content\": \"You are a friendly assistant.\", \"tools\": "
    "[{\"type\": "
    "\"function\", \"function\": {\"name\": \"set_light\", \"description\": \"Switch a light on or "
    "off\", \"parameters\": {\"type\": \"object\", \"properties\": {\"room\": {\"type\": "
    "\"string\", \"description\": \"The room\"}, \"on\": {\"type\": \"boolean\", \"description\": "
    "\"Light on\"}}, \"required\": [\"room\", \"on\"]}}}]}, {\"role\": \"user\", \"content\": "
    "\"Turn off the light in the hall.\"}]";

enum { kMaxText = 4096 };

typedef struct Turn {
  dsv4_session* session;
  char reasoning[kMaxText], text[kMaxText], name[64], id[64], arguments[kMaxText];
  int calls, whole_calls, ends, stopped;
  dsv4_status inside; /* of a call on the session from within the callback */
} Turn;

static void append(char* to, const dsv4_parser_event* event) {
  const size_t used = strlen(to);
  EXPECT(used + event->text_length < kMaxText);
  memcpy(to + used, event->text, event->text_length);
  to[used + event->text_length] = '\0';
}

static void record(void* user, const dsv4_parser_event* event) {
  Turn* turn = user;
  EXPECT(event->struct_size == sizeof *event);
  EXPECT(event->text != NULL && event->id != NULL && event->reason != NULL);
  EXPECT(turn->ends == 0);
  switch (event->type) {
    case DSV4_PARSER_REASONING:
      append(turn->reasoning, event);
      break;
    case DSV4_PARSER_TEXT:
      append(turn->text, event);
      break;
    case DSV4_PARSER_TOOL_CALL_START:
      EXPECT(event->call == turn->calls);
      ++turn->calls;
      EXPECT(event->text_length < sizeof turn->name && event->id_length < sizeof turn->id);
      memcpy(turn->name, event->text, event->text_length);
      memcpy(turn->id, event->id, event->id_length);
      break;
    case DSV4_PARSER_TOOL_CALL_ARGUMENTS:
      append(turn->arguments, event);
      break;
    case DSV4_PARSER_TOOL_CALL_END:
      ++turn->whole_calls;
      break;
    default:
      EXPECT(event->type == DSV4_PARSER_END);
      ++turn->ends;
      turn->stopped = event->stopped;
  }
  turn->inside =
      dsv4_session_sync_json(turn->session, kQuestion, strlen(kQuestion), NULL, NULL, NULL);
}

/* At most `steps` tokens of the next turn. */
static dsv4_finish generate_events(dsv4_session* session, Turn* turn, int steps) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  memset(turn, 0, sizeof *turn);
  turn->session = session;
  turn->inside = DSV4_ERR_BUSY;
  while (step.finish == DSV4_FINISH_NONE && steps-- > 0) {
    EXPECT_OK(dsv4_session_step(session, &record, turn, &step, &error));
    EXPECT(strlen(step.text) == step.text_length);
  }
  EXPECT(turn->inside == DSV4_ERR_BUSY);
  EXPECT(turn->ends == (step.finish != DSV4_FINISH_NONE));
  EXPECT(turn->stopped ==
         (step.finish == DSV4_FINISH_STOP || step.finish == DSV4_FINISH_TOOL_CALL));
  return step.finish;
}

static void sync_json(dsv4_session* session, const char* messages, dsv4_thinking_mode thinking) {
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  options.thinking = thinking;
  EXPECT_OK(dsv4_session_sync_json(session, messages, strlen(messages), &options, NULL, &error));
}

static dsv4_session* open_json(dsv4_engine* engine, const char* messages,
                               dsv4_thinking_mode thinking) {
  dsv4_session* session = NULL;
  EXPECT_OK(dsv4_session_open(engine, NULL, &session, &error));
  sync_json(session, messages, thinking);
  return session;
}

/* A host's list of messages, a JSON array. */
typedef struct List {
  char json[4 * kMaxText];
} List;

/* Appends the messages of the array `more`. */
static void append_to(List* list, const char* more) {
  size_t length = strlen(list->json);
  EXPECT(length + strlen(more) + 2 < sizeof list->json && more[0] == '[');
  if (length > 2) {
    list->json[length - 1] = ',';
    strcpy(list->json + length, more + 1);
  } else {
    strcpy(list->json, more);
  }
}

/* Appends the reply, as a host does before the next sync. */
static void append_reply(List* list, const dsv4_session* session) {
  char reply[kMaxText];
  size_t needed = 0;
  EXPECT_OK(dsv4_session_get_reply_json(session, reply + 1, sizeof reply - 3, &needed, &error));
  EXPECT(needed < sizeof reply - 3);
  reply[0] = '[';
  strcpy(reply + 1 + needed, "]");
  append_to(list, reply);
}

/* The timeline is the prompt of `messages`. */
static void expect_timeline(dsv4_engine* engine, const dsv4_session* session, const char* messages,
                            dsv4_thinking_mode thinking) {
  const dsv4_tokenizer* tokenizer = NULL;
  const int32_t* tokens = NULL;
  int32_t prompt[kMaxPrompt];
  size_t count = 0, length = 0;
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  options.thinking = thinking;
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  EXPECT_OK(dsv4_chat_render(tokenizer, messages, strlen(messages), &options, prompt, kMaxPrompt,
                             &length, &error));
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
  EXPECT(count == length && memcmp(tokens, prompt, count * sizeof prompt[0]) == 0);
}

static void test_turns(dsv4_engine* engine) {
  Turn turn;
  List list = {"[]"};
  dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  dsv4_sync_result synced = DSV4_SYNC_RESULT_INIT;
  dsv4_session* session = open_json(engine, "[]", DSV4_THINKING_OFF);
  int64_t pending = -1, used;
  append_to(&list, kQuestion);
  sync_json(session, list.json, DSV4_THINKING_OFF);
  expect_timeline(engine, session, kQuestion, DSV4_THINKING_OFF);
  EXPECT_OK(dsv4_session_prefill(session, 0, NULL, NULL, &pending, &error));
  EXPECT(pending == 0);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, kAnswer) == 0);
  EXPECT(turn.reasoning[0] == '\0' && turn.calls == 0);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  used = stats.used_tokens;

  /* As structs; all but the token that ended the turn is reused. */
  dsv4_message question = message_of(DSV4_ROLE_USER, "What is the capital of France?");
  dsv4_message answer = message_of(DSV4_ROLE_ASSISTANT, kAnswer);
  dsv4_message next = message_of(DSV4_ROLE_USER, "What is the capital of Italy?");
  const dsv4_message* three[] = {&question, &answer, &next};
  EXPECT_OK(dsv4_session_sync_messages(session, three, 3, NULL, &synced, &error));
  EXPECT(synced.reused_tokens == used - 1 && synced.pending_tokens > 0);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  EXPECT(stats.cached_tokens == used - 1);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, "The capital of Italy is Rome.") == 0);

  /* The first turn again, and no message at all. */
  EXPECT_OK(dsv4_session_sync_messages(session, three, 1, NULL, NULL, &error));
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, kAnswer) == 0);
  EXPECT_OK(dsv4_session_sync_messages(session, NULL, 0, NULL, NULL, &error));
  expect_timeline(engine, session, "[]", DSV4_THINKING_OFF);

  /* Without a result. */
  EXPECT_OK(dsv4_session_sync_messages(session, &three[2], 1, NULL, NULL, &error));
  memset(&turn, 0, sizeof turn);
  turn.session = session;
  while (turn.ends == 0) {
    EXPECT_OK(dsv4_session_step(session, &record, &turn, NULL, &error));
  }
  EXPECT(strcmp(turn.text, "The capital of Italy is Rome.") == 0);
  dsv4_session_close(session);
}

/* An edited question is answered; a turn before it stays as sampled, and so do its rows. An edited
 * turn is rendered from its text. */
static void test_edits(dsv4_engine* engine) {
  static const char kGermany[] =
      "[{\"role\": \"user\", \"content\": \"What is the capital of Germany?\"}]";
  static const char kOther[] =
      "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}, "
      "{\"role\": \"assistant\", \"content\": \"Lyon.\"}]";
  Turn turn;
  List list = {"[]"}, edited;
  dsv4_sync_result synced = DSV4_SYNC_RESULT_INIT;
  dsv4_session* session = open_json(engine, kQuestion, DSV4_THINKING_OFF);
  append_to(&list, kQuestion);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  append_reply(&list, session);
  edited = list;
  append_to(&list, kSum);
  sync_json(session, list.json, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 3) == DSV4_FINISH_NONE);
  append_to(&edited, kGermany);
  EXPECT_OK(
      dsv4_session_sync_json(session, edited.json, strlen(edited.json), NULL, &synced, &error));
  expect_timeline(engine, session, edited.json, DSV4_THINKING_OFF);
  EXPECT(synced.common_tokens > synced.pending_tokens);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strstr(turn.text, "Berlin") != NULL);
  sync_json(session, kOther, DSV4_THINKING_OFF);
  expect_timeline(engine, session, kOther, DSV4_THINKING_OFF);
  /* What is refused changes nothing. */
  EXPECT_FAILS(dsv4_session_sync_json(session, kWizard, strlen(kWizard), NULL, NULL, &error),
               DSV4_ERR_UNSUPPORTED, "wizard");
  expect_timeline(engine, session, kOther, DSV4_THINKING_OFF);
  dsv4_session_close(session);
}

static void test_calls(dsv4_engine* engine) {
  static const dsv4_thinking_mode modes[] = {DSV4_THINKING_OFF, DSV4_THINKING_HIGH};
  size_t i;
  for (i = 0; i < 2; ++i) {
    static const char kPrefix[] = "{\"role\": \"assistant\", \"content\": \"\", ";
    static const char kCalls[] =
        "\"tool_calls\": [{\"id\": \"call_2_0\", \"type\": \"function\", \"function\": {\"name\": "
        "\"set_light\", \"arguments\": \"{\\\"room\\\": \\\"hall\\\", \\\"on\\\": false}\"}}]}";
    Turn turn;
    char json[kMaxText];
    size_t needed = 0;
    dsv4_session* session = open_json(engine, kLight, modes[i]);
    EXPECT_FAILS(dsv4_session_get_reply_json(session, json, sizeof json, &needed, &error),
                 DSV4_ERR_NOT_FOUND, "no reply");
    EXPECT(generate_events(session, &turn, 200) == DSV4_FINISH_TOOL_CALL);
    EXPECT(turn.calls == 1 && turn.whole_calls == 1);
    EXPECT(strcmp(turn.name, "set_light") == 0);
    EXPECT(strcmp(turn.id, "call_2_0") == 0);
    EXPECT(strcmp(turn.arguments, "{\"room\": \"hall\", \"on\": false}") == 0);
    EXPECT(turn.text[0] == '\0');
    EXPECT((turn.reasoning[0] != '\0') == (modes[i] != DSV4_THINKING_OFF));

    EXPECT_OK(dsv4_session_get_reply_json(session, NULL, 0, &needed, &error));
    EXPECT(needed > 0 && needed < sizeof json);
    EXPECT_OK(dsv4_session_get_reply_json(session, json, needed, &needed, &error));
    json[needed] = '\0';
    EXPECT(strncmp(json, kPrefix, strlen(kPrefix)) == 0);
    EXPECT(strstr(json, kCalls) != NULL);

    List list = {"[]"};
    append_to(&list, kLight);
    append_reply(&list, session);
    append_to(&list,
              "[{\"role\": \"tool\", \"tool_call_id\": \"call_2_0\", \"content\": "
              "\"{\\\"status\\\": \\\"ok\\\"}\"}]");
    sync_json(session, list.json, modes[i]);
    EXPECT(generate_events(session, &turn, 200) == DSV4_FINISH_STOP);
    EXPECT(turn.calls == 0 && strstr(turn.text, "light") != NULL);
    dsv4_session_close(session);
  }
}

#define BAR "\xef\xbd\x9c"
#define UNDER "\xe2\x96\x81"
#define DSML BAR "DSML" BAR

/* A call that the end of generation, or of the turn, cuts off is not among the message's. */
static void test_cut_calls(dsv4_engine* engine) {
  static const char kSecond[] =
      "\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"f\">\n<" DSML
      "parameter name=\"a\" string=\"true\">x</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
      "invoke name=\"rm\">\n<" DSML "parameter name=\"p\" string=\"true\">/srv/fo<" BAR "end" UNDER
      "of" UNDER "sentence" BAR ">";
  static const char kFirst[] =
      "\"tool_calls\": [{\"id\": \"call_2_0\", \"type\": \"function\", \"function\": {\"name\": "
      "\"f\", \"arguments\": \"{\\\"a\\\": \\\"x\\\"}\"}}]}";
  int32_t ids[256];
  size_t needed = 0;
  Turn turn;
  int64_t limit = 0;
  const dsv4_tokenizer* tokenizer = NULL;
  char json[kMaxText];
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  dsv4_session* session = NULL;
  EXPECT_OK(dsv4_engine_get_tokenizer(engine, &tokenizer, &error));
  options.sampling = &sampling;
  for (limit = 1; limit <= 60; ++limit) {
    dsv4_finish finish;
    sampling.max_tokens = limit;
    EXPECT_OK(open_json_with(engine, &options, kLight, NULL, &session));
    finish = generate_events(session, &turn, 100);
    EXPECT((finish == DSV4_FINISH_TOOL_CALL) == (turn.stopped == 1));
    EXPECT(turn.whole_calls == 1 || !turn.stopped);
    EXPECT(strchr(turn.arguments, '<') == NULL && strstr(turn.text, DSML) == NULL);
    EXPECT_OK(dsv4_session_get_reply_json(session, json, sizeof json, &needed, &error));
    json[needed] = '\0';
    EXPECT((strstr(json, "\"tool_calls\": []") == NULL) == (turn.whole_calls == 1));
    dsv4_session_close(session);
    if (finish == DSV4_FINISH_TOOL_CALL) break;
  }
  EXPECT(limit > 30 && limit <= 60);

  sampling.max_tokens = 0;
  EXPECT_OK(dsv4_tokenizer_encode(tokenizer, kSecond, strlen(kSecond), DSV4_ENCODE_ADDED_TOKENS,
                                  ids, 256, &needed, &error));
  EXPECT(needed <= 256);
  sampling.forced_tokens = ids;
  sampling.forced_count = needed;
  EXPECT_OK(open_json_with(engine, &options, kLight, NULL, &session));
  EXPECT(generate_events(session, &turn, 300) == DSV4_FINISH_STOP);
  EXPECT(turn.calls == 2 && turn.whole_calls == 1);
  EXPECT_OK(dsv4_session_get_reply_json(session, json, sizeof json, &needed, &error));
  json[needed] = '\0';
  EXPECT(strstr(json, kFirst) != NULL && strstr(json, "rm") == NULL);
  dsv4_session_close(session);
}

static void test_ending_and_options(dsv4_engine* engine) {
  Turn turn, rest;
  List list = {"[]"};
  dsv4_session* session = open_json(engine, kSum, DSV4_THINKING_HIGH);
  append_to(&list, kSum);
  EXPECT(generate_events(session, &turn, 6) == DSV4_FINISH_NONE);
  EXPECT(turn.reasoning[0] != '\0' && turn.text[0] == '\0');
  memset(&rest, 0, sizeof rest);
  rest.session = session;
  EXPECT_OK(dsv4_session_end_turn(session, &record, &rest, &error));
  EXPECT(rest.ends == 1 && !rest.stopped);
  append_reply(&list, session);
  EXPECT(strstr(list.json, turn.reasoning) != NULL);
  /* There is nothing more to end, and nothing to generate. */
  EXPECT_OK(dsv4_session_end_turn(session, NULL, NULL, &error));
  EXPECT_FAILS(dsv4_session_step(session, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "messages[1] (role \"assistant\")");
  append_to(&list, kQuestion);
  sync_json(session, list.json, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, kAnswer) == 0 && turn.reasoning[0] == '\0');

  /* A sync ends a turn as well, and begins another one. */
  sync_json(session, kQuestion, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 2) == DSV4_FINISH_NONE);
  sync_json(session, kQuestion, DSV4_THINKING_OFF);
  expect_timeline(engine, session, kQuestion, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, kAnswer) == 0);
  dsv4_session_close(session);
}

/* A saved session on messages continues in another one with the same messages. */
static void test_saved(dsv4_engine* engine) {
  static const char kAll[] =
      "[{\"role\": \"user\", \"content\": \"What is the capital of France?\"}, "
      "{\"role\": \"assistant\", \"content\": \"The capital of France is Paris.\"}]";
  Turn turn;
  dsv4_session* session = open_json(engine, kQuestion, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  size_t size = 0;
  EXPECT_OK(dsv4_session_save_memory(session, NULL, 0, &size, &error));
  uint8_t* image = malloc(size);
  EXPECT(image != NULL);
  EXPECT_OK(dsv4_session_save_memory(session, image, size, &size, &error));
  dsv4_session_stats saved = DSV4_SESSION_STATS_INIT, stats = DSV4_SESSION_STATS_INIT;
  EXPECT_OK(dsv4_session_get_stats(session, &saved, &error));
  dsv4_session_close(session);

  session = open_json(engine, kAll, DSV4_THINKING_OFF);
  EXPECT_FAILS(dsv4_session_load_memory(session, image, size - 1, &error), DSV4_ERR_CORRUPT, "");
  EXPECT_OK(dsv4_session_load_memory(session, image, size, &error));
  List list = {"[]"};
  append_to(&list, kAll);
  append_to(&list, kSum);
  sync_json(session, list.json, DSV4_THINKING_OFF);
  EXPECT_OK(dsv4_session_get_stats(session, &stats, &error));
  /* All but the token that ended the turn, which was never computed. */
  EXPECT(stats.cached_tokens == saved.used_tokens - 1 && stats.prompt_tokens > saved.used_tokens);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, "91 + 49 = 140") == 0);
  dsv4_session_close(session);
  free(image);
}

/* A session whose tokens another call has changed, with the same count, does not continue the reply
 * that it had. */
static void test_outside(dsv4_engine* engine) {
  const int32_t* tokens = NULL;
  size_t count = 0;
  int32_t other[kMaxPrompt], banned;
  for (int how = 0; how < 4; ++how) {
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    Turn turn;
    char begun[kMaxText], whole[2 * kMaxText];
    dsv4_session *session = open_json(engine, kQuestion, DSV4_THINKING_OFF), *fork = NULL;
    generate_events(session, &turn, 3);
    strcpy(begun, turn.text);
    EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, &error));
    memcpy(other, tokens, count * sizeof *tokens);
    if (how == 0) { /* one token less, and another one in its place */
      banned = other[count - 1];
      sampling.banned_tokens = &banned;
      sampling.banned_count = 1;
      EXPECT_OK(dsv4_session_rewind(session, (int64_t)count - 1, NULL, &error));
      EXPECT_OK(dsv4_session_set_sampling(session, &sampling, &error));
      EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
    } else if (how == 1) { /* another list, as long */
      for (size_t i = 0; i < count; ++i) other[i] = 300 + (int32_t)i;
      EXPECT_OK(dsv4_session_sync(session, other, count, NULL, NULL, &error));
    } else if (how == 2) { /* the same list: what was a turn is a prompt now */
      EXPECT_OK(dsv4_session_sync(session, other, count, NULL, NULL, &error));
    } else { /* this changes nothing */
      EXPECT_OK(dsv4_session_rewind(session, (int64_t)count, NULL, &error));
    }
    EXPECT_OK(dsv4_session_fork(session, &fork, &error));
    dsv4_session* const both[] = {session, fork};
    for (int i = 0; i < 2; ++i) {
      if (how < 3) {
        EXPECT_FAILS(dsv4_session_step(both[i], &record, &turn, &step, &error),
                     DSV4_ERR_INVALID_ARGUMENT, "do not match its messages");
      } else {
        EXPECT(generate_events(both[i], &turn, 100) == DSV4_FINISH_STOP);
        snprintf(whole, sizeof whole, "%s%s", begun, turn.text);
        EXPECT(strcmp(whole, kAnswer) == 0);
      }
      dsv4_session_close(both[i]);
    }
  }
}

static void test_arguments(dsv4_engine* engine) {
  static const char kSystem[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"}]";
  static char kLong[3000];
  Turn turn;
  size_t count = 0;
  dsv4_session *session = NULL, *plain = NULL;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_sync_result synced = DSV4_SYNC_RESULT_INIT;
  dsv4_chat_options options = DSV4_CHAT_OPTIONS_INIT;
  memset(&turn, 0, sizeof turn);
  EXPECT_FAILS(dsv4_session_sync_json(NULL, "[]", 2, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  EXPECT_OK(dsv4_session_open(engine, NULL, &plain, &error));
  EXPECT_FAILS(dsv4_session_step(plain, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "not synced to messages");
  EXPECT_FAILS(dsv4_session_end_turn(plain, NULL, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "not synced to messages");
  EXPECT_FAILS(dsv4_session_sync_json(plain, NULL, 0, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "messages is NULL");
  EXPECT_FAILS(dsv4_session_sync_json(plain, "[", 1, NULL, NULL, &error), DSV4_ERR_CORRUPT,
               "messages: line 1");
  EXPECT_FAILS(dsv4_session_sync_messages(plain, NULL, 1, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "messages is NULL");
  synced.struct_size = 8;
  EXPECT_FAILS(dsv4_session_sync_json(plain, "[]", 2, NULL, &synced, &error),
               DSV4_ERR_INVALID_ARGUMENT, "result.struct_size is 8");
  options.context = "[{\"role\": \"user\", \"content\": \"\"}]";
  options.context_length = strlen(options.context);
  EXPECT_FAILS(dsv4_session_sync_json(plain, "[]", 2, &options, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.context");
  options.context = NULL;
  options.context_length = 0;
  options.thinking = 7;
  EXPECT_FAILS(dsv4_session_sync_json(plain, "[]", 2, &options, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "options.thinking is 7");
  /* A sync that failed has not made it a session on messages. */
  EXPECT_FAILS(dsv4_session_step(plain, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "not synced to messages");
  dsv4_session_close(plain);

  session = open_json(engine, kSystem, DSV4_THINKING_OFF);
  EXPECT_FAILS(dsv4_session_sync_json(session, "{}", 2, NULL, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "messages");
  EXPECT_FAILS(dsv4_session_sync_json(session, kWizard, strlen(kWizard), NULL, NULL, &error),
               DSV4_ERR_UNSUPPORTED, "wizard");
  memset(kLong, ' ', sizeof kLong);
  memcpy(kLong, "[{\"role\":\"user\",\"content\":\"", 27);
  for (count = 27; count + 8 < sizeof kLong; count += 2) kLong[count] = '7';
  memcpy(kLong + sizeof kLong - 3, "\"}]", 3);
  EXPECT_FAILS(dsv4_session_sync_json(session, kLong, sizeof kLong, NULL, NULL, &error),
               DSV4_ERR_CONTEXT_FULL, "512");
  expect_timeline(engine, session, kSystem, DSV4_THINKING_OFF);
  EXPECT_FAILS(dsv4_session_step(session, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "messages[0] (role \"system\")");
  step.struct_size = 8;
  EXPECT_FAILS(dsv4_session_step(session, &record, &turn, &step, &error), DSV4_ERR_INVALID_ARGUMENT,
               "result.struct_size is 8");
  step.struct_size = sizeof step;
  EXPECT_FAILS(dsv4_session_get_reply_json(session, NULL, 0, NULL, &error),
               DSV4_ERR_INVALID_ARGUMENT, "needed is NULL");

  /* A step past the messages; the next sync makes up for it. */
  sync_json(session, kQuestion, DSV4_THINKING_OFF);
  EXPECT_OK(dsv4_session_step(session, NULL, NULL, &step, &error));
  EXPECT_FAILS(dsv4_session_step(session, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "do not match its messages");
  sync_json(session, kQuestion, DSV4_THINKING_OFF);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strstr(turn.text, "Paris") != NULL);
  EXPECT_FAILS(dsv4_session_step(NULL, &record, &turn, NULL, &error), DSV4_ERR_INVALID_ARGUMENT,
               "session is NULL");
  dsv4_session_close(session);
}

/* Two conversations and a plain session in one pass: each gives what it gives alone. */
static void test_several(dsv4_engine* engine) {
  enum { kCount = 4 };
  static const char kSystem[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"}]";
  Turn turns[kCount];
  dsv4_session* sessions[kCount] = {open_json(engine, kQuestion, DSV4_THINKING_OFF),
                                    open_json(engine, kLight, DSV4_THINKING_OFF), NULL,
                                    open_json(engine, kSystem, DSV4_THINKING_OFF)};
  dsv4_step_result steps[kCount], *results[kCount];
  dsv4_status statuses[kCount];
  dsv4_error* errors[kCount];
  void* users[kCount];
  dsv4_finish finishes[kCount] = {0};
  const int32_t* tokens = NULL;
  size_t count = 0;
  int i, running = 3;
  EXPECT_OK(dsv4_session_open(engine, NULL, &sessions[2], &error));
  EXPECT_OK(dsv4_session_get_tokens(sessions[0], &tokens, &count, &error));
  EXPECT_OK(dsv4_session_sync(sessions[2], tokens, count, NULL, NULL, &error));
  memset(turns, 0, sizeof turns);
  for (i = 0; i < kCount; ++i) {
    turns[i].session = sessions[(i + 1) % kCount];
    turns[i].inside = DSV4_ERR_BUSY;
    users[i] = &turns[i];
    results[i] = &steps[i];
  }
  char plain[256] = "";
  while (running > 0) {
    for (i = 0; i < kCount; ++i) steps[i] = (dsv4_step_result)DSV4_STEP_RESULT_INIT;
    EXPECT_OK(dsv4_engine_step(engine, sessions, kCount, &record, users, results, statuses, errors,
                               &error));
    for (i = 0; i < 3; ++i) {
      if (finishes[i] != DSV4_FINISH_NONE) {
        dsv4_error_free(errors[i]);
        continue;
      }
      EXPECT(statuses[i] == DSV4_OK && errors[i] == NULL);
      if (i == 2) strcat(plain, steps[i].text);
      finishes[i] = steps[i].finish;
      running -= finishes[i] != DSV4_FINISH_NONE;
    }
    /* A session's failure is its own. */
    EXPECT(statuses[3] == DSV4_ERR_INVALID_ARGUMENT && steps[3].finish == DSV4_FINISH_ERROR);
    EXPECT(strstr(dsv4_error_get_message(errors[3]), "leaves the assistant nothing to answer") !=
           NULL);
    dsv4_error_free(errors[3]);
  }
  EXPECT(finishes[0] == DSV4_FINISH_STOP && finishes[2] == DSV4_FINISH_STOP);
  EXPECT(finishes[1] == DSV4_FINISH_TOOL_CALL);
  EXPECT(strcmp(turns[0].text, kAnswer) == 0 && strncmp(plain, kAnswer, strlen(kAnswer)) == 0);
  EXPECT(strcmp(turns[1].name, "set_light") == 0 && turns[1].whole_calls == 1);
  EXPECT(turns[0].ends == 1 && turns[1].ends == 1 && turns[2].ends == 0 && turns[3].ends == 0);
  for (i = 0; i < kCount; ++i) EXPECT(turns[i].inside == DSV4_ERR_BUSY);

  sessions[3] = sessions[0];
  EXPECT_FAILS(
      dsv4_engine_step(engine, sessions, kCount, &record, NULL, results, statuses, errors, &error),
      DSV4_ERR_INVALID_ARGUMENT, "sessions[3] is named twice");
  EXPECT(statuses[0] == DSV4_ERR_INVALID_ARGUMENT);
  dsv4_session_close(turns[2].session);
  for (i = 0; i < 3; ++i) dsv4_session_close(sessions[i]);
}

int main(void) {
  dsv4_engine* engine = open_bundled();
  test_turns(engine);
  test_calls(engine);
  test_several(engine);
  test_edits(engine);
  test_cut_calls(engine);
  test_ending_and_options(engine);
  test_saved(engine);
  test_outside(engine);
  test_arguments(engine);

  /* A session outlives its engine's handle. */
  Turn turn;
  dsv4_session* session = open_json(engine, kQuestion, DSV4_THINKING_OFF);
  dsv4_engine_close(engine);
  EXPECT(generate_events(session, &turn, 100) == DSV4_FINISH_STOP);
  EXPECT(strcmp(turn.text, kAnswer) == 0);
  dsv4_session_close(session);
  return 0;
}
