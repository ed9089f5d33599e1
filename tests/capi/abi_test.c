/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/capi/expect.h"

int main(void) {
  EXPECT(dsv4_get_abi_version() == DSV4_ABI_VERSION);
  EXPECT(strcmp(dsv4_get_version(), DSV4_TEST_VERSION) == 0);
  EXPECT(strstr(dsv4_get_build_info(), "dsv4 " DSV4_TEST_VERSION " (") == dsv4_get_build_info());
  EXPECT(strstr(dsv4_get_build_info(), "cpu (") != NULL);
  EXPECT(strstr(dsv4_get_build_info(), "reference") != NULL);
  EXPECT(strchr(dsv4_get_build_info(), '\n') == NULL);
  EXPECT(dsv4_get_build_info() == dsv4_get_build_info());

  /* The initialisers set the size and nothing else. */
  const dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  const dsv4_group_options group_options = DSV4_GROUP_OPTIONS_INIT;
  const dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  const dsv4_engine_identity identity = DSV4_ENGINE_IDENTITY_INIT;
  const dsv4_device_info device = DSV4_DEVICE_INFO_INIT;
  const dsv4_device listed = DSV4_DEVICE_INIT;
  const dsv4_engine_metrics metrics = DSV4_ENGINE_METRICS_INIT;
  const dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const dsv4_session_options session_options = DSV4_SESSION_OPTIONS_INIT;
  const dsv4_sync_options sync_options = DSV4_SYNC_OPTIONS_INIT;
  const dsv4_sync_result sync = DSV4_SYNC_RESULT_INIT;
  const dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  const dsv4_session_stats stats = DSV4_SESSION_STATS_INIT;
  const dsv4_message message = DSV4_MESSAGE_INIT;
  const dsv4_tool_call tool_call = DSV4_TOOL_CALL_INIT;
  const dsv4_chat_options chat_options = DSV4_CHAT_OPTIONS_INIT;
  const dsv4_parser_options parser_options = DSV4_PARSER_OPTIONS_INIT;
  const dsv4_tool_options tool_options = DSV4_TOOL_OPTIONS_INIT;
  const dsv4_parser_event event = DSV4_PARSER_EVENT_INIT;
#define EXPECT_INIT(object)                              \
  do {                                                   \
    size_t i;                                            \
    EXPECT((object).struct_size == sizeof(object));      \
    for (i = sizeof(uint32_t); i < sizeof(object); ++i)  \
      EXPECT(((const unsigned char*)&(object))[i] == 0); \
  } while (0)
  EXPECT_INIT(options);
  EXPECT_INIT(group_options);
  EXPECT_INIT(info);
  EXPECT_INIT(identity);
  EXPECT_INIT(device);
  EXPECT_INIT(listed);
  EXPECT_INIT(metrics);
  EXPECT_INIT(sampling);
  EXPECT_INIT(session_options);
  EXPECT_INIT(sync_options);
  EXPECT_INIT(sync);
  EXPECT_INIT(step);
  EXPECT_INIT(stats);
  EXPECT_INIT(message);
  EXPECT_INIT(tool_call);
  EXPECT_INIT(chat_options);
  EXPECT_INIT(parser_options);
  EXPECT_INIT(tool_options);
  EXPECT_INIT(event);
  return 0;
}
