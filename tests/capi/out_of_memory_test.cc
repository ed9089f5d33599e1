// SPDX-License-Identifier: Apache-2.0
// Memory that runs out at any allocation of a call, and exceptions that nobody expects: no call
// ends the process, each says what happened, and what it was called on can be used again, or
// closed. This program's operator new stands before that of the C++ library, for the library, too.
#include <dsv4/dsv4.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace {

// The allocations of this thread that still succeed; below 0: all do.
thread_local long left = -1;
thread_local bool unexpected = false;  // what is thrown then is no std::bad_alloc

void* Allocate(std::size_t size, std::size_t alignment) {
  if (left == 0) {
    if (unexpected) throw 42;
    throw std::bad_alloc();
  }
  if (left > 0) --left;
  void* memory = alignment == 0 ? std::malloc(size == 0 ? 1 : size)
                                : std::aligned_alloc(
                                      alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size, 0); }
void* operator new[](std::size_t size) { return Allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return left == 0 ? nullptr : std::malloc(size == 0 ? 1 : size);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

constexpr char kModel[] = DSV4_SOURCE_DIR "/models/dsv4-tiny";
constexpr char kQuestion[] = "What is the capital of France?";

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
    for (long allocations = 0;; allocations += 1 + allocations / 40) {
      unexpected = with_int;
      left = allocations;
      const dsv4_status status = call();
      left = -1;
      EXPECT(dsv4_error_code(error) == status);
      if (status == DSV4_OK) break;
      // Where the error itself finds no memory, it says so.
      const bool expected =
          status == DSV4_ERR_OUT_OF_HOST_MEMORY || (with_int && status == DSV4_ERR_INTERNAL);
      if (!expected)
        std::printf("%s after %ld allocations: %s\n", name, allocations, dsv4_error_message(error));
      EXPECT(expected);
      EXPECT(std::strlen(dsv4_error_message(error)) > 0);
      dsv4_error_free(error);
      error = nullptr;
      ++refusals;
    }
    undo();
  }
}

void Nothing() {}

void Ignore(void*, const dsv4_parser_event*) {}

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
        return dsv4_chat_render(tokenizer, kMessages, 1, DSV4_THINKING_HIGH, ids.data(), ids.size(),
                                &count, &error);
      },
      Nothing);
  dsv4_parser* parser = nullptr;
  Exhaust(
      "dsv4_parser_open", [&] { return dsv4_parser_open(nullptr, &parser, &error); },
      [&] { dsv4_parser_close(parser); });
  // What a parser was fed while memory ran out is lost: it is for closing only.
  Exhaust(
      "dsv4_parser_feed",
      [&] {
        const long allocations = left;
        left = -1;
        EXPECT(dsv4_parser_open(nullptr, &parser, nullptr) == DSV4_OK);
        left = allocations;
        const dsv4_status status =
            dsv4_parser_feed(parser, kQuestion, sizeof kQuestion - 1, Ignore, nullptr, &error);
        left = -1;
        dsv4_parser_close(parser);
        return status;
      },
      Nothing);
}

std::string Answer(dsv4_session* session) {
  std::string text;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  while (step.finish == DSV4_FINISH_NONE) {
    EXPECT(dsv4_session_step(session, &step, nullptr) == DSV4_OK);
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
  EXPECT(dsv4_engine_tokenizer(engine, &tokenizer, nullptr) == DSV4_OK);
  EXPECT(dsv4_chat_render(tokenizer, kMessages, 1, DSV4_THINKING_OFF, prompt.data(), prompt.size(),
                          &count, nullptr) == DSV4_OK);
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
      "dsv4_session_step", [&] { return dsv4_session_step(session, &step, &error); }, Nothing);
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
      "dsv4_session_rewind",
      [&] { return dsv4_session_rewind(session, static_cast<int64_t>(count), nullptr, &error); },
      Nothing);
  // After all this the session answers as if nothing had been.
  EXPECT(Answer(session) == "The capital of France is Paris.");
  Exhaust(
      "dsv4_engine_step",
      [&] {
        dsv4_step_result* result = &step;
        dsv4_status status = DSV4_ERR_INTERNAL;
        dsv4_error* own = nullptr;
        const long allocations = left;
        left = -1;
        EXPECT(dsv4_session_sync(session, prompt.data(), count, nullptr, nullptr, nullptr) ==
               DSV4_OK);
        left = allocations;
        const dsv4_status all =
            dsv4_engine_step(engine, &session, 1, &result, &status, &own, &error);
        left = -1;
        EXPECT(all != DSV4_OK ? status == all : true);
        if (all == DSV4_OK) error = own;
        return status;
      },
      Nothing);
  dsv4_session_close(session);

  Exhaust(
      "dsv4_session_open_messages",
      [&] {
        return dsv4_session_open_messages(engine, nullptr, kMessages, 1, nullptr, &session, &error);
      },
      [&] { dsv4_session_close(session); });
  Exhaust(
      "dsv4_session_step_events",
      [&] {
        const long allocations = left;
        left = -1;
        EXPECT(dsv4_session_open_messages(engine, nullptr, kMessages, 1, nullptr, &session,
                                          nullptr) == DSV4_OK);
        left = allocations;
        const dsv4_status status =
            dsv4_session_step_events(session, Ignore, nullptr, &step, &error);
        left = -1;
        dsv4_session_close(session);
        return status;
      },
      Nothing);
}

}  // namespace

int main() {
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  dsv4_engine* engine = nullptr;
  const dsv4_tokenizer* tokenizer = nullptr;
  options.context_tokens = 128;
  options.threads = 1;
  EXPECT(dsv4_engine_open(kModel, &options, &engine, nullptr) == DSV4_OK);
  EXPECT(dsv4_engine_tokenizer(engine, &tokenizer, nullptr) == DSV4_OK);
  TestText(tokenizer);
  TestSessions(engine);
  dsv4_engine_close(engine);
  EXPECT(refusals > 100);
  return 0;
}
