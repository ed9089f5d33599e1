// SPDX-License-Identifier: Apache-2.0
// Bytes per second of the two completion parsers, in pieces of the size of a token (4 bytes) and in
// one piece. The floor that the project promises is 50 MB/s on one core.
#include <benchmark/benchmark.h>

#include <string>

#include "lib/text/completion_parser.h"
#include "lib/text/streaming_parser.h"

namespace dsv4 {
namespace {

constexpr size_t kBytes = 1 << 20;
constexpr size_t kTokenBytes = 4;

enum Text { kEnglish, kChinese, kToolCalls, kNoise };

std::string Repeated(const std::string& unit) {
  std::string text;
  while (text.size() < kBytes) text += unit;
  return text;
}

std::string TextOf(int64_t kind) {
  const std::string parameters =
      "<｜DSML｜parameter name=\"path\" string=\"true\">src/main.cc</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"text\" string=\"true\">int main() {\n  return \"a\" < 1;\n}\n"
      "</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"lines\" string=\"false\">[1, 20, {\"a\": null}]"
      "</｜DSML｜parameter>\n";
  switch (kind) {
    case kEnglish:
      return Repeated("The quick brown fox jumps over the lazy dog, if (a < b) it may.\n\n") +
             "</think>Done.<｜end▁of▁sentence｜>";
    case kChinese:
      return Repeated("天气很好，我们去公园吧。“好的”，他说；") + "</think>好<｜end▁of▁sentence｜>";
    case kToolCalls:
      return "</think>\n\n<｜DSML｜tool_calls>\n" +
             Repeated("<｜DSML｜invoke name=\"edit\">\n" + parameters + "</｜DSML｜invoke>\n") +
             "</｜DSML｜tool_calls><｜end▁of▁sentence｜>";
    default:
      return Repeated("\n\n<｜DSML｜tool_call") + "</think><｜end▁of▁sentence｜>";
  }
}

void SetCounters(benchmark::State& state, const std::string& text) {
  static constexpr const char* kLabels[] = {"english", "chinese", "tool_calls", "half_markers"};
  state.SetLabel(kLabels[state.range(0)]);
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
}

void Stream(benchmark::State& state, size_t piece_bytes) {
  const std::string text = TextOf(state.range(0));
  StreamingParser parser({.mode = ThinkingMode::kThinking});
  size_t delivered = 0;
  const auto count = [&](const ParserEvent& event) { delivered += event.text.size(); };
  for (auto _ : state) {
    for (size_t i = 0; i < text.size(); i += piece_bytes) {
      parser.Feed(absl::string_view(text).substr(i, piece_bytes), count);
    }
    parser.End(count);
  }
  benchmark::DoNotOptimize(delivered);
  SetCounters(state, text);
}

void BM_StreamTokens(benchmark::State& state) { Stream(state, kTokenBytes); }
void BM_StreamWhole(benchmark::State& state) { Stream(state, kBytes * 2); }

void BM_ParseCompletion(benchmark::State& state) {
  const std::string text = TextOf(state.range(0));
  for (auto _ : state) {
    const auto message = ParseCompletion(text, ThinkingMode::kThinking);
    benchmark::DoNotOptimize(message.ok());
  }
  SetCounters(state, text);
}

BENCHMARK(BM_StreamTokens)->DenseRange(kEnglish, kNoise)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_StreamWhole)->DenseRange(kEnglish, kNoise)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ParseCompletion)->DenseRange(kEnglish, kToolCalls)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace dsv4

BENCHMARK_MAIN();
