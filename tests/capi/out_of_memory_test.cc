// SPDX-License-Identifier: Apache-2.0
// Memory runs out at any allocation of a call, or an unexpected exception is thrown: no call ends
// the process, each returns an error, its object can be used again or closed, and no memory is
// lost. failed_allocation_test.cc tests what follows one refused allocation.
#include <dsv4/dsv4.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/capi/refusing_memory.h"

namespace {

using refusing::left;
using refusing::unexpected;

constexpr char kModel[] = DSV4_SOURCE_DIR "/models/dsv4-tiny";
constexpr char kFile[] = "out_of_memory.session";  // in the working directory
constexpr char kQuestion[] = "What is the capital of France?";

#define BAR "\xef\xbd\x9c"
#define DSML BAR "DSML" BAR
constexpr char kCompletion[] =
    "Hm.</think>So:\n\n<" DSML "tool_calls>\n<" DSML "invoke name=\"look_up\">\n<" DSML
    "parameter name=\"where\" string=\"true\">in the book that lies on the table</" DSML
    "parameter>\n<" DSML "parameter name=\"pages\" string=\"false\">[1, 2, {\"3\": 4}]</" DSML
    "parameter>\n</" DSML "invoke>\n</" DSML "tool_calls><" BAR
    "end\xe2\x96\x81of\xe2\x96\x81"
    "sentence" BAR ">";
constexpr char kJson[] = R"json([
  {"role": "system", "content": "Be brief.", "tools": [{"type": "function", "function": {"name":
   "look_up", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}}}],
   "response_format": {"type": "object", "properties": {"answer": {"type": "string"}}}},
  {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
  {"role": "assistant", "reasoning_content": "Hm.", "content": "", "tool_calls": [
   {"id": "call_of_a_tool_1", "type": "function", "function": {"name": "look_up", "arguments":
    "{\"where\": \"in the book\", \"pages\": [1, 2.5]}"}}]},
  {"role": "tool", "tool_call_id": "call_of_a_tool_1", "content": "On the table."}])json";

constexpr char kAsked[] = R"([{"role": "user", "content": "What is the capital of France?"}])";

const dsv4_message kMessage = [] {
  dsv4_message message = DSV4_MESSAGE_INIT;
  message.role = DSV4_ROLE_USER;
  message.content = kQuestion;
  message.content_length = sizeof kQuestion - 1;
  return message;
}();
const dsv4_message* const kMessages[] = {&kMessage};

#define EXPECT(condition)                                           \
  do {                                                              \
    if (!(condition)) {                                             \
      std::printf("line %d: not true: %s\n", __LINE__, #condition); \
      std::exit(1);                                                 \
    }                                                               \
  } while (0)

dsv4_error* error = nullptr;
int refusals = 0;

// Calls with every number of allocations that succeed, at first each, then in growing strides,
// until the call itself succeeds. `undo` makes the success as if it had not been.
void Exhaust(const char* name, const std::function<dsv4_status()>& call,
             const std::function<void()>& undo) {
  for (const bool with_int : {false, true}) {
    for (long allocations = 0;; allocations += 1 + allocations / 50) {
      unexpected = with_int;
      left = allocations;
      const dsv4_status status = call();
      left = -1;
      EXPECT((error != nullptr) == (status != DSV4_OK));
      if (status == DSV4_OK) break;
      // Where the error itself finds no memory, it says so.
      const bool expected =
          status == DSV4_ERR_OUT_OF_HOST_MEMORY || (with_int && status == DSV4_ERR_INTERNAL);
      if (!expected)
        std::printf("%s after %ld allocations: %s\n", name, allocations,
                    dsv4_error_get_message(error));
      EXPECT(expected);
      EXPECT(std::strlen(dsv4_error_get_message(error)) > 0);
      dsv4_error_free(error);
      error = nullptr;
      ++refusals;
    }
    undo();
  }
}

void Nothing() {}

void Ignore(void*, const dsv4_parser_event*) {}

// The same for a `call` that needs preparation: `prepare` runs before each call and `tidy` after
// it. They may allocate freely.
void ExhaustAnew(const char* name, const std::function<void()>& prepare,
                 const std::function<dsv4_status()>& call, const std::function<void()>& tidy) {
  const auto whole = [&] {
    const long allocations = left;
    left = -1;
    prepare();
    left = allocations;
    const dsv4_status status = call();
    left = -1;
    tidy();
    return status;
  };
  Exhaust(name, whole, Nothing);
}

// What reads a model's files.
void TestLoading(const dsv4_engine_options& options) {
  dsv4_tokenizer* tokenizer = nullptr;
  Exhaust(
      "dsv4_tokenizer_open", [&] { return dsv4_tokenizer_open(kModel, &tokenizer, &error); },
      [&] { dsv4_tokenizer_close(tokenizer); });
  dsv4_engine_info info = DSV4_ENGINE_INFO_INIT;
  Exhaust(
      "dsv4_plan", [&] { return dsv4_plan(kModel, &options, &info, nullptr, 0, &error); }, Nothing);
  std::vector<char> json(4096);
  size_t needed = 0;
  Exhaust(
      "dsv4_inspect",
      [&] { return dsv4_inspect(kModel, json.data(), json.size(), &needed, &error); }, Nothing);
  dsv4_engine* engine = nullptr;
  Exhaust(
      "dsv4_engine_open", [&] { return dsv4_engine_open(kModel, &options, &engine, &error); },
      [&] { dsv4_engine_close(engine); });
  dsv4_engine_identity identity = DSV4_ENGINE_IDENTITY_INIT;
  EXPECT(dsv4_engine_open(kModel, &options, &engine, nullptr) == DSV4_OK);
  Exhaust(
      "dsv4_engine_get_identity",
      [&] { return dsv4_engine_get_identity(engine, &identity, &error); }, Nothing);
  dsv4_engine_close(engine);
}

void TestText(const dsv4_tokenizer* tokenizer) {
  std::vector<int32_t> ids(256);
  std::vector<char> text(4096);
  size_t count = 0;
  Exhaust(
      "dsv4_tokenizer_encode",
      [&] {
        return dsv4_tokenizer_encode(tokenizer, kQuestion, sizeof kQuestion - 1, 0, ids.data(),
                                     ids.size(), &count, &error);
      },
      Nothing);
  Exhaust(
      "dsv4_tokenizer_decode",
      [&] {
        return dsv4_tokenizer_decode(tokenizer, ids.data(), 9, text.data(), text.size(), &count,
                                     &error);
      },
      Nothing);
  Exhaust(
      "dsv4_chat_render",
      [&] {
        return dsv4_chat_render(tokenizer, kJson, sizeof kJson - 1, nullptr, ids.data(), ids.size(),
                                &count, &error);
      },
      Nothing);
  Exhaust(
      "dsv4_chat_render_text",
      [&] {
        return dsv4_chat_render_text(kJson, sizeof kJson - 1, nullptr, text.data(), text.size(),
                                     &count, &error);
      },
      Nothing);
  dsv4_parser_options high = DSV4_PARSER_OPTIONS_INIT;
  high.thinking = DSV4_THINKING_HIGH;
  dsv4_parser* parser = nullptr;
  Exhaust(
      "dsv4_parser_open", [&] { return dsv4_parser_open(nullptr, &parser, &error); },
      [&] { dsv4_parser_close(parser); });
  // What a parser was fed while memory ran out is lost: it is for closing only.
  ExhaustAnew(
      "dsv4_parser_feed", [&] { EXPECT(dsv4_parser_open(&high, &parser, nullptr) == DSV4_OK); },
      [&] {
        for (size_t at = 0; at < sizeof kCompletion - 1; at += 3) {
          const size_t length = std::min<size_t>(3, sizeof kCompletion - 1 - at);
          const dsv4_status status =
              dsv4_parser_feed(parser, kCompletion + at, length, Ignore, nullptr, &error);
          if (status != DSV4_OK) return status;
        }
        return dsv4_parser_end(parser, Ignore, nullptr, &error);
      },
      [&] { dsv4_parser_close(parser); });
}

std::string Answer(dsv4_session* session) {
  std::string text;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (step.finish == DSV4_FINISH_NONE) {
    EXPECT(dsv4_session_step(session, nullptr, nullptr, &step, nullptr) == DSV4_OK);
    text.append(step.text, step.text_length);
  }
  return text;
}

void TestSessions(dsv4_engine* engine) {
  const dsv4_tokenizer* tokenizer = nullptr;
  std::vector<int32_t> prompt(256);
  size_t count = 0, needed = 0;
  dsv4_session *session = nullptr, *other = nullptr;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  EXPECT(dsv4_engine_get_tokenizer(engine, &tokenizer, nullptr) == DSV4_OK);
  EXPECT(dsv4_chat_render(tokenizer, kAsked, sizeof kAsked - 1, nullptr, prompt.data(),
                          prompt.size(), &count, nullptr) == DSV4_OK);
  Exhaust(
      "dsv4_session_open", [&] { return dsv4_session_open(engine, nullptr, &session, &error); },
      [&] { dsv4_session_close(session); });
  EXPECT(dsv4_session_open(engine, nullptr, &session, nullptr) == DSV4_OK);
  Exhaust(
      "dsv4_session_sync",
      [&] { return dsv4_session_sync(session, prompt.data(), count, nullptr, nullptr, &error); },
      Nothing);
  Exhaust(
      "dsv4_session_prefill",
      [&] { return dsv4_session_prefill(session, 2, nullptr, nullptr, nullptr, &error); }, Nothing);
  Exhaust(
      "dsv4_session_step",
      [&] { return dsv4_session_step(session, nullptr, nullptr, &step, &error); }, Nothing);
  Exhaust(
      "dsv4_session_fork", [&] { return dsv4_session_fork(session, &other, &error); },
      [&] { dsv4_session_close(other); });
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  const char* const stops[] = {"never seen", "nor this"};
  sampling.stop_strings = stops;
  sampling.stop_string_count = 2;
  Exhaust(
      "dsv4_session_set_sampling",
      [&] { return dsv4_session_set_sampling(session, &sampling, &error); }, Nothing);
  EXPECT(dsv4_session_save_memory(session, nullptr, 0, &needed, nullptr) == DSV4_OK);
  std::vector<uint8_t> image(needed);
  Exhaust(
      "dsv4_session_save_memory",
      [&] {
        return dsv4_session_save_memory(session, image.data(), image.size(), &needed, &error);
      },
      Nothing);
  Exhaust(
      "dsv4_session_load_memory",
      [&] { return dsv4_session_load_memory(session, image.data(), image.size(), &error); },
      Nothing);
  Exhaust(
      "dsv4_session_save",
      [&] { return dsv4_session_save(session, kFile, nullptr, nullptr, &error); }, Nothing);
  Exhaust(
      "dsv4_session_load",
      [&] { return dsv4_session_load(session, kFile, nullptr, nullptr, &error); }, Nothing);
  std::remove(kFile);
  Exhaust(
      "dsv4_session_rewind",
      [&] { return dsv4_session_rewind(session, static_cast<int64_t>(count), nullptr, &error); },
      Nothing);
  Exhaust(
      "dsv4_engine_suspend and dsv4_engine_resume",
      [&] {
        const dsv4_status status = dsv4_engine_suspend(engine, nullptr, &error);
        return status == DSV4_OK ? dsv4_engine_resume(engine, nullptr, nullptr, &error) : status;
      },
      Nothing);
  // After all this the session answers as if nothing had been.
  EXPECT(Answer(session) == "The capital of France is Paris.");
  ExhaustAnew(
      "dsv4_engine_step",
      [&] {
        EXPECT(dsv4_session_sync(session, prompt.data(), count, nullptr, nullptr, nullptr) ==
               DSV4_OK);
      },
      [&] {
        dsv4_step_result* result = &step;
        dsv4_status status = DSV4_ERR_INTERNAL;
        dsv4_error* own = nullptr;
        const dsv4_status all =
            dsv4_engine_step(engine, &session, 1, nullptr, nullptr, &result, &status, &own, &error);
        EXPECT(all != DSV4_OK ? status == all : true);
        if (all == DSV4_OK) error = own;
        return status;
      },
      Nothing);
  // Log-probabilities of the prompt and of what is generated.
  dsv4_sync_options with_log_probs = DSV4_SYNC_OPTIONS_INIT;
  with_log_probs.log_probs_begin = 1;
  with_log_probs.log_probs_count = 3;
  sampling.log_probs = 3;
  EXPECT(dsv4_session_set_sampling(session, &sampling, nullptr) == DSV4_OK);
  Exhaust(
      "dsv4_session_sync, prefill and step with log-probabilities",
      [&] {
        dsv4_status status =
            dsv4_session_sync(session, prompt.data(), count, &with_log_probs, nullptr, &error);
        if (status == DSV4_OK)
          status = dsv4_session_prefill(session, 0, nullptr, nullptr, nullptr, &error);
        if (status == DSV4_OK) status = dsv4_session_step(session, nullptr, nullptr, &step, &error);
        return status;
      },
      Nothing);
  float log_prob = 1;
  EXPECT(dsv4_session_get_log_probs(session, 1, &log_prob, nullptr, nullptr, 0, nullptr, nullptr) ==
         DSV4_OK);
  EXPECT(log_prob <= 0);
  dsv4_session_close(session);

  const auto open_empty = [&] {
    EXPECT(dsv4_session_open(engine, nullptr, &session, nullptr) == DSV4_OK);
  };
  const auto open = [&] {
    open_empty();
    EXPECT(dsv4_session_sync_messages(session, kMessages, 1, nullptr, nullptr, nullptr) == DSV4_OK);
  };
  const auto close = [&] { dsv4_session_close(session); };
  ExhaustAnew(
      "dsv4_session_sync_messages, the first one", open_empty,
      [&] { return dsv4_session_sync_messages(session, kMessages, 1, nullptr, nullptr, &error); },
      close);
  ExhaustAnew(
      "dsv4_session_step", open,
      [&] { return dsv4_session_step(session, Ignore, nullptr, &step, &error); }, close);
  const auto begun = [&] {
    open();
    EXPECT(dsv4_session_step(session, Ignore, nullptr, &step, nullptr) == DSV4_OK);
  };
  ExhaustAnew(
      "dsv4_session_end_turn", begun,
      [&] { return dsv4_session_end_turn(session, Ignore, nullptr, &error); }, close);
  const auto answered = [&] {
    begun();
    EXPECT(dsv4_session_end_turn(session, Ignore, nullptr, nullptr) == DSV4_OK);
  };
  char reply[256];
  ExhaustAnew(
      "dsv4_session_get_reply_json", answered,
      [&] { return dsv4_session_get_reply_json(session, reply, sizeof reply, &needed, &error); },
      close);
  dsv4_chat_options thinking = DSV4_CHAT_OPTIONS_INIT;
  thinking.thinking = DSV4_THINKING_HIGH;
  ExhaustAnew(
      "dsv4_session_sync_messages", answered,
      [&] { return dsv4_session_sync_messages(session, kMessages, 1, &thinking, nullptr, &error); },
      close);
  ExhaustAnew(
      "dsv4_session_sync_json", answered,
      [&] {
        return dsv4_session_sync_json(session, kJson, sizeof kJson - 1, nullptr, nullptr, &error);
      },
      close);
}

}  // namespace

int main() {
  long left_over[2];
  for (long& allocations : left_over) {
    dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
    dsv4_engine* engine = nullptr;
    const dsv4_tokenizer* tokenizer = nullptr;
    options.context_tokens = 512;
    options.threads = 1;
    // First of all: what simdjson makes once in a process it does not survive without.
    EXPECT(dsv4_engine_open(kModel, &options, &engine, nullptr) == DSV4_OK);
    EXPECT(dsv4_engine_get_tokenizer(engine, &tokenizer, nullptr) == DSV4_OK);
    TestLoading(options);
    TestText(tokenizer);
    TestSessions(engine);
    dsv4_engine_close(engine);
    allocations = refusing::live;
  }
  EXPECT(refusals > 1000);
  // What lives as long as the process is there after the first round.
  if (left_over[1] != left_over[0])
    std::printf("%ld allocations left after %ld\n", left_over[1], left_over[0]);
  EXPECT(left_over[1] == left_over[0]);
  return 0;
}
