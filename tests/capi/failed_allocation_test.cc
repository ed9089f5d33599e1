// SPDX-License-Identifier: Apache-2.0
// One allocation of a call is refused, each in turn: the call says OUT_OF_HOST_MEMORY or succeeds,
// its session gives the tokens that it would have given. So do the engine's other sessions, and
// none of them hangs. With 1 and 4 threads, alone and concurrently with a thread that steps another
// session of the engine; and no memory is lost. Argument N: after the first 12 allocations of a
// call, one in N is refused.
#include <dsv4/dsv4.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/refusing_memory.h"

namespace {

constexpr char kModel[] = DSV4_SOURCE_DIR "/models/dsv4-tiny";
constexpr char kFile[] = "failed_allocation.session";  // in the working directory
constexpr char kQuestion[] = "What is the capital of France?";
constexpr char kMessages[] = R"([{"role": "user", "content": "What is the capital of France?"}])";
constexpr int kTokens = 5;  // that are compared
constexpr long kAll = 1L << 40, kWithNeighbour = 30;

#define EXPECT(condition)                                                       \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::printf("line %d: not true: %s (%s)\n", __LINE__, #condition, doing); \
      std::fflush(stdout);                                                      \
      std::_Exit(1);                                                            \
    }                                                                           \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == DSV4_OK)

char doing[256] = "";
long stride = 1;
int refusals = 0;

using Tokens = std::vector<int32_t>;

struct World {
  dsv4_engine* engine = nullptr;
  Tokens prompt, long_prompt;  // the long one needs more than one block
};

Tokens PromptOf(const World& world, const char* question) {
  const dsv4_tokenizer* tokenizer = nullptr;
  const std::string messages =
      std::string("[{\"role\": \"user\", \"content\": \"") + question + "\"}]";
  Tokens ids(256);
  size_t count = 0;
  EXPECT_OK(dsv4_engine_get_tokenizer(world.engine, &tokenizer, nullptr));
  EXPECT_OK(dsv4_chat_render(tokenizer, messages.data(), messages.size(), nullptr, ids.data(),
                             ids.size(), &count, nullptr));
  ids.resize(count);
  return ids;
}

World OpenWorld(int32_t threads) {
  World world;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 1024;
  options.threads = threads;
  options.max_sessions = 6;
  options.max_draft_tokens = 3;
  EXPECT_OK(dsv4_engine_open(kModel, &options, &world.engine, nullptr));
  world.prompt = PromptOf(world, kQuestion);
  world.long_prompt = PromptOf(world, "Do you know the capital of Russia?");
  for (int i = 0; i < 300; ++i) world.long_prompt.push_back(300 + i * 7 % 1000);
  return world;
}

dsv4_session* Ask(const World& world, const Tokens& prompt, int32_t draft_tokens = -1) {
  dsv4_session* session = nullptr;
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  dsv4_session_options options = DSV4_SESSION_OPTIONS_INIT;
  sampling.draft_tokens = draft_tokens;
  options.sampling = &sampling;
  EXPECT_OK(dsv4_session_open(world.engine, &options, &session, nullptr));
  EXPECT_OK(dsv4_session_sync(session, prompt.data(), prompt.size(), nullptr, nullptr, nullptr));
  return session;
}

Tokens TokensOf(const dsv4_session* session) {
  const int32_t* tokens = nullptr;
  size_t count = 0;
  EXPECT_OK(dsv4_session_get_tokens(session, &tokens, &count, nullptr));
  return Tokens(tokens, tokens + count);
}

// The timeline after so many steps; adds to `text`, when given, what they say.
Tokens Steps(dsv4_session* session, int count, std::string* text = nullptr) {
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  for (int i = 0; i < count; ++i) {
    EXPECT_OK(dsv4_session_step(session, nullptr, nullptr, &step, nullptr));
    if (text != nullptr) text->append(step.text, step.text_length);
  }
  return TokensOf(session);
}

// The timeline has become `count` tokens longer than the prompt; so it is as it would have been.
void ExpectContinues(dsv4_session* session, const Tokens& prompt, const Tokens& straight) {
  const size_t given = TokensOf(session).size() - prompt.size();
  EXPECT(given <= static_cast<size_t>(kTokens));
  EXPECT(Steps(session, kTokens - static_cast<int>(given)) == straight);
}

// Another session of the engine, stepped by a thread of its own meanwhile.
class Neighbour {
 public:
  // `counted`: its allocations are refused as those of the caller are, and it tries again.
  Neighbour(const World& world, const Tokens& straight, bool counted)
      : session_(Ask(world, world.prompt)),
        thread_([this, &world, &straight, counted] { Run(world, straight, counted); }) {}
  ~Neighbour() {
    const int before = rounds_;
    while (rounds_ < before + 2) std::this_thread::yield();  // it does not hang
    stop_ = true;
    thread_.join();
    dsv4_session_close(session_);
  }

 private:
  template <class Call>
  static void Insist(Call&& call) {
    dsv4_status status;
    while ((status = call()) == DSV4_ERR_OUT_OF_HOST_MEMORY) {
    }
    EXPECT(status == DSV4_OK);
  }

  void Run(const World& world, const Tokens& straight, bool counted) {
    refusing::exempt = true;
    while (!stop_) {
      dsv4_step_result step = DSV4_STEP_RESULT_INIT;
      refusing::exempt = !counted;
      Insist([&] {
        return dsv4_session_sync(session_, world.prompt.data(), world.prompt.size(), nullptr,
                                 nullptr, nullptr);
      });
      for (int i = 0; i < kTokens; ++i) {
        Insist([&] { return dsv4_session_step(session_, nullptr, nullptr, &step, nullptr); });
      }
      refusing::exempt = true;
      EXPECT(TokensOf(session_) == straight);
      ++rounds_;
    }
  }

  dsv4_session* session_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> rounds_ = 0;
  std::thread thread_;
};

struct Call {
  const char* name;
  std::function<void()> prepare;
  std::function<dsv4_status(dsv4_error**)> call;
  std::function<void(dsv4_status)> after;
  dsv4_status wanted = DSV4_OK;  // where nothing is refused
};

// At most `most` allocations of the call are refused, one each time; no more than it has.
void RefuseEach(const Call& call, long most = kAll) {
  long settled = 0;  // allocations that stay after each
  for (long n = 0; n < most; n += n < 12 ? 1 : std::max(stride, stride * n / 500)) {
    dsv4_error* error = nullptr;
    std::snprintf(doing, sizeof doing, "%s, allocation %ld", call.name, n);
    call.prepare();
    refusing::refused = false;
    refusing::left = n;
    const dsv4_status status = call.call(&error);
    refusing::left = -1;
    const bool refused = refusing::refused;
    EXPECT(status == call.wanted || (refused && status == DSV4_ERR_OUT_OF_HOST_MEMORY));
    EXPECT((dsv4_error_get_message(error)[0] != '\0') == (status != DSV4_OK));
    dsv4_error_free(error);
    call.after(status);
    if (!refused) return;
    ++refusals;
    if (most < kAll) continue;  // a neighbour allocates, too
    if (n == 1) settled = refusing::live;
    EXPECT(n < 1 || refusing::live == settled);
  }
}

// Calls on a session that is `asked` a question and has given `given` tokens, with so many drafts.
void TestSteps(const World& world, const Tokens& straight, int given, int32_t drafts, long most) {
  dsv4_session *session = nullptr, *other = nullptr;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  std::string text;
  const auto ask = [&] {
    text.clear();
    session = Ask(world, world.prompt, drafts);
    Steps(session, given, &text);
  };
  const auto goes_on = [&](dsv4_status) {
    EXPECT_OK(dsv4_session_set_allowed(session, nullptr, 0, nullptr));
    ExpectContinues(session, world.prompt, straight);
    dsv4_session_close(session);
  };
  const auto call_step = [&](dsv4_error** error) {
    return dsv4_session_step(session, nullptr, nullptr, &step, error);
  };
  RefuseEach({"sync", ask,
              [&](dsv4_error** error) {
                return dsv4_session_sync(session, world.long_prompt.data(),
                                         world.long_prompt.size(), nullptr, nullptr, error);
              },
              [&](dsv4_status status) {
                if (status == DSV4_OK) {
                  EXPECT(TokensOf(session) == world.long_prompt);
                  EXPECT_OK(dsv4_session_sync(session, world.prompt.data(), world.prompt.size(),
                                              nullptr, nullptr, nullptr));
                }
                goes_on(status);
              }},
             most);
  RefuseEach({"prefill", ask,
              [&](dsv4_error** error) {
                return dsv4_session_prefill(session, 0, nullptr, nullptr, nullptr, error);
              },
              goes_on},
             most);
  RefuseEach({"step", ask, call_step,
              [&](dsv4_status status) {
                // What was said until then, and what is said now, is all of it.
                if (status == DSV4_OK) text.append(step.text, step.text_length);
                const int said = static_cast<int>(TokensOf(session).size() - world.prompt.size());
                EXPECT(said == given + (status == DSV4_OK ? 1 : 0));
                goes_on(status);
              }},
             most);
  // One that may choose no token.
  const auto ask_refused = [&] {
    ask();
    const std::vector<uint32_t> none(2048 / 32);  // no bit is set
    EXPECT_OK(dsv4_session_set_allowed(session, none.data(), none.size(), nullptr));
  };
  RefuseEach({"step without a token", ask_refused, call_step, goes_on, DSV4_ERR_INVALID_ARGUMENT},
             most);
  // Of two in one pass, the failure of one is its own.
  const auto ask_both = [&] {
    ask_refused();
    other = Ask(world, world.prompt, drafts);
    Steps(other, given);
  };
  RefuseEach({"engine_step", ask_both,
              [&](dsv4_error** error) {
                dsv4_step_result steps[] = {DSV4_STEP_RESULT_INIT, DSV4_STEP_RESULT_INIT};
                dsv4_step_result* const results[] = {&steps[0], &steps[1]};
                dsv4_session* const sessions[] = {session, other};
                dsv4_status statuses[2];
                dsv4_error* errors[2];
                const dsv4_status status = dsv4_engine_step(
                    world.engine, sessions, 2, nullptr, nullptr, results, statuses, errors, error);
                for (int i = 0; i < 2; ++i) {
                  if (status != DSV4_OK) EXPECT(statuses[i] == status && errors[i] == nullptr);
                  const dsv4_status own = status == DSV4_OK ? statuses[i] : DSV4_OK;
                  EXPECT((errors[i] != nullptr) == (own != DSV4_OK));
                  EXPECT(own == DSV4_OK || own == DSV4_ERR_OUT_OF_HOST_MEMORY ||
                         (i == 0 && own == DSV4_ERR_INVALID_ARGUMENT));
                  dsv4_error_free(errors[i]);
                }
                return status;
              },
              [&](dsv4_status status) {
                ExpectContinues(other, world.prompt, straight);
                dsv4_session_close(other);
                goes_on(status);
              }},
             most);
}

void TestStates(const World& world, const Tokens& straight, int given, long most) {
  dsv4_session *session = nullptr, *fork = nullptr;
  const auto ask = [&] {
    session = Ask(world, world.prompt, 3);
    Steps(session, given);
  };
  const auto goes_on = [&](dsv4_status) {
    ExpectContinues(session, world.prompt, straight);
    dsv4_session_close(session);
  };
  // The saved one is longer than the session that loads it.
  dsv4_session* saved = Ask(world, world.long_prompt);
  const Tokens saved_straight = Steps(saved, kTokens);
  EXPECT_OK(dsv4_session_rewind(saved, static_cast<int64_t>(world.long_prompt.size()) + 1, nullptr,
                                nullptr));
  EXPECT_OK(dsv4_session_prefill(saved, 0, nullptr, nullptr, nullptr, nullptr));
  size_t needed = 0;
  EXPECT_OK(dsv4_session_save_memory(saved, nullptr, 0, &needed, nullptr));
  std::vector<uint8_t> image(needed), copy(needed);
  EXPECT_OK(dsv4_session_save_memory(saved, image.data(), needed, &needed, nullptr));
  EXPECT_OK(dsv4_session_save(saved, kFile, nullptr, nullptr, nullptr));
  const auto loaded = [&](dsv4_status status) {
    if (status != DSV4_OK) return goes_on(status);
    ExpectContinues(session, world.long_prompt, saved_straight);
    dsv4_session_close(session);
  };
  RefuseEach({"save_memory", [] {},
              [&](dsv4_error** error) {
                return dsv4_session_save_memory(saved, copy.data(), needed, &needed, error);
              },
              [&](dsv4_status status) { EXPECT(status != DSV4_OK || copy == image); }},
             most);
  RefuseEach(
      {"save", [] {},
       [&](dsv4_error** error) { return dsv4_session_save(saved, kFile, nullptr, nullptr, error); },
       [](dsv4_status) {}},
      most);
  RefuseEach({"load_memory", ask,
              [&](dsv4_error** error) {
                return dsv4_session_load_memory(session, image.data(), needed, error);
              },
              loaded},
             most);
  RefuseEach({"load", ask,
              [&](dsv4_error** error) {
                return dsv4_session_load(session, kFile, nullptr, nullptr, error);
              },
              loaded},
             most);
  std::remove(kFile);
  dsv4_session_close(saved);
  RefuseEach(
      {"fork", ask, [&](dsv4_error** error) { return dsv4_session_fork(session, &fork, error); },
       [&](dsv4_status status) {
         if (status == DSV4_OK) {
           ExpectContinues(fork, world.prompt, straight);
           dsv4_session_close(fork);
         }
         goes_on(status);
       }},
      most);
  RefuseEach({"close",
              [&] {
                ask();
                EXPECT_OK(dsv4_session_fork(session, &fork, nullptr));
              },
              [&](dsv4_error**) {
                dsv4_session_close(fork);
                return DSV4_OK;
              },
              goes_on},
             most);
  RefuseEach({"rewind", ask,
              [&](dsv4_error** error) {
                return dsv4_session_rewind(session, static_cast<int64_t>(world.prompt.size()),
                                           nullptr, error);
              },
              goes_on},
             most);
  // Parameters that would show in the next token.
  const int32_t forced = 500;
  const char* const stop = "a stop string that is longer than sixteen bytes";
  dsv4_sampling sampling = DSV4_SAMPLING_INIT;
  sampling.forced_tokens = &forced;
  sampling.forced_count = 1;
  sampling.stop_strings = &stop;
  sampling.stop_string_count = 1;
  RefuseEach(
      {"set_sampling", [&] { session = Ask(world, world.prompt); },
       [&](dsv4_error** error) { return dsv4_session_set_sampling(session, &sampling, error); },
       [&](dsv4_status status) {
         if (status != DSV4_OK) return goes_on(status);
         EXPECT(Steps(session, 1).back() == forced);
         dsv4_session_close(session);
       }},
      most);
}

void Ignore(void*, const dsv4_parser_event*) {}

// After memory ran out for a reply, it continues, or is refused until its messages are rendered
// again.
void TestConversation(const World& world, long most) {
  dsv4_session* session = nullptr;
  const auto open = [&] {
    EXPECT_OK(dsv4_session_open(world.engine, nullptr, &session, nullptr));
    EXPECT_OK(dsv4_session_sync_json(session, kMessages, sizeof kMessages - 1, nullptr, nullptr,
                                     nullptr));
  };
  const auto begun = [&] {
    open();
    EXPECT_OK(dsv4_session_step(session, Ignore, nullptr, nullptr, nullptr));
  };
  const auto answers = [&](dsv4_status) {
    dsv4_step_result step = DSV4_STEP_RESULT_INIT;
    char reply[512];
    size_t length = 0;
    while (step.finish == DSV4_FINISH_NONE) {
      const dsv4_status status = dsv4_session_step(session, Ignore, nullptr, &step, nullptr);
      if (status == DSV4_OK) continue;
      EXPECT(status == DSV4_ERR_INVALID_ARGUMENT);
      EXPECT_OK(dsv4_session_sync_json(session, kMessages, sizeof kMessages - 1, nullptr, nullptr,
                                       nullptr));
      step.finish = DSV4_FINISH_NONE;
    }
    EXPECT_OK(dsv4_session_get_reply_json(session, reply, sizeof reply, &length, nullptr));
    EXPECT(std::string(reply, length).find("The capital of France is Paris.") != std::string::npos);
    dsv4_session_close(session);
  };
  for (const std::function<void()>& prepare :
       {std::function<void()>(open), std::function<void()>(begun)}) {
    RefuseEach({"step with events", prepare,
                [&](dsv4_error** error) {
                  return dsv4_session_step(session, Ignore, nullptr, nullptr, error);
                },
                answers},
               most);
  }
  size_t needed = 0;
  begun();
  EXPECT_OK(dsv4_session_save_memory(session, nullptr, 0, &needed, nullptr));
  std::vector<uint8_t> image(needed);
  EXPECT_OK(dsv4_session_save_memory(session, image.data(), needed, &needed, nullptr));
  dsv4_session_close(session);
  RefuseEach({"load_memory of messages", open,
              [&](dsv4_error** error) {
                return dsv4_session_load_memory(session, image.data(), needed, error);
              },
              answers},
             most);
}

// If memory runs out, no grammar is made. Sessions that a grammar constrains continue by its rules.
void TestGrammars(const World& world, long most) {
  static constexpr char kSchema[] =
      R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 9}},
          "required": ["city"], "additionalProperties": false})";
  static constexpr char kTools[] = R"([{"type": "function", "function": {"name": "weather",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])";
  dsv4_grammar* grammar = nullptr;
  const auto opened = [&](dsv4_status status) {
    EXPECT((grammar != nullptr) == (status == DSV4_OK));
    dsv4_grammar_close(grammar);
    grammar = nullptr;
  };
  const auto schema = [&](dsv4_error** error) {
    return dsv4_grammar_open(world.engine, DSV4_GRAMMAR_SCHEMA, kSchema, sizeof kSchema - 1,
                             &grammar, error);
  };
  // The first grammar of an engine makes what all of them share.
  opened(schema(nullptr));
  RefuseEach({"grammar_open_schema", [] {}, schema, opened}, most);
  RefuseEach({"grammar_open_regex", [] {},
              [&](dsv4_error** error) {
                return dsv4_grammar_open(world.engine, DSV4_GRAMMAR_REGEX, "[a-f]{2,9}", 10,
                                         &grammar, error);
              },
              opened},
             most);
  RefuseEach({"grammar_open_ebnf", [] {},
              [&](dsv4_error** error) {
                return dsv4_grammar_open(world.engine, DSV4_GRAMMAR_EBNF,
                                         "root ::= \"yes\" | \"no\"", 21, &grammar, error);
              },
              opened},
             most);
  RefuseEach({"grammar_open_answer of tools", [] {},
              [&](dsv4_error** error) {
                return dsv4_grammar_open_answer(world.engine, kTools, sizeof kTools - 1, nullptr, 0,
                                                nullptr, &grammar, error);
              },
              opened},
             most);

  dsv4_session *session = nullptr, *fork = nullptr;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  const auto ask = [&](int32_t drafts) {
    dsv4_sampling sampling = DSV4_SAMPLING_INIT;
    EXPECT_OK(schema(nullptr));
    session = Ask(world, world.prompt);
    sampling.grammar = grammar;
    sampling.draft_tokens = drafts;
    EXPECT_OK(dsv4_session_set_sampling(session, &sampling, nullptr));
  };
  const auto close = [&] {
    dsv4_session_close(session);
    dsv4_grammar_close(grammar);
    grammar = nullptr;
  };
  ask(0);
  std::string text;
  const Tokens straight = Steps(session, kTokens, &text);
  EXPECT(text.substr(0, 1) == "{");
  close();
  const auto goes_on = [&](dsv4_status) {
    ExpectContinues(session, world.prompt, straight);
    close();
  };
  for (const int32_t drafts : {-1, 3}) {
    RefuseEach({"step by a grammar", [&] { ask(drafts); },
                [&](dsv4_error** error) {
                  return dsv4_session_step(session, nullptr, nullptr, &step, error);
                },
                goes_on},
               most);
  }
  RefuseEach({"fork by a grammar",
              [&] {
                ask(0);
                Steps(session, 2);
              },
              [&](dsv4_error** error) { return dsv4_session_fork(session, &fork, error); },
              [&](dsv4_status status) {
                if (status == DSV4_OK) {
                  ExpectContinues(fork, world.prompt, straight);
                  dsv4_session_close(fork);
                }
                goes_on(status);
              }},
             most);
  ask(0);
  Steps(session, 2);
  size_t needed = 0;
  EXPECT_OK(dsv4_session_save_memory(session, nullptr, 0, &needed, nullptr));
  std::vector<uint8_t> image(needed);
  EXPECT_OK(dsv4_session_save_memory(session, image.data(), needed, &needed, nullptr));
  close();
  RefuseEach({"load_memory of a grammar", [&] { ask(0); },
              [&](dsv4_error** error) {
                return dsv4_session_load_memory(session, image.data(), needed, error);
              },
              goes_on},
             most);
}

// A step that finds no blocks, and the words for it no memory.
void TestBlocks(int32_t threads) {
  World world;
  dsv4_session *session = nullptr, *other = nullptr;
  dsv4_step_result step = DSV4_STEP_RESULT_INIT;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 2048;
  options.cache_tokens = 512;
  options.max_sessions = 2;
  options.threads = threads;
  EXPECT_OK(dsv4_engine_open(kModel, &options, &world.engine, nullptr));
  world.prompt = PromptOf(world, kQuestion);
  for (int i = 0; i < 1500; ++i) world.long_prompt.push_back(20 + i * 7 % 1000);
  other = Ask(world, world.prompt);
  const Tokens straight = Steps(other, kTokens);
  RefuseEach({"a step without blocks", [&] { session = Ask(world, world.long_prompt); },
              [&](dsv4_error** error) {
                return dsv4_session_step(session, nullptr, nullptr, &step, error);
              },
              [&](dsv4_status) {
                dsv4_session_close(session);
                EXPECT_OK(dsv4_session_sync(other, world.prompt.data(), world.prompt.size(),
                                            nullptr, nullptr, nullptr));
                EXPECT(Steps(other, kTokens) == straight);
              },
              DSV4_ERR_OUT_OF_BLOCKS});
  dsv4_session_close(other);
  dsv4_engine_close(world.engine);
}

void TestOpen(int32_t threads) {
  dsv4_engine* engine = nullptr;
  dsv4_engine_options options = DSV4_ENGINE_OPTIONS_INIT;
  options.context_tokens = 512;
  options.threads = threads;
  RefuseEach(
      {"engine_open", [] {},
       [&](dsv4_error** error) { return dsv4_engine_open(kModel, &options, &engine, error); },
       [&](dsv4_status status) {
         EXPECT((status == DSV4_OK) == (engine != nullptr));
         dsv4_engine_close(engine);
         engine = nullptr;
       }});
}

void TestAll() {
  for (const int32_t threads : {1, 4}) {
    TestOpen(threads);
    TestBlocks(threads);
    const World world = OpenWorld(threads);
    dsv4_session* session = Ask(world, world.prompt);
    const Tokens straight = Steps(session, kTokens);
    dsv4_session_close(session);
    TestSteps(world, straight, 0, 0, kAll);
    TestSteps(world, straight, 2, 3, kAll);
    TestStates(world, straight, 2, kAll);
    TestConversation(world, kAll);
    if (stride < 100 || threads == 4) TestGrammars(world, kAll);
    for (const bool counted : {false, true}) {
      if (stride >= 100 && threads == 1) break;  // the long form has time for it
      const Neighbour neighbour(world, straight, counted);
      TestSteps(world, straight, 1, 3, kWithNeighbour);
      if (!counted) TestStates(world, straight, 1, kWithNeighbour);
    }
    dsv4_engine_close(world.engine);
  }
}

}  // namespace

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  stride = std::atol(argv[1]);
  EXPECT(stride >= 1);
  alarm(stride < 100 ? 3600 : 280);  // a call that waits for ever ends the test
  refusing::once = true;
  // What simdjson makes once in a process it does not survive without.
  dsv4_engine_close(OpenWorld(1).engine);
  TestAll();
  EXPECT(refusals > 200);
  return 0;
}
