/* SPDX-License-Identifier: Apache-2.0
 *
 * The struct rule of <dsv4/abi.h> for every public struct: clients of newer headers pass longer
 * ones. There is no release with shorter ones yet.
 */
#include "tests/capi/expect.h"

enum { kLongest = 4096, kRoom = kLongest + 64, kUntouched = 0x55 };

static dsv4_engine* engine;
static dsv4_session* session;
static const int32_t kToken = 300;

/* A struct of any size, and what lies behind it. */
typedef union {
  uint32_t struct_size;
  uint64_t alignment;
  unsigned char bytes[kRoom];
} Memory;

/* A struct that comes in: its size here, how a call takes it, and what the call's errors call it.
 * `begin` is a valid one. */
typedef struct {
  const char* name;
  const void* begin;
  size_t size;
  dsv4_status (*call)(const void* given);
} In;

static dsv4_status take_engine_options(const void* given) {
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  return dsv4_plan(MODEL, given, &info, NULL, 0, &error);
}

static dsv4_status take_group_options(const void* given) {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.group = given;
  return take_engine_options(&options);
}

static dsv4_status take_sampling(const void* given) {
  return dsv4_session_set_sampling(session, given, &error);
}

static dsv4_status take_session_options(const void* given) {
  dsv4_session* other = NULL;
  const dsv4_status status = dsv4_session_open(engine, given, &other, &error);
  EXPECT((other != NULL) == (status == DSV4_OK));
  dsv4_session_close(other);
  return status;
}

static dsv4_status take_sync_options(const void* given) {
  return dsv4_session_sync(session, &kToken, 1, given, NULL, &error);
}

static dsv4_status take_message(const void* given) {
  const dsv4_message* messages[1];
  messages[0] = given;
  return dsv4_session_sync_messages(session, messages, 1, NULL, NULL, &error);
}

static dsv4_status take_tool_call(const void* given) {
  dsv4_message message = message_of(DSV4_ROLE_ASSISTANT, "");
  const dsv4_tool_call* calls[1];
  calls[0] = given;
  message.tool_calls = calls;
  message.tool_call_count = 1;
  return take_message(&message);
}

static dsv4_status take_chat_options(const void* given) {
  size_t needed = 0;
  return dsv4_chat_render_text("[]", 2, given, NULL, 0, &needed, &error);
}

static dsv4_status take_parser_options(const void* given) {
  dsv4_parser* parser = NULL;
  const dsv4_status status = dsv4_parser_open(given, &parser, &error);
  EXPECT((parser != NULL) == (status == DSV4_OK));
  dsv4_parser_close(parser);
  return status;
}

static dsv4_status take_tool_options(const void* given) {
  static const char kTools[] = "[{\"name\":\"f\"}]";
  dsv4_grammar* grammar = NULL;
  const dsv4_status status =
      dsv4_grammar_open_answer(engine, kTools, strlen(kTools), NULL, 0, given, &grammar, &error);
  EXPECT((grammar != NULL) == (status == DSV4_OK));
  dsv4_grammar_close(grammar);
  return status;
}

static void expect_argument(dsv4_status status, dsv4_status code, const char* argument) {
  EXPECT(status == code && (error != NULL) == (code != DSV4_OK));
  EXPECT(strcmp(dsv4_error_get_argument(error), argument) == 0);
  dsv4_error_free(error);
  error = NULL;
}

static void test_in(const In* in) {
  static Memory memory;
  char size_field[64];
  size_t size;
  snprintf(size_field, sizeof size_field, "%s.struct_size", in->name);
  for (size = 0; size <= kLongest + 1; size += size < in->size - 1   ? in->size - 1
                                               : size < in->size + 1 ? 1
                                               : size < kLongest - 1 ? kLongest - 1 - size
                                                                     : 1) {
    memset(&memory, 0, sizeof memory);
    memcpy(&memory, in->begin, size < in->size ? size : in->size);
    memory.struct_size = (uint32_t)size;
    if (size < in->size || size > kLongest) {
      expect_argument(in->call(&memory), DSV4_ERR_INVALID_ARGUMENT, size_field);
      continue;
    }
    EXPECT_OK(in->call(&memory));
    if (size <= in->size) continue;
    /* A field that this library does not know must be 0. */
    memory.bytes[size] = 1;
    EXPECT_OK(in->call(&memory));
    memory.bytes[size] = 0;
    memory.bytes[size - 1] = 1;
    expect_argument(in->call(&memory), DSV4_ERR_UNSUPPORTED, in->name);
    memory.bytes[size - 1] = 0;
    memory.bytes[in->size] = 1;
    expect_argument(in->call(&memory), DSV4_ERR_UNSUPPORTED, in->name);
  }
}

static void test_ins(void) {
  const dsv4_engine_options engine_options = DSV4_ENGINE_OPTIONS_INIT;
  const dsv4_group_options group_options = DSV4_GROUP_OPTIONS_INIT;
  const dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const dsv4_session_options session_options = DSV4_SESSION_OPTIONS_INIT;
  const dsv4_sync_options sync_options = DSV4_SYNC_OPTIONS_INIT;
  const dsv4_message message = message_of(DSV4_ROLE_USER, "Hi");
  dsv4_tool_call tool_call = DSV4_TOOL_CALL_INIT;
  const dsv4_chat_options chat_options = DSV4_CHAT_OPTIONS_INIT;
  const dsv4_parser_options parser_options = DSV4_PARSER_OPTIONS_INIT;
  const dsv4_tool_options tool_options = DSV4_TOOL_OPTIONS_INIT;
  size_t i;
  tool_call.name = tool_call.arguments = "{}";
  tool_call.name_length = tool_call.arguments_length = 2;
  {
    const In ins[] = {{"options", &engine_options, sizeof engine_options, take_engine_options},
                      {"options.group", &group_options, sizeof group_options, take_group_options},
                      {"sampling", &sampling, sizeof sampling, take_sampling},
                      {"options", &session_options, sizeof session_options, take_session_options},
                      {"options", &sync_options, sizeof sync_options, take_sync_options},
                      {"messages[0]", &message, sizeof message, take_message},
                      {"messages[0].tool_calls[0]", &tool_call, sizeof tool_call, take_tool_call},
                      {"options", &chat_options, sizeof chat_options, take_chat_options},
                      {"options", &parser_options, sizeof parser_options, take_parser_options},
                      {"options", &tool_options, sizeof tool_options, take_tool_options}};
    for (i = 0; i < sizeof ins / sizeof ins[0]; ++i) test_in(&ins[i]);
  }
}

/* A struct that goes out. */
typedef struct {
  const char* name;
  size_t size;
  dsv4_status (*call)(void* filled);
} Out;

static dsv4_status fill_engine_info(void* filled) {
  return dsv4_engine_get_info(engine, filled, &error);
}

static dsv4_status fill_planned_device(void* filled) {
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  return dsv4_plan(MODEL, NULL, &info, filled, 1, &error);
}

static dsv4_status fill_plan(void* filled) {
  return dsv4_plan(MODEL, NULL, filled, NULL, 0, &error);
}

static dsv4_status fill_engine_identity(void* filled) {
  return dsv4_engine_get_identity(engine, filled, &error);
}

static dsv4_status fill_engine_metrics(void* filled) {
  return dsv4_engine_get_metrics(engine, filled, &error);
}

static dsv4_status fill_default_sampling(void* filled) {
  return dsv4_sampling_init(engine, filled, &error);
}

static dsv4_status fill_sync_result(void* filled) {
  return dsv4_session_sync(session, &kToken, 1, NULL, filled, &error);
}

static dsv4_status fill_step_result(void* filled) {
  EXPECT_OK(dsv4_session_sync(session, &kToken, 1, NULL, NULL, &error));
  return dsv4_session_step(session, NULL, NULL, filled, &error);
}

static dsv4_status fill_step_results(void* filled) {
  dsv4_step_result* results[1];
  dsv4_status status;
  results[0] = filled;
  EXPECT_OK(dsv4_session_sync(session, &kToken, 1, NULL, NULL, &error));
  return dsv4_engine_step(engine, &session, 1, NULL, NULL, results, &status, NULL, &error);
}

static dsv4_status fill_session_stats(void* filled) {
  return dsv4_session_get_stats(session, filled, &error);
}

static dsv4_status fill_device(void* filled) {
  size_t needed;
  return dsv4_list_devices(filled, 1, &needed, &error);
}

static int all_are(const unsigned char* bytes, size_t count, int value) {
  while (count > 0 && *bytes == value) ++bytes, --count;
  return count == 0;
}

static void test_out(const Out* out) {
  static Memory memory, whole;
  const size_t sizes[] = {out->size, out->size + 8, kLongest};
  char size_field[64];
  size_t i;
  snprintf(size_field, sizeof size_field, "%s.struct_size", out->name);
  memset(&whole, kUntouched, sizeof whole);
  whole.struct_size = (uint32_t)out->size;
  EXPECT_OK(out->call(&whole));
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    const size_t size = sizes[i], known = size < out->size ? size : out->size;
    memset(&memory, kUntouched, sizeof memory);
    memory.struct_size = (uint32_t)size;
    EXPECT_OK(out->call(&memory));
    EXPECT(memory.struct_size == size);
    /* Times differ from call to call; that a field was filled does not. */
    EXPECT(!all_are(memory.bytes + 4, known - 4, kUntouched));
    EXPECT(all_are(memory.bytes + known, size - known, 0));
    EXPECT(all_are(memory.bytes + size, sizeof memory - size, kUntouched));
  }
  EXPECT(all_are(whole.bytes + out->size, sizeof whole - out->size, kUntouched));
  memset(&memory, kUntouched, sizeof memory);
  memory.struct_size = (uint32_t)out->size - 1;
  expect_argument(out->call(&memory), DSV4_ERR_INVALID_ARGUMENT, size_field);
  memory.struct_size = kLongest + 1;
  expect_argument(out->call(&memory), DSV4_ERR_INVALID_ARGUMENT, size_field);
  EXPECT(all_are(memory.bytes + 4, sizeof memory - 4, kUntouched));
}

static void test_outs(void) {
  const Out outs[] = {{"info", sizeof(dsv4_engine_info), fill_engine_info},
                      {"info", sizeof(dsv4_engine_info), fill_plan},
                      {"identity", sizeof(dsv4_engine_identity), fill_engine_identity},
                      {"devices[0]", sizeof(dsv4_device_info), fill_planned_device},
                      {"devices[0]", sizeof(dsv4_device), fill_device},
                      {"metrics", sizeof(dsv4_engine_metrics), fill_engine_metrics},
                      {"sampling", sizeof(dsv4_sampling), fill_default_sampling},
                      {"result", sizeof(dsv4_sync_result), fill_sync_result},
                      {"result", sizeof(dsv4_step_result), fill_step_result},
                      {"results[0]", sizeof(dsv4_step_result), fill_step_results},
                      {"stats", sizeof(dsv4_session_stats), fill_session_stats}};
  size_t i;
  for (i = 0; i < sizeof outs / sizeof outs[0]; ++i) test_out(&outs[i]);
}

/* A field that is reserved must be 0. */
static void test_reserved(void) {
  dsv4_group_options group_options = DSV4_GROUP_OPTIONS_INIT;
  dsv4_session_options session_options = DSV4_SESSION_OPTIONS_INIT;
  dsv4_message message = message_of(DSV4_ROLE_USER, "Hi");
  dsv4_tool_call tool_call = DSV4_TOOL_CALL_INIT;
  group_options.reserved = 1;
  expect_argument(take_group_options(&group_options), DSV4_ERR_INVALID_ARGUMENT,
                  "options.group.reserved");
  session_options.reserved = 1;
  expect_argument(take_session_options(&session_options), DSV4_ERR_INVALID_ARGUMENT,
                  "options.reserved");
  message.reserved = -1;
  expect_argument(take_message(&message), DSV4_ERR_INVALID_ARGUMENT, "messages[0].reserved");
  tool_call.name = tool_call.arguments = "{}";
  tool_call.name_length = tool_call.arguments_length = 2;
  tool_call.reserved = 7;
  expect_argument(take_tool_call(&tool_call), DSV4_ERR_INVALID_ARGUMENT,
                  "messages[0].tool_calls[0].reserved");
}

int main(void) {
  engine = open_bundled();
  session = open_session(engine, NULL);
  test_ins();
  test_outs();
  test_reserved();
  dsv4_session_close(session);
  dsv4_engine_close(engine);
  return 0;
}
