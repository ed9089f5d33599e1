// SPDX-License-Identifier: Apache-2.0
// Gates of requests that share the server.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "tools/gates/gates.h"
#include "tools/gates/prompts.h"
#include "tools/gates/stream.h"

namespace gates {
namespace {

constexpr size_t kShortTokens = 48;  // of a prompt

// Decodes until it is left, as far as the context reaches.
Json Endless(const Client& client, const std::vector<int32_t>& prompt) {
  return Continue(prompt, client.context_tokens() - prompt.size() - 1);
}

// Tokens of an answer that have come before a request that shares with it is sent.
constexpr int64_t kUnderWay = 4;

Answer Alone(const Client& client, const std::vector<int32_t>& prompt, size_t output) {
  return client.Stream(kCompletions, Continue(prompt, output));
}

// An answer that was left begins like the same alone.
void ExpectBegun(const Client& client, const std::vector<int32_t>& prompt, const Answer& answer,
                 const std::string& who, Findings* findings) {
  if (!findings->Expect(answer.error.empty(), who + ": " + answer.error)) return;
  const Answer alone = Alone(client, prompt, static_cast<size_t>(answer.tokens()));
  findings->ExpectSame(answer, alone, who);
}

size_t LongTokens(const Options& options) { return options.depths.back(); }

}  // namespace

void DecodeThenLong(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  const std::vector<int32_t> short_prompt = Prompt(client, kShortTokens, options.seed);
  const std::vector<int32_t> long_prompt = Prompt(client, LongTokens(options), options.seed + 1);
  Stream decoder(client, kCompletions, Endless(client, short_prompt));
  findings->Expect(decoder.AwaitTokens(kUnderWay), "the decoding session has ended at once");
  const Answer prefilled = client.Stream(kCompletions, Continue(long_prompt, options.output));
  decoder.Leave();
  const Answer decoded = decoder.Join();
  if (!findings->ExpectWhole(prefilled, options.output, "the long prompt")) return;
  const int64_t during = decoded.TokensBetween(prefilled.begin, prefilled.first());
  const auto least = static_cast<int64_t>(std::max<size_t>(1, LongTokens(options) / options.chunk));
  findings->measured = {{"prompt_tokens", LongTokens(options)},
                        {"decoded_meanwhile", during},
                        {"ttft_ms", 1e3 * (prefilled.first() - prefilled.begin)}};
  findings->Expect(during >= least, "the decoding session got " + std::to_string(during) +
                                        " tokens while the long prompt was computed, not " +
                                        std::to_string(least));
  findings->ExpectSame(prefilled, Alone(client, long_prompt, options.output), "the long prompt");
  ExpectBegun(client, short_prompt, decoded, "the decoding session", findings);
}

void LongThenShort(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  const std::vector<int32_t> short_prompt = Prompt(client, kShortTokens, options.seed + 2);
  const std::vector<int32_t> long_prompt = Prompt(client, LongTokens(options), options.seed + 3);
  Stream before(client, kCompletions, Continue(long_prompt, options.output));
  // Until the long one has reached the server.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Answer quick = client.Stream(kCompletions, Continue(short_prompt, options.output));
  const Answer slow = before.Join();
  if (!findings->ExpectWhole(quick, options.output, "the short request") ||
      !findings->ExpectWhole(slow, options.output, "the long prompt"))
    return;
  findings->measured = {{"prompt_tokens", LongTokens(options)},
                        {"short_ttft_ms", 1e3 * (quick.first() - quick.begin)},
                        {"long_ttft_ms", 1e3 * (slow.first() - slow.begin)}};
  if (!findings->Expect(slow.first() > quick.begin,
                        "the long prompt was computed before the short one was sent: raise "
                        "--depths"))
    return;
  findings->Expect(quick.first() < slow.first(), "the short request waited for the long prompt");
  findings->ExpectSame(quick, Alone(client, short_prompt, options.output), "the short request");
  findings->ExpectSame(slow, Alone(client, long_prompt, options.output), "the long prompt");
}

void StreamingPressure(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  constexpr size_t kPrompts = 4;
  constexpr double kPause = 0.002;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Answer> alone;
  for (size_t i = 0; i < kPrompts; ++i) {
    prompts.push_back(Prompt(client, kShortTokens + 7 * i, options.seed + 10 + i));
    alone.push_back(Alone(client, prompts.back(), options.output));
    if (!findings->ExpectWhole(alone.back(), options.output, "a request alone")) return;
  }
  // Of four clients one reads slowly and one leaves in the middle.
  std::vector<std::unique_ptr<Stream>> streams;
  for (size_t i = 0; i < options.requests; ++i)
    streams.push_back(std::make_unique<Stream>(client, kCompletions,
                                               Continue(prompts[i / 4 % kPrompts], options.output),
                                               i % 4 == 1 ? kPause : 0));
  for (size_t i = 2; i < streams.size(); i += 4) {
    streams[i]->AwaitTokens(static_cast<int64_t>(options.output) / 2);
    streams[i]->Leave();
  }
  size_t whole = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    const Answer answer = streams[i]->Join();
    if (i % 4 == 2) continue;
    const std::string who = i % 4 == 1 ? "a slow reader" : "a stream";
    if (findings->ExpectWhole(answer, options.output, who) &&
        findings->ExpectSame(answer, alone[i / 4 % kPrompts], who))
      ++whole;
  }
  findings->measured = {{"streams", options.requests}, {"whole", whole}};
  // The server has its sessions back.
  const Answer after = Alone(client, prompts[0], options.output);
  if (findings->ExpectWhole(after, options.output, "a request afterwards"))
    findings->ExpectSame(after, alone[0], "a request afterwards");
}

void PrefixStress(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  const size_t shared = LongTokens(options);
  const std::vector<int32_t> prefix = Prompt(client, shared, options.seed + 20);
  const auto prompt = [&](size_t i) {
    std::vector<int32_t> tokens = prefix;
    const std::vector<int32_t> own = Prompt(client, kShortTokens, options.seed + 30 + i);
    // Also such as part from the prefix before its end.
    tokens.resize(shared - i % 3 * (shared / 8));
    tokens.insert(tokens.end(), own.begin(), own.end());
    return tokens;
  };
  const Json first = Continue(prompt(0), options.output);
  const std::string salt = first["cache_salt"];
  if (!findings->ExpectWhole(client.Stream(kCompletions, first), options.output,
                             "the first prompt"))
    return;
  std::vector<Json> requests;
  for (size_t i = 0; i < options.requests; ++i)
    requests.push_back(Continue(prompt(i), options.output, salt));
  const std::vector<Answer> warm = StreamAll(client, kCompletions, requests);
  int64_t least_cached = static_cast<int64_t>(shared);
  for (size_t i = 0; i < warm.size(); ++i) {
    const std::string who = "prompt " + std::to_string(i);
    if (!findings->ExpectWhole(warm[i], options.output, who)) continue;
    least_cached = std::min(least_cached, warm[i].cached_tokens);
    findings->Expect(warm[i].cached_tokens >= static_cast<int64_t>(shared) / 2,
                     who + ": cached_tokens is " + std::to_string(warm[i].cached_tokens) + " of " +
                         std::to_string(shared));
  }
  // Some of them without the cache: prompts that end at each of the places.
  constexpr size_t kCold = 3;
  for (size_t i = 0; i < std::min(kCold, warm.size()); ++i) {
    const Answer cold = Alone(client, prompt(i), options.output);
    const std::string who = "prompt " + std::to_string(i);
    findings->Expect(cold.cached_tokens <= 0, who + ": reuses tokens of another cache_salt");
    findings->ExpectSame(warm[i], cold, who);
  }
  findings->measured = {
      {"prefix_tokens", shared}, {"prompts", options.requests}, {"least_cached", least_cached}};
}

void ConcurrencyIdentity(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  const auto request = [&](size_t i) {
    Json body = Continue(Prompt(client, kShortTokens + i % 4 * kShortTokens, options.seed + 50 + i),
                         options.output);
    if (i % 2 == 1) body.update({{"temperature", 0.8}, {"seed", 1000 + i}});
    return body;
  };
  std::vector<Answer> alone;
  std::vector<Json> requests;
  for (size_t i = 0; i < options.requests; ++i) {
    alone.push_back(client.Stream(kCompletions, request(i)));
    if (!findings->ExpectWhole(alone.back(), options.output, "a request alone")) return;
    requests.push_back(request(i));
  }
  const std::vector<Answer> together = StreamAll(client, kCompletions, requests);
  size_t same = 0;
  for (size_t i = 0; i < together.size(); ++i) {
    const std::string who =
        std::string(i % 2 == 1 ? "sampled" : "greedy") + " request " + std::to_string(i);
    if (findings->ExpectWhole(together[i], options.output, who) &&
        findings->ExpectSame(together[i], alone[i], who))
      ++same;
  }
  findings->measured = {{"requests", options.requests}, {"same", same}};
}

void Fairness(const Client& client, Findings* findings) {
  const Options& options = findings->options;
  // The same text for all: drafts help each of them alike.
  const std::vector<int32_t> prompt = Prompt(client, kShortTokens, options.seed + 70);
  std::vector<std::unique_ptr<Stream>> decoders;
  for (size_t i = 0; i < options.decoders; ++i)
    decoders.push_back(std::make_unique<Stream>(client, kCompletions, Endless(client, prompt)));
  for (const auto& decoder : decoders)
    findings->Expect(decoder->AwaitTokens(kUnderWay), "a decoding session has ended at once");
  std::vector<Json> requests;
  for (size_t i = 0; i < options.long_prompts; ++i)
    requests.push_back(
        Continue(Prompt(client, LongTokens(options), options.seed + 71 + i), options.output));
  const std::vector<Answer> prompts = StreamAll(client, kCompletions, requests);
  for (const auto& decoder : decoders) decoder->Leave();
  double begin = 0, end = 0;
  for (const Answer& answer : prompts) {
    findings->ExpectWhole(answer, options.output, "a long prompt");
    begin = std::max(begin, answer.begin);
    end = std::max(end, answer.first());
  }
  std::vector<int64_t> tokens;
  for (const auto& decoder : decoders) {
    const Answer decoded = decoder->Join();
    findings->Expect(decoded.error.empty(), "a decoding session: " + decoded.error);
    tokens.push_back(decoded.TokensBetween(begin, end));
  }
  const auto [slowest, fastest] = std::minmax_element(tokens.begin(), tokens.end());
  const double share =
      *fastest == 0 ? 0 : static_cast<double>(*slowest) / static_cast<double>(*fastest);
  findings->measured = {{"decoded_meanwhile", tokens}, {"share", share}};
  // Fewer tell nothing: one more or less is the server's or the network's rounding.
  constexpr int64_t kFewest = 10;
  findings->Expect(*fastest >= kFewest,
                   "no decoding session got more than " + std::to_string(*fastest) +
                       " tokens while the long prompts were computed: raise --depths");
  findings->Expect(share >= options.least_share,
                   "the slowest decoding session got " + std::to_string(*slowest) +
                       " tokens, the fastest " + std::to_string(*fastest));
}

}  // namespace gates
