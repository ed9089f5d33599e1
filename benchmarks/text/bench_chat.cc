// SPDX-License-Identifier: Apache-2.0
// Time of a prompt from 1 MB of JSON: reading the messages, rendering them to text and to ids, and
// tokenizing alone. The project promises less than 50 ms besides tokenizing, on one core: reading
// and rendering to text together.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "lib/text/chat_encoder.h"
#include "lib/text/chat_json.h"
#include "tests/lib/text/large_conversation.h"

namespace dsv4 {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr ChatOptions kOptions = {.mode = ThinkingMode::kThinking, .drop_thinking = false};

const Tokenizer& TinyTokenizer() {
  static const auto loaded =
      Tokenizer::Load(DSV4_SOURCE_DIR "/models/dsv4-tiny/tokenizer.json").value();
  return *loaded;
}

std::string Json(benchmark::State& state) {
  static constexpr const char* kLabels[] = {"short_turns", "long_turns", "tool_calls"};
  state.SetLabel(kLabels[state.range(0)]);
  return test::LargeConversation(static_cast<test::ConversationKind>(state.range(0)), kBytes);
}

void BM_ReadAndRenderText(benchmark::State& state) {
  const std::string json = Json(state);
  for (auto _ : state) {
    const auto messages = ParseMessages(json);
    const auto text = RenderChatText(*messages, kOptions);
    benchmark::DoNotOptimize(text->data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(json.size()));
}

void BM_RenderText(benchmark::State& state) {
  const auto messages = ParseMessages(Json(state));
  for (auto _ : state) {
    const auto text = RenderChatText(*messages, kOptions);
    benchmark::DoNotOptimize(text->data());
  }
}

void BM_RenderIds(benchmark::State& state) {
  const auto messages = ParseMessages(Json(state));
  for (auto _ : state) {
    const auto ids = RenderChat(TinyTokenizer(), *messages, kOptions);
    benchmark::DoNotOptimize(ids->data());
  }
}

void BM_Tokenize(benchmark::State& state) {
  const auto messages = ParseMessages(Json(state));
  const std::string text = RenderChatText(*messages, kOptions).value();
  for (auto _ : state) {
    const auto ids = TinyTokenizer().Encode(text);
    benchmark::DoNotOptimize(ids->data());
  }
}

BENCHMARK(BM_ReadAndRenderText)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RenderText)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RenderIds)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Tokenize)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dsv4

BENCHMARK_MAIN();
