// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-chat/turn.h"

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "examples/console/amounts.h"
#include "examples/console/progress_bar.h"
#include "examples/console/terminal.h"
#include "examples/dsv4-chat/model.h"

namespace chat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kColumns = 80;

// Statistics, with "; " between them or a new line where the next one would pass column 80.
class Statistics {
 public:
  [[gnu::format(printf, 2, 3)]] void Add(const char* format, ...) {
    char part[2 * kColumns];
    va_list values;
    va_start(values, format);
    std::vsnprintf(part, sizeof part, format, values);
    va_end(values);
    const size_t last_line = text_.size() - (text_.rfind('\n') + 1);
    if (!text_.empty()) text_ += last_line + 2 + std::strlen(part) <= kColumns ? "; " : "\n";
    text_ += part;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// "31.4 tok/s", "20692 tok/s".
std::string RateText(int64_t tokens, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f tok/s", rate < 99.95 ? 1 : 0, rate);
  return text;
}

std::string SizeText(uint64_t bytes) { return BytesText(static_cast<double>(bytes)); }

// Nothing without drafts.
void AddDrafts(const dsv4::SessionStats& stats, Statistics* out) {
  if (stats.draft_steps == 0) return;
  out->Add("drafts %lld of %lld accepted (first ones %.0f %%), %.2f tokens a forward%s",
           static_cast<long long>(stats.accepted_tokens),
           static_cast<long long>(stats.drafted_tokens), 100 * stats.first_acceptance,
           stats.acceptance_length,
           (stats.alarms & DSV4_ALARM_FEW_ACCEPTED) == 0 ? "" : "; given up");
}

// Nothing if the device has all experts in its memory.
void AddExperts(const dsv4::EngineMetrics& metrics, Statistics* out) {
  const uint64_t reads =
      metrics.device_expert_reads + metrics.host_expert_reads + metrics.disk_expert_reads;
  if (reads == 0) return;
  out->Add("experts %.1f %% from the device (%s)",
           100 * static_cast<double>(metrics.device_expert_reads) / static_cast<double>(reads),
           SizeText(metrics.device_read_bytes).c_str());
  const std::string host = SizeText(metrics.host_read_bytes);
  if (metrics.host_read_seconds > 0) {
    out->Add("%s from the host (about %.1f s)", host.c_str(), metrics.host_read_seconds);
  } else {  // not known with the CPU backend
    out->Add("%s from the host", host.c_str());
  }
  out->Add("%llu experts moved", static_cast<unsigned long long>(metrics.moved_experts));
  if (metrics.streamed_bytes > 0) {
    out->Add("%s streamed in %.1f s", SizeText(metrics.streamed_bytes).c_str(),
             metrics.stream_seconds);
  }
  if (metrics.disk_expert_reads > 0) {
    out->Add("%s from disk in %.1f s", SizeText(metrics.disk_read_bytes).c_str(),
             metrics.disk_read_seconds);
  }
}

}  // namespace

TurnEnd RunTurn(const dsv4::Engine& engine, dsv4::Session* session, Screen* screen,
                const std::function<dsv4_finish()>& step) {
  const Clock::time_point start = Clock::now();
  const CancelOnInterrupt cancel(session->get());
  bool recovered = false;
  const auto compute = [&](const auto& call) {
    try {
      return call();
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_DEVICE_LOST || std::exchange(recovered, true)) throw;
      Recover(engine, error, screen);
    }
    return call();
  };
  compute([&] {
    ProgressBar bar("reading", screen->shows_progress());
    session->Prefill(0, bar.Callback());
  });
  TurnEnd end;
  while (end.finish == DSV4_FINISH_NONE && !Interrupted()) {
    try {
      end.finish = compute(step);
    } catch (const dsv4::Error& error) {
      if (error.code() != DSV4_ERR_CANCELLED) throw;
      break;
    }
    if (end.first_token_seconds == 0)
      end.first_token_seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  end.stats = session->stats();
  const dsv4::EngineMetrics metrics = engine.metrics();
  end.measured_tokens_per_second = metrics.measured_decode_tokens_per_second;
  end.predicted_tokens_per_second = metrics.predicted_decode_tokens_per_second;
  return end;
}

std::string StatisticsOf(const dsv4::Engine& engine, const TurnEnd& end) {
  const dsv4::SessionStats& stats = end.stats;
  Statistics out;
  out.Add("prompt %lld tokens (%lld cached + %lld new) at %s",
          static_cast<long long>(stats.prompt_tokens), static_cast<long long>(stats.cached_tokens),
          static_cast<long long>(stats.prompt_tokens - stats.cached_tokens),
          RateText(stats.prefilled_tokens, stats.prefill_seconds).c_str());
  out.Add("generated %lld at %s", static_cast<long long>(stats.generated_tokens),
          RateText(stats.generated_tokens, stats.decode_seconds).c_str());
  out.Add("first token %.3f s", end.first_token_seconds);
  out.Add("context %lld/%lld", static_cast<long long>(stats.used_tokens),
          static_cast<long long>(stats.context_tokens));
  const bool rounds_rows = std::strcmp(engine.info().cache_format, "fp8_per_tensor") == 0;
  out.Add("cache %s%s", SizeText(stats.cache_bytes).c_str(),
          rounds_rows ? " (fp8_per_tensor rows)" : "");
  AddDrafts(stats, &out);
  const dsv4::EngineMetrics metrics = engine.metrics();
  AddExperts(metrics, &out);
  if (end.measured_tokens_per_second > 0)
    out.Add("decoding %.1f tok/s so far; predicted %.1f without drafts",
            end.measured_tokens_per_second, end.predicted_tokens_per_second);
  return out.text();
}

}  // namespace chat
